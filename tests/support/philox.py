# SPDX-License-Identifier: Apache-2.0
"""Philox4x32-10 as its paper has it (Salmon et al. 2011, section 3.3), and the normal numbers that kernels make of it: the reference of
kernels/math/random.cuh."""

import math

import numpy as np
import torch
from torch import Tensor

MASK = 0xFFFFFFFF
MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
WEYL = 0x9E3779B9, 0xBB67AE85  # steps of the keys
NOISE = 1  # the stream of the operator sgld_noise


def one_round(
    counter: np.ndarray,  # [n, 4] uint64, each below 2^32
    key: tuple[int, int],
) -> np.ndarray:  # [n, 4] likewise
    a, b, c, d = counter.T
    left, right = a * np.uint64(MULTIPLIERS[0]), c * np.uint64(MULTIPLIERS[1])
    low, high, shift = left & np.uint64(MASK), left >> np.uint64(32), np.uint64(32)
    return np.stack(
        [(right >> shift) ^ b ^ np.uint64(key[0]), right & np.uint64(MASK), high ^ d ^ np.uint64(key[1]), low], axis=1
    )


def philox(counter: np.ndarray, key: tuple[int, int]) -> np.ndarray:
    """Ten rounds; shapes as above."""
    for _ in range(10):
        counter = one_round(counter, key)
        key = (key[0] + WEYL[0]) & MASK, (key[1] + WEYL[1]) & MASK
    return counter


def eta_of(
    n: int,  # Gaussians
    step: int,
    seed: int,
    stream: int = NOISE,
) -> Tensor:  # [n, 3] float64, normal
    """Normal numbers by Box and Muller, each word's upper 23 bits as the middle of so many equal parts."""
    counter = np.zeros((n, 4), dtype=np.uint64)
    counter[:, 0], counter[:, 1] = np.arange(n), step
    uniform = torch.from_numpy(((philox(counter, (seed, stream)) >> np.uint64(9)).astype(np.float64) + 0.5) / (1 << 23))
    radius, angle = (-2 * uniform[:, ::2].log()).sqrt(), 2 * math.pi * uniform[:, 1::2]
    return torch.stack(
        [radius[:, 0] * angle[:, 0].cos(), radius[:, 0] * angle[:, 0].sin(), radius[:, 1] * angle[:, 1].cos()], 1
    )
