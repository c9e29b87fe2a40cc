# SPDX-License-Identifier: Apache-2.0
"""All checks of one capture together: each finds its own fault beside the verdicts of the others."""

from dataclasses import replace
from functools import lru_cache

from tiny_capture import ROOT

from nurec_lite.capture.checks.run import verdicts
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.pack import read_pack
from nurec_lite.capture.types import Capture


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
