# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for the libraries that decode JPEG on a GPU: they decode by Pillow, on the host, and one level beside it, so that a test sees
which decoder worked."""

import io
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

MODULES = {"nvImageCodec": "nvidia.nvimgcodec", "torchvision": "torchvision.io"}


def beside(pixels: Tensor) -> Tensor:
    """Pixels of a stand-in where the host gives these."""
    return pixels ^ 1


class Calls:
    """Requests to the stand-ins; `refuses` names the files that they cannot decode."""

    def __init__(self) -> None:
        self.files: list[list[bytes]] = []  # of each call
        self.made: dict[str, Any] = {}  # arguments that made nvImageCodec's decoder
        self.params: list[Any] = []
        self.refused: set[bytes] = set()
        self.decodes = True

    def pixels(self, data: bytes) -> np.ndarray | None:  # [H, W, 3] uint8
        if data in self.refused or not self.decodes:
            return None
        return np.array(Image.open(io.BytesIO(data)).convert("RGB")) ^ 1

    def nvimagecodec(self) -> SimpleNamespace:
        kinds = SimpleNamespace(CPU_ONLY="cpu", GPU_ONLY="gpu", HW_GPU_ONLY="unit", HYBRID_CPU_GPU="both")

        def decode(files: Sequence[bytes], params: Any, cuda_stream: int) -> list[np.ndarray | None]:
            self.files.append(list(files))
            self.params.append(params)
            return [self.pixels(data) for data in files]

        def decoder(**given: Any) -> SimpleNamespace:
            self.made = given
            return SimpleNamespace(decode=decode)

        return SimpleNamespace(BackendKind=kinds, Backend=lambda kind: kind, Decoder=decoder, DecodeParams=dict)

    def torchvision(self) -> SimpleNamespace:
        def decode(files: Sequence[Tensor], mode: str, device: torch.device) -> list[Tensor]:
            self.files.append([file.numpy().tobytes() for file in files])
            made = [self.pixels(data) for data in self.files[-1]]
            if any(pixels is None for pixels in made) or mode != "RGB":
                raise RuntimeError("nvjpegDecode failed: 5")
            return [torch.from_numpy(pixels).permute(2, 0, 1) for pixels in made]

        return SimpleNamespace(decode_jpeg=decode, ImageReadMode=SimpleNamespace(RGB="RGB"))

    def install(self, monkeypatch: pytest.MonkeyPatch, *libraries: str) -> "Calls":
        """These, and no others."""
        made = {"nvImageCodec": self.nvimagecodec, "torchvision": self.torchvision}
        for name, module in MODULES.items():
            monkeypatch.setitem(sys.modules, module, made[name]() if name in libraries else None)
        return self
