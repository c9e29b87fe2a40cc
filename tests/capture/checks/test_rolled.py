# SPDX-License-Identifier: Apache-2.0
"""A lidar, or one camera, that leans to a side by a degree or two."""

from dataclasses import replace
from functools import lru_cache, partial

import pytest
from tiny_capture import ROOT

from nurec_lite.capture.checks.cameras import CHECK
from nurec_lite.capture.checks.rolled import about_axis, about_view, rolled
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level
from nurec_lite.capture.pack import read_pack
from nurec_lite.capture.types import Capture


@lru_cache
def street() -> Capture:
    return read_pack(ROOT / "data" / "street.pack")


def found(capture: Capture) -> str:
    verdict = rolled(Sample(capture), CHECK, [])
    return "" if verdict is None else verdict.text


def leaning(capture: Capture, degrees: float) -> Capture:
    (lidar,) = capture.lidars
    return replace(capture, lidars=(replace(lidar, T_rig_lidar=lidar.T_rig_lidar.double() @ about_axis(0, degrees)),))


@pytest.mark.parametrize(("degrees", "side"), [(2.0, "left"), (-2.0, "right")])
def test_a_lidar_that_leans_is_named_with_its_side(degrees: float, side: str) -> None:
    words = f"if lidar leans 2.0° farther to its {side}, or all cameras to the other side; correct T_rig_lidar of lidar"
    assert words in found(leaning(street(), degrees))


def test_a_single_camera_that_leans_is_named() -> None:
    first, *rest = street().cameras
    text = found(replace(street(), cameras=(about_view(first, 2.0), *rest)))
    assert "images of camera_0 if it is turned 2.0° about its view, counter-clockwise; correct its mounting" in text


def test_findings_about_all_cameras_are_one_about_the_lidar() -> None:
    capture, rolled_as = leaning(street(), 2.0), partial(rolled, check=CHECK)
    both = rolled_as(Sample(capture), doubted=[Level.LIKELY, Level.CERTAIN])
    assert both is not None and both.level is Level.CERTAIN and both.subject == "lidar"
    assert rolled_as(Sample(capture), doubted=[Level.LIKELY]) is None  # the camera is named


def test_right_mountings_are_not_doubted() -> None:
    assert found(street()) == ""
    assert found(leaning(street(), 0.3)) == ""


@pytest.mark.parametrize("frames", [0, 1, 2])
def test_few_frames_tell_nothing(frames: int) -> None:
    capture = leaning(street(), 2.0)
    assert found(replace(capture, images=capture.images[:frames])) == ""
    assert found(replace(capture, sweeps=capture.sweeps[:frames])) == ""
