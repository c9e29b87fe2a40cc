# SPDX-License-Identifier: Apache-2.0
"""A certain mistake stops a run unless the capture is trusted; a likely one is a finding, also of a continued run."""

import json
import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_capture import tiny_capture, tiny_config

from nurec_lite.capture.checks import run as checks
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.trust import doubts_about
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.pack import write_pack
from nurec_lite.capture.types import CaptureError
from nurec_lite.config import Config, DataConfig, TrainConfig
from nurec_lite.train import run

SENTENCES = {
    Level.RIGHT: "Sweeps agree.",
    Level.UNKNOWN: "Too few sweeps.",
    Level.LIKELY: "Stamps of image_02 repeat.",
    Level.CERTAIN: "Poses are inverted.",
}


@pytest.fixture
def levels(monkeypatch: pytest.MonkeyPatch) -> list[Level]:
    """Levels of the verdicts that the only check gives; it counts its calls in `count`."""
    given: list[Level] = []

    def check(sample: Sample) -> Iterable[Verdict]:
        return [Verdict("test", "drive", level, SENTENCES[level], "invert them") for level in given]

    monkeypatch.setattr(checks, "CHECKS", {"test": check})
    return given


def test_what_is_certain_stops_with_every_sentence_and_the_key_that_goes_on(levels: list[Level]) -> None:
    levels += [Level.CERTAIN, Level.LIKELY, Level.CERTAIN]
    with pytest.raises(CaptureError) as error:
        doubts_about(tiny_capture(), "drive.pack", trust=False)
    assert str(error.value) == (
        "drive.pack: Poses are inverted; invert them. Poses are inverted; invert them. "
        "Or give data.trust=true, and training goes on regardless"
    )


def test_trust_turns_what_is_certain_into_a_finding(levels: list[Level], caplog: pytest.LogCaptureFixture) -> None:
    levels += [Level.RIGHT, Level.UNKNOWN, Level.LIKELY, Level.CERTAIN]
    with caplog.at_level(logging.WARNING):
        found = doubts_about(tiny_capture(), "drive.pack", trust=True)
    assert [verdict.level for verdict in found] == [Level.LIKELY, Level.CERTAIN]
    assert caplog.messages == ["Stamps of image_02 repeat; invert them.", "Poses are inverted; invert them."]


def test_a_check_that_fails_costs_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(sample: Sample) -> Iterable[Verdict]:
        raise IndexError("no row 7")

    monkeypatch.setattr(checks, "CHECKS", {"rows": broken})
    (verdict,) = doubts_about(tiny_capture(), "drive.pack", trust=False)
    assert verdict.level is Level.FAILED
    assert verdict.text == "The check of rows failed: IndexError: no row 7."


def config_of(folder: Path, steps: int, resume: str | None = None) -> Config:
    write_pack(tiny_capture(), folder / "tiny.pack", image_format="png")
    data = DataConfig(kind="pack", root=str(folder / "tiny.pack"))
    train = TrainConfig(steps=steps, lidar_rays=64, resume=resume)
    return replace(tiny_config(), out=str(folder / "run"), data=data, train=train, ops="reference")


def test_findings_of_a_run_outlive_its_interruption(levels: list[Level], tmp_path: Path) -> None:
    levels += [Level.LIKELY]
    first = run(config_of(tmp_path, 1))
    levels.clear()  # checks are not repeated
    second = run(config_of(tmp_path, 2, resume="auto"))
    for metrics in (first, second, json.loads((tmp_path / "run/metrics.json").read_text())):
        assert metrics["findings"][0] == "Stamps of image_02 repeat; invert them."


def test_a_run_stops_before_it_begins(levels: list[Level], tmp_path: Path) -> None:
    levels += [Level.CERTAIN]
    with pytest.raises(CaptureError, match=r"data\.trust=true"):
        run(config_of(tmp_path, 1))
    assert not (tmp_path / "run/checkpoint.pt").exists()
