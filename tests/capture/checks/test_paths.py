# SPDX-License-Identifier: Apache-2.0
"""Paths that turn at once, jump by little, are a little too long, or are of other times than those of the other sensors."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
from tiny_capture import ROOT
from torch import Tensor
from wrong_poses import posed, scaled, street, with_position

from nurec_lite.capture.checks.cameras import check_cameras
from nurec_lite.capture.checks.driving import check_driving
from nurec_lite.capture.checks.paths import paths_of
from nurec_lite.capture.checks.poses import check_poses
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.turned_path import turn_jumps
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.pack import read_pack
from nurec_lite.capture.trajectory import trajectory_of
from nurec_lite.capture.types import Capture, Frame, ImageFrame
from nurec_lite.geometry.se3 import pose_matrix, rotvec_to_quat


def driving(capture: Capture) -> Verdict:
    (verdict,) = check_driving(Sample(capture, sweeps=6))
    return verdict


def from_frame(change: Callable[[Tensor], Tensor], first: int = 8) -> Capture:
    """The poses of frame 8 and all later ones are changed."""

    def changed(frame: Frame) -> Frame:
        ends = change(frame.T_world_rig_start), change(frame.T_world_rig_end)
        return replace(frame, T_world_rig_start=ends[0], T_world_rig_end=ends[1]) if frame.index >= first else frame

    capture = street()
    return replace(capture, images=tuple(map(changed, capture.images)), sweeps=tuple(map(changed, capture.sweeps)))


def yaw(degrees: float) -> Tensor:
    turn = torch.tensor([0.0, 0.0, math.radians(degrees)], dtype=torch.float64)
    return pose_matrix(rotvec_to_quat(turn), torch.zeros(3, dtype=torch.float64))


@pytest.mark.parametrize("degrees", [3.0, -2.0])
def test_a_path_that_turns_at_once_is_named_with_its_frame(degrees: float) -> None:
    found = driving(from_frame(lambda T: T @ yaw(degrees)))
    assert found.level is Level.LIKELY and found.figures["turn_deg"] == pytest.approx(abs(degrees), abs=0.2)
    assert f"The poses turn by {abs(degrees):.0f}" in found.text and "at once before frame 8 of lidar" in found.text


@pytest.mark.parametrize("metres", [0.2, -0.2])
def test_a_jump_of_20_centimetres_along_the_way_is_named(metres: float) -> None:
    way = torch.zeros(4, 4, dtype=torch.float64)
    way[0, 3] = metres
    found = driving(from_frame(lambda T: T @ (torch.eye(4, dtype=torch.float64) + way)))
    assert found.level is Level.LIKELY and "The poses jump by 0.2 m before frame 8 of lidar" in found.sentence


def test_poses_that_jitter_are_named() -> None:
    """Each frame is displaced by some centimetres of its own."""
    noise = 0.05 * torch.randn(16, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def moved(frame: Frame) -> Frame:
        ends = (
            with_position(T, T[:3, 3] + noise[frame.index]) for T in (frame.T_world_rig_start, frame.T_world_rig_end)
        )
        start, end = ends
        return replace(frame, T_world_rig_start=start, T_world_rig_end=end)

    capture = street()
    images, sweeps = (tuple(map(moved, frames)) for frames in (capture.images, capture.sweeps))
    found = driving(replace(capture, images=images, sweeps=sweeps))
    assert found.level is Level.LIKELY and "The poses jitter" in found.sentence
    assert found.figures["jitter_m"] == pytest.approx(0.18, abs=0.06)


def test_poses_at_half_the_rate_are_named() -> None:
    """Every second frame has the pose of the frame before."""
    known = {(f.sensor, f.index): f for f in (*street().images, *street().sweeps)}

    def held(frame: Frame) -> Frame:
        other = known[frame.sensor, frame.index // 2 * 2]
        return replace(frame, T_world_rig_start=other.T_world_rig_start, T_world_rig_end=other.T_world_rig_end)

    capture = street()
    images, sweeps = (tuple(map(held, frames)) for frames in (capture.images, capture.sweeps))
    cameras = replace(capture, images=images, lidars=(), sweeps=())
    for wrong, other in ((replace(capture, images=images, sweeps=sweeps), True), (cameras, False)):
        found = driving(wrong)
        assert found.level is Level.LIKELY and "8 of 16 frames" in found.sentence
        assert ("data.poses.source=lidar" in found.text) is other


@pytest.mark.parametrize(("factor", "part", "word"), [(1.03, 0.975, "large"), (0.97, 1.029, "small")])
def test_poses_a_little_too_long_or_short_are_named(factor: float, part: float, word: str) -> None:
    """A fit stays near the motion that it begins with, so that the part is a bound."""
    (found,) = check_poses(Sample(posed(read_pack(ROOT / "data/street.pack"), partial(scaled, factor))))
    assert found.level is Level.LIKELY and found.figures["scale"] == pytest.approx(part, abs=0.006)
    assert f"% or more: translations of the poses are too {word}, or ranges of lidar" in found.text


def late(sensors: tuple[str, ...]) -> Capture:
    """Frames of some sensors have the poses of 0.3 s later."""
    path = trajectory_of(street())

    def moved(frame: Frame) -> Frame:
        start, end = path.at(frame.time_start + 0.3), path.at(frame.time_end + 0.3)
        return replace(frame, T_world_rig_start=start, T_world_rig_end=end) if frame.sensor in sensors else frame

    return replace(street(), images=tuple(map(moved, street().images)), sweeps=tuple(map(moved, street().sweeps)))


@pytest.mark.parametrize(("sensors", "way"), [(("camera_1",), "later"), (("lidar",), "later")])
def test_the_sensor_that_others_contradict_is_named_with_its_delay(sensors: tuple[str, ...], way: str) -> None:
    sample = Sample(late(sensors), sweeps=6)
    (found,) = check_driving(sample)
    assert (
        found.subject == sensors[0] and f"those of {sensors[0]} have the poses of 0.30 s (3 frames) {way}" in found.text
    )
    assert f"time stamps of {sensors[0]} " in found.text
    sample.found.append(found)
    assert {verdict.level for verdict in check_cameras(sample)} == {Level.UNKNOWN}


def stamped(seconds: float) -> Capture:
    """Stamps of a camera are off, its poses are right."""

    def moved(frame: ImageFrame) -> ImageFrame:
        start, end = frame.time_start + seconds, frame.time_end + seconds
        return replace(frame, time_start=start, time_end=end) if frame.sensor == "camera_1" else frame

    return replace(street(), images=tuple(map(moved, street().images)))


@pytest.mark.parametrize(("seconds", "way"), [(0.05, "earlier"), (-0.04, "later")])
def test_stamps_off_by_half_a_frame_beside_right_poses_are_named(seconds: float, way: str) -> None:
    (found,) = check_driving(Sample(stamped(seconds), sweeps=6))
    assert found.level is Level.LIKELY and found.subject == "camera_1"
    assert f"those of camera_1 have the poses of {abs(seconds):.2f} s {way}" in found.text
    assert [v.level for v in check_driving(Sample(stamped(0.02), sweeps=6))] == [Level.RIGHT]


def test_a_right_path_does_not_turn_at_once() -> None:
    assert all(list(turn_jumps(Sample(street()), path)) == [] for path in paths_of(street()))
