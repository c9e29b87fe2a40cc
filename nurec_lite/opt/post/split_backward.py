# SPDX-License-Identifier: Apache-2.0
"""split_backward: the camera and the lidar have backward kernels of their own instead of one that serves both.

Idea: the shared kernel asks for the sensor at run time, so its registers and its loads are those of the larger one. Two kernels from the
same template know their features, whether rays move, and which outputs have a gradient (that of a camera's distance has none in a
training step), and add up only the sums that depend on them. The Gaussian's gradient is added up as moments in its own frame
(kernels/math/moments.cuh): 13 to 16 numbers instead of 16 to 19; their sums over a warp take 15 or 16 shuffles instead of 80 to 95,
since lanes swap halves of their numbers. A warp of the camera's takes 8x4 pixels instead of 16x2.
Source: NVIDIA's Nsight post on Omniverse NuRec, which took renderBackward apart; moments and sums by halves are our own.
Gain, code before and after, limits: docs/options/split_backward.md.
Limits: kernels for the GPU alone, refused on a CPU, which has one kernel for both. Needs ops=native. Class exact: the same
formulas, gradients added up in another order.
"""

from nurec_lite.training.stages import Stages, without_gpu

CLASS = "exact"
REQUIRES: tuple[str, ...] = ()


def unavailable(stages: Stages) -> str | None:
    return without_gpu(stages)


def apply(stages: Stages) -> Stages:
    return stages.planned("split_backward", split_backward=True)
