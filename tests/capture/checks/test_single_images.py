# SPDX-License-Identifier: Apache-2.0
"""Single images that differ from those before and after."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from io import BytesIO

import pytest
import torch
from PIL import Image
from tiny_capture import ROOT
from torch import Tensor

from nurec_lite.capture.checks.images import _repeated_verdicts
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.single_images import single_images
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.images import FIRST, LAST
from nurec_lite.capture.pack import read_pack
from nurec_lite.capture.types import Encoded, Glance, ImageFrame

Change = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class File:
    """An image as the PNG file that it would be."""

    image: Tensor

    def __call__(self) -> Tensor:
        return self.image

    def encoded(self) -> Encoded:
        file = BytesIO()
        Image.fromarray(self.image.numpy()).save(file, "PNG")
        return Encoded(file.getvalue(), "one.png", (self.image.shape[1], self.image.shape[0]), 1)

    def glance(self) -> Glance:
        one = self.encoded()
        return Glance(replace(one, data=one.data[:FIRST]), one.data[-LAST:], len(one.data))


def frames() -> list[ImageFrame]:
    capture = read_pack(ROOT / "data/street.pack")
    return [replace(f, load=File(f.load())) for f in capture.images if f.sensor == "camera_0" and f.index < 20]


def doubts(images: list[ImageFrame]) -> list[Verdict]:
    return list(single_images(Sample(read_pack(ROOT / "data/street.pack")), images, "images"))


def damaged(image: Tensor) -> Tensor:
    return torch.cat([image[:48], torch.full_like(image[48:], 128)])


def noise(image: Tensor) -> Tensor:
    return torch.randint(0, 256, image.shape, generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda image: (0.1 * image.float()).to(torch.uint8), "is 0.12 times as bright as"),
        (lambda image: image[:, :, :1].expand(-1, -1, 3).contiguous(), "is grey, unlike"),
        (damaged, "shows another view than"),
        (noise, "shows another view than"),
        (lambda image: image.flip(1), "is mirrored against"),
        (lambda image: image.flip(2), "has red and blue exchanged against"),
    ],
)
def test_a_single_image_that_is_odd_is_named(change: Change, words: str) -> None:
    images = frames()
    images[11] = replace(images[11], load=File(change(images[11].load()).contiguous()))
    (found,) = doubts(images)
    assert found.level is Level.LIKELY
    assert found.sentence == f"Image 11 of camera_0 {words} the images before and after it."
    assert found.remedy == "restore it, or leave the frame out by 'data.without=[camera_0/11]'"
    assert doubts([*images[:11], *images[12:]]) == []


def test_right_images_and_few_ones_are_no_finding() -> None:
    images = frames()
    assert doubts(images) == [] and doubts(images[:8]) == [] and doubts([]) == []


def test_an_image_with_the_file_of_another_is_named() -> None:
    images = frames()
    images[11] = replace(images[11], load=images[6].load)
    (found,) = _repeated_verdicts(images)
    assert found.sentence == "Images 6 and 11 of camera_0 have the same file, although the vehicle moves."
    assert list(_repeated_verdicts(frames())) == [] and list(_repeated_verdicts([])) == []
