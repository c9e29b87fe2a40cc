# SPDX-License-Identifier: Apache-2.0
"""LPIPS with AlexNet (Zhang et al. 2018, "The Unreasonable Effectiveness of Deep Features as a Perceptual Metric"), version 0.1.

Its weights are not downloaded: the metric is computed where they lie on the machine. AlexNet's are those that torchvision keeps in
torch's hub cache, the linear ones those of the package lpips, or `lpips_alex.pth` in the same cache.
"""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

ALEXNET, LINEAR = "alexnet-owt-*.pth", "lpips_alex.pth"
_SHIFT, _SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)  # of channels from -1 to 1
_CONVOLUTIONS = ((0, 4, 2), (3, 1, 2), (6, 1, 1), (8, 1, 1), (10, 1, 1))  # number among the layers, stride, padding
_POOLED = (3, 6)  # layers that take the maximum of 3 x 3 first
LEAST = 63  # pixels of a side: smaller images have no fifth layer


class LpipsError(ValueError):
    """LPIPS cannot be computed here; the message says which weights lack."""


@dataclass(frozen=True)
class Lpips:
    """Weights on the device."""

    layers: list[tuple[Tensor, Tensor]]  # weights and bias of the five convolutions
    linear: list[Tensor]  # [1, C, 1, 1] of each

    def __call__(
        self,
        rendered: Tensor,  # [H, W, 3] 0 to 1
        target: Tensor,  # [H, W, 3] 0 to 1
        mask: Tensor | None = None,  # [H, W] bool, pixels that do not count: a place of a layer weighs by those that do
    ) -> float:
        if min(rendered.shape[:2]) < LEAST:
            raise LpipsError(f"images have {rendered.shape[1]} x {rendered.shape[0]} pixels, fewer than {LEAST} a side")
        both = 2 * torch.stack([rendered, target]).float().movedim(-1, 1) - 1
        x = (both - both.new_tensor(_SHIFT)[:, None, None]) / both.new_tensor(_SCALE)[:, None, None]
        total = 0.0
        for (number, stride, padding), layer, weight in zip(_CONVOLUTIONS, self.layers, self.linear, strict=True):
            x = F.max_pool2d(x, 3, 2) if number in _POOLED else x
            with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):  # or a GPU rounds to ten bits
                x = F.relu(F.conv2d(x, *layer, stride=stride, padding=padding))
            unit = x / (x.square().sum(1, keepdim=True).sqrt() + 1e-10)
            total += float(_mean(F.conv2d((unit[:1] - unit[1:]).square(), weight)[0, 0], mask))
        return total


def _mean(
    distances: Tensor,  # [h, w] of a layer
    mask: Tensor | None,  # [H, W] bool
) -> Tensor:  # []
    if mask is None:
        return distances.mean()
    rows, columns = distances.shape
    weights = F.adaptive_avg_pool2d((~mask).float()[None], (rows, columns))[0].to(distances.device)
    return (distances * weights).sum() / weights.sum()


def load_lpips(device: torch.device) -> Lpips:
    """Loads LPIPS on a device; LpipsError where weights are missing or are others."""
    alexnet, linear = (_weights(path) for path in _files())
    try:
        layers = [(alexnet[f"features.{n}.weight"], alexnet[f"features.{n}.bias"]) for n, _, _ in _CONVOLUTIONS]
        last = [linear[f"lin{k}.model.1.weight"] for k in range(len(_CONVOLUTIONS))]
        return Lpips(
            [(w.float().to(device), b.float().to(device)) for w, b in layers], [w.float().to(device) for w in last]
        )
    except (KeyError, AttributeError) as error:
        raise LpipsError(f"the weights lack {error}") from error


def _files() -> tuple[Path, Path]:
    cache = Path(torch.hub.get_dir()) / "checkpoints"
    alexnet = sorted(cache.glob(ALEXNET))
    if not alexnet:
        raise LpipsError(f"AlexNet's weights ({ALEXNET}) are not in {cache}")
    found = [path for path in (cache / LINEAR, *_of_package()) if path.is_file()]
    if not found:
        raise LpipsError(f"its linear weights are neither in the package lpips nor in {cache / LINEAR}")
    return alexnet[-1], found[0]


def _of_package() -> list[Path]:
    """Returns the folder where the package keeps them; it is not imported, as it imports torchvision."""
    package = find_spec("lpips")
    places = package.submodule_search_locations if package else None
    return [Path(place) / "weights/v0.1/alex.pth" for place in places or ()]


def _weights(path: Path) -> dict[str, Any]:
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # of pickle, zip, torch or the system: the file is not ours
        raise LpipsError(f"{path} cannot be read ({type(error).__name__})") from error
    if not isinstance(found, dict):
        raise LpipsError(f"{path} holds no weights by name")
    return found
