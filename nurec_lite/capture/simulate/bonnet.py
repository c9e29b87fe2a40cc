# SPDX-License-Identifier: Apache-2.0
"""The bonnet of the ego car, which covers the lower edge of every image: dark paint that mirrors some of the street."""

import torch
from torch import Tensor

_SAG = 0.35  # drop of the bonnet at the sides of the image, of its height
_PAINT = (0.035, 0.05, 0.09)  # linear RGB
_SHADE = 1.5  # brightness of the paint at the bonnet's edge over that at the end of the image
_MIRRORED = 0.1  # of the light that comes from the street


def bonnet_mask(
    height: int,  # pixels
    width: int,
    share: float,  # of the image's height that it covers in the middle
    device: torch.device | str = "cpu",
) -> Tensor:  # [H, W] bool
    return _below(height, width, share, device) > 0


def with_bonnet(
    picture: Tensor,  # [H, W, 3] linear
    share: float,
) -> Tensor:  # [H, W, 3]
    """The picture with the bonnet in front."""
    height, width, _ = picture.shape
    below = _below(height, width, share, picture.device)
    row = torch.arange(height, device=picture.device)[:, None] - 2 * below.clamp(min=0).ceil().long()
    mirrored = picture[row.clamp(min=0), torch.arange(width, device=picture.device)]
    shade = 1 + _SHADE * (1 - below / (share * height))
    paint = picture.new_tensor(_PAINT) * shade[..., None] + _MIRRORED * mirrored
    return torch.where((below > 0)[..., None], paint, picture)


def _below(height: int, width: int, share: float, device: torch.device | str) -> Tensor:  # [H, W]
    """Pixels from the bonnet's edge down to each pixel's centre."""
    v, u = torch.arange(height, device=device) + 0.5, (torch.arange(width, device=device) + 0.5) * (2 / width) - 1
    return v[:, None] - height * (1 - share * (1 - _SAG * u * u))
