# SPDX-License-Identifier: Apache-2.0
"""Simulated drives whose cameras have lenses beyond the pinhole."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from test_simulate import EXACT, SMALL, pixel_points

from nurec_lite.capture.simulate import simulate
from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.camera import pixel_directions


@pytest.mark.parametrize("lens", ["fisheye", "ftheta"])
def test_wide_lenses_see_the_street_behind_them(lens: str) -> None:
    """Points of pixels of a ring of six cameras lie on the ground, also those that a camera sees beyond 90 degrees from its axis."""
    config = replace(EXACT, lens=lens, hfov_deg=200.0, cameras=6, moving_cars=0, parked_cars=0, frames=1)
    capture = simulate(config)
    points, _ = pixel_points(capture, capture.images[0])
    behind = pixel_directions(capture.cameras[0])[..., 2] < -0.05
    low = behind & (torch.arange(config.height)[:, None] > 0.7 * config.height)
    assert low.any() and (points[low][:, 2].abs() < 1e-6).float().mean() > 0.5


@pytest.mark.parametrize(
    "change, sentence",
    [
        ({"lens": "brown"}, "lens is 'brown', but must be one of pinhole, fisheye, mei, ftheta"),
        ({"hfov_deg": 200.0}, "a pinhole sees 170 degrees at most"),
        ({"lens": "fisheye", "distortion": (0.1,) * 5}, "a fisheye lens has 0 or 4 or 8"),
    ],
)
def test_lenses_that_do_not_exist(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CaptureError, match=sentence):
        replace(SMALL, **change)
