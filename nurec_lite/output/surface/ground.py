# SPDX-License-Identifier: Apache-2.0
"""The ground about the driven path as a grid of heights, from the upward faces of a surface.

A square of the grid takes the lowest upward face. Squares of nearly equal height are connected; the ground is the part that connects to
the squares under the rig. Small gaps, and the strip under the rig, are filled from the squares around, and noise is smoothed.
"""

import numpy as np
from scipy import ndimage
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from nurec_lite.base.errors import ConfigError
from nurec_lite.output.surface.mesh import Mesh

UPWARD = 0.8  # vertical part of the normal of a face of the ground
STEP, SLOPE = 0.05, 0.35  # metres, and metres a metre, between neighbouring squares
NEAR_PATH = 3.0  # metres from the path to squares that may be under the rig
STRIP = 1.5  # metres to either side of the path that are filled
GAP = 3  # squares: wider gaps stay
SMOOTHING = 0.7  # squares, standard deviation
SHARE = 0.05  # of the squares near the path that a connected piece holds, to be ground
MOST_SQUARES = 50_000_000
NONE = "formats=ground found no face under the path; train longer, or leave ground out"


def ground_of(
    surface: Mesh,
    path: np.ndarray,  # [n, 3] metres, places of the rig
    cell: float,  # metres, of a square
) -> Mesh:
    """The grid as triangles, seen from above."""
    points = _upward(surface)
    if not len(points):
        raise ConfigError("formats=ground found no face that points upwards; train longer, or leave ground out")
    low = np.floor(np.minimum(points[:, :2].min(0), path[:, :2].min(0)) / cell).astype(int) - 1
    shape = np.ceil(np.maximum(points[:, :2].max(0), path[:, :2].max(0)) / cell).astype(int) + 2 - low
    if shape.prod() > MOST_SQUARES:
        raise ConfigError(
            f"formats=ground would have {shape.prod()} squares; give a larger cell, or fewer seconds of the drive"
        )
    heights = _lowest(points, low, shape, cell)
    near = _distances(path, low, shape, cell)
    known = _connected(heights, near <= NEAR_PATH, cell)
    if not known.any():
        raise ConfigError(NONE)
    whole = (
        ndimage.binary_closing(np.pad(known, GAP), np.ones((GAP, GAP)))[GAP:-GAP, GAP:-GAP] | known | (near <= STRIP)
    )
    ground = _grid(_filled(heights, known), whole, low, cell)
    if not len(ground.triangles):
        raise ConfigError(NONE)
    return ground


def _upward(surface: Mesh) -> np.ndarray:
    """[n, 3] middles of the faces that point upwards."""
    corners = surface.vertices[surface.triangles].astype(np.float64)
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    lengths = np.maximum(np.linalg.norm(normals, axis=1), 1e-12)
    return corners.mean(1)[normals[:, 2] / lengths > UPWARD]


def _lowest(points: np.ndarray, low: np.ndarray, shape: np.ndarray, cell: float) -> np.ndarray:
    """[X, Y] height of each square, infinite where there is none."""
    heights = np.full(shape, np.inf)
    squares = np.floor(points[:, :2] / cell).astype(int) - low
    np.minimum.at(heights, tuple(squares.T), points[:, 2])
    return heights


def _distances(path: np.ndarray, low: np.ndarray, shape: np.ndarray, cell: float) -> np.ndarray:
    """[X, Y] metres from each square to the path."""
    steps = np.linalg.norm(np.diff(path[:, :2], axis=0), axis=1)
    counts = np.maximum(1, np.ceil(steps / (0.5 * cell)).astype(int)) if len(steps) else np.array([], int)
    dense = [
        a + (b - a) * np.linspace(0, 1, n + 1)[:, None]
        for a, b, n in zip(path[:-1, :2], path[1:, :2], counts, strict=True)
    ]
    away = np.ones(shape, bool)
    squares = np.floor(np.concatenate([*dense, path[:, :2]]) / cell).astype(int) - low
    away[tuple(squares.T)] = False
    return ndimage.distance_transform_edt(away) * cell


def _connected(heights: np.ndarray, near: np.ndarray, cell: float) -> np.ndarray:
    """[X, Y] whether a square belongs to a piece that holds enough squares near the path."""
    known, number = np.isfinite(heights), np.arange(heights.size).reshape(heights.shape)
    ends = []
    for a, b in ((np.s_[:-1], np.s_[1:]), (np.s_[:, :-1], np.s_[:, 1:])):
        with np.errstate(invalid="ignore"):
            joined = np.abs(heights[a] - heights[b]) <= STEP + SLOPE * cell
        ends.append(np.stack([number[a][joined], number[b][joined]]))
    rows, columns = np.concatenate(ends, axis=1)
    links = coo_matrix((np.ones(len(rows), np.int8), (rows, columns)), shape=(heights.size,) * 2)
    piece = connected_components(links, directed=False)[1].reshape(heights.shape)
    seeds = np.bincount(piece[known & near], minlength=piece.max() + 1)
    return known & (seeds >= max(2, SHARE * seeds.sum()))[piece]


def _filled(heights: np.ndarray, known: np.ndarray) -> np.ndarray:
    """[X, Y] smoothed heights; beyond the known squares those of the nearest ones."""
    nearest = ndimage.distance_transform_edt(~known, return_distances=False, return_indices=True)
    return ndimage.gaussian_filter(heights[tuple(nearest)], SMOOTHING, mode="nearest")


def _grid(heights: np.ndarray, whole: np.ndarray, low: np.ndarray, cell: float) -> Mesh:
    """Vertices in the middles of squares, two triangles between each four; a square without any has no vertex."""
    x, y = np.nonzero(whole)
    number = np.full(whole.shape, -1)
    number[x, y] = np.arange(len(x))
    places = (np.stack([x, y], axis=1) + low + 0.5) * cell
    vertices = np.concatenate([places, heights[x, y][:, None]], axis=1).astype(np.float32)
    a, b, c, d = number[:-1, :-1], number[1:, :-1], number[1:, 1:], number[:-1, 1:]
    full = (a >= 0) & (b >= 0) & (c >= 0) & (d >= 0)
    quads = np.stack([corner[full] for corner in (a, b, c, d)], axis=1)
    used, index = np.unique(np.concatenate([quads[:, [0, 1, 2]], quads[:, [0, 2, 3]]]), return_inverse=True)
    return Mesh(vertices[used], index.reshape(-1, 3).astype(np.int32))
