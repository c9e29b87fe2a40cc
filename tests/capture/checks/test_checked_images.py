# SPDX-License-Identifier: Apache-2.0
"""Images that cannot be used are found before training; empty and repeated images, and those of another camera, are named."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from kitti_drive import DRIVE, write_drive
from PIL import Image
from tiny_capture import Loaded, tiny_capture
from torch import Tensor
from wrong_poses import street

from nurec_lite.capture.checks.images import check_images
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.kitti.raw import read_kitti_raw
from nurec_lite.capture.pack import read_pack, write_pack
from nurec_lite.capture.types import Capture, CaptureError


def doubts(capture: Capture) -> list[Verdict]:
    return [verdict for verdict in check_images(Sample(capture)) if verdict.level is not Level.RIGHT]


@pytest.fixture
def drive(tmp_path: Path) -> Path:
    return write_drive(tmp_path) / DRIVE


def of(drive: Path) -> list[Verdict]:
    return doubts(read_kitti_raw(drive.parents[1]))


def image_of(drive: Path, camera: str, index: int) -> Path:
    return drive / camera / "data" / f"{index:010d}.png"


def test_a_black_image_between_those_that_are_looked_at_is_found(tmp_path: Path) -> None:
    """Its file is far smaller than the others."""
    noise = [torch.randint(0, 255, (32, 64, 3), generator=torch.Generator().manual_seed(k)).byte() for k in range(32)]
    capture = replace(street(), cameras=tuple(replace(c, width=64, height=32) for c in street().cameras))
    looked = {f.index for f in Sample(capture).images_of("camera_0")}
    black = next(k for k in range(4, 16) if k not in looked)
    images = tuple(
        replace(f, load=Loaded(noise[k] * (f.index != black or f.sensor != "camera_0")))
        for k, f in enumerate(capture.images)
    )
    write_pack(replace(capture, images=images), tmp_path / "x.pack")
    (verdict,) = doubts(read_pack(tmp_path / "x.pack"))
    assert (
        f"images that were looked at of camera_0 are black (0 of 255), the first is image {black}" in verdict.sentence
    )


def test_images_of_a_drive_are_right(drive: Path) -> None:
    assert of(drive) == []


def halved(path: Path) -> None:
    Image.fromarray(np.zeros((4, 6, 3), np.uint8)).save(path)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def no_image(path: Path) -> None:
    path.write_text("not an image")


def with_alpha(path: Path) -> None:
    Image.open(path).convert("RGBA").save(path)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (halved, "is 6x4 pixels, but calib_cam_to_cam.txt is for 12x8"),
        (cut, "is no whole PNG or JPEG image"),
        (no_image, "is no whole PNG or JPEG image"),
        (with_alpha, "holds pixels of the kind RGBA"),
        (Path.unlink, ""),
    ],
)
def test_any_file_that_cannot_be_used_is_found(damage: Callable[[Path], None], sentence: str, drive: Path) -> None:
    capture = read_kitti_raw(drive.parents[1])
    damage(image_of(drive, "image_03", 2))
    with pytest.raises(CaptureError, match="image_03/data/0000000002.png.*" + sentence):
        doubts(capture)


def test_several_files_are_counted(drive: Path) -> None:
    halved(image_of(drive, "image_02", 1))
    halved(image_of(drive, "image_03", 2))
    with pytest.raises(
        CaptureError, match=r"0000000001.png is 6x4 pixels.*\(1 more files cannot be used either\)"
    ) as found:
        of(drive)
    assert str(found.value).endswith("either), or leave the frames out by 'data.without=[image_02/1,image_03/2]'")
    halved(image_of(drive, "image_02", 2))
    halved(image_of(drive, "image_03", 1))
    with pytest.raises(
        CaptureError, match=r"\(3 more files cannot be used either\)$"
    ):  # too many to train without them
        of(drive)


def test_headers_of_a_pack_are_read(tmp_path: Path) -> None:
    write_pack(tiny_capture(), tmp_path / "a.pack")
    capture = read_pack(tmp_path / "a.pack")
    wrong = replace(capture.images[7].load, size=(80, 48))  # type: ignore[type-var]
    images = (*capture.images[:7], replace(capture.images[7], load=wrong), *capture.images[8:])
    with pytest.raises(CaptureError, match="is 40x24 pixels, but the calibration is for 80x48"):
        doubts(replace(capture, images=images))


def test_grey_images_among_those_in_colour_are_reported(drive: Path) -> None:
    path = image_of(drive, "image_02", 1)
    Image.open(path).convert("L").save(path)
    (verdict,) = of(drive)
    assert verdict.sentence == "The images of image_02 are of several kinds: 2 PNG in colour and 1 PNG grey."


def test_images_of_another_camera_are_reported(drive: Path) -> None:
    for index in range(3):
        image_of(drive, "image_03", index).write_bytes(image_of(drive, "image_02", index).read_bytes())
    (verdict,) = of(drive)
    assert verdict.level is Level.CERTAIN
    assert verdict.sentence == "image_03 has the images of image_02: 3 of 3 that were looked at are the same."


def test_a_camera_that_stands_still_is_reported(drive: Path) -> None:
    for index in (1, 2):
        image_of(drive, "image_02", index).write_bytes(image_of(drive, "image_02", 0).read_bytes())
    (verdict,) = of(drive)
    assert verdict.level is Level.LIKELY and verdict.sentence.startswith(
        "2 of 3 images of image_02 repeat the image before"
    )


# ---- captures of one's own


def with_images(change: Callable[[Tensor], object]) -> Capture:
    capture = tiny_capture()
    images = tuple(replace(f, load=Loaded(change(f.load()))) for f in capture.images)
    return replace(capture, images=images)


@pytest.mark.parametrize(
    ("level", "colour"), [(255, "white (255 of 255)"), (0, "black (0 of 255)"), (90, "of one colour")]
)
def test_images_of_one_colour_are_reported(level: int, colour: str) -> None:
    first, second = doubts(with_images(lambda image: torch.full_like(image, level)))
    assert first.level is second.level is Level.LIKELY and f"All images of camera_0 are {colour}" in first.sentence


def test_some_images_of_one_colour_are_counted() -> None:
    capture = tiny_capture()
    white = Loaded(torch.full((24, 40, 3), 255, dtype=torch.uint8))
    images = tuple(replace(f, load=white) if f == capture.images[0] else f for f in capture.images)
    (verdict,) = doubts(replace(capture, images=images))
    assert verdict.sentence.startswith("1 of 8 images that were looked at of camera_0 are white")


def test_arrays_of_numpy_are_images(tmp_path: Path) -> None:
    capture = with_images(lambda image: image.numpy())
    assert doubts(capture) == []
    write_pack(capture, tmp_path / "a.pack", image_format="png")
    stored = read_pack(tmp_path / "a.pack")
    assert torch.equal(stored.images[3].load(), tiny_capture().images[3].load())


def test_arrays_of_numpy_are_sweeps(tmp_path: Path) -> None:
    capture = tiny_capture()

    def as_numpy(sweep: object) -> object:
        return replace(sweep, **{k: getattr(sweep, k).numpy() for k in sweep.__dataclass_fields__})  # type: ignore

    sweeps = tuple(replace(f, load=Loaded(as_numpy(f.load()))) for f in capture.sweeps)
    write_pack(replace(capture, sweeps=sweeps), tmp_path / "a.pack")
    assert len(read_pack(tmp_path / "a.pack").sweeps[0].load()) == len(capture.sweeps[0].load())
