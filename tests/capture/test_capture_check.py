# SPDX-License-Identifier: Apache-2.0
"""Captures that make sense pass; each flaw is named, with the sensor, frame or track that has it."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from pack_parts import make_capture, pose
from tiny_capture import tiny_capture

from nurec_lite.base.paths import resource
from nurec_lite.capture.check import check_capture, without_unseen_tracks
from nurec_lite.capture.kitti.raw import read_kitti_raw
from nurec_lite.capture.pack import read_pack
from nurec_lite.capture.types import Capture, CaptureError, Split
from nurec_lite.geometry.tracks import Tracks

CAPTURE = make_capture()
Change = Callable[[Capture], Capture]


def test_good_captures_pass() -> None:
    empty = Capture("empty", (), (), (), (), Tracks.empty())
    for capture in (
        CAPTURE,
        CAPTURE.with_split("side"),
        tiny_capture(),
        read_pack(resource("data/street.pack")),
        empty,
    ):
        check_capture(capture, "here")


def test_kitti_passes(kitti_root: Path) -> None:
    check_capture(read_kitti_raw(kitti_root), "here")


def change(kind: str, place: int, **values: Any) -> Change:
    """Other values for a camera, a lidar, an image or a sweep."""

    def apply(capture: Capture) -> Capture:
        things = list(getattr(capture, kind))
        things[place] = replace(things[place], **values)
        return replace(capture, **{kind: tuple(things)})

    return apply


def tracks(**values: Any) -> Change:
    """Tensors are given by their elements that differ: {index: value}."""

    def apply(capture: Capture) -> Capture:
        changed = {}
        for name, value in values.items():
            if isinstance(value, dict):
                tensor = getattr(capture.tracks, name).clone()
                for index, element in value.items():
                    tensor[index] = element
                value = tensor
            changed[name] = value
        return replace(capture, tracks=replace(capture.tracks, **changed))

    return apply


def bent(row: int, column: int, value: float) -> torch.Tensor:
    T = pose(0).clone()
    T[row, column] = value
    return T


MIRROR = pose(0) @ torch.diag(torch.tensor([1.0, 1.0, -1.0, 1.0], dtype=torch.float64))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (change("cameras", 1, name="front"), "two cameras have the name 'front'"),
        (change("cameras", 1, name=""), "the camera name '' is not 1 to 64 printable"),
        (change("lidars", 0, name="a\nb"), r"the lidar name 'a\\nb' is not 1 to 64 printable"),
        (change("cameras", 0, width=0), "camera front has images of 0x12 pixels"),
        (change("cameras", 0, width=10**5, height=10**5), "camera front has images of 100000x100000 pixels"),
        (change("cameras", 1, fx=math.nan), "camera back has fx, fy = nan, 7 pixels"),
        (change("cameras", 1, fy=-7.0), "camera back has fx, fy = 7, -7 pixels"),
        (change("cameras", 0, distortion=(math.inf, 0, 0, 0, 0)), "camera front has a principal point or a distortion"),
        (change("cameras", 0, T_rig_cam=bent(0, 3, math.nan)), "camera front has a T_rig_cam that is no rigid pose"),
        (change("lidars", 0, T_rig_lidar=torch.eye(3)), "lidar top has a T_rig_lidar that is no rigid pose"),
        (change("lidars", 0, elevations=torch.zeros(0)), r"lidar top has elevations \[0\], but must have"),
        (change("lidars", 0, elevations=torch.tensor([2.0])), r"lidar top has elevations that do not lie within"),
        (change("lidars", 0, max_range=0.0), "lidar top has max_range 0 m"),
        (change("lidars", 0, azimuth_steps=0), "lidar top has azimuth_steps 0"),
        (change("images", 3, sensor="left"), "image 3 is of the sensor 'left', which the capture lacks"),
        (change("sweeps", 3, sensor="front"), "sweep 3 is of the sensor 'front', which the capture lacks"),
        (change("images", 3, index=-1), "image -1 of front has a number below 0"),
        (change("images", 3, time_start=0.5, time_end=0.4), "image 3 of front lasts from 0.5 s to 0.4 s"),
        (change("sweeps", 3, time_end=math.nan), "sweep 3 of top lasts from 0.428571 s to nan s"),
        (
            change("images", 11, time_start=1e9, time_end=1e9),
            "a frame of back at 1e[+]09 s is more than a day later than one of front at 0 s, so that a time is wrong",
        ),
        (change("sweeps", 3, index=2), "sweep 2 of top is there twice"),
        (change("images", 3, time_start=0.2), "image 3 of front begins at 0.2 s, but must begin after image 2, which"),
        (change("images", 3, time_start=2 / 7), "image 3 of front begins at 0.28"),
        (
            change("images", 7, T_world_rig_start=bent(3, 0, 1.0)),
            "T_world_rig_start of image 1 of back is no rigid pose",
        ),
        (change("images", 0, T_world_rig_end=bent(1, 1, 2.0)), "T_world_rig_end of image 0 of front is no rigid pose"),
        (change("sweeps", 0, T_world_rig_end=MIRROR), "T_world_rig_end of sweep 0 of top is no rigid pose"),
        (change("sweeps", 5, T_world_rig_end=bent(2, 3, 1e30)), "T_world_rig_end of sweep 5 of top is no rigid pose"),
        (tracks(ids=("7", "7")), "two tracks have the name '7'"),
        (tracks(classes=("Car",)), "tracks.classes has 1 entries for 2 tracks"),
        (tracks(classes=("Car", "x" * 65)), "the class name 'x+ is not 1 to 64"),
        (tracks(sizes=torch.ones(3, 3)), r"tracks.sizes has the shape \[3, 3\], but must have \[2, 3\]"),
        (tracks(sizes={(1, 2): 0.0}), r"track a \(Tram\) has a size that is not positive"),
        (tracks(sizes={(1, 2): 1e30}), r"tracks.sizes holds a number that is not within \+-1000"),
        (tracks(translations={(0, 0): math.nan}), "tracks.translations holds a number that is not within"),
        (tracks(times={0: math.inf}), "tracks.times holds a number that is not within"),
        (tracks(offsets=(0, 3, 2)), "tracks.offsets must rise from 0 to 3"),
        (tracks(offsets=(0, 0, 3)), "tracks.offsets must rise from 0 to 3"),
        (tracks(offsets=(0, 3)), "tracks.offsets must rise from 0 to 3, the number of keyframes, with 3 entries"),
        (tracks(offsets=()), "tracks.offsets must rise from 0 to 3"),
        (tracks(offsets=(1, 2, 3)), "tracks.offsets must rise from 0 to 3"),
        (tracks(quaternions={2: 0.0}), r"track a \(Tram\) has a quaternion of a length other than 1"),
        (tracks(times={1: 0.1}), r"track 7 \(Car\) has times that do not increase"),
        (tracks(margin=math.nan), "tracks.margin is nan s"),
        (tracks(margin=None), "tracks.margin is None, but must be a number of seconds"),
        (lambda c: replace(c, points=torch.zeros(4, 2)), r"points have the shape \[4, 2\], but must have \[n, 3\]"),
        (lambda c: replace(c, points=torch.full((1, 3), math.nan)), "points hold a number that is not within"),
        (
            lambda c: replace(c, poses_from="here"),
            "poses_from is 'here', but must be one of given, positioned, unknown",
        ),
        (lambda c: replace(c, origin=(0, 0, math.inf)), r"origin is \(0, 0, inf\), but must be three numbers"),
        (tracks(times={2: 9.0}), r"track a \(Tram\) lasts from 9 s to 9 s, where no frame of the capture is"),
        (tracks(times={2: -0.07}), r"track a \(Tram\) lasts from -0.07 s to -0.07 s, where no frame"),
        (lambda c: replace(c, images=(), sweeps=()), r"track 7 \(Car\) lasts from 0.1 s to 0.2 s, where no frame"),
        (lambda c: replace(c, name=" \t"), r"the capture name ' \\t' is not"),
        (lambda c: replace(c, split=Split("interp", (0, 1), (1,), (), ())), "split 'interp' names images twice"),
        (
            lambda c: replace(c, split=Split("interp", (0,), (1,), (6,), ())),
            "split 'interp' names sweeps twice, or such",
        ),
    ],
)
def test_flaws(change: Change, message: str) -> None:
    with pytest.raises(CaptureError, match=f"^drive.pack: {message}") as error:
        check_capture(change(CAPTURE), "drive.pack")
    assert str(error.value).isprintable() and "; correct it where" in str(error.value)


def test_margin_of_a_track_counts() -> None:
    check_capture(tracks(times={2: -0.05})(CAPTURE), "here")
    check_capture(tracks(times={2: 5 / 7 + 0.1 + 0.05})(CAPTURE), "here")


def test_tracks_of_a_shortened_capture() -> None:
    assert same_tracks(without_unseen_tracks(CAPTURE).tracks, CAPTURE.tracks)
    short = replace(CAPTURE, images=CAPTURE.images[4:6], sweeps=CAPTURE.sweeps[4:])
    with pytest.raises(CaptureError, match="where no frame of the capture is"):
        check_capture(short, "here")
    check_capture(without_unseen_tracks(short), "here")
    assert len(without_unseen_tracks(short).tracks) == 0
    later = replace(
        CAPTURE, images=CAPTURE.images[2:3], sweeps=()
    )  # at 0.286 to 0.316 s: track a, 0.33 s, with its margin
    kept = without_unseen_tracks(later).tracks
    assert kept.ids == ("a",) and kept.classes == ("Tram",) and kept.offsets == (0, 1)
    assert torch.equal(kept.translations, CAPTURE.tracks.translations[2:])
    check_capture(without_unseen_tracks(later), "here")


def same_tracks(a: Tracks, b: Tracks) -> bool:
    values = [(getattr(a, f), getattr(b, f)) for f in Tracks.__dataclass_fields__]
    return all(torch.equal(x, y) if isinstance(x, torch.Tensor) else x == y for x, y in values)
