# SPDX-License-Identifier: Apache-2.0
"""Boxes of objects that move: times that are off leave boxes of parked cars where they are."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from nurec_lite.capture.checks.box_rays import BoxFit, Rays, fit_boxes
from nurec_lite.capture.types import Capture

TRACKS, BOXES = 2, 4  # that move, at least
POOR, GOOD, BETTER = 0.6, 0.6, 0.2  # share of boxes that move: as said, at most; at other times, at least; its gain
STEP, MOST = 0.1, 1.5  # step and largest shift of times that are tried, in seconds


def moving_elsewhere(capture: Capture, rays: list[Rays], numbers: Sequence[int]) -> tuple[str, str] | None:
    """A sentence and a remedy, if boxes that move lie on objects at other times only."""
    said = fit_boxes(rays, capture.tracks, list(numbers))
    if len(numbers) < TRACKS or said.fewer(BOXES, TRACKS) or said.share > POOR:
        return None
    steps = torch.arange(-MOST, MOST + STEP / 2, STEP).tolist()
    found = [
        (fit.share, -abs(s), s)
        for s in steps
        if not (fit := _at_other_times(capture, rays, numbers, s)).fewer(BOXES, TRACKS)
    ]
    share, _, seconds = max(found, default=(0.0, 0.0, 0.0))
    if share < max(GOOD, said.share + BETTER):
        return None
    sentence = (
        f"Boxes of objects that move hold {100 * said.share:.0f} % of their returns, and {100 * share:.0f} % if their times are "
        f"{abs(seconds):.1f} s {'late' if seconds > 0 else 'early'}."
    )
    return sentence, "correct the times of the tracks where the capture was made"


def _at_other_times(capture: Capture, rays: list[Rays], numbers: Sequence[int], seconds: float) -> BoxFit:
    tracks = capture.tracks
    return fit_boxes(rays, replace(tracks, times=tracks.times - seconds), list(numbers))
