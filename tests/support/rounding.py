# SPDX-License-Identifier: Apache-2.0
"""Numbers that are equal but for rounding.

Two runs of the same program on one machine agree bitwise. A number that another machine computed, and that a file or a test holds, does
not agree so, nor does the same formula on other rows beside it: vectors are wider or narrower, the rest of a last one goes through other
instructions, sine and exponential come from another library, a product is added with one rounding or with two. Each of these moves a
result by a unit or so in its last place, and the unit is that of the largest number that went into it.
"""

import numpy as np
import torch
from torch import Tensor

ULPS = 4  # units that a handful of such operations moves a result


def assert_rounded_alike(
    found: Tensor,  # [...]
    expected: Tensor,  # [...] stored, or computed beside other rows
    ulps: float = ULPS,
) -> None:
    """Asserts equality to that many units in the last place of the largest number; bitwise where these are no floating-point numbers."""
    assert found.dtype == expected.dtype and found.shape == expected.shape
    if not expected.is_floating_point():
        assert torch.equal(found, expected)
        return
    largest = float(expected.detach().abs().max()) if expected.numel() else 0.0
    torch.testing.assert_close(found, expected, rtol=0, atol=ulps * torch.finfo(expected.dtype).eps * largest)


def assert_near(
    found: Tensor,  # [...] single precision, on any device
    expected: Tensor,  # [...] in double precision, or found another way
    part: float = 1e-5,  # of the largest number
) -> None:
    """Compares results of many operations, and of sums."""
    found, expected = found.detach().cpu(), expected.detach().cpu()
    assert found.shape == expected.shape and found.isfinite().all()
    if expected.numel():
        assert float((found.double() - expected).abs().max()) <= part * max(1e-12, float(expected.abs().max()))


def assert_pictures_alike(
    found: np.ndarray,  # [H, W, 3] uint8
    expected: np.ndarray,
) -> None:
    """Compares pictures. Rounding decides the level of a colour that lies between two; that is seldom."""
    off = np.abs(found.astype(int) - expected.astype(int))
    assert off.max() <= 1 and off.mean() < 0.01
