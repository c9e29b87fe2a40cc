# SPDX-License-Identifier: Apache-2.0
"""Damaged and hostile sequences of PandaSet: each is a sentence with the file and a remedy, and no pickle calls anything."""

import gzip
import json
import os
import pickle
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutations import bounded_memory, hundreds, mutated, overwrite, read_or_refuse
from tiny_pandaset import SIZE, boxes_at, table, write_sequence, write_table

from nurec_lite.capture.check import check_capture
from nurec_lite.capture.pandaset import read
from nurec_lite.capture.pandaset.read import read_pandaset
from nurec_lite.capture.pandaset.tables import read_table
from nurec_lite.capture.types import CaptureError


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "WIDTH", SIZE[0])
    monkeypatch.setattr(read, "HEIGHT", SIZE[1])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sequence(tmp_path_factory.mktemp("whole"))


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole.parent, tmp_path / "copy")) / whole.name


YAML, FRONT, LEFT, SWEEPS = (
    "../static_extrinsic_calibration.yaml",
    "camera/front_camera",
    "camera/left_camera",
    "lidar/timestamps.json",
)
CUBOIDS, WORDS, COLUMNS = "annotations/cuboids/00.pkl", np.array(["a"] * 9, dtype=object), "xyzit"


def text(new: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(new)


def value(change: Callable[[Any], object]) -> Callable[[Path], object]:
    return lambda path: path.write_text(json.dumps(change(json.loads(path.read_text()))))


def cut_off(path: Path) -> None:
    overwrite(path, path.read_bytes()[:500])


def columns(names: Iterable[str], values: object) -> Callable[[Path], object]:
    return lambda path: write_table(path, dict.fromkeys(names, values))


def later(times: list[float]) -> list[float]:
    return [t + 60 for t in times]


def cuboids(**values: object) -> Callable[[Path], object]:
    """Cuboids with one value for all in some columns."""
    return lambda path: write_table(path, boxes_at(0.05) | {name: np.full(3, v, object) for name, v in values.items()})


def shorter(rows: Any) -> object:
    return rows[:-1]


def unturned(rows: Any) -> object:
    return [row | {"heading": dict.fromkeys("wxyz", 0)} for row in rows]


def remove_all(path: Path) -> None:
    for file in path.parent.glob(path.name):
        file.unlink()


FLAWS: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "no calibration": (YAML, Path.unlink, "static_extrinsic_calibration.yaml does not exist; copy it there"),
    "calibration of others": (YAML, text("a: 1"), "/static_extrinsic_calibration.yaml has no extrinsic.transform of"),
    "calibration of 400 digits": (YAML, text(f"a: 1{400 * '0'}"), "is no YAML (a number of 401 digits)"),
    "calibration of 5000 digits": (YAML, text(f"a: 1{5000 * '0'}"), "is no YAML"),
    "calibration that refers to itself": (YAML, text("a: &b [1]\nc: *b"), "uses an alias (*name)"),
    "calibration is no YAML": (YAML, text("a: [1"), "is no YAML"),
    "fewer poses": (f"{FRONT}/poses.json", value(shorter), "has 2 poses, but timestamps.json next to it 3 times"),
    "a pose without a rotation": (f"{FRONT}/poses.json", value(unturned), "must be a list of poses"),
    "times that fall": (SWEEPS, value(lambda v: v[::-1]), "must hold rising times"),
    "a time of 400 digits": (SWEEPS, text(f"[0, 1{400 * '0'}]"), "is no JSON (a number of 401 digits)"),
    "times as text": (SWEEPS, value(lambda v: [str(t) for t in v]), "must be a list of seconds"),
    "more sweeps than times": (SWEEPS, value(shorter), "has 2 times, but 02.pkl.gz lies next to it"),
    "more images than times": (f"{LEFT}/timestamps.json", value(shorter), "has 2 times, but 02.jpg lies next to it"),
    "no sweeps": ("lidar/*.gz", remove_all, "holds no table such as 00.pkl.gz"),
    "no images": (f"{LEFT}/*.jpg", remove_all, "left_camera holds no file"),
    "no focal length": (f"{LEFT}/intrinsics.json", value(lambda v: v | {"fx": 0}), "is no camera of"),
    "intrinsics are a list": (f"{LEFT}/intrinsics.json", text("[1, 2]"), "must have the numbers fx"),
    "times of another sequence": (
        f"{FRONT}/timestamps.json", value(lambda v: [t + 1e5 for t in v]), "has other times than the poses of front_camera; restore",
    ),
    "images a minute later": (f"{LEFT}/timestamps.json", value(later), "left_camera/timestamps.json has other times than the poses"),
    "sweeps a minute later": (SWEEPS, value(later), "lidar/timestamps.json has other times than the poses"),
    "a sweep twice": ("lidar/01.pkl.gz", lambda path: shutil.copy(path, path.with_name("001.pkl.gz")), "for one frame; remove one"),
    "points of another place": ("lidar/00.pkl", columns(COLUMNS, np.full(9, 1e6)), "m from the lidar; restore the poses and times"),
    "cuboids without names": (CUBOIDS, cuboids(uuid=None), "has rows without 'uuid'"),
    "cuboids without classes": (CUBOIDS, cuboids(label=None), "has rows without 'label'"),
    "cuboids that stand by a word": (CUBOIDS, cuboids(stationary="False"), "stationary are no numbers"),
    "no cuboids in their folder": ("annotations/cuboids/*.gz", remove_all, "restore the folder, or remove it"),
    "a table without times": ("lidar/00.pkl", columns("xyzi", np.ones(9)), "has no column 't'"),
    "a table of words": ("lidar/00.pkl", columns(COLUMNS, WORDS), "x, y, z, i, t are no numbers"),
    "points that are not finite": ("lidar/00.pkl", columns(COLUMNS, np.full(9, np.nan)), "are not all finite"),
    "a sweep of zeros": ("lidar/00.pkl", columns(COLUMNS, np.zeros(9)), "holds no point of the Pandar64"),
    "an empty sweep": ("lidar/00.pkl", columns(COLUMNS, np.zeros(0)), "holds no point of the Pandar64"),
    "a table that is cut off": ("lidar/00.pkl.gz", cut_off, "is no table of PandaSet"),
    "cuboids without a label": ("annotations/cuboids/00.pkl", columns(["uuid"], WORDS), "has no column 'label'"),
}  # fmt: skip


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_flaw_is_a_sentence(folder: Path, flaw: str) -> None:
    file, change, said = FLAWS[flaw]
    change(folder / file)
    with pytest.raises(CaptureError) as refused:
        read_pandaset(folder).sweeps[0].load()
    assert said in str(refused.value) and "; " in str(refused.value) and str(refused.value).isprintable()


@pytest.mark.parametrize(("root", "said"), [("nowhere", "does not exist"), ("lidar", "holds no sequence of PandaSet")])
def test_a_folder_that_is_no_sequence(folder: Path, root: str, said: str) -> None:
    with pytest.raises(CaptureError, match=said):
        read_pandaset(folder / root)


def test_a_camera_that_is_not_there(folder: Path) -> None:
    with pytest.raises(
        CaptureError, match=r"data.cameras names 'top_camera', but .* has back_camera, front_camera, left_camera"
    ):
        read_pandaset(folder, cameras=("top_camera",))


# ---- pickles


class Calls:
    def __init__(self, function: Callable[..., object], *given: object) -> None:
        self.reduced = function, given

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.reduced


@pytest.mark.parametrize(
    "call",
    [
        Calls(os.system, "exit 3"),
        Calls(eval, "1/0"),
        Calls(open, "/dev/zero"),
        Calls(np.load, "/dev/zero"),
        Calls(getattr, str, "format"),
    ],
)
def test_a_pickle_calls_nothing_else(tmp_path: Path, call: Calls) -> None:
    path = tmp_path / "00.pkl"
    path.write_bytes(pickle.dumps(call, protocol=4))
    with pytest.raises(CaptureError, match=r"is no part of a table\); copy the file again"):
        read_table(path, ("x",))


def test_a_table_that_unpacks_to_gigabytes(tmp_path: Path) -> None:
    path = tmp_path / "00.pkl.gz"
    with gzip.open(path, "wb", compresslevel=9) as file:
        for _ in range(300):
            file.write(bytes(1 << 20))
    with bounded_memory(500 << 20), pytest.raises(CaptureError, match="unpacks to more than 128 MiB"):
        read_table(path, ("x",))


@pytest.mark.parametrize(
    "steps",
    [
        b"\x80\x04Nr\x72\x72\x72\x72.",
        b"\x80\x04Np1000000000\n.",
        b"\x80\x05\x96" + (1 << 36).to_bytes(8, "little") + b".",
    ],
)
def test_a_pickle_that_asks_for_gigabytes(tmp_path: Path, steps: bytes) -> None:
    """It keeps an object under a huge number, or announces a huge array."""
    path = tmp_path / "00.pkl"
    path.write_bytes(steps)
    with bounded_memory(100 << 20), pytest.raises(CaptureError, match="is no table of PandaSet"):
        read_table(path, ("x",))


@pytest.fixture(scope="module")
def memory() -> Iterator[None]:
    with bounded_memory(400 << 20):
        yield


SMALL = table({k: np.arange(5.0) for k in "xyzit"} | {"label": np.array(["a"] * 5, dtype=object)})


@hundreds
@given(mutated(SMALL))
def test_a_damaged_table_is_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, memory: None, data: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.pkl"
    overwrite(path, data)
    found = read_or_refuse(lambda: read_table(path, tuple("xyzit")), path.name)
    assert found is None or len({len(column) for column in found.values()}) == 1


@given(st.data())
def test_a_damaged_file_of_a_sequence_is_refused_or_read(whole: Path, data: st.DataObject) -> None:
    files = sorted(path for path in whole.rglob("*.*") if path.is_file())
    path = data.draw(st.sampled_from(files))
    before = path.read_bytes()
    overwrite(path, data.draw(mutated(before)))
    try:
        capture = read_or_refuse(lambda: checked(whole), "")
        assert capture is None or capture
    finally:
        overwrite(path, before)


def checked(folder: Path) -> bool:
    capture = read_pandaset(folder)
    check_capture(capture, folder.name)
    for frame in (*capture.images, *capture.sweeps):
        frame.load()
    return True
