# SPDX-License-Identifier: Apache-2.0
"""What one processor computes and another one stored: equal but for rounding.

Two runs on one machine agree bitwise. What lies in a file, or stands in a test as a literal, was computed elsewhere: there vectors were
wider or narrower, sine and exponential came from another library, a product was added with one rounding or with two. Each of these moves
a result by a unit or so in its last place, and the units are those of the largest number that went into it.
"""

import torch
from torch import Tensor

ULPS = 4  # units that a handful of such operations move a result by


def assert_as_stored(
    found: Tensor,  # [...]
    stored: Tensor,  # [...] computed on any machine
    ulps: float = ULPS,
) -> None:
    """To so many units in the last place of the largest number."""
    assert found.dtype == stored.dtype
    largest = float(stored.abs().max()) if stored.numel() else 0.0
    torch.testing.assert_close(found, stored, rtol=0, atol=ulps * torch.finfo(stored.dtype).eps * largest)
