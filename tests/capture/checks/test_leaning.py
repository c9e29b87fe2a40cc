# SPDX-License-Identifier: Apache-2.0
"""Findings about boxes beside a lidar that leans."""

from dataclasses import replace

import torch
from wrong_poses import street

from nurec_lite.capture.checks import boxes, rolled
from nurec_lite.capture.checks.leaning import without_consequences
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict

TRACK = Verdict(boxes.NAME, "car 7", Level.LIKELY, "Boxes of track 7 hold 19 % of their returns.")


def leans(degrees: float) -> Verdict:
    """The verdict about the lidar, with the capture turned back."""
    (lidar,) = street().lidars
    return rolled._of_lidar(lidar, 2, degrees, Verdict("cameras and sweeps", lidar.name, Level.LIKELY, ""))


def test_findings_about_boxes_stay_if_they_hold_for_the_lidar_turned_back() -> None:
    (lidar,) = street().lidars
    askew = replace(lidar, T_rig_lidar=lidar.T_rig_lidar @ rolled.about_axis(0, -2.0))
    found = leans(2.0)
    sample = Sample(replace(street(), lidars=(askew,)))
    kept = without_consequences(sample, [TRACK, found])
    assert kept[0] is found and TRACK not in kept and {v.level for v in kept[1:]} <= {Level.RIGHT, Level.UNKNOWN}
    assert without_consequences(sample, [TRACK]) == [TRACK] and without_consequences(sample, [found]) == [found]


def test_the_lidar_is_turned_back() -> None:
    (lidar,), found = street().lidars, leans(2.0)
    assert found.corrected is not None
    (back,) = found.corrected(street()).lidars
    torch.testing.assert_close(back.T_rig_lidar, lidar.T_rig_lidar @ rolled.about_axis(0, 2.0))
