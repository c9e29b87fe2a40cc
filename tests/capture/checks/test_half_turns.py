# SPDX-License-Identifier: Apache-2.0
"""Times of rays that are off by half a turn, held against edges of images."""

import pickle
from dataclasses import replace
from functools import lru_cache

import pytest
import torch
from tiny_capture import ROOT

from nurec_lite.capture.checks.cameras import findings
from nurec_lite.capture.checks.corrected import half_turns
from nurec_lite.capture.checks.half_turns import half_turned
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level
from nurec_lite.capture.pack import read_pack
from nurec_lite.capture.types import Capture


@lru_cache
def street() -> Capture:
    return read_pack(ROOT / "data" / "street.pack")


def found(capture: Capture) -> str:
    verdict = half_turned(Sample(capture), capture.lidars[0])
    return "" if verdict is None else verdict.text


def test_times_half_a_turn_off_are_named_with_the_remedy() -> None:
    capture = half_turns("lidar", street())
    sample = Sample(capture)
    verdict = half_turned(sample, capture.lidars[0])
    assert verdict is not None and verdict.level is Level.LIKELY and verdict.subject == "lidar"
    assert (
        "if the times of its rays are half a turn off (contrast 0.20), not as the capture says (0.18)"
        in verdict.sentence
    )
    assert verdict.remedy is not None and verdict.remedy.startswith("add 0.050 s to the times of the first half")
    assert {f.level for camera in capture.cameras for f in findings(sample, camera)} == {Level.UNKNOWN}
    assert pickle.loads(pickle.dumps(verdict)) == verdict  # processes share it


def test_the_correction_makes_the_times_right_again() -> None:
    wrong = half_turns("lidar", street())
    right = half_turns("lidar", wrong)
    own, off, again = (c.sweeps[3].load().times for c in (street(), wrong, right))
    length = wrong.sweeps[3].time_end - wrong.sweeps[3].time_start
    assert torch.allclose((off - own).abs(), torch.tensor(0.5 * length, dtype=torch.float64))
    assert torch.allclose(again, own)


def test_right_times_are_not_doubted() -> None:
    assert found(street()) == ""


@pytest.mark.parametrize("frames", [0, 1, 2])
def test_few_frames_tell_nothing(frames: int) -> None:
    capture = half_turns("lidar", street())
    assert found(replace(capture, images=capture.images[:frames])) == ""
    assert found(replace(capture, sweeps=capture.sweeps[:frames])) == ""
