# SPDX-License-Identifier: Apache-2.0
"""Masks of cameras: pixels that show no scene, such as the bonnet of the vehicle or its rig. Nothing learns from them or measures them.

Masks are tensors on the host and are never written into: results for a mask are cached by the tensor object.
"""

from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.base.transfer import upload


@lru_cache(maxsize=64)
def reduced(
    mask: Tensor,  # [H, W] bool
    factor: int,
) -> Tensor:  # [H // factor, W // factor] bool: blocks of pixels with a masked one among them
    return F.max_pool2d(mask.float()[None], factor)[0] > 0


@lru_cache(maxsize=64)
def mask_on(
    mask: Tensor,  # [H, W] bool
    device: torch.device,
) -> Tensor:  # [H, W] bool
    return upload(mask, device)


@lru_cache(maxsize=64)
def seen_share(
    mask: Tensor | None,  # [H, W] bool
) -> float:
    """The share of the image that shows the scene."""
    return 1.0 if mask is None else 1 - float(mask.double().mean())


def blackened(
    image: Tensor,  # [H, W, C]
    mask: Tensor | None,  # [H, W] bool
) -> (
    Tensor
):  # [H, W, C], black where it is masked: as it is outside of the image, where windows of SSIM reach beyond its border
    return image if mask is None else image.masked_fill(mask_on(mask, image.device)[..., None], 0)


def seen_mean(
    values: Tensor,  # [H, W, ...]
    mask: Tensor | None,  # [H, W] bool
) -> Tensor:  # [] mean over the pixels that are not masked
    if mask is None:
        return values.mean()
    masked = mask_on(mask, values.device).view(*mask.shape, *[1] * (values.dim() - 2))
    return values.masked_fill(masked, 0).mean() / seen_share(mask)


def at_pixels(
    mask: Tensor | None,  # [H, W] bool
    pixels: Tensor,  # [..., 2] inside or outside of the image
) -> Tensor:  # [...] bool: whether they are masked; those outside are not
    if mask is None:
        return torch.zeros_like(pixels[..., 0], dtype=torch.bool)
    height, width = mask.shape
    u, v = pixels.nan_to_num(nan=-1.0).clamp(-1, max(height, width)).floor().long().unbind(-1)
    inside = (u >= 0) & (v >= 0) & (u < width) & (v < height)
    place = torch.where(inside, v * width + u, 0)
    return inside & mask_on(mask, pixels.device).view(-1)[place]
