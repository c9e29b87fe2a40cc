# SPDX-License-Identifier: Apache-2.0
"""A focal length or a distortion that is a little off is not blamed on a camera's clock, and a clock not on the lens."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import pytest
from late_capture import with_clock
from tiny_capture import ROOT

from nurec_lite.capture.checks.cameras import check_cameras
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.pack import read_pack
from nurec_lite.capture.types import Capture
from nurec_lite.geometry.camera import Camera


@lru_cache(maxsize=1)
def street() -> Capture:
    return read_pack(ROOT / "data/street.pack").with_split("interp")


def doubt(capture: Capture) -> Verdict:
    (found,) = (v for v in check_cameras(Sample(capture)) if v.level in (Level.LIKELY, Level.CERTAIN))
    return found


def zoomed(factor: float) -> Callable[[Camera], Camera]:
    return lambda camera: replace(camera, fx=factor * camera.fx, fy=factor * camera.fy)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (zoomed(0.95), "if fx and fy are 1.05 times those of the capture (contrast"),
        (zoomed(0.98), "if fx and fy are 1.02 times those of the capture (contrast"),
        (zoomed(1.03), "if fx and fy are 0.97 times those of the capture, or "),
        (lambda c: replace(c, distortion=(-0.35, 0.15, 0.0, 0.0, 0.0)), "if its images have no distortion"),
        (lambda c: replace(c, lens="fisheye"), "if its lens is pinhole, not fisheye"),
    ],
)
def test_a_lens_that_is_off_is_named(change: Callable[[Camera], Camera], sentence: str) -> None:
    first, *others = street().cameras
    found = doubt(replace(street(), cameras=(change(first), *others)))
    assert found.subject == "camera_0" and sentence in found.sentence and found.remedy is not None


def test_a_clock_that_is_off_is_named() -> None:
    found = doubt(with_clock(street(), "camera_0", 0.05))
    assert "camera_0 if the images were taken 0.05 s earlier than their stamps say" in found.sentence
