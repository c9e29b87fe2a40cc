# SPDX-License-Identifier: Apache-2.0
"""JPEG decoded by a library of the GPU: its images, its decoder, and the images that the host decodes; by stand-ins, and on a GPU by the
libraries."""

import io
import logging
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from jpeg_standins import MODULES, Calls, beside
from PIL import Image
from torch import Tensor

from nurec_lite.base.errors import ConfigError
from nurec_lite.capture.gpu_jpeg import GpuJpeg, libraries
from nurec_lite.capture.images import block_mean, decode_image
from nurec_lite.capture.jpeg import plain_jpeg
from nurec_lite.capture.types import CaptureError, Encoded, ImageFrame

CPU, SIZE = torch.device("cpu"), (33, 17)


LUMA = (0.299, 0.587, 0.114)  # of red, green and blue (JFIF)


def jpeg(seed: int = 0, mode: str = "RGB", size: tuple[int, int] = SIZE, **save: Any) -> bytes:
    """Smooth, so that decoders differ by rounding alone."""
    u, v = np.meshgrid(np.arange(size[0]), np.arange(size[1]))
    rgb = np.stack([4 * u + seed, 7 * v + seed, 200 - 3 * u], axis=-1).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(rgb).convert(mode).save(file, save.pop("kind", "JPEG"), **save)
    return file.getvalue()


@dataclass(frozen=True)
class File:
    """Stands in for the loader of an image file."""

    data: bytes
    downscale: int = 1

    def encoded(self) -> Encoded:
        return Encoded(self.data, "image 7", SIZE, self.downscale)

    def __call__(self) -> Tensor:
        return decode_image(self.encoded())


def frame(load: Any) -> ImageFrame:
    return ImageFrame("front", 0, 0.0, 0.0, torch.eye(4), torch.eye(4), load)


@pytest.fixture(params=list(MODULES))
def library(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def calls(library: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    yield Calls().install(monkeypatch, library)


# Images that go there


@pytest.mark.parametrize(
    "save", [{}, {"subsampling": 2}, {"quality": 100, "subsampling": 0}, {"exif": b"Exif\0\0MM\0*"}]
)
def test_baseline_files_of_three_components_are_plain(save: dict[str, Any]) -> None:
    assert plain_jpeg(Encoded(jpeg(**save), "", SIZE, 1))


def with_adobe(data: bytes) -> bytes:
    """Its segment says that three components are RGB."""
    return data[:2] + b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0\0" + data[2:]


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff\xd8\xff\xd9", jpeg(kind="PNG"), jpeg(progressive=True), jpeg(mode="L"), jpeg(mode="CMYK"), jpeg()[:-40], jpeg()[:-1],
     jpeg() + b"\0", jpeg(size=(32, 17)), jpeg(size=(17, 33)), with_adobe(jpeg())],
    ids=["empty", "no image", "png", "progressive", "grey", "CMYK", "cut", "one byte", "padded", "narrower", "turned", "Adobe"],
)  # fmt: skip
def test_others_are_not(data: bytes) -> None:
    assert not plain_jpeg(Encoded(data, "", SIZE, 1))


def test_damaged_headers_are_looked_at_without_an_error() -> None:
    data = jpeg()
    for at in range(2, 700):
        plain_jpeg(Encoded(data[:at] + b"\xff\xd9", "", SIZE, 1))
        plain_jpeg(Encoded(data[:at] + b"\0\0" + data[at + 2 :], "", SIZE, 1))


# Decoders


@pytest.mark.parametrize("there", [(), ("nvImageCodec",), ("torchvision",), ("nvImageCodec", "torchvision")])
def test_what_can_be_imported_is_there(monkeypatch: pytest.MonkeyPatch, there: tuple[str, ...]) -> None:
    Calls().install(monkeypatch, *there)
    assert tuple(libraries()) == there


def test_a_library_that_was_built_for_another_torch_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    class Finder:
        def find_spec(self, name: str, *_: Any) -> None:
            if name.startswith("torchvision"):
                raise RuntimeError("operator torchvision::nms does not exist")

    Calls().install(monkeypatch)
    monkeypatch.delitem(sys.modules, "torchvision.io")
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    assert libraries() == []


@pytest.mark.parametrize("downscale", [1, 2, 5])
def test_the_library_decodes_and_blocks_are_averaged_after_it(calls: Calls, library: str, downscale: int) -> None:
    decode = GpuJpeg(CPU, library)
    found = decode(frame(File(jpeg(), downscale)))
    whole = beside(decode_image(Encoded(jpeg(), "", SIZE, 1)))
    assert found.dtype == torch.uint8 and found.is_contiguous() and decode.decoded == 1
    assert torch.equal(found, block_mean(whole, downscale))


def test_nvimagecodec_decodes_on_the_gpu_and_turns_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls().install(monkeypatch, "nvImageCodec")
    GpuJpeg(torch.device("cpu"), "nvImageCodec")(frame(File(jpeg())))
    assert calls.made == {"device_id": -1, "backends": ["unit", "gpu", "both"], "options": ":fancy_upsampling=1"}
    assert all(params == {"apply_exif_orientation": False} for params in calls.params)


def test_images_that_come_meanwhile_go_there_in_one_call(calls: Calls, library: str) -> None:
    decode = GpuJpeg(CPU, library)
    inner, begun, go = decode._decoder, threading.Event(), threading.Event()
    decode._decoder = lambda files: begun.set() or (go.wait(60) and inner(files))  # type: ignore[func-returns-value]
    with ThreadPoolExecutor(6) as pool:
        found = [pool.submit(decode, frame(File(jpeg(0))))]
        assert begun.wait(60)
        found += [pool.submit(decode, frame(File(jpeg(n)))) for n in range(1, 6)]
        while len(decode._together._waiting) < 5:
            pass
        go.set()
        for n, one in enumerate(found):
            assert torch.equal(one.result(), beside(File(jpeg(n))()))
    assert [len(files) for files in calls.files[1:]] == [1, 5]  # the first was the trial


# Images that the host decodes


@pytest.mark.parametrize("data", [jpeg(kind="PNG"), jpeg(mode="L"), jpeg(progressive=True), jpeg() + b"\0"])
def test_the_host_decodes_what_is_not_plain_and_says_so_once(
    calls: Calls, library: str, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    decode = GpuJpeg(CPU, library)
    for _ in range(3):
        assert torch.equal(decode(frame(File(data))), File(data)())
    assert len(calls.files) == 1 and decode.decoded == 0
    assert [
        f"image 7 and others like it are decoded by the host: {library} gets" in r.message for r in caplog.records
    ] == [True]


def test_the_host_decodes_what_the_library_gives_back(calls: Calls, library: str) -> None:
    decode, refused = GpuJpeg(CPU, library), jpeg(3)
    calls.refused.add(refused)
    assert torch.equal(decode(frame(File(refused))), File(refused)())
    assert torch.equal(decode(frame(File(jpeg(4)))), beside(File(jpeg(4))()))


def test_the_host_decodes_what_lies_in_no_file(calls: Calls, library: str) -> None:
    image = torch.zeros(3, 4, 3, dtype=torch.uint8)
    assert GpuJpeg(CPU, library)(frame(lambda: image)) is image


@pytest.mark.parametrize(
    ("data", "message"),
    [(jpeg()[:-40], "image 7 is no whole PNG or JPEG image"), (b"\xff\xd8", "image 7 is no whole PNG or JPEG image"),
     (jpeg(size=(32, 17)), "image 7 is 32x17 pixels, but the calibration is for 33x17"),
     (jpeg(mode="CMYK"), "image 7 holds pixels of the kind CMYK")],
)  # fmt: skip
def test_errors_are_the_hosts(calls: Calls, library: str, data: bytes, message: str) -> None:
    with pytest.raises(CaptureError, match=message):
        GpuJpeg(CPU, library)(frame(File(data)))


def test_a_library_that_decodes_nothing_is_an_error(calls: Calls, library: str) -> None:
    calls.decodes = False
    with pytest.raises(ConfigError, match=rf"{library} is installed, but .* nvJPEG; .*opt.resident.jpeg=host"):
        GpuJpeg(CPU, library)


# On a GPU


@pytest.mark.gpu
@pytest.mark.parametrize(
    "save", [{"subsampling": 0}, {"subsampling": 2}, {"exif": b"Exif\0\0MM\0*"}], ids=["444", "420", "exif"]
)
@pytest.mark.parametrize("downscale", [1, 2])
def test_on_a_gpu_images_are_those_of_the_host_up_to_rounding(
    library: str, save: dict[str, Any], downscale: int
) -> None:
    """Libraries repeat or interpolate chroma that has half the resolution: they have luma in common."""
    if library not in libraries():
        pytest.skip(f"needs {library}")
    decode, device = GpuJpeg(torch.device("cuda"), library), torch.device("cuda")
    files = [File(jpeg(n, quality=95, **save), downscale) for n in range(20)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(decode, map(frame, files)))
    assert decode.decoded == 20 and all(image.device.type == device.type for image in found)
    for image, file in zip(found, files, strict=True):
        apart = image.cpu().float() - file().float()
        apart = apart if save.get("subsampling") == 0 else apart @ torch.tensor(LUMA)
        assert apart.abs().mean() < 1 and 10 * torch.log10(255**2 / apart.square().mean()) > 40
