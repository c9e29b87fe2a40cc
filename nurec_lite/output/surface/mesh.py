# SPDX-License-Identifier: Apache-2.0
"""Triangles of a surface."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Mesh:
    """V vertices and T triangles; seen from outside, a triangle runs counter-clockwise."""

    vertices: np.ndarray  # [V, 3] float32 metres, world of the scene
    triangles: np.ndarray  # [T, 3] int32 rows of vertices
    colours: np.ndarray | None = None  # [V, 3] uint8
