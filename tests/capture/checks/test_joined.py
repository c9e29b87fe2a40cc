# SPDX-License-Identifier: Apache-2.0
"""All checks of one capture together: each finds its own fault beside the verdicts of the others."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial

import pytest
import torch
from tiny_capture import ROOT
from torch import Tensor

from nurec_lite.capture.checks import boxes
from nurec_lite.capture.checks.causes import _with_a_clock, _with_a_path, _with_labels
from nurec_lite.capture.checks.corrected import with_ranges
from nurec_lite.capture.checks.joined import joined
from nurec_lite.capture.checks.run import verdicts
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.pack import read_pack
from nurec_lite.capture.types import Capture, SweepFrame
from nurec_lite.geometry.lidar import Sweep
from nurec_lite.geometry.se3 import pose_matrix, rotvec_to_quat
from nurec_lite.geometry.tracks import Tracks


@lru_cache(maxsize=1)
def street() -> Capture:
    return read_pack(ROOT / "data/street.pack")


def doubts(capture: Capture) -> list[Verdict]:
    return [v for v in verdicts(Sample(capture)) if v.level in (Level.CERTAIN, Level.LIKELY, Level.FAILED)]


def test_a_right_capture_is_right_in_all_checks() -> None:
    assert {verdict.level for verdict in verdicts(Sample(street()))} == {Level.RIGHT}


def test_cameras_are_checked_beside_poses_that_fit() -> None:
    odd = replace(street(), cameras=tuple(replace(c, fx=1.2 * c.fx, fy=1.2 * c.fy) for c in street().cameras))
    (verdict,) = doubts(odd)
    assert verdict.level is Level.CERTAIN and "fx and fy are 0.84 times" in verdict.sentence


# ---- one cause of several findings


def yaw(degrees: float) -> Tensor:
    turn = torch.tensor([0.0, 0.0, math.radians(degrees)], dtype=torch.float64)
    return pose_matrix(rotvec_to_quat(turn), torch.zeros(3, dtype=torch.float64))


def with_a_turned_rig(capture: Capture) -> Capture:
    cameras = (replace(c, T_rig_cam=yaw(5) @ c.T_rig_cam) for c in capture.cameras)
    lidars = (replace(lidar, T_rig_lidar=yaw(5) @ lidar.T_rig_lidar) for lidar in capture.lidars)
    return replace(capture, cameras=tuple(cameras), lidars=tuple(lidars))


def with_a_low_lidar(capture: Capture) -> Capture:
    down = torch.eye(4, dtype=torch.float64)
    down[2, 3] = -1.0
    return replace(capture, lidars=tuple(replace(x, T_rig_lidar=down @ x.T_rig_lidar) for x in capture.lidars))


def with_a_late_lidar(capture: Capture) -> Capture:
    return _with_a_clock(capture, 0.3)


def with_late_poses(seconds: float) -> Callable[[Capture], Capture]:
    return partial(_with_a_path, seconds=seconds)


def without_tracks(odd: Callable[[Capture], Capture]) -> Callable[[Capture], Capture]:
    return lambda capture: replace(odd(capture), tracks=Tracks.empty())


ODD: dict[str, tuple[Callable[[Capture], Capture], str]] = {
    "turned rig": (with_a_turned_rig, "if the mountings of all sensors are turned 5.0° to the right on the rig, not"),
    "low lidar": (with_a_low_lidar, "if lidar sits 1.0 m farther up, not"),
    "low lidar, no tracks": (
        without_tracks(with_a_low_lidar), "if lidar sits 1.0 m farther up, or if all cameras sit 1.0 m farther down, not",
    ),
    "late lidar": (with_a_late_lidar, "if the sweeps of lidar were taken 0.30 s earlier than their stamps say, not"),
    "poses of later frames": (with_late_poses(0.3), "if the poses are 3 frames too late, not"),
    "poses of earlier frames": (with_late_poses(-0.3), "if the poses are 3 frames too early, not"),
    "labels": (partial(_with_labels, seconds=0.3), "labels are 3 frames late"),
    "ranges": (with_ranges("lidar", 2.0), "if the ranges of lidar are too large by a factor of 2, not"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", ODD)
def test_the_cause_that_explains_all_findings_is_named(case: str) -> None:
    odd, sentence = ODD[case]
    (verdict,) = doubts(odd(street()))
    assert verdict.level is Level.CERTAIN and sentence in verdict.sentence and verdict.remedy is not None


def test_a_cause_needs_no_cameras_and_no_boxes() -> None:
    odd = replace(with_ranges("lidar", 2.0)(street()), cameras=(), images=(), tracks=Tracks.empty())
    (verdict,) = doubts(odd)
    assert "too small by a factor of 2, or if the ranges of lidar are too large by a factor of 2" in verdict.sentence


def test_a_cause_that_leaves_boxes_half_empty_explains_nothing() -> None:
    """Ranges that are half a metre too short; poses of another frame let boxes hold 0.57 of their returns."""

    def short(frame: SweepFrame) -> SweepFrame:
        return replace(frame, load=lambda: nearer(frame.load()))

    def nearer(sweep: Sweep) -> Sweep:
        return replace(sweep, ranges=torch.where(sweep.returned, (sweep.ranges - 0.5).clamp(min=0.1), sweep.ranges))

    found = doubts(replace(street(), sweeps=tuple(map(short, street().sweeps))))
    assert found and not any("frame too early" in verdict.sentence for verdict in found)


def test_little_explains_nothing() -> None:
    for few in (replace(street(), sweeps=()), replace(street(), images=(), sweeps=street().sweeps[:1])):
        sample = Sample(few)
        doubt = Verdict(boxes.NAME, "street", Level.LIKELY, "Boxes lie elsewhere.")
        assert joined(sample, [doubt]) == [doubt]
