# SPDX-License-Identifier: Apache-2.0
"""One verdict for cameras with the same finding."""

import torch
from wrong_poses import street

from nurec_lite.capture.checks.alignment import Fit
from nurec_lite.capture.checks.found import Found, verdicts_of
from nurec_lite.capture.checks.guesses import as_said
from nurec_lite.capture.checks.verdict import Level


def test_cameras_of_one_finding_with_other_figures_have_their_common_ones() -> None:
    """One camera has a measured turn, the other one has none: this raised KeyError."""
    sentence, (a, b) = "Too few edges show the direction of {cameras}.", street().cameras
    said = Fit(as_said(a), torch.zeros(0), 0.0, 0)
    found = [
        Found(a, Level.UNKNOWN, said, sentence, None, {"said": 0.1, "points": 30.0}),
        Found(b, Level.UNKNOWN, said, sentence, None, {"degrees": 0.1, "said": 0.3}),
    ]
    (verdict,) = verdicts_of("cameras", found)
    assert verdict.figures == {"said": 0.2} and "camera_0 and camera_1." in verdict.sentence
