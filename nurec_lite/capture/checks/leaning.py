# SPDX-License-Identifier: Apache-2.0
"""Findings about boxes that a leaning lidar explains: they are gone once it is turned back."""

from nurec_lite.capture.checks import boxes
from nurec_lite.capture.checks.rolled import FIGURE
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Verdict


def without_consequences(sample: Sample, verdicts: list[Verdict]) -> list[Verdict]:
    """The verdicts; where a lidar leans, those about boxes are of the lidar turned back."""
    turned = [v.corrected for v in verdicts if FIGURE in v.figures and v.corrected is not None]
    doubted = any(v.check == boxes.NAME and v.level in boxes.DOUBTS for v in verdicts)
    if not (turned and doubted):
        return verdicts
    others = [v for v in verdicts if v.check != boxes.NAME]
    return [*others, *boxes.check_boxes(sample.of_frames(turned[0](sample.capture)))]
