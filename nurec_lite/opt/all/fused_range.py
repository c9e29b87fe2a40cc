# SPDX-License-Identifier: Apache-2.0
"""fused_range: the loss of a sweep, its range, intensity and ray drop together, is one kernel forward and one backward.

Idea: torch makes a kernel of each operation, and of each way back: masks, means, clamps and logarithms of some ten thousand rays, which
take less time than their launches. Here one kernel reads every ray once, then one block adds up the blocks' sums in an order that
never changes, and one kernel writes the gradients of the renderer's outputs, as the renderer's backward pass takes them.
Source: none; formulas in kernels/math/lidar_loss.cuh.
Gain, code before and after, limits: docs/options/fused_range.md.
Limits: single precision. No second derivatives. Class exact: the same functions, up to rounding; sums are those of torch, in another
order, and the loss of a drop near 0 or 1 is rounded less.
"""

import torch
from torch import Tensor

from nurec_lite.geometry.lidar import Sweep
from nurec_lite.native import ops
from nurec_lite.splat.render import LidarReturns
from nurec_lite.training.stages import Stages

CLASS = "exact"
REQUIRES: tuple[str, ...] = ()


def unavailable(stages: Stages) -> str | None:
    return None


def lidar_loss(
    returns: LidarReturns,  # of R rays
    sweep: Sweep,  # the same R rays, on the same device
    counted: Tensor | None = None,  # [R] bool, rays that count; None: all
    with_targets: bool = False,  # the distance of returns is their range residual
) -> dict[str, Tensor]:  # scalars `range` in metres, `intensity`, `drop`
    """Terms as by nurec_lite.training.losses.lidar_loss."""
    rendered = returns.distance, returns.features, returns.transmittance
    measured = sweep.ranges, sweep.intensities, sweep.returned
    rays = [tensor.contiguous() for tensor in (*rendered, *measured)]
    mask = None if counted is None else counted.contiguous()
    in_range, in_intensity, in_drop, _ = torch.ops.nurec_lite.lidar_loss(*rays, mask, with_targets)
    return {"range": in_range, "intensity": in_intensity, "drop": in_drop}


def apply(stages: Stages) -> Stages:
    ops.load()
    return stages.swap("fused_range", lidar_loss=lidar_loss)
