# SPDX-License-Identifier: Apache-2.0
"""data.lidars and data.seconds choose a part of a capture of any kind; drives are chosen by name, by first letters or by place."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from pack_parts import make_capture
from tiny_capture import tiny_capture

from nurec_lite.capture.choice import chosen_drive, chosen_sensors
from nurec_lite.capture.pack import read_pack, write_pack
from nurec_lite.capture.types import CaptureError, UnusedFrame
from nurec_lite.capture.without import frame_names, leave_out, left_out
from nurec_lite.config import DataConfig, PosesChoice, TracksChoice
from nurec_lite.geometry.lidar import Sweep
from nurec_lite.readers import read_capture


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> DataConfig:
    """A car that stands, with six frames of each sensor; its lidar is there twice under two names."""
    capture, still = make_capture(), torch.eye(4, dtype=torch.float64)
    images, sweeps = (
        [replace(frame, T_world_rig_start=still, T_world_rig_end=still) for frame in frames]
        for frames in (capture.images, capture.sweeps)
    )
    lidars = (*capture.lidars, replace(capture.lidars[0], name="other"))
    sweeps += [replace(frame, sensor="other") for frame in sweeps]
    path = tmp_path_factory.mktemp("parts") / "drive.pack"
    write_pack(replace(capture, lidars=lidars, images=tuple(images), sweeps=tuple(sweeps)), path)
    return DataConfig(
        kind="pack", root=str(path), poses=PosesChoice(source="capture"), tracks=TracksChoice(source="capture")
    )


def test_lidars_in_the_order_in_which_they_are_asked_for(config: DataConfig) -> None:
    names = [lidar.name for lidar in read_capture(config).lidars]
    for asked in (names[::-1], names[1:], names[:1]):
        found = read_capture(replace(config, lidars=asked))
        assert [lidar.name for lidar in found.lidars] == asked and {f.sensor for f in found.sweeps} == set(asked)
        assert len(found.sweeps) == 6 * len(asked)


def test_a_lidar_that_is_not_there_is_named(config: DataConfig) -> None:
    with pytest.raises(CaptureError, match=r"data.lidars names 'roof', but .* has other, top"):
        read_capture(replace(config, lidars=["roof"]))


@pytest.mark.parametrize("key", ["cameras", "lidars"])
def test_a_list_without_a_name_is_not_all_of_them(config: DataConfig, key: str) -> None:
    with pytest.raises(
        CaptureError, match=rf"data.{key} is an empty list; name a {key[:-1]}, or leave the key out for"
    ):
        read_capture(replace(config, **{key: []}))


def test_seconds_choose_frames_by_their_middles(config: DataConfig) -> None:
    found = read_capture(replace(config, seconds=[0.2, 0.5]))
    frames = (*found.images, *found.sweeps)
    whole = read_capture(config)
    inside = [f for f in (*whole.images, *whole.sweeps) if 0.2 <= f.time_mid < 0.5]
    assert [(f.sensor, f.index) for f in frames] == [(f.sensor, f.index) for f in inside] and len(inside) > 0
    assert len(found.tracks) <= len(whole.tracks)


def test_frames_beyond_the_drive_are_refused_with_its_own(config: DataConfig) -> None:
    with pytest.raises(
        CaptureError, match=r"data.frames=\[50,60\]' holds no frame of .*: its frames are 0 to 5; choose some of these$"
    ):
        read_capture(replace(config, frames=[50, 60]))


def test_seconds_beyond_the_drive_are_refused_with_its_own(config: DataConfig) -> None:
    with pytest.raises(
        CaptureError, match=r"data.seconds is \[50,60\], but the frames of .* last from .* to .*; choose"
    ):
        read_capture(replace(config, seconds=[50.0, 60.0]))


KNOWN = {name: Path(name) for name in ("0a", "0b", "1c", "10")}


@pytest.mark.parametrize(("drive", "found"), [("0b", "0b"), ("1c", "1c"), ("10", "10"), ("2", "1c"), ("3", "10")])
def test_a_drive_by_name_or_place(drive: str, found: str) -> None:
    assert chosen_drive(KNOWN, drive, Path("root"), "logs") == Path(found)


@pytest.mark.parametrize("drive", [None, "", "9", "x", "٣", "9" * 5000, "-1"])
def test_a_drive_that_is_not_there_lists_what_is(drive: str | None) -> None:
    with pytest.raises(CaptureError, match=r"root holds 4 logs \(0a, 0b, 1c, 10\); choose one by data.drive"):
        chosen_drive(KNOWN, drive, Path("root"), "logs")


def test_a_wrong_drive_beside_a_single_one() -> None:
    with pytest.raises(CaptureError, match=r"^data.drive is '3', but root holds 0a alone; leave data.drive out$"):
        chosen_drive({"0a": Path("0a")}, "3", Path("root"), "logs")


def test_sensors_are_chosen_once_each() -> None:
    assert chosen_sensors("data.cameras", ["b", "a", "b"], ("a", "b"), "x") == ("b", "a")
    assert chosen_sensors("data.cameras", None, ("b", "a"), "x") == ("b", "a")
    with pytest.raises(CaptureError, match=r"data.lidars names 'a', but x has none"):
        chosen_sensors("data.lidars", ["a"], (), "x")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"time_start": math.nan}, "lasts from nan s"),
        ({"sensor": "other"}, "is of the sensor 'other', which the capture"),
    ],
)
def test_a_wrong_frame_of_a_capture_in_memory_is_refused_before_parts_are_chosen(
    change: dict[str, Any], said: str
) -> None:
    images = (replace(tiny_capture().images[0], **change), *tiny_capture().images[1:])
    with pytest.raises(CaptureError, match=said):
        read_capture(DataConfig(), source=replace(tiny_capture(), split=None, images=images))


# ---- single frames


def test_single_frames_are_left_out(config: DataConfig) -> None:
    camera, other = (camera.name for camera in read_capture(config).cameras)
    found = read_capture(replace(config, without=[f"{camera}/2", "top/0-3", "top/5"]))
    numbers = {name: [frame.index for frame in frames] for name, frames in found.by_sensor().items()}
    assert numbers == {"top": [4], "other": list(range(6)), camera: [0, 1, 3, 4, 5], other: list(range(6))}
    assert [(frame.sensor, frame.index) for frame in found.left_out if frame.sensor == camera] == [(camera, 2)]


def test_errors_of_a_capture_that_is_read_twice_name_the_key_once() -> None:
    """A capture that was opened in Python is read again where it is trained on."""
    opened = read_capture(DataConfig(), source=read_capture(DataConfig()))
    broken = replace(opened.sweeps[0], load=_broken)
    found = read_capture(DataConfig(), source=replace(opened, sweeps=(broken, *opened.sweeps[1:])))
    with pytest.raises(
        CaptureError, match=rf"^it is broken, or leave the frame out by 'data.without=\[{broken.sensor}/0\]'$"
    ):
        read_capture(DataConfig(), source=found).sweeps[0].load()


def _broken() -> Sweep:
    raise CaptureError("it is broken")


def test_a_pack_knows_the_frames_that_its_source_left_out(config: DataConfig, tmp_path: Path) -> None:
    """Nobody misses them, and their names are not refused."""
    whole = read_pack(Path(config.root or ""))
    kept = tuple(f for f in whole.sweeps if f.sensor == "other" or f.index not in (2, 3))
    unused = (UnusedFrame("top", 2, 12.25), UnusedFrame("top", 3, 12.35))
    write_pack(replace(whole, sweeps=kept, left_out=unused), tmp_path / "fewer.pack")
    fewer = replace(config, root=str(tmp_path / "fewer.pack"))
    assert read_capture(fewer).left_out == unused
    again = read_capture(replace(fewer, without=["top/2", "top/5"]))
    assert sorted(f.index for f in again.left_out) == [2, 3, 5] and len(again.by_sensor()["top"]) == 3
    write_pack(replace(read_pack(tmp_path / "fewer.pack"), lidars=(), sweeps=()), tmp_path / "images.pack")
    assert read_pack(tmp_path / "images.pack").left_out == ()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("top", r"data.without holds 'top', but takes SENSOR/NUMBER or SENSOR/FIRST-LAST, as in 'data.without=\[a/7,a/9-12\]'"),
        ("top/1-", "data.without holds 'top/1-'"),
        ("top/-1", "data.without holds 'top/-1'"),
        ("roof/1", "data.without names 'roof', but drive has a, top"),
        ("top/6", "data.without names top/6, but the frames of top are 0 to 5; choose among these"),
        ("top/3-1", "data.without names top/3-1, but"),
    ],
)  # fmt: skip
def test_frames_that_are_not_there_are_named(asked: str, message: str) -> None:
    with pytest.raises(CaptureError, match=message):
        left_out([asked], {"top": range(6), "a": range(3)}, "drive")


def test_remedies_name_the_frames() -> None:
    """They are taken as they are given, also with names that Hydra must not take apart."""
    assert leave_out("top", [7]) == "leave the frame out by 'data.without=[top/7]'"
    assert leave_out("cam-1", [4, 9, 3, 5]) == "leave the frames out by 'data.without=[cam-1/3-5,cam-1/9]'"
    assert leave_out("front left", [1]) == """leave the frame out by 'data.without=["front left/1"]'"""
    assert leave_out("top", range(0, 40, 2)) == "leave the frames out by data.without"
    names = frame_names("cam-1/b", [3, 4, 7])
    assert left_out(names, {"cam-1/b": range(9)}, "drive") == {"cam-1/b": {3, 4, 7}}
