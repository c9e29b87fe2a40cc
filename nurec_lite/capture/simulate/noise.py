# SPDX-License-Identifier: Apache-2.0
"""Randomness of the simulator: pure functions of integer keys, so that the same seed gives the same bits in any order.

The hash is "lowbias32" (C. Wellons, https://nullprogram.com/blog/2018/07/31/); it runs on integers and int64 tensors.
"""

import math
from functools import reduce
from typing import Any

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF


def _scramble(h: Any) -> Any:  # int or int64 Tensor of 32-bit values
    h = ((h ^ (h >> 16)) * 0x7FEB352D) & _MASK
    h = ((h ^ (h >> 15)) * 0x846CA68B) & _MASK
    return h ^ (h >> 16)


def _absorb(h: Any, key: Any) -> Any:
    return _scramble((h + (key + 1) * 0x9E3779B9) & _MASK)


def hashed(*keys: Any) -> Any:
    return reduce(_absorb, keys, 0)


def uniform(low: float, high: float, *keys: int) -> float:
    return low + (high - low) * hashed(*keys) / 2**32


def uniform_field(*keys: Tensor | int) -> Tensor:  # float64 in [0, 1), of the keys' broadcast shape
    return hashed(*keys).to(torch.float64) / 2**32


def normal_field(*keys: Tensor | int) -> Tensor:  # float64, standard normal (Box and Muller)
    radius = (-2 * torch.log1p(-uniform_field(*keys, 0))).sqrt()
    return radius * torch.cos(2 * math.pi * uniform_field(*keys, 1))


def value_noise(
    points: Tensor,  # [R, D] in units of the lattice
    *keys: Tensor | int,
) -> Tensor:  # [R] in [0, 1), smooth, of wavelength about 2
    """Random numbers on the integer lattice, blended by smoothstep along each of the D axes."""
    floor = points.floor()
    blend = points - floor
    weight = (blend * blend * (3 - 2 * blend)).unbind(1)
    cell = floor.to(torch.int64).unbind(1)

    def average(h: Any, axis: int) -> Tensor:  # over the corners of the cell; its coordinates before this axis gave h
        if axis == len(cell):
            return h.to(points.dtype) / 2**32
        low, high = average(_absorb(h, cell[axis]), axis + 1), average(_absorb(h, cell[axis] + 1), axis + 1)
        return low + weight[axis] * (high - low)

    return average(hashed(*keys), 0)


def pulses(
    x: Tensor,  # [R] metres
    period: Tensor | float,
    duty: Tensor | float,  # share of the period that is on: the middle of each [n, n + 1) periods
    footprint: Tensor,  # [R] metres that one sample covers
) -> Tensor:  # [R] 0 to 1
    """A train of pulses averaged over the footprint, in closed form: no aliasing at any distance."""
    phase = x / period + duty / 2 - 0.5
    half = (footprint / period / 2).clamp(min=1e-4)

    def integral(p: Tensor) -> Tensor:
        return p.floor() * duty + torch.minimum(p - p.floor(), torch.as_tensor(duty, dtype=p.dtype, device=p.device))

    return ((integral(phase + half) - integral(phase - half)) / (2 * half)).clamp(0, 1)


def band(
    x: Tensor,  # [R] metres
    low: Tensor | float,
    high: Tensor | float,
    footprint: Tensor,  # [R] metres
) -> Tensor:  # [R] 0 to 1
    """One pulse between low and high, averaged over the footprint."""
    half = footprint.clamp(min=1e-3) / 2
    return ((torch.clamp(x + half, max=high) - torch.clamp(x - half, min=low)) / (2 * half)).clamp(0, 1)
