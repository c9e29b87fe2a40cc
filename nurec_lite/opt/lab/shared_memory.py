# SPDX-License-Identifier: Apache-2.0
"""shared_memory: the split backward kernels stage half as much a block, and shared memory comes before L1.

Idea: the shared memory of a block limits the number of blocks that fit. It stages 128 rows of Gaussians at a time instead of 256, and no
indices: only a warp with a contribution of a Gaussian needs its index, and reads it through L1. The driver is asked for the largest share
that shared memory can have of the memory that it divides with L1.
Source: NVIDIA's Nsight post on Omniverse NuRec (about half the shared memory, larger shared memory preferred over L1).
Gain, code before and after, limits: docs/options/shared_memory.md.
Limits: twice as many barriers a tile. Kernels for the GPU alone, refused on a CPU. Needs
ops=native. Class exact.
"""

from nurec_lite.training.stages import Stages, without_gpu

CLASS = "exact"
REQUIRES: tuple[str, ...] = ("split_backward",)


def unavailable(stages: Stages) -> str | None:
    return without_gpu(stages)


def apply(stages: Stages) -> Stages:
    return stages.planned("shared_memory", half_staging=True)
