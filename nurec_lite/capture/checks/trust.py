# SPDX-License-Identifier: Apache-2.0
"""Verdicts before training: a certain mistake stops a run unless the user trusts the capture; a likely one becomes a finding."""

from collections.abc import Iterable

from nurec_lite.capture.checks import driving, poses, positions
from nurec_lite.capture.checks.doubts import log_doubts
from nurec_lite.capture.checks.run import verdicts
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.types import Capture, CaptureError

DOUBTS = (Level.LIKELY, Level.CERTAIN, Level.FAILED)  # the levels that a report shows
OF_POSES = (poses.NAME, driving.NAME, positions.NAME)


def doubts_about(
    sample: Capture | Sample,  # a capture, or some of its frames, kept for later
    source: str,  # file or folder, for the message
    trust: bool,  # the user's data.trust
) -> list[Verdict]:
    """Returns the result of `found_doubts`, and logs it at once."""
    doubts = found_doubts(sample, source, trust)
    log_doubts(doubts)
    return doubts


def found_doubts(
    sample: Capture | Sample,
    source: str,
    trust: bool,
) -> list[Verdict]:
    """Verdicts that a report shows. CaptureError with all that is certain, unless the user trusts the capture."""
    doubts = [
        verdict
        for verdict in verdicts(sample if isinstance(sample, Sample) else Sample(sample))
        if verdict.level in DOUBTS
    ]
    certain = [verdict.text.removesuffix(".") for verdict in doubts if verdict.level is Level.CERTAIN]
    if certain and not trust:
        raise CaptureError(f"{source}: {'. '.join(certain)}. Or give data.trust=true, and training goes on regardless")
    return doubts


def poses_are_wrong(doubts: Iterable[Verdict]) -> bool:
    """Whether wrong poses may explain the disagreement of sensors."""
    return any(verdict.check in OF_POSES and verdict.level is Level.CERTAIN for verdict in doubts)
