# SPDX-License-Identifier: Apache-2.0
"""JPEG files of a capture, decoded on the GPU by a library that is there: nvImageCodec, else torchvision, both by NVIDIA's nvJPEG.

Only files that all decoders give alike up to rounding go there (`jpeg.plain_jpeg`), and the work after decoding is done on the
device. All others, those that the library gives back, and so all that are damaged, are decoded by the host; its errors are the run's.
"""

import io
import logging
import os
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from nurec_lite.base.errors import ConfigError
from nurec_lite.base.pool import Together
from nurec_lite.base.transfer import SideStream
from nurec_lite.capture.images import block_mean, decode_image
from nurec_lite.capture.jpeg import plain_jpeg
from nurec_lite.capture.types import Encoded, ImageFrame

log = logging.getLogger("nurec_lite")
Decoder = Callable[[Sequence[bytes]], Sequence[Tensor | None]]  # files -> [H, W, 3] uint8 each; None: it could not


def nvimagecodec(device: torch.device, stream: int) -> Decoder:
    """A decoder of images of any size, by the GPU's own unit for JPEG where it has one. Chroma is interpolated, as the host does it."""
    codec: Any = import_module("nvidia.nvimgcodec")
    kinds = codec.BackendKind
    backends = [codec.Backend(kind) for kind in (kinds.HW_GPU_ONLY, kinds.GPU_ONLY, kinds.HYBRID_CPU_GPU)]
    number = -1 if device.index is None else device.index  # -1: the present one
    decoder = codec.Decoder(device_id=number, backends=backends, options=":fancy_upsampling=1")
    as_it_lies = codec.DecodeParams(apply_exif_orientation=False)  # as the host decodes

    def decode(files: Sequence[bytes]) -> list[Tensor | None]:
        made = decoder.decode(list(files), params=as_it_lies, cuda_stream=stream)
        return [None if image is None else torch.from_dlpack(image) for image in made]

    return decode


def torchvision(device: torch.device, stream: int) -> Decoder:
    """A decoder of all files or none: the library does not name the file that failed. It lets the present stream wait for its own."""
    library: Any = import_module("torchvision.io")

    def decode(files: Sequence[bytes]) -> list[Tensor | None]:
        encoded = [torch.frombuffer(bytearray(data), dtype=torch.uint8) for data in files]
        try:
            made = library.decode_jpeg(encoded, mode=library.ImageReadMode.RGB, device=device)
        except RuntimeError:
            return [None] * len(files)
        return [planes.permute(1, 2, 0) for planes in made]

    return decode


_LIBRARIES = {
    "nvImageCodec": ("nvidia.nvimgcodec", nvimagecodec),
    "torchvision": ("torchvision.io", torchvision),
}


def libraries() -> list[str]:
    """Libraries that can be imported, in the order of choice."""
    # or nvImageCodec would tell of all formats that it lacks a library for
    os.environ.setdefault("PYNVIMGCODEC_VERBOSITY", "0")
    return [name for name, (module, _) in _LIBRARIES.items() if _importable(module)]


def _importable(module: str) -> bool:
    """Whether a library can be imported; one that was built for another torch or CUDA cannot."""
    try:
        import_module(module)
    except (ImportError, OSError, RuntimeError):
        return False
    return True


class GpuJpeg:
    """Decodes images for several threads: their images go to the library in one call."""

    def __init__(self, device: torch.device, library: str) -> None:
        self.decoded = 0  # by the library
        self._library, self._warned = library, False
        self._side = SideStream(device)  # of one thread at a time: its free memory is unused
        with self._side.inside():
            self._decoder = _LIBRARIES[library][1](device, self._side.handle)
        self._together: Together[Encoded, Tensor | None] = Together(self._decode)
        self._try()

    def __call__(self, frame: ImageFrame) -> Tensor:  # [H, W, 3] uint8, on the device and there, or on the host
        encoded = frame.encoded()
        if encoded is None:
            return frame.load()
        pixels = self._together(encoded) if plain_jpeg(encoded) else None
        return self._by_host(encoded) if pixels is None else pixels

    def _decode(self, images: Sequence[Encoded]) -> list[Tensor | None]:
        with self._side.inside():
            made = self._decoder([image.data for image in images])
            kept = [None if p is None else _reduced(p, image.downscale) for p, image in zip(made, images, strict=True)]
        self._side.finish()  # before the library takes its memory back
        self.decoded += sum(pixels is not None for pixels in kept)
        return kept

    def _by_host(self, image: Encoded) -> Tensor:
        if not self._warned:
            self._warned = True
            log.warning(
                "%s and others like it are decoded by the host: %s gets whole baseline JPEGs of three components alone",
                image.name, self._library,
            )  # fmt: skip
        return decode_image(image)

    def _try(self) -> None:
        """A library may be there and lack nvJPEG; it would then leave every image to the host."""
        file = io.BytesIO()
        Image.new("RGB", (16, 16)).save(file, "JPEG")
        found = self._together(Encoded(file.getvalue(), "a trial", (16, 16), 1))
        if found is None or found.shape != (16, 16, 3):
            raise ConfigError(
                f"{self._library} is installed, but does not decode a JPEG here, as without NVIDIA's library nvJPEG; install that "
                "one, or use opt.resident.jpeg=host"
            )
        self.decoded = 0


def _reduced(pixels: Tensor, downscale: int) -> Tensor:
    """The reduced image in memory of torch's own."""
    return block_mean(pixels, downscale).clone(memory_format=torch.contiguous_format)
