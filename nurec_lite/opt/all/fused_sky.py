# SPDX-License-Identifier: Apache-2.0
"""fused_sky: the sky is sampled and put behind the image by one kernel, and its gradients are another one.

Idea: the plain sky is some fifteen kernels over all pixels (angles, a padded map, grid_sample, the sigmoid, a product and a sum), each from
memory to memory, and twice as many backward, where every pixel adds to twelve numbers of the map by itself. Here a thread does all of a
pixel. Backward it does so again instead of keeping anything; a texel is about twenty pixels wide, so the lanes of a warp that look between
the same four texels add up first, and one of them adds to the map.
Source: aggregation within a warp before atomics is common practice; formulas in kernels/math/sky.cuh.
Gain, code before and after, limits: docs/options/fused_sky.md.
Limits: single precision. Directions get no gradient: where a view's poses are learned, the plain sky goes on. On CUDA the map's gradient
is added up in an order of its own each time, as the plain one's is. No second derivatives. On one CPU core it is no faster. Class
exact: the same function, up to rounding.
"""

from nurec_lite.training.stages import Stages, uncompiled

CLASS = "exact"
REQUIRES: tuple[str, ...] = ()


def unavailable(stages: Stages) -> str | None:
    return uncompiled(stages)


def apply(stages: Stages) -> Stages:
    return stages.planned("fused_sky", fused_sky=True)
