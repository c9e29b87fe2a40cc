# SPDX-License-Identifier: Apache-2.0
"""The clock of the device, read in the order of the present stream: recorded work measures itself with it. On CUDA alone."""

import torch
from torch import Tensor


def begin_clock(
    clock: Tensor,  # [1] int64
) -> None:
    """Writes the present nanoseconds."""
    torch.ops.nurec_lite.begin_clock(clock)


def end_clock(
    clock: Tensor,  # [1] int64 as by begin_clock
    elapsed: Tensor,  # [1] float32
) -> None:
    """Writes the microseconds since the clock began."""
    torch.ops.nurec_lite.end_clock(clock, elapsed)
