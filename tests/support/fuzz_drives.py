# SPDX-License-Identifier: Apache-2.0
"""Small drives of data sets for scripts/fuzz.py: one file of a drive is altered, then all of the drive is read."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import tiny_argoverse2
import tiny_colmap
import tiny_kitti360
import tiny_ncore
import tiny_nuscenes
import tiny_pandaset
import tiny_waymo
from mutations import BINARY, TEXT, applied, overwrite, steps_of

from nurec_lite.capture.argoverse2.read import read_argoverse2
from nurec_lite.capture.check import check_capture
from nurec_lite.capture.colmap.read import read_colmap
from nurec_lite.capture.kitti360.read import read_kitti360
from nurec_lite.capture.ncore.read import read_ncore
from nurec_lite.capture.nuscenes.read import read_nuscenes
from nurec_lite.capture.origin import recentred
from nurec_lite.capture.pandaset import read as pandaset
from nurec_lite.capture.plausible import in_time, plausible
from nurec_lite.capture.types import Capture
from nurec_lite.capture.waymo.read import read_waymo

Steps = list[Any]
TEXTS = (".json", ".yaml", ".txt")


@contextmanager
def smaller(module: ModuleType, **values: int) -> Iterator[None]:
    """Sizes of the drive that a module writes."""
    before = {name: getattr(module, name) for name in values}
    try:
        for name, value in values.items():
            setattr(module, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


def write_pandaset(root: Path) -> None:
    pandaset.WIDTH, pandaset.HEIGHT = tiny_pandaset.SIZE
    with smaller(tiny_pandaset, FRAMES=2, STEPS=24):
        tiny_pandaset.write_sequence(root)


def write_nuscenes(root: Path) -> None:
    with smaller(tiny_nuscenes, SWEEPS=3, COLUMNS=24):
        tiny_nuscenes.write_scene(root)


def write_argoverse2(root: Path) -> None:
    with smaller(tiny_argoverse2, SWEEPS=2, STEPS=24):
        tiny_argoverse2.write_log(root)


def write_waymo(root: Path) -> None:
    with smaller(tiny_waymo, FRAMES=2):
        tiny_waymo.write_segment(root)


def write_colmap(root: Path) -> None:
    """Binary and text in one: the reader takes the one that is there."""
    with smaller(tiny_colmap, FRAMES=3):
        tiny_colmap.write_project(root / "binary")
        tiny_colmap.write_project(root / "text", text=True)


def write_kitti360(root: Path) -> None:
    with smaller(tiny_kitti360, STEPS=60):
        tiny_kitti360.write_drive(root)


def write_ncore(root: Path) -> None:
    tiny_ncore.write_sequence(root)


def read_both(root: Path) -> Capture:
    read_colmap(root / "text", rate=5)
    return read_colmap(root / "binary", rate=5)


@dataclass(frozen=True)
class Drive:
    write: Callable[[Path], None]
    read: Callable[[Path], Capture]


DRIVES = {
    "PandaSet": Drive(write_pandaset, lambda root: pandaset.read_pandaset(root / "007")),
    "nuScenes": Drive(write_nuscenes, lambda root: read_nuscenes(root, drive=tiny_nuscenes.NAME)),
    "KITTI-360": Drive(write_kitti360, lambda root: read_kitti360(root, drive=tiny_kitti360.NAME)),
    "NCore": Drive(write_ncore, read_ncore),
    "COLMAP": Drive(write_colmap, read_both),
}
if find_spec("pyarrow"):
    DRIVES |= {
        "Argoverse 2": Drive(write_argoverse2, read_argoverse2),
        "Waymo": Drive(write_waymo, lambda root: read_waymo(root, lidars=["TOP", "REAR_LIDAR"])),
    }


def draw(rng: random.Random) -> Steps:
    number, count = rng.getrandbits(24), rng.randint(1, 4)
    both = zip(steps_of(rng, count, BINARY), steps_of(rng, count, (*BINARY, *TEXT, *TEXT)), strict=True)
    return [(number, binary, text) for binary, text in both]


@lru_cache(maxsize=len(DRIVES))
def files_of(name: str, folder: Path) -> dict[str, bytes]:
    root = folder / name
    DRIVES[name].write(root)
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*.*")) if path.is_file()}


def run(name: str, folder: Path, steps: Steps) -> None:
    files, root = files_of(name, folder), folder / name
    file = list(files)[(steps[0][0] if steps else 0) % len(files)]
    overwrite(root / file, applied(files[file], [step[2 if file.endswith(TEXTS) else 1] for step in steps]))
    try:
        capture = plausible(in_time(DRIVES[name].read(root), name), name)
        check_capture(recentred(capture), name)
        for frame in (*capture.images, *capture.sweeps):
            frame.load()
    finally:
        overwrite(root / file, files[file])
