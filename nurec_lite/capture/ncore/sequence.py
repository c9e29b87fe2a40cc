# SPDX-License-Identifier: Apache-2.0
"""One sequence of NCore v4: the stores that it is spread over, its components, and its clock.

A folder may hold several sequences; files of one are called NAME.ncore4.zarr.itar, NAME.ncore4-GROUP.zarr.itar, or without .itar where
they are folders. A JSON file may list the stores of one.
"""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nurec_lite.base.texts import parse_json
from nurec_lite.capture.choice import chosen_drive
from nurec_lite.capture.files import read_bytes, short
from nurec_lite.capture.ncore.fields import field, stamp
from nurec_lite.capture.ncore.own import FRAME, KEY, SEQUENCE
from nurec_lite.capture.ncore.store import REMEDY, Store, open_store
from nurec_lite.capture.pack.check import Check, FormatError
from nurec_lite.capture.types import CaptureError

VERSION, COMPONENT_VERSION = "v4", "v1"
_NAME = re.compile(r"(.+?)(\.ncore4(-.+)?)?\.zarr(\.itar)?")
MOST_STORES = 1000


@dataclass(frozen=True, eq=False)
class Part:
    """A group of a store: a component, such as a camera."""

    store: Store
    group: str

    def __str__(self) -> str:
        return f"{self.store.path}: {self.group}"

    def attributes(self, inner: str = "") -> dict[str, Any]:
        return self.store.attributes(f"{self.group}/{inner}".rstrip("/"))


@dataclass(frozen=True, eq=False)
class Sequence:
    name: str  # sequence_id
    where: Path  # for messages
    stores: tuple[Store, ...]
    own: dict[str, Any] | None  # notes of `pack format=ncore`
    zero: int  # microseconds at the capture's time 0
    absent: tuple[str, ...] = ()  # stores that a list names and that are not there

    def seconds(self, stamp: int) -> float:
        return (stamp - self.zero) * 1e-6

    def parts(self, component: str) -> dict[str, Part]:
        """Returns the instances of a component by their names: cameras, lidars, poses, intrinsics, masks, cuboids."""
        found: dict[str, Part] = {}
        for store in self.stores:
            for name in store.members(component):
                part = Part(store, f"{component}/{name}")
                version = part.attributes().get("component_version")
                if version != COMPONENT_VERSION:
                    raise CaptureError(
                        f"{part} has the version '{short(version)}', but {COMPONENT_VERSION} is read; write it again with ncore 19"
                    )
                if name in found:
                    raise CaptureError(f"{part} is also in {found[name].store.path.name}; remove one of the stores")
                found[name] = part
        return {name: found[name] for name in self._ordered(component, found)}

    def _ordered(self, component: str, names: Iterable[str]) -> list[str]:
        """Returns sensors in our order of writing; others by name."""
        rows = self.own[component] if self.own and component in ("cameras", "lidars") else ()
        order = [row if isinstance(row, str) else row["name"] for row in rows]
        return sorted(names, key=lambda name: (order.index(name) if name in order else len(order), name))

    def part(self, component: str) -> Part | None:
        """Returns the instance that is called default, or the only one; None where there is none."""
        found = self.parts(component)
        return found.get("default") or (next(iter(found.values())) if len(found) == 1 else None)


def open_sequence(
    root: Path,  # a store, a JSON that lists stores, or a folder of them
    name: str | None,  # of a sequence in the folder, or its place among them
) -> Sequence:
    listed = _stores_of(root, name)
    paths = [path for path in listed if os.path.lexists(path)] or listed
    if len(paths) > MOST_STORES:
        raise CaptureError(
            f"{root} holds {len(paths)} stores of one sequence, more than {MOST_STORES}; correct data.root"
        )
    stores = tuple(open_store(path) for path in paths)
    known = [_known(store) for store in stores]
    for store, (sequence, *_) in zip(stores, known, strict=True):
        if sequence != known[0][0]:
            raise CaptureError(
                f"{store.path} is of the sequence '{short(sequence)}', not '{short(known[0][0])}'; move it away"
            )
    sequence, start, own = known[0]
    absent = tuple(path.name for path in listed if path not in paths)
    return Sequence(sequence, Path(root), stores, own, start if own is None else own["zero_us"], absent)


def _known(store: Store) -> tuple[str, int, dict[str, Any] | None]:
    """Returns the sequence, its first microsecond, and our own record."""
    root, where = store.attributes(""), str(store.path)
    if root.get("version") != VERSION:
        raise CaptureError(
            f"{where} has NCore's version '{short(root.get('version'))}', but {VERSION} is read; convert it to v4"
        )
    interval = field(root, "sequence_timestamp_interval_us", dict, where)
    own = own_record(field(root, "generic_meta_data", dict, where), SEQUENCE, where)
    return field(root, "sequence_id", str, where), stamp(interval, "start", where), own


def own_record(metadata: dict[str, Any], check: Check, where: str) -> dict[str, Any] | None:
    own = metadata.get(KEY)
    if own is None:
        return None
    try:
        check(own, KEY)
    except FormatError as error:
        raise CaptureError(f"{where}: {error}; write it again with python -m nurec_lite.pack format=ncore") from error
    return dict(own)


def own_frame(part: Part, end: int) -> dict[str, Any] | None:
    """Returns the notes of `pack format=ncore` about a frame."""
    return own_record(part.attributes(f"frames/{end}/generic_data"), FRAME, str(part))


# ---- the files


def _stores_of(root: Path, name: str | None) -> list[Path]:
    if not os.path.lexists(root):
        raise CaptureError(f"{root} does not exist; data.root must be a store of NCore v4, or a folder that holds some")
    if root.suffix == ".json":
        return _listed(root)
    if root.is_file() or _is_store(root):
        return [root]
    found = _grouped(sorted(path for folder in _below(root) for path in _entries(folder) if _is_store(path)))
    if not found:
        raise CaptureError(f"{root} holds no store of NCore v4, such as NAME.ncore4.zarr.itar; correct data.root")
    first = {name: paths[0] for name, paths in found.items()}
    chosen = chosen_drive(first, name, root, "sequences")
    return next(paths for paths in found.values() if paths[0] == chosen)


def _grouped(paths: Iterable[Path]) -> dict[str, list[Path]]:
    """Returns the stores of each sequence by its name, in the order of the names."""
    found: dict[str, list[Path]] = {}
    for path in paths:
        match = _NAME.fullmatch(path.name)
        found.setdefault(match[1] if match else path.name, []).append(path)
    return dict(sorted(found.items()))


def _entries(folder: Path) -> list[Path]:
    try:
        return [Path(entry.path) for entry in os.scandir(folder)]
    except OSError as error:
        raise CaptureError(f"{folder} cannot be read ({error.strerror}); correct data.root") from error


def _below(root: Path) -> list[Path]:
    """Returns the folder, and those in it; NVIDIA's recordings are clips/NAME."""
    inner = _folders(root)
    deeper = [path for folder in inner if folder.name == "clips" for path in _folders(folder)]
    return [root, *inner, *deeper]


def _folders(root: Path) -> list[Path]:
    return [path for path in _entries(root) if path.is_dir() and not _is_store(path)]


def _is_store(path: Path) -> bool:
    return (
        path.name.endswith((".zarr.itar", ".zarr"))
        and not path.name.startswith(".")
        and _NAME.fullmatch(path.name) is not None
    )


def _listed(path: Path) -> list[Path]:
    """Returns the stores that a JSON file with the metadata of a sequence lists; they lie next to it."""
    try:
        known = parse_json(read_bytes(path, REMEDY))
    except ValueError as error:
        raise CaptureError(f"{path} is no JSON ({short(error)}); {REMEDY}") from error
    rows = known.get("component_stores") if isinstance(known, dict) else None
    names = [str(row.get("path")) for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    if not names or not all(_NAME.fullmatch(name) and "/" not in name for name in names):
        raise CaptureError(
            f"{path} lists no stores of NCore v4 in its own folder; name the folder of the stores by data.root"
        )
    return [path.parent / name for name in names]
