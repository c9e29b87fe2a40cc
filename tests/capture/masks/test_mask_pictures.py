# SPDX-License-Identifier: Apache-2.0
"""A mask is the same from every kind of PNG, and a picture that is no mask of the camera is refused in a sentence."""

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_capture import tiny_capture
from torch import Tensor

from nurec_lite.capture.check import check_capture
from nurec_lite.capture.masks.choice import masked
from nurec_lite.capture.masks.pictures import decode_mask, encode_mask
from nurec_lite.capture.ncore.read import read_ncore
from nurec_lite.capture.ncore.write import write_ncore
from nurec_lite.capture.pack import read_pack, write_pack
from nurec_lite.capture.types import CaptureError
from nurec_lite.config import DataConfig
from nurec_lite.readers import read_capture

W, H = 40, 24
MASK = np.zeros((H, W), bool)
MASK[17:, 3:] = True
GREY = MASK.astype(np.uint8)


def rgba(colour: np.ndarray, alpha: np.ndarray | int) -> Image.Image:
    return Image.fromarray(np.dstack([colour, colour, colour, np.broadcast_to(alpha, (H, W))]).astype(np.uint8))


KINDS: dict[str, Callable[[], Image.Image]] = {
    "1 bit": lambda: Image.fromarray(MASK),
    "8 bits": lambda: Image.fromarray(255 * GREY),
    "labels 0 and 1": lambda: Image.fromarray(GREY),
    "16 bits": lambda: Image.fromarray(65535 * GREY.astype(np.uint16)),
    "RGB": lambda: Image.fromarray(255 * GREY).convert("RGB"),
    "red on black": lambda: Image.fromarray(np.dstack([255 * GREY, 0 * GREY, 0 * GREY])),
    "palette": lambda: Image.fromarray(255 * GREY).convert("P"),
    "grey and alpha": lambda: Image.fromarray(255 * GREY).convert("LA"),
    "opaque": lambda: rgba(255 * GREY, 255),
    "dark on clear": lambda: rgba(0 * GREY, 255 * GREY),
}


def png(picture: Image.Image, form: str = "PNG") -> bytes:
    with io.BytesIO() as file:
        picture.save(file, form)
        return file.getvalue()


def decoded(data: bytes) -> Tensor | None:
    return decode_mask(data, "masks/front.png", (W, H), "camera front")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_png_gives_the_same_mask(kind: str) -> None:
    found = decoded(png(KINDS[kind]()))
    assert found is not None and torch.equal(found, torch.from_numpy(MASK))


def test_a_mask_of_nothing_is_none_and_files_have_one_bit_a_pixel() -> None:
    assert decoded(png(Image.new("L", (W, H)))) is None
    data = encode_mask(torch.from_numpy(MASK))
    found = decoded(data)
    assert found is not None and np.array_equal(found, MASK) and Image.open(io.BytesIO(data)).mode == "1"


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (png(Image.new("L", (W, H), 255)), "leaves 0 % of the images of camera front; white pixels are left out"),
        (
            png(Image.new("L", (20, 12))),
            "is 20x12 pixels, but the images of camera front are 40x24; make the mask as large",
        ),
        (png(Image.linear_gradient("L").resize((W, H))), "is no mask: 9. % of its pixels are neither black nor white"),
        (png(Image.new("L", (W, H)), "JPEG"), "is no PNG; save the mask as a PNG"),
        (png(Image.fromarray(MASK))[:60], "is no whole PNG or JPEG image"),
        (b"", "is no PNG"),
    ],
)
def test_what_is_no_mask_is_refused(data: bytes, sentence: str) -> None:
    with pytest.raises(CaptureError, match=rf"masks/front\.png {sentence}"):
        decoded(data)


def folder(tmp_path: Path, **pictures: Image.Image) -> str:
    for name, picture in pictures.items():
        (tmp_path / f"{name}.png").write_bytes(png(picture))
    return str(tmp_path)


def test_a_folder_gives_masks_to_its_cameras_and_the_images_are_reduced_with_them(tmp_path: Path) -> None:
    left = np.zeros((96, 192), bool)
    left[90:, 7] = True
    config = DataConfig(masks=folder(tmp_path, camera_0=Image.fromarray(left)), frames=[0, 4], downscale=4)
    first, second = read_capture(config).cameras
    expected = torch.zeros(24, 48, dtype=torch.bool)
    expected[22:, 1] = True
    assert first.mask is not None and torch.equal(first.mask, expected) and second.mask is None


def test_folders_without_a_use_are_refused(tmp_path: Path) -> None:
    capture = tiny_capture()
    for asked, sentence in ((tmp_path / "none", "which is no folder"), (tmp_path, "which holds no PNG")):
        with pytest.raises(CaptureError, match=f"data.masks is {asked}, {sentence}"):
            masked(capture, str(asked), False, 1)
    asked = folder(tmp_path, camera_0=Image.fromarray(MASK), camera_7=Image.fromarray(MASK))
    with pytest.raises(CaptureError, match=r"camera_7\.png is named after no camera of street_0, which has camera_0"):
        masked(capture, asked, False, 1)
    assert masked(capture, asked, True, 1).cameras[0].mask is not None  # other cameras were chosen


def test_packs_and_ncore_keep_masks_and_none_drops_them(tmp_path: Path) -> None:
    capture = tiny_capture()
    own = replace(capture.cameras[0], mask=torch.from_numpy(MASK))
    capture = replace(capture, cameras=(own, capture.cameras[1]))
    write_pack(capture, tmp_path / "a.pack")
    write_ncore(capture, tmp_path / "a.zarr.itar")
    for back in (read_pack(tmp_path / "a.pack"), read_ncore(tmp_path / "a.zarr.itar")):
        first, second = back.cameras
        assert first.mask is not None and np.array_equal(first.mask, MASK) and second.mask is None
        assert masked(back, "none", False, 1).cameras[0].mask is None and masked(back, None, False, 1) is back
    small = read_pack(tmp_path / "a.pack", downscale=4).cameras[0].mask
    assert small is not None and small.shape == (6, 10) and bool(small[4:].all())


def test_a_mask_that_fits_no_image_is_a_flaw_of_the_capture() -> None:
    capture = tiny_capture()
    for mask, flaw in (
        (torch.zeros(H, W), r"a mask of float32 \[24, 40\], but must have one of bool \[24, 40\]"),
        (torch.zeros(W, H, dtype=torch.bool), r"a mask of bool \[40, 24\], but must"),
        (torch.ones(H, W, dtype=torch.bool), "a mask that leaves no pixel"),
    ):
        wrong = replace(capture, cameras=(replace(capture.cameras[0], mask=mask), capture.cameras[1]))
        with pytest.raises(CaptureError, match=f"camera camera_0 has {flaw}"):
            check_capture(wrong, "tiny")
