# SPDX-License-Identifier: Apache-2.0
"""A lidar, or a whole rig, that is turned: its side and its degrees are named, and nothing of a straight way's roll."""

import math
from dataclasses import replace

import pytest
import torch
from wrong_poses import street

from nurec_lite.capture.checks.poses import check_poses
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.tilts import words_of
from nurec_lite.capture.checks.verdict import Level
from nurec_lite.geometry.se3 import pose_matrix, quat_to_matrix, rotvec_to_quat


def about(x: float, y: float, z: float) -> torch.Tensor:  # degrees -> [3, 3]
    return quat_to_matrix(rotvec_to_quat(torch.deg2rad(torch.tensor([x, y, z], dtype=torch.float64))))


@pytest.mark.parametrize(
    ("turn", "words"),
    [((0, 0, 5), "5.0° to the right"), ((0, 0, -6), "6.0° to the left"), ((0, 6, 0), "6.0° farther up")],
)
def test_a_turn_is_named_with_its_side(turn: tuple[float, float, float], words: str) -> None:
    R = pose_matrix(rotvec_to_quat(torch.tensor(turn).double() * math.pi / 180), torch.zeros(3).double())
    cameras = (replace(c, T_rig_cam=R @ c.T_rig_cam) for c in street().cameras)
    (lidar,) = street().lidars
    odd = replace(
        street(), cameras=tuple(cameras), lidars=(replace(lidar, T_rig_lidar=R @ lidar.T_rig_lidar.double()),)
    )
    (verdict,) = check_poses(Sample(odd, sweeps=9))
    assert verdict.level is Level.CERTAIN and f"if T_rig_lidar of lidar is turned {words}" in verdict.sentence
    assert f"if the mountings of all sensors are turned {words} on the rig" in verdict.sentence


def test_words_of_turns() -> None:
    assert words_of(about(0, 0, 3)) == "3.0° to the left" and words_of(about(0, -3, 0)) == "3.0° farther up"
    assert words_of(about(4, 0, 0)) == "4.0° clockwise, seen from behind"
    assert words_of(about(3, 0, 4)) == "5.0° about the axis (0.60, 0.00, 0.80)"
