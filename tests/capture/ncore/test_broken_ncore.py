# SPDX-License-Identifier: Apache-2.0
"""Stores of NCore that are damaged, or made to harm, are refused in one sentence: no pickle runs, and no size is believed."""

import io
import lzma
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ncore")
import cbor2
from hypothesis import given, settings
from hypothesis import strategies as st
from mutations import bounded_memory, mutated, overwrite, read_or_refuse
from ncore_damage import changed_metadata, read_whole
from tiny_ncore import NAME, START, write_sequence

from nurec_lite.capture.ncore import cbor
from nurec_lite.capture.ncore.cbor import DEEPEST, decoded, unpacked
from nurec_lite.capture.ncore.read import read_ncore
from nurec_lite.capture.types import CaptureError

Change = Callable[[dict[str, Any]], object]
LAST = START + 100_000
FRAME = f"lidars/top/frames/{LAST}"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    write_sequence(folder)
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def store(folder: Path, group: str = "") -> Path:
    return folder / f"{NAME}.ncore4{group}.zarr.itar"


def metadata(group: str, key: str, **values: Any) -> Callable[[Path], None]:
    """Changes an entry of a store's metadata."""
    return lambda folder: changed_metadata(store(folder, group), lambda known: known[key].update(values))


def removed(group: str, key: str) -> Callable[[Path], None]:
    return lambda folder: changed_metadata(store(folder, group), lambda known: known.pop(key))


def edge(**values: Any) -> Callable[[Path], None]:
    return lambda folder: changed_metadata(
        store(folder), lambda known: known["poses/default/dynamic_poses/.zattrs"]["('rig', 'world')"].update(values)
    )


def box(**values: Any) -> Callable[[Path], None]:
    key = "cuboids/default/cuboids/.zattrs"
    return lambda folder: changed_metadata(
        store(folder), lambda known: known[key]["cuboid_track_observations"][0]["bbox3"].update(values)
    )


def cut(group: str, count: int) -> Callable[[Path], None]:
    return lambda folder: overwrite(store(folder, group), store(folder, group).read_bytes()[:-count])


LENS = "intrinsics/default/cameras/front/.zattrs"
DISTANCES = f"{FRAME}/ray_bundle_returns/distance_m/.zarray"
FLAWS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no stores": (lambda folder: [path.unlink() for path in folder.iterdir()], "holds no store of NCore v4"),
    "no poses": (lambda folder: store(folder).unlink(), "holds no poses"),
    "a store that is cut off": (cut("", 700), "does not end in an index"),
    "an empty store": (lambda folder: overwrite(store(folder), b""), "is no store of NCore v4"),
    "another version": (metadata("", ".zattrs", version="v3"), "has NCore's version 'v3', but v4 is read"),
    "another sequence": (metadata("-top", ".zattrs", sequence_id="other"), "is of the sequence 'other', not 'drive-7'"),
    "no start": (metadata("", ".zattrs", sequence_timestamp_interval_us={"start": -5}), "must be microseconds"),
    "a component of another version": (
        metadata("-front", "cameras/front/.zattrs", component_version="v2"), "has the version 'v2', but v1 is read",
    ),
    "poses that fall in time": (edge(timestamps_us=[5, 4, 3, 2, 1, 0, 9]), "must be rising microseconds"),
    "a pose of words": (edge(poses=["a"] * 7), "must be any x 4 x 4 finite numbers"),
    "a pose that is no rotation": (edge(poses=[[[2.0, 0, 0, 0]] * 4] * 7), "is no rotation and translation"),
    "no way to the world": (removed("", "poses/default/dynamic_poses/.zattrs"), "the way from 'rig' to 'world'"),
    "a sensor without a place": (removed("", "poses/default/static_poses/.zattrs"), "has no fixed place on 'rig'"),
    "no lens": (removed("", LENS), "camera front has no intrinsics"),
    "a box without a size": (box(dim=[0.0, 1.0, 1.0]), "has a box of [0.0, 1.0, 1.0] metres"),
    "a box of another frame": (box(rot=[0.0, 0.0]), "'rot' must be 3 finite numbers"),
    "an image that is missing": (removed("-front", f"cameras/front/frames/{START + 60_000}/image/.zarray"), "it is missing"),
    "an image of a film": (
        metadata("-front", f"cameras/front/frames/{START + 60_000}/image/.zattrs", format="h264"), "has the format 'h264'",
    ),
    "a pickle": (metadata("-top", DISTANCES, filters=[{"id": "pickle"}]), "it has another order, or filters"),
    "objects": (metadata("-top", DISTANCES, dtype="|O"), "it holds no plain numbers"),
    "another packer": (metadata("-top", DISTANCES, compressor={"id": "zlib"}), "it is packed by zlib, but blosc is read"),
    "an array beyond memory": (metadata("-top", DISTANCES, shape=[1 << 20, 1 << 20]), "claims more than 256 MiB"),
    "chunks of nothing": (metadata("-top", DISTANCES, chunks=[0, 0]), "its chunks do not fit its shape"),
    "arrays of unequal lengths": (
        metadata("-top", f"{FRAME}/ray_bundle/direction/.zarray", shape=[1, 3], chunks=[1, 3]), "do not fit one another",
    ),
    "rows beyond the model": (
        lambda folder: changed_metadata(store(folder), lambda known: shortened(known["intrinsics/default/lidars/top/.zattrs"])),
        "has rows or columns that its lidar lacks",
    ),
}  # fmt: skip


def shortened(known: dict[str, Any]) -> None:
    for key in ("row_elevations_rad", "row_azimuth_offsets_rad"):
        known["lidar_model_parameters"][key] = known["lidar_model_parameters"][key][:3]


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_flaw_is_a_sentence(folder: Path, flaw: str) -> None:
    change, said = FLAWS[flaw]
    change(folder)
    with pytest.raises(CaptureError) as refused:
        read_whole(folder)
    assert said in str(refused.value) and "; " in str(refused.value) and str(refused.value).isprintable()


def test_a_missing_package_is_a_sentence(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numcodecs", None)
    with pytest.raises(CaptureError, match="needs the package nvidia-ncore, which is not installed; run pip install"):
        read_ncore(whole)


@given(st.data())
def test_a_damaged_store_is_refused_or_read(whole: Path, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(whole.iterdir())))
    before = path.read_bytes()
    overwrite(path, data.draw(mutated(before)))
    try:
        read_or_refuse(lambda: read_whole(whole), "")
    finally:
        overwrite(path, before)


def packed(data: bytes) -> bytes:
    return lzma.compress(data, lzma.FORMAT_XZ)


BOMBS = {
    "a list of a million million": b"\x9b\x00\x00\x00\xe8\xd4\xa5\x10\x00",
    "lists in lists": b"\x81" * 100_000 + b"\x00",
    "a list of no end": b"\x9f" + b"\x00" * 100,
    "a date": b"\xc1\x1a\x51\x4b\x67\xb0",
    "a text that is cut off": b"\x7a\x7f\xff\xff\xff",
    "a key twice": b"\xa2\x61a\x00\x61a\x00",
    "nothing": b"",
    "two values": b"\x00\x00",
}


@pytest.mark.parametrize("name", BOMBS)
def test_an_index_that_is_none_costs_nothing(name: str) -> None:
    with bounded_memory(1 << 26), pytest.raises(ValueError):
        decoded(BOMBS[name])


def test_a_bomb_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cbor, "LARGEST", 16 << 20)  # xz itself needs 9 MiB
    bomb = packed(bytes(64 << 20))
    with bounded_memory(48 << 20), pytest.raises(ValueError, match="unpacks to more than 16 MiB"):
        unpacked(bomb)


@settings(max_examples=50)
@given(st.recursive(st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text() | st.binary(),
                    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=20))  # fmt: skip
def test_what_cbor_writes_is_read(value: Any) -> None:
    written = io.BytesIO()
    cbor2.dump(value, written)
    assert decoded(written.getvalue()) == value and DEEPEST > 8
