# SPDX-License-Identifier: Apache-2.0
"""Images that change at once to other colours or another brightness, and cameras that see points in opposite colours."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial

import pytest
import torch
from pandaset_drive import needs_pandaset, read_pandaset
from tiny_capture import ROOT
from torch import Tensor

from nurec_lite.capture.checks.channels import opposite_channels
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.tones import changed_at_once
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.pack import read_pack
from nurec_lite.capture.types import Capture, ImageFrame

Change = Callable[[Tensor], Tensor]


@lru_cache(maxsize=1)
def street() -> Capture:
    return read_pack(ROOT / "data/street.pack")


def doubts(capture: Capture) -> list[Verdict]:
    sample = Sample(capture)
    at_once = [v for camera in capture.cameras for v in changed_at_once(sample, camera.name, "images")]
    return [*at_once, *opposite_channels(sample, "images")]


def shown(change: Change, first: int = 25, last: int = 50) -> Capture:
    """Images of the first camera, from one on."""
    chosen = (f.sensor == "camera_0" and first <= f.index < last for f in street().images)
    pairs = zip(street().images, chosen, strict=True)
    return replace(street(), images=tuple(seen_as(f, change) if odd else f for f, odd in pairs))


def seen_as(frame: ImageFrame, change: Change) -> ImageFrame:
    return replace(frame, load=lambda: change(frame.load()))


def bgr(image: Tensor) -> Tensor:
    return image.flip(2)


def grey(image: Tensor) -> Tensor:
    return image.float().mean(2, keepdim=True).to(torch.uint8).expand(-1, -1, 3)


def brighter(factor: float, plus: float = 0.0) -> Change:
    return lambda image: (factor * image.float() + plus).clamp(0, 255).to(torch.uint8)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (bgr, "have red and blue exchanged against those before"),
        (grey, "are grey, those before in colour"),
        (brighter(0.15), "are 0.17 times as bright as those before"),
        (brighter(1.0, 140.0), "are 1.82 times as bright as those before"),
    ],
)
def test_images_of_another_tone_from_one_on_are_named(change: Change, words: str) -> None:
    (found,) = doubts(shown(change))
    assert found.level is Level.LIKELY and found.sentence == f"From image 25 on, images of camera_0 {words}."


def test_the_first_images_may_be_the_odd_ones() -> None:
    (found,) = doubts(shown(grey, 0, 11))
    assert found.sentence == "From image 11 on, images of camera_0 are in colour, those before grey."


def test_an_exposure_that_adapts_is_right() -> None:
    images = (seen_as(f, brighter(min(1.0, 0.3 + 0.07 * max(0, f.index - 20)))) for f in street().images)
    assert doubts(replace(street(), images=tuple(images))) == []


def test_few_images_are_decoded_of_a_slow_change() -> None:
    """Exposures of long drives drift between all images that are looked at: seven pairs, each with six to nine images between them."""
    looked_at = list[int]()

    def darker(frame: ImageFrame) -> Tensor:
        looked_at.append(frame.index)
        return brighter(0.94**frame.index)(frame.load())

    frames = [frame for frame in street().images if frame.sensor == "camera_0"]
    images = tuple(replace(frame, load=partial(darker, frame)) for frame in frames)
    assert doubts(replace(street(), images=images, cameras=street().cameras[:1], sweeps=(), lidars=())) == []
    assert len(looked_at) <= 8 + 7 * 2


def test_channels_of_one_camera_are_held_against_the_other() -> None:
    (found,) = doubts(shown(bgr, 0))
    assert found.level is Level.LIKELY
    assert found.sentence.startswith("Red and blue are exchanged in one of camera_0 and camera_1: points that both see")


def test_a_right_drive_is_not_doubted() -> None:
    assert doubts(street()) == []


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_frames_tell_nothing(count: int) -> None:
    some = {kind: getattr(street(), kind)[:count] for kind in ("images", "sweeps")}
    assert doubts(replace(street(), **some)) == []
    assert doubts(replace(street(), images=street().images[:count], sweeps=())) == []
    assert (
        doubts(replace(street(), images=street().images[:count], sweeps=(), lidars=(), cameras=street().cameras[:1]))
        == []
    )


@pytest.mark.slow
@needs_pandaset
def test_the_camera_that_contradicts_others_is_named() -> None:
    capture = read_pandaset(("front_camera", "front_left_camera", "left_camera"), downscale=4)
    assert doubts(capture) == []
    images = (seen_as(f, bgr) if f.sensor == "front_camera" else f for f in capture.images)
    (found,) = doubts(replace(capture, images=tuple(images)))
    assert found.subject == "front_camera" and "Red and blue of front_camera seem to be exchanged" in found.sentence
