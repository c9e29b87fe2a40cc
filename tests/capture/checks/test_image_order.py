# SPDX-License-Identifier: Apache-2.0
"""Images of a camera in another order than in time, and those that are wrong from the middle of a drive on."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

import pytest
from tiny_capture import ROOT

from nurec_lite.capture.checks.cameras import check_cameras
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.pack import read_pack
from nurec_lite.capture.types import Capture, ImageFrame

Order = Callable[[int], tuple[str, int]]  # number of an image of camera_0 -> camera and number of the file that it has


@lru_cache(maxsize=1)
def street() -> Capture:
    return read_pack(ROOT / "data/street.pack")


def doubts(capture: Capture) -> list[Verdict]:
    return [v for v in check_cameras(Sample(capture)) if v.level in (Level.LIKELY, Level.CERTAIN)]


def ordered(order: Order) -> Capture:
    files = {(f.sensor, f.index): f.load for f in street().images}

    def other(frame: ImageFrame) -> ImageFrame:
        return replace(frame, load=files[order(frame.index)]) if frame.sensor == "camera_0" else frame

    return replace(street(), images=tuple(map(other, street().images)))


AS_TEXT: Sequence[int] = sorted(range(50), key=str)


@pytest.mark.parametrize(
    ("order", "level", "sentence"),
    [
        (lambda k: ("camera_0", 49 - k), Level.CERTAIN, "Images of camera_0 are in reverse order"),
        (lambda k: ("camera_0", AS_TEXT[k]), Level.CERTAIN, "Images of camera_0 are sorted as text"),
        (
            lambda k: ("camera_1" if k >= 25 else "camera_0", k),
            Level.LIKELY,
            "From about image 26 on, edges of the lidar agree with the images of camera_0 if these are images of camera_1",
        ),
        (
            lambda k: ("camera_0", min(49, k + (k >= 25))),
            Level.LIKELY,
            "with the images of camera_0 if the images were taken 0.10 s (1 frame) later",
        ),
    ],
)
def test_images_in_another_order_are_named(order: Order, level: Level, sentence: str) -> None:
    (found,) = doubts(ordered(order))
    assert found.level is level and sentence in found.sentence
    assert found.remedy is not None and found.remedy.startswith("restore the order of its files")


@pytest.mark.parametrize("count", [1, 2, 5])
def test_few_images_show_no_order(count: int) -> None:
    kept = [f for f in ordered(lambda k: ("camera_0", 49 - k)).images if f.index < count]
    assert doubts(replace(street(), images=tuple(kept), sweeps=street().sweeps[:count])) == []
