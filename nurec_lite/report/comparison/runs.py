# SPDX-License-Identifier: Apache-2.0
"""The files of finished runs as a comparison reads them. A missing part of a run is a sentence; the others are compared all the same."""

import csv
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml

from nurec_lite.base.errors import UserError
from nurec_lite.base.key_values import assigned, flat
from nurec_lite.base.texts import read_bounded, read_json
from nurec_lite.training.folder import CHECKPOINT, CONFIG, FRAMES, HISTORY, METRICS

T = TypeVar("T")
_LARGEST = 1 << 22  # bytes of a table
_LARGEST_YAML = 1 << 18  # bytes of a configuration, which takes a second to scan
_PROOFS = (METRICS, CONFIG, HISTORY)  # one of these, and the folder is a run or an evaluation
_DEEPEST = 50  # levels of a configuration, or of figures


@dataclass
class Run:
    """A finished run; parts that its folder lacks are empty."""

    name: str  # of its column
    folder: Path
    config: dict[str, Any] = field(default_factory=dict)  # dotted key -> value; options as opt.NAME and opt.NAME.KEY
    metrics: dict[str, Any] = field(default_factory=dict)  # as in metrics.json
    history: list[dict[str, float]] = field(default_factory=list)  # rows of history.csv; NaN where a row lacks a value
    psnrs: dict[str, float] = field(default_factory=dict)  # name of a held-out image's picture -> decibel
    sweeps: list[str] = field(default_factory=list)  # names of held-out sweeps' pictures
    notes: list[str] = field(default_factory=list)  # sentences on unreadable parts


def read_runs(named: Sequence[str]) -> list[Run]:
    """One run for each folder. UserError unless these are at least two different folders of runs."""
    folders = [_folder(name) for name in named]
    _check_different(named, folders)
    return [_read(name, folder) for name, folder in zip(_names(folders), folders, strict=True)]


def _folder(name: str) -> Path:
    """Returns the folder of a run; a file in it, such as its checkpoint, stands for it. UserError if it is no run."""
    try:
        path = Path(name).expanduser()
        folder = path.parent if path.is_file() else path
        known = bool(name) and folder.is_dir() and any((folder / proof).exists() for proof in _PROOFS)
    except (OSError, ValueError, RuntimeError) as error:  # a name that is too long, or a home folder that is not known
        raise UserError(f"'{name}' cannot be opened ({error}); name the folder of a run, such as runs/last") from error
    if not known:
        what = (
            f"holds neither {', '.join(_PROOFS[:-1])} nor {_PROOFS[-1]}" if name and folder.is_dir() else "is no folder"
        )
        raise UserError(f"'{name}' {what}; name the folder that nurec_lite.train wrote, such as runs/last")
    return folder


def _check_different(named: Sequence[str], folders: Sequence[Path]) -> None:
    if len(folders) < 2:
        count = "1 run is" if folders else "no run is"
        raise UserError(f"{count} named, but a comparison needs two or more: python -m nurec_lite.compare RUN RUN")
    seen: dict[Path, str] = {}
    for name, folder in zip(named, folders, strict=True):
        first = seen.setdefault(folder.resolve(), name)
        if first is not name:
            raise UserError(f"'{first}' and '{name}' are one folder; name each run once")


def _names(folders: Sequence[Path]) -> list[str]:
    """The shortest ends of the paths that tell them apart."""
    parts = [folder.resolve().parts for folder in folders]
    longest = max(map(len, parts))
    ends = (["/".join(p[-n:]).replace("//", "/") for p in parts] for n in range(1, longest + 1))
    return next(names for names in ends if len(set(names)) == len(names))


def _read(name: str, folder: Path) -> Run:
    run = Run(name, folder)
    run.config = _part(run, CONFIG, _configuration, "its settings are not compared") or {}
    run.metrics = _part(run, METRICS, _metrics, _measure(folder)) or {}
    run.history = _part(run, HISTORY, _history, "it has no curves") or []
    rows = _part(run, FRAMES, _rows, "its pictures are not shown") or []
    run.psnrs, run.sweeps = _frames(rows)
    return run


def _measure(folder: Path) -> str:
    checkpoint = folder / CHECKPOINT
    if not checkpoint.exists():
        return "it has no figures"
    return f"it has no figures; python -m nurec_lite.evaluate {assigned('checkpoint', str(checkpoint))} measures it"


def _part(run: Run, file: str, read: Callable[[Path], T], lost: str) -> T | None:
    """Contents of a file; None and a sentence in `run.notes` if the file is missing or damaged."""
    path = run.folder / file
    try:
        return read(path)
    except FileNotFoundError:
        run.notes.append(f"{run.name} holds no {file}: {lost}.")
    except (OSError, ValueError, TypeError, yaml.YAMLError, RecursionError) as error:
        said = " ".join(str(error).split())[:200].rstrip(".")
        run.notes.append(f"{file} of {run.name} cannot be read ({said}): {lost}.")
    return None


def _configuration(path: Path) -> dict[str, Any]:
    text = read_bounded(path, _LARGEST_YAML).decode()
    if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text)):  # a few aliases stand for gigabytes
        raise ValueError("it uses an alias (*name)")
    return flat(_mapping(yaml.safe_load(text)))


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("it holds no keys")
    _check_plain(value, 0)
    return value


def _check_plain(value: Any, depth: int) -> None:
    """Raises ValueError for numbers that no float holds, and for values that are nested too deeply."""
    if depth > _DEEPEST:
        raise ValueError("it is nested too deeply")
    if isinstance(value, int) and abs(value) > 2**63:
        raise ValueError(f"it holds a number of {value.bit_length()} bits")
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_plain(one, depth + 1)


def _metrics(path: Path) -> dict[str, Any]:
    return _mapping(read_json(path))


def _rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(read_bounded(path, _LARGEST).decode().splitlines()))


def _history(path: Path) -> list[dict[str, float]]:
    """Rows that say when they are of; ValueError if none does."""
    rows = [{str(key): _number(value) for key, value in row.items()} for row in _rows(path)]
    known = [row for row in rows if math.isfinite(row.get("seconds", math.nan))]
    if rows and not known:
        raise ValueError("it has no column `seconds`")
    return known


def _number(text: Any) -> float:
    try:
        return float(text)
    except (TypeError, ValueError):
        return math.nan


def _frames(rows: list[dict[str, str]]) -> tuple[dict[str, float], list[str]]:
    """Images with their PSNR, and sweeps, by the names of their pictures. A name that leaves the folder is none."""
    images, sweeps = dict[str, float](), list[str]()
    for row in rows:
        sensor, index, psnr = (str(row.get(key)) for key in ("sensor", "index", "psnr"))
        if not index.isdecimal() or "/" in sensor or "\0" in sensor:
            continue
        name = f"{sensor}_{int(index):04d}"
        if psnr:
            images[name] = _number(psnr)
        else:
            sweeps.append(name)
    return images, sweeps
