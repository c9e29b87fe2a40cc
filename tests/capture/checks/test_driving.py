# SPDX-License-Identifier: Apache-2.0
"""Jumps of the poses, and rigs that do not move the way they look; with a lidar and without."""

import re
from dataclasses import replace
from functools import partial

import pytest
import torch
from wrong_poses import AXES_OF_A_CAMERA, in_axes, posed, street, with_position

from nurec_lite.capture.checks.driving import check_driving
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.types import Capture, Frame, ImageFrame


def verdicts(capture: Capture) -> list[Verdict]:
    return list(check_driving(Sample(capture, sweeps=6)))


def jumped(capture: Capture, metres: float) -> Capture:
    """Frames 6 to 10 are so far to the side."""

    def moved(frame: Frame) -> Frame:
        if not 6 <= frame.index <= 10:
            return frame
        ends = (with_position(T, T[:3, 3] + torch.tensor([0.0, metres, 0.0]).double()) for T in
                (frame.T_world_rig_start, frame.T_world_rig_end))  # fmt: skip
        start, end = ends
        return replace(frame, T_world_rig_start=start, T_world_rig_end=end)

    return replace(capture, images=tuple(map(moved, capture.images)), sweeps=tuple(map(moved, capture.sweeps)))


def without_lidar(capture: Capture) -> Capture:
    return replace(capture, lidars=(), sweeps=())


@pytest.mark.parametrize("metres", [2.0, 10.0, 19.0, 40.0])
@pytest.mark.parametrize("lidar", [True, False])
def test_a_jump_is_named_with_its_frame_and_size(metres: float, lidar: bool) -> None:
    capture = jumped(street() if lidar else without_lidar(street()), metres)
    (found,) = verdicts(capture)
    assert found.level is Level.CERTAIN
    assert re.search(r"jump by \S+ m before frame 6 of \w+, and back before frame 11 of \w+: they go", found.sentence)
    assert found.figures["jump_m"] == pytest.approx(metres, abs=0.3)
    assert not lidar or found.figures["sweeps_m"] == pytest.approx(0.8, abs=0.05)


def test_a_frame_that_is_displaced_alone_has_its_size() -> None:
    """Its steps to and fro cancel each other."""
    capture = jumped(street(), 2.0)
    right = {(f.sensor, f.index): f for f in (*street().images, *street().sweeps)}

    def alone(frame: Frame) -> Frame:
        return frame if frame.index == 6 else right[frame.sensor, frame.index]

    images, sweeps = (tuple(map(alone, frames)) for frames in (capture.images, capture.sweeps))
    (found,) = verdicts(replace(capture, images=images, sweeps=sweeps))
    assert found.level is Level.CERTAIN and found.figures["jump_m"] == pytest.approx(2.0, abs=0.3)


def test_two_jumps_of_one_direction_do_not_go_back() -> None:
    """Frames from 5 to 8 are displaced by half a metre more each."""

    def moved(frame: Frame) -> Frame:
        aside = torch.tensor([0.5 * min(max(frame.index - 4, 0), 4), 0.0, 0.0]).double()
        start, end = (with_position(T, T[:3, 3] + aside) for T in (frame.T_world_rig_start, frame.T_world_rig_end))
        return replace(frame, T_world_rig_start=start, T_world_rig_end=end)

    capture = street()
    images, sweeps = (tuple(map(moved, frames)) for frames in (capture.images, capture.sweeps))
    found = verdicts(replace(capture, images=images, sweeps=sweeps))
    assert all("and back" not in v.sentence for v in found) and found[0].level in (Level.LIKELY, Level.CERTAIN)


@pytest.mark.parametrize("metres", [0.3, 0.5])
def test_sweeps_tell_a_small_jump(metres: float) -> None:
    (found,) = verdicts(jumped(street(), metres))
    assert found.level is Level.LIKELY and "before frame 6 of lidar, and back before frame 11" in found.sentence
    assert found.figures["jump_m"] == pytest.approx(metres, abs=0.1)
    (alone,) = verdicts(without_lidar(jumped(street(), 0.3)))
    assert alone.level is Level.RIGHT


@pytest.mark.parametrize("lidar", [True, False])
def test_a_right_drive_moves_steadily(lidar: bool) -> None:
    (found,) = verdicts(street() if lidar else without_lidar(street()))
    assert found.level is Level.RIGHT and found.figures["way_m"] == pytest.approx(12.05, abs=0.3)


def test_a_rig_that_drives_upwards_is_wrong_without_a_lidar() -> None:
    (found,) = verdicts(without_lidar(posed(street(), partial(in_axes, AXES_OF_A_CAMERA.T))))
    assert found.level in (Level.CERTAIN, Level.LIKELY) and "does not move the way it looks" in found.sentence


def test_sensors_with_other_poses_at_the_same_times_are_named() -> None:
    def moved(frame: ImageFrame) -> ImageFrame:
        ends = frame.T_world_rig_start, frame.T_world_rig_end
        start, end = (with_position(T, T[:3, 3] + torch.tensor([0.0, 3.0, 0.0]).double()) for T in ends)
        return replace(frame, T_world_rig_start=start, T_world_rig_end=end) if frame.sensor == "camera_0" else frame

    (found,) = verdicts(replace(street(), images=tuple(map(moved, street().images))))
    assert found.level is Level.LIKELY and found.subject == "camera_0"
    assert "The frames of camera_0 and of lidar put the rig 3.0 m apart at the same times" in found.sentence
