# SPDX-License-Identifier: Apache-2.0
"""JPEG files that lack pixels: damaged middles, lost halves, tails of zeros. Pillow and libjpeg decode them without an error."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from io import BytesIO

import pytest
from PIL import Image
from tiny_capture import ROOT
from torch import Tensor

from nurec_lite.capture import images as decoding
from nurec_lite.capture.checks.damaged import damaged_images
from nurec_lite.capture.checks.images import _of_camera, kinds_of
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.images import FIRST, LAST, decode_image, small_copy
from nurec_lite.capture.jpeg import damage_of
from nurec_lite.capture.pack import read_pack
from nurec_lite.capture.types import Encoded, Glance, ImageFrame

Damage = Callable[[bytes], bytes]
EOI = b"\xff\xd9"
DAMAGES: dict[str, Damage] = {
    "bytes lost": lambda data: data[: len(data) // 2] + data[len(data) // 2 + 512 :],
    "bytes zeroed": lambda data: data[: len(data) // 2] + bytes(512) + data[len(data) // 2 + 512 :],
    "a half lost": lambda data: data[: len(data) // 2] + EOI,
}
HARMLESS: dict[str, Damage] = {
    "whole": lambda data: data,
    "some bytes before the end": lambda data: data[:-2] + b"camera" + EOI,
    "zeros before the end": lambda data: data[:-2] + bytes(600) + EOI,
    "zeros after the end": lambda data: data + bytes(2 * LAST),
}


@dataclass(frozen=True)
class File:
    """An image as a JPEG file."""

    data: bytes
    size: tuple[int, int]

    def __call__(self) -> Tensor:
        return decode_image(self.encoded())

    def encoded(self) -> Encoded:
        return Encoded(self.data, "one.jpg", self.size, 1)

    def glance(self) -> Glance:
        one = self.encoded()
        return Glance(replace(one, data=one.data[:FIRST]), one.data[-LAST:], len(one.data))


def file_of(frame: ImageFrame) -> File:
    file, image = BytesIO(), Image.fromarray(frame.load().numpy())
    image.save(file, "JPEG", quality=95)
    return File(file.getvalue(), image.size)


@pytest.fixture(scope="module")
def frames() -> list[ImageFrame]:
    capture = read_pack(ROOT / "data/street.pack")
    some = [f for f in capture.images if f.sensor == "camera_0" and f.index < 20]
    return [replace(frame, load=file_of(frame)) for frame in some]


@pytest.fixture(autouse=True)
def turbo() -> None:
    pytest.importorskip("simplejpeg")  # without it damage is not known


def doubts(frames: list[ImageFrame], check: Callable[..., object] = damaged_images) -> list[Verdict]:
    return list(check(sample_of(frames), frames, "images"))  # type: ignore[call-overload]


def sample_of(frames: list[ImageFrame]) -> Sample:
    return Sample(replace(read_pack(ROOT / "data/street.pack"), images=tuple(frames)))


def changed(frames: list[ImageFrame], change: Damage, *places: int) -> list[ImageFrame]:
    return [
        replace(f, load=replace(f.load, data=change(f.load.data))) if k in places else f for k, f in enumerate(frames)
    ]


@pytest.mark.parametrize("name", DAMAGES)
def test_images_that_lack_pixels_are_named(frames: list[ImageFrame], name: str) -> None:
    (one,) = doubts(changed(frames, DAMAGES[name], 11))
    assert one.level is Level.LIKELY
    words = r"premature end of data segment|\d+ extraneous bytes before marker 0xd9"
    assert re.fullmatch(
        rf"Image 11 of camera_0 lacks pixels \(libjpeg: ({words})\)\. Lost pixels are grey\.", one.sentence
    )
    assert one.remedy == "copy it again from its source, or leave the frame out by 'data.without=[camera_0/11]'"
    (three,) = doubts(changed(frames, DAMAGES[name], 4, 11, 12))
    assert "Image 4 of camera_0 lacks" in three.sentence
    assert "; 2 more of the 20 images that were looked at do, too." in three.sentence
    assert str(three.remedy).endswith("or leave the frames out by 'data.without=[camera_0/4,camera_0/11-12]'")


@pytest.mark.parametrize("name", HARMLESS)
def test_whole_images_are_none(frames: list[ImageFrame], name: str) -> None:
    assert doubts(changed(frames, HARMLESS[name], 3, 11)) == []


def test_a_damaged_image_is_named_once(frames: list[ImageFrame]) -> None:
    """It differs from those before and after, too."""
    damaged = changed(frames, DAMAGES["a half lost"], 11)
    sample = sample_of(damaged)
    (camera,) = (c for c in sample.capture.cameras if c.name == "camera_0")
    assert ["Image 11" in v.sentence for v in _of_camera(sample, camera) if v.level is not Level.RIGHT] == [True]


def test_a_file_whose_tail_is_zeros_cannot_be_used(frames: list[ImageFrame]) -> None:
    """A crash during a copy leaves one. Pillow decodes it."""
    damaged = changed(frames, lambda data: data[: len(data) // 2] + bytes(len(data) - len(data) // 2), 11)
    damaged[11].load()
    _, flaws = kinds_of(sample_of(damaged), "camera_0")
    assert flaws == {11: "one.jpg is no whole JPEG image (Premature end of JPEG file); copy it again from its source"}
    padded = changed(frames, HARMLESS["zeros after the end"], 11)
    assert kinds_of(sample_of(padded), "camera_0")[1] == {}


@pytest.mark.parametrize(
    ("size", "damage"),
    [((192, 96), "whole"), ((190, 91), "whole"), ((17, 9), "whole"), ((8, 8), "whole"), ((190, 91), "a half lost")],
)
def test_small_copies_are_those_of_pillow(
    frames: list[ImageFrame], size: tuple[int, int], damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, picture = BytesIO(), Image.fromarray(frames[0].load().numpy()).resize(size)
    picture.save(file, "JPEG", quality=95)
    one = Encoded((DAMAGES | HARMLESS)[damage](file.getvalue()), "one.jpg", size, 1)
    found = small_copy(one, (10, 6))
    assert damage_of(one) == found.damage
    monkeypatch.setattr(decoding, "turbo", lambda: None)
    assert found.pixels.equal(small_copy(one, (10, 6)).pixels)
