# SPDX-License-Identifier: Apache-2.0
"""tile_cull: a warp tile's list holds only Gaussians that one of its rays may meet, not all with bounds that touch it.

Idea: bounds are boxes in the sensor's plane; a slanted Gaussian fills only a part, and a Gaussian with a point near the sensor is
bounded by the whole view. A camera's rays that see a Gaussian lie within an ellipse, in an interval of each row of warp tiles; where it
reaches the camera's plane a conic gives the interval. The warp tiles of a sweep are pyramids, and the smallest |g x e| of the response
over a pyramid has a closed form. A beam's rays lie on a line, and the test there is that of a parabola, so Gaussians between beams are
left out, too. All candidates, rows or warp tiles, are numbered, and a lane tests one.
Source: bounds and derivations in kernels/math/outline.cuh, conic.cuh and ray_pyramid.cuh. Tests of ellipses against tiles and rows of
tiles come from the literature (StopThePop, Radl et al. 2024; Speedy-Splat, Hanson et al. 2025).
Gain, code before and after, limits: docs/options/tile_cull.md.
Limits: needs warp_cull and its warp tiles. Class exact: Gaussians that are left out have no response above 1/255 on any of the rays.
"""

from nurec_lite.training.stages import Stages, uncompiled

CLASS = "exact"
REQUIRES: tuple[str, ...] = ("warp_cull",)


def unavailable(stages: Stages) -> str | None:
    return uncompiled(stages)


def apply(stages: Stages) -> Stages:
    return stages.planned("tile_cull", tight_lists=True)
