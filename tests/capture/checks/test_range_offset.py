# SPDX-License-Identifier: Apache-2.0
"""Ranges that are all too long or too short by one length."""

import re
from dataclasses import replace
from functools import lru_cache

import pytest
import torch
from tiny_capture import ROOT

from nurec_lite.capture.checks.corrected import with_ranges
from nurec_lite.capture.checks.poses import check_poses
from nurec_lite.capture.checks.range_offset import OFFSET
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.pack import read_pack
from nurec_lite.capture.types import Capture


@lru_cache
def street() -> Capture:
    return read_pack(ROOT / "data" / "street.pack")


def found(capture: Capture) -> Verdict:
    (verdict,) = check_poses(Sample(capture))
    return verdict


@pytest.mark.parametrize(
    ("metres", "level", "words"),
    [
        (0.5, Level.CERTAIN, r"about 0\.4[6-9] m too long: .*; subtract 0\.4[6-9] m from its ranges"),
        (-0.5, Level.CERTAIN, r"about 0\.(4[7-9]|5[0-3]) m too short: .*; add 0\.(4[7-9]|5[0-3]) m to its ranges"),
        (0.2, Level.LIKELY, r"about 0\.(1[7-9]|2[0-2]) m too long"),
    ],
)
def test_ranges_of_another_length_are_named_with_it(metres: float, level: Level, words: str) -> None:
    verdict = found(with_ranges("lidar", metres=metres)(street()))
    assert verdict.level is level and verdict.subject == "lidar" and re.search(words, verdict.text), verdict.text


def test_the_correction_adds_as_much_as_is_missing() -> None:
    wrong = with_ranges("lidar", metres=0.5)(street())
    verdict = found(wrong)
    assert verdict.corrected is not None
    own, again = (capture.sweeps[0].load() for capture in (street(), verdict.corrected(wrong)))
    assert torch.allclose(again.ranges[own.returned], own.ranges[own.returned], atol=0.05)
    assert not again.ranges[~own.returned].any()


@pytest.mark.parametrize("metres", [0.0, 0.05, -0.05])
def test_ranges_as_exact_as_lidars_measure_are_right(metres: float) -> None:
    verdict = found(with_ranges("lidar", metres=metres)(street()))
    assert verdict.level is Level.RIGHT and OFFSET not in verdict.figures


@pytest.mark.parametrize("frames", [0, 1, 2, 4])
def test_few_sweeps_tell_nothing(frames: int) -> None:
    capture = with_ranges("lidar", metres=0.5)(street())
    verdicts = list(check_poses(Sample(replace(capture, sweeps=capture.sweeps[:frames]))))
    assert all(OFFSET not in verdict.figures for verdict in verdicts)
