# SPDX-License-Identifier: Apache-2.0
"""Poses of other times than their sweeps, and poses whose heading drifts, which no single motion shows."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from kept_sweeps import kept_street
from torch import Tensor

from nurec_lite.capture.checks.delayed import delayed, turning
from nurec_lite.capture.checks.motion import Motions
from nurec_lite.capture.checks.motions import known_motions
from nurec_lite.capture.checks.poses import check_poses
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.trajectory import trajectory_of
from nurec_lite.capture.types import POSITIONED, Capture, Frame
from nurec_lite.geometry.se3 import invert, pose_matrix, rotvec_to_quat

Path = Callable[[Tensor], Tensor]  # [n] seconds -> [n, 4, 4]


def doubts(capture: Capture) -> list[Verdict]:
    return [v for v in check_poses(Sample(capture)) if v.level in (Level.LIKELY, Level.CERTAIN)]


def posed(capture: Capture, path: Path) -> Capture:
    def of(frame: Frame) -> Frame:
        start, end = path(torch.tensor([frame.time_start, frame.time_end], dtype=torch.float64))
        return replace(frame, T_world_rig_start=start, T_world_rig_end=end)

    return replace(capture, images=tuple(map(of, capture.images)), sweeps=tuple(map(of, capture.sweeps)))


def late(capture: Capture, seconds: float) -> Capture:
    path = trajectory_of(capture)
    return posed(capture, lambda times: path.at(times - seconds))


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.2, "s earlier: the sweeps of lidar"), (-0.2, "s later: the sweeps of lidar")]
)
def test_poses_that_are_all_late_are_named_where_speed_changes(seconds: float, words: str) -> None:
    (found,) = doubts(late(kept_street(), seconds))
    assert found.level is Level.LIKELY and words in found.sentence and found.remedy is not None
    assert found.figures["late_s"] == pytest.approx(seconds, abs=0.04)
    assert found.remedy.endswith("or estimate poses from the sweeps by data.poses.source=lidar")


def drifting(degrees: float) -> Capture:
    """The heading turns so much a metre, and the way with it."""
    path = trajectory_of(kept_street())
    turned = [path.poses[0]]
    for step in invert(path.poses[:-1]) @ path.poses[1:]:
        turn = torch.tensor([0.0, 0.0, math.radians(degrees) * float(step[:3, 3].norm())], dtype=torch.float64)
        turned.append(turned[-1] @ step @ pose_matrix(rotvec_to_quat(turn), torch.zeros(3, dtype=torch.float64)))
    return posed(kept_street(), replace(path, poses=torch.stack(turned)).at)


@pytest.mark.parametrize(("degrees", "side"), [(0.03, "left"), (-0.02, "right")])
def test_a_heading_that_drifts_is_named_with_its_side(degrees: float, side: str) -> None:
    (found,) = doubts(drifting(degrees))
    assert found.level is Level.LIKELY and f"The heading of the poses drifts to the {side}" in found.sentence
    assert found.figures["drift_deg_m"] == pytest.approx(degrees, abs=0.004)
    assert found.remedy is not None and "data.poses.source=lidar" in found.remedy


def test_satellites_may_drift_and_right_poses_raise_nothing() -> None:
    assert doubts(replace(drifting(0.03), poses_from=POSITIONED)) == []
    assert doubts(kept_street()) == [] and doubts(late(kept_street(), 0.02)) == [] and doubts(drifting(0.005)) == []


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_sweeps_tell_nothing(count: int) -> None:
    capture = late(kept_street(), 0.2)
    assert doubts(replace(capture, sweeps=capture.sweeps[:count])) == []


def test_one_motion_tells_nothing() -> None:
    sample = Sample(late(drifting(0.03), 0.3))
    (lidar,) = sample.capture.lidars
    motions = Motions(known_motions(sample, lidar)[:1])
    assert delayed(sample, lidar, motions, "poses") is None and turning(sample, lidar, motions, "poses") is None
