# SPDX-License-Identifier: Apache-2.0
"""Jumps of the poses by centimetres or less than a degree, single poses that are off, and rotations that jitter: the sweeps show no such
steps."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from wrong_poses import street

from nurec_lite.capture.checks.driving import check_driving
from nurec_lite.capture.checks.paths import paths_of
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.small_jumps import small_jumps, suspects
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.types import Capture, Frame
from nurec_lite.geometry.se3 import interpolate_trajectory, pose_matrix, rotvec_to_quat


def driving(capture: Capture) -> Verdict:
    (verdict,) = check_driving(Sample(capture, sweeps=6))
    return verdict


def moved(way: tuple[float, float, float] = (0.0, 0.0, 0.0), degrees: float = 0.0) -> Tensor:
    turn = torch.tensor([0.0, 0.0, math.radians(degrees)], dtype=torch.float64)
    return pose_matrix(rotvec_to_quat(turn), torch.tensor(way, dtype=torch.float64))


def changed(change: Callable[[Frame], Tensor]) -> Capture:
    def of(frame: Frame) -> Frame:
        X = change(frame)
        return replace(frame, T_world_rig_start=frame.T_world_rig_start @ X, T_world_rig_end=frame.T_world_rig_end @ X)

    capture = street()
    return replace(capture, images=tuple(map(of, capture.images)), sweeps=tuple(map(of, capture.sweeps)))


def from_frame(X: Tensor, first: int = 8) -> Capture:
    return changed(lambda f: X if f.index >= first else moved())


@pytest.mark.parametrize("way", [(0.1, 0.0, 0.0), (0.0, 0.15, 0.0), (-0.12, 0.0, 0.0), (0.0, 0.0, 0.12)])
def test_a_jump_by_centimetres_is_named_with_its_frame(way: tuple[float, float, float]) -> None:
    found, metres = driving(from_frame(moved(way))), math.hypot(*way)
    assert found.level is Level.LIKELY and found.figures["jump_m"] == pytest.approx(metres, abs=0.02)
    assert "before frame 8 of lidar; its sweeps show no such step; estimate poses from the sweeps by" in found.text


@pytest.mark.parametrize("degrees", [0.6, -0.8])
def test_a_turn_by_less_than_a_degree_is_named(degrees: float) -> None:
    found = driving(from_frame(moved(degrees=degrees)))
    assert found.level is Level.LIKELY and found.figures["turn_deg"] == pytest.approx(abs(degrees), abs=0.1)
    assert "The poses turn at once by 0." in found.sentence and "before frame 8 of lidar" in found.sentence


def interpolated(step: float) -> Capture:
    """Poses of the middles of sweeps, those from frame 8 on farther to the left; all others lie between two of them."""
    capture = street()
    middles = torch.tensor([f.time_mid for f in capture.sweeps], dtype=torch.float64)
    poses = paths_of(capture)[0].poses.clone()
    poses[8:, 1, 3] += step

    def of(frame: Frame) -> Frame:
        ends = torch.tensor([frame.time_start, frame.time_end], dtype=torch.float64)
        start, end = interpolate_trajectory(middles, poses, ends)
        return replace(frame, T_world_rig_start=start, T_world_rig_end=end)

    return replace(capture, images=tuple(map(of, capture.images)), sweeps=tuple(map(of, capture.sweeps)))


@pytest.mark.parametrize("step", [0.2, 0.3])
def test_a_jump_that_interpolation_smears_has_its_whole_size(step: float) -> None:
    found = driving(interpolated(step))
    assert found.figures["jump_m"] == pytest.approx(step, abs=0.03) and "between frames 6 and 9 of lidar" in found.text


def test_interpolated_poses_are_right() -> None:
    assert driving(interpolated(0.0)).level is Level.RIGHT


@pytest.mark.parametrize(
    ("X", "words"),
    [(moved((0.0, 0.15, 0.0)), "is off by about 0.1"), (moved(degrees=0.8), "is turned by about 0.8°")],
)
def test_a_single_pose_that_is_off_is_named(X: Tensor, words: str) -> None:
    found = driving(changed(lambda f: X if f.index == 8 else moved()))
    assert found.level is Level.LIKELY and f"The pose of frame 8 of lidar {words}" in found.sentence


def test_rotations_that_jitter_are_named() -> None:
    g = torch.Generator().manual_seed(0)
    noise = math.radians(0.3) * torch.randn(len(street().sweeps), 3, generator=g, dtype=torch.float64)
    turns = pose_matrix(rotvec_to_quat(noise), torch.zeros_like(noise))
    found = driving(changed(lambda f: turns[f.index]))
    assert found.level is Level.LIKELY and "The rotations of the poses jitter" in found.sentence
    assert "data.poses.source=lidar" in found.text and found.figures["jitter_deg"] == pytest.approx(1.2, abs=0.5)


def test_right_poses_raise_no_suspicion() -> None:
    """Sweeps are then not decoded for them."""
    assert suspects(paths_of(street())[0]) == [] and driving(street()).level is Level.RIGHT


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_few_frames_tell_nothing(count: int) -> None:
    capture = from_frame(moved((0.0, 0.15, 0.0)), first=1)
    (path, *_) = paths_of(replace(capture, sweeps=capture.sweeps[:count]))
    assert list(small_jumps(Sample(capture), path)) == []


def test_sweeps_without_returns_refute_nothing() -> None:
    capture = from_frame(moved((0.0, 0.15, 0.0)))
    sweeps = tuple(replace(f, load=lambda f=f: f.load().select(slice(0, 0))) for f in capture.sweeps)
    assert driving(replace(capture, sweeps=sweeps)).level is not Level.LIKELY
