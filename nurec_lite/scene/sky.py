# SPDX-License-Identifier: Apache-2.0
"""The sky: an environment map, sampled by direction, and an image over it."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F


def sample_sky(
    sky: Tensor,  # [3, H, W] logits; columns from azimuth pi down to -pi, rows from elevation pi/2 down to -pi/2
    directions: Tensor,  # [R, 3] unit, world
) -> Tensor:  # [R, 3] colour 0 to 1, bilinear, wrapping in azimuth
    height, width = sky.shape[1:]
    x, y, z = directions.unbind(-1)
    azimuth = torch.atan2(y, x)
    elevation = torch.atan2(z, (x * x + y * y).clamp(min=1e-30).sqrt())  # clamped: the gradient at a pole is finite
    column = (0.5 - azimuth / (2 * math.pi)) * width + 1  # of the map with one column repeated on either side
    row = (0.5 - elevation / math.pi) * height
    padded = torch.cat([sky[..., -1:], sky, sky[..., :1]], dim=-1)
    grid = torch.stack([2 * column / (width + 2) - 1, 2 * row / height - 1], dim=-1)
    values = F.grid_sample(padded[None], grid[None, None].to(sky.dtype), padding_mode="border", align_corners=False)
    return torch.sigmoid(values[0, :, 0].T)


def over_sky(
    features: Tensor,  # [R, 3] colours, blended
    transmittance: Tensor,  # [R] share of light that passes through
    sky: Tensor,  # [3, H, W] logits
    directions: Tensor,  # [R, 3] unit, world
) -> Tensor:  # [R, 3]
    """The blended colour, and the part of the sky's colour that passes through it."""
    return features + transmittance[:, None] * sample_sky(sky, directions)
