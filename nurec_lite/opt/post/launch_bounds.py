# SPDX-License-Identifier: Apache-2.0
"""launch_bounds: the split backward kernels run with register budgets of their own.

Idea: left alone, the compiler takes as many registers as help one thread, and few warps fit on a multiprocessor. `__launch_bounds__`
states how many threads a block has and how many blocks are to fit, which is a budget. The table kernels/raster_tiles/backward_table.h has a
row a sensor: threads, blocks, rays a thread and look-ahead. Two rays of a thread share the loads of a Gaussian and the sums over a
warp. With look-ahead a warp tests several Gaussians together, so those that reach none of its rays do not wait for one another. An image
of few tiles has a row of its own. A block with fewer threads than the tile has rays takes a part of it.
Source: NVIDIA's Nsight post on Omniverse NuRec (64 registers for the lidar, 128 for the camera); rows from
benchmarks/opt/bench_launch_bounds.py.
Gain, code before and after, limits: docs/options/launch_bounds.md.
Limits: a KITTI image takes the same time, 2.66 -> 2.68 ms, and the sweep's achieved occupancy falls from 30.8 to 28.1 %. The row of an
image follows from how many tiles it has: for a small one with equal tiles it is the slower one. Kernels for the GPU alone, refused
on a CPU. Needs ops=native. Class exact.
"""

from nurec_lite.training.stages import Stages, without_gpu

CLASS = "exact"
REQUIRES: tuple[str, ...] = ("split_backward",)


def unavailable(stages: Stages) -> str | None:
    return without_gpu(stages)


def apply(stages: Stages) -> Stages:
    return stages.planned("launch_bounds", launch_bounds=True)
