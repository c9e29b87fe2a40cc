# SPDX-License-Identifier: Apache-2.0
"""Rays against the triangles of a mesh (Moeller and Trumbore 1997): trimesh's own need another package."""

import numpy as np

Rows = np.ndarray  # [..., 3] float64


def distances(
    vertices: Rows,
    triangles: np.ndarray,  # [M, 3] rows of vertices
    origins: Rows,  # [R, 3]
    directions: Rows,  # [R, 3]
) -> np.ndarray:  # [R] along the direction, from either side of a triangle; infinite where a ray meets nothing
    corner, one, other = np.moveaxis(vertices.astype(np.float64)[triangles], 1, 0)
    edges = one - corner, other - corner
    return np.array([_first(corner, *edges, *ray) for ray in zip(origins, directions, strict=True)])


def _first(corner: Rows, first: Rows, second: Rows, origin: Rows, direction: Rows) -> float:
    across, away = np.cross(direction, second), origin - corner
    turned, volume = np.cross(away, first), (first * across).sum(1)
    faced = volume != 0  # triangles that the ray does not run along
    share = 1 / volume[faced]
    u, v = (away * across).sum(1)[faced] * share, (turned @ direction)[faced] * share
    along = (second * turned).sum(1)[faced] * share
    return float(along[(u >= 0) & (v >= 0) & (u + v <= 1) & (along > 0)].min(initial=np.inf))
