# SPDX-License-Identifier: Apache-2.0
"""tile_cull: a bundle's list holds only Gaussians that a ray of the bundle may meet, not all whose bounds touch it.

Idea: bounds are boxes in the sensor's plane, of which a slanted Gaussian fills a part, and a Gaussian with a point near the sensor is
bounded by the whole view. A camera's rays that see it lie within an ellipse, of each row of bundles in an interval; where it reaches the
camera's plane a conic says which. The bundles of a sweep are pyramids, over which the smallest |g x e| of the response has a closed form,
and a beam's rays lie on a line, on which the test is that of a parabola: what passes between beams is left out, too. All candidates, rows
or bundles, are numbered, and a lane tests one.
Source: bounds and derivations in kernels/math/outline.cuh, conic.cuh and ray_pyramid.cuh. Tests of ellipses against tiles and rows of tiles
come from the literature (StopThePop, Radl et al. 2024; Speedy-Splat, Hanson et al. 2025).
Gain, code before and after, limits: docs/options/tile_cull.md.
Limits: needs warp_cull, whose bundles it asks. Class exact: what is left out has no response above 1/255 on any of the rays.
"""

from nurec_lite.training.stages import Stages, uncompiled

CLASS = "exact"
REQUIRES: tuple[str, ...] = ("warp_cull",)


def unavailable(stages: Stages) -> str | None:
    return uncompiled(stages)


def apply(stages: Stages) -> Stages:
    return stages.planned("tile_cull", tight_lists=True)
