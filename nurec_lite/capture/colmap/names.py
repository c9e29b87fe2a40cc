# SPDX-License-Identifier: Apache-2.0
"""Camera, and time or number of a frame, from names of images."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from nurec_lite.base.names import clashes, name_flaw
from nurec_lite.capture.colmap.model import Shot
from nurec_lite.capture.types import CaptureError

UNITS = (1.0, 1e-3, 1e-6, 1e-9)  # seconds of a possible unit of Unix time in names
UNIX_2000, UNIX_2100 = 9.4e8, 4.2e9  # seconds
RATE = 10.0  # images a second, where nothing says it
_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?)[^0-9]*$")  # the last number of a name
_LONGEST = 24  # digits


@dataclass(frozen=True)
class Stamped:
    """Seconds and numbers of the images, in their order."""

    times: list[float]
    numbers: list[int]
    guessed: bool  # nothing said how many images a second there are


@dataclass(frozen=True)
class Group:
    """Images of one camera."""

    folder: str
    lens: int
    stem: str  # the common part before the number in their names; empty where that differs
    rows: list[int]  # places of the images


def cameras_by_name(shots: Sequence[Shot]) -> dict[str, list[int]]:
    """Places of the images of each camera.

    Images of one folder and one lens are of one camera, unless their numbers repeat: then the part before the number names the camera.
    """
    groups = [part for rows in _by(range(len(shots)), lambda k: _place(shots[k])) for part in _parts(shots, rows)]
    ways: list[Callable[[int, Group], str]] = [
        lambda k, g: g.folder, lambda k, g: g.stem, lambda k, g: f"{g.folder}_{g.stem}".strip("_"), lambda k, g: f"camera_{g.lens}",
        lambda k, g: f"camera_{k}",
    ]  # fmt: skip
    tries = ([way(k, group) for k, group in enumerate(groups)] for way in ways)
    names = next(found for found in tries if _usable(found))
    return dict(sorted((name, group.rows) for name, group in zip(names, groups, strict=True)))


def _usable(names: list[str]) -> bool:
    return not any(map(name_flaw, names)) and next(clashes(names), None) is None


def _by(rows: Iterable[int], key: Callable[[int], object]) -> list[list[int]]:
    found: dict[object, list[int]] = {}
    for k in rows:
        found.setdefault(key(k), []).append(k)
    return list(found.values())


def _place(shot: Shot) -> tuple[str, int]:
    return PurePosixPath(shot.name).parent.as_posix().strip("./").replace("/", "_"), shot.camera


def _parts(shots: Sequence[Shot], rows: list[int]) -> Iterator[Group]:
    """Groups of the images in one folder with one lens."""
    numbers = [_NUMBER.search(PurePosixPath(shots[k].name).stem) for k in rows]
    repeated = len({match.group(1) for match in numbers if match}) < len(rows)
    for own in _by(rows, lambda k: _stem(shots[k])) if repeated else [rows]:
        stems = {_stem(shots[k]) for k in own}
        yield Group(*_place(shots[own[0]]), stems.pop() if len(stems) == 1 else "", own)


def _stem(shot: Shot) -> str:
    return _NUMBER.sub("", PurePosixPath(shot.name).stem).strip("_-. ")


def stamped(
    shots: Sequence[Shot],
    cameras: Mapping[str, list[int]],  # places of the images of each
    rate: float | None,  # images a second of each camera; None: by the names
    where: object,  # for messages
) -> Stamped:
    texts = [_NUMBER.search(PurePosixPath(shot.name).stem) for shot in shots]
    found = [match.group(1) if match and len(match.group(1)) <= _LONGEST else "" for match in texts]
    if not all(found):
        name = shots[found.index("")].name
        raise CaptureError(
            f"{where}: the name of image '{name[:80]}' holds no number, so that its time is unknown; name images by a number or a time"
        )
    values = [float(text) for text in found]
    unit = next((u for u in UNITS if all(UNIX_2000 < v * u < UNIX_2100 for v in values)), None)
    if unit is not None and rate is None:
        first = min(found, key=float)
        return Stamped([_since(text, first) * unit for text in found], _ranks(cameras.values(), values), False)
    if max(values) >= 1e9 or any(v != int(v) for v in values):
        raise CaptureError(
            f"{where}: names of images hold numbers that are neither frames nor times; rename the images"
        )
    return Stamped([v / (rate or RATE) for v in values], [int(v) for v in values], rate is None)


def _since(text: str, first: str) -> float:
    """The difference, in whole numbers where they are, as those of nanoseconds have more digits than a float."""
    whole = text.isdecimal() and first.isdecimal()
    return float(int(text) - int(first)) if whole else float(text) - float(first)


def _ranks(rows: Iterable[list[int]], values: list[float]) -> list[int]:
    """The place of each image among those of its camera."""
    ranks = [0] * len(values)
    for own in rows:
        for rank, k in enumerate(sorted(own, key=lambda k: values[k])):
            ranks[k] = rank
    return ranks
