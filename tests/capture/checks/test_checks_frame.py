# SPDX-License-Identifier: Apache-2.0
"""The frame of the checks: frames are decoded once and kept within a bound, unreadable frames are verdicts, lines are sorted."""

import json
import re
from collections.abc import Iterator

import pytest
import torch
from tiny_capture import ROOT, tiny_capture

from nurec_lite.capture.checks import run, sample
from nurec_lite.capture.checks.listed import counted, listed
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.types import CaptureError


class Counting:
    """Decodes 1000 bytes and counts how often."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> torch.Tensor:
        self.calls += 1
        return torch.zeros(1000, dtype=torch.uint8)


def test_a_frame_is_decoded_once() -> None:
    frames, load = Sample(tiny_capture()), Counting()
    assert [len(frames._once(load)) for _ in range(3)] == [1000] * 3 and load.calls == 1


def test_frames_used_longest_ago_are_dropped_beyond_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "KEPT_BYTES", 2500)
    frames, loads = Sample(tiny_capture()), [Counting() for _ in range(3)]
    for load in (loads[0], loads[1], loads[0], loads[2], loads[0], loads[1]):
        frames._once(load)
    assert [load.calls for load in loads] == [1, 2, 1] and len(frames._kept) == 2


def test_a_sweep_counts_with_all_of_its_tensors() -> None:
    frames, frame = Sample(tiny_capture()), tiny_capture().sweeps[0]
    sweep = frames.sweep(frame)
    (kept,) = frames._kept.values()
    assert kept.bytes == len(sweep) * (12 + 4 + 4 + 8 + 8 + 1)


def right(_: Sample) -> Iterator[Verdict]:
    yield Verdict("a", "lidar", Level.RIGHT, "Fine.")


def unreadable(_: Sample) -> Iterator[Verdict]:
    raise CaptureError("x.png cannot be read; download it again")


def test_an_unreadable_frame_is_one_verdict_and_the_other_checks_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "CHECKS", {"one": unreadable, "two": right, "three": unreadable})
    with pytest.raises(CaptureError, match=r"x\.png"):
        run.verdicts(Sample(tiny_capture()))
    levels = [(v.level, v.sentence) for v in run.all_verdicts(Sample(tiny_capture()))]
    assert levels == [(Level.CERTAIN, "x.png cannot be read; download it again."), (Level.RIGHT, "Fine.")]


def test_verdicts_are_one_line_each_the_worst_first() -> None:
    some = [
        Verdict("poses and sweeps", "velodyne", Level.RIGHT, "Sweeps lie\n0.02 m apart."),
        Verdict("boxes", "7", Level.CERTAIN, "No points.", "leave it out"),
    ]
    assert listed(some).splitlines() == [
        "wrong  boxes             7         No points; leave it out.",
        "right  poses and sweeps  velodyne  Sweeps lie 0.02 m apart.",
    ]
    assert counted(some) == "1 wrong, 1 right"
    assert listed([]) == "" and counted([]) == "no verdicts"


def test_a_verdict_with_a_corrected_capture_can_be_stored() -> None:
    verdict = Verdict("poses", "lidar", Level.CERTAIN, "Inverse.", corrected=lambda capture: capture)
    assert json.loads(json.dumps(verdict.plain())) == {
        "check": "poses", "subject": "lidar", "level": "CERTAIN", "sentence": "Inverse.", "remedy": None, "figures": {},
    }  # fmt: skip


def test_a_figure_that_names_a_kind_of_verdicts_belongs_to_one_kind() -> None:
    """Boxes that look backwards and poses that go back within a frame had the same one: cameras were not compared."""
    files = (ROOT / "nurec_lite/capture/checks").glob("*.py")
    names = [name for path in files for name in re.findall(r'^[A-Z_]+ = "(\w+)"  # figure of', path.read_text(), re.M)]
    assert len(names) >= 7 and len(names) == len(set(names))
