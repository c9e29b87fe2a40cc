# SPDX-License-Identifier: Apache-2.0
"""The surface of a sparse field as triangles: naive surface nets (Gibson, "Constrained Elastic Surface Nets", MICCAI 1998).

A cube of eight neighbouring centres whose distances have both signs holds a vertex, the mean of the places where its edges cross
zero. Four cubes about an edge that crosses share two triangles. Cubes that lack a corner hold nothing, so that a surface ends where no ray
looked. It needs no tables, which is why no package for marching cubes is needed. Letters: V cells, C cubes, T triangles.
"""

import itertools
from dataclasses import fields

import numpy as np
import torch
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from nurec_lite.output.surface.fusion import Field, key_of
from nurec_lite.output.surface.mesh import Mesh

_CORNERS = torch.tensor(list(itertools.product((0, 1), repeat=3)))  # [8, 3]
_EDGES = [(a, b) for a, b in itertools.combinations(range(8), 2) if int((_CORNERS[a] - _CORNERS[b]).abs().sum()) == 1]


def surface_of(
    field: Field,
    cell: float,  # metres
    least_weight: float = 2.0,  # entries of a cell that counts
    least_triangles: int = 64,  # of a connected piece that is kept
) -> Mesh:
    """Triangles where the field is zero; they are seen from where it is positive."""
    rows = torch.nonzero(field.weights >= least_weight).squeeze(1)
    known = Field(**{f.name: getattr(field, f.name)[rows] for f in fields(field)})
    cubes, corners = _cubes(known)
    vertices = _vertices(known, cubes, corners)
    triangles = _triangles(known, cubes, corners)
    colours = known.colours[corners].mean(1).mul(255).round().clamp(0, 255).to(torch.uint8)
    places = ((known.places()[cubes].double() + 0.5 + vertices) * cell).float()
    return without_small(Mesh(places.numpy(), triangles.int().numpy(), colours.numpy()), least_triangles)


def without_small(mesh: Mesh, least: int) -> Mesh:
    """The mesh without connected pieces of fewer triangles, and without vertices of none."""
    a, b, c = mesh.triangles.T
    links = coo_matrix(
        (np.ones(2 * len(a)), (np.concatenate([a, b]), np.concatenate([b, c]))), shape=(len(mesh.vertices),) * 2
    )
    _, piece = connected_components(links, directed=False)
    sizes = np.bincount(piece[a], minlength=piece.max(initial=-1) + 1)
    triangles = mesh.triangles[sizes[piece[a]] >= least]
    used, index = np.unique(triangles, return_inverse=True)
    colours = None if mesh.colours is None else mesh.colours[used]
    return Mesh(mesh.vertices[used], index.reshape(-1, 3).astype(np.int32), colours)


def _found(keys: Tensor, wanted: Tensor) -> Tensor:
    """Rows of the wanted keys among sorted ones, -1 for those that are not there."""
    rows = torch.searchsorted(keys, wanted).clamp(max=max(len(keys) - 1, 0))
    return torch.where(keys[rows] == wanted, rows, -1) if len(keys) else torch.full_like(wanted, -1)


def _cubes(field: Field) -> tuple[Tensor, Tensor]:
    """[C] rows of the lowest corners of cubes with a vertex, and [C, 8] of all corners."""
    places = field.places()
    corners = torch.stack([_found(field.keys, key_of(places + offset)) for offset in _CORNERS], dim=1)
    whole = torch.nonzero((corners >= 0).all(1)).squeeze(1)
    signs = field.distances[corners[whole]] > 0
    mixed = whole[signs.any(1) & ~signs.all(1)]
    return mixed, corners[mixed]


def _vertices(field: Field, cubes: Tensor, corners: Tensor) -> Tensor:
    """[C, 3] from the centre of the lowest corner, in cells."""
    values = field.distances[corners].double()  # [C, 8]
    total, count = torch.zeros(len(cubes), 3, dtype=torch.float64), torch.zeros(len(cubes), 1, dtype=torch.float64)
    for a, b in _EDGES:
        crosses = ((values[:, a] > 0) != (values[:, b] > 0))[:, None]
        part = (values[:, a] / (values[:, a] - values[:, b]).where(crosses[:, 0], torch.ones(())))[:, None]
        total += torch.where(crosses, _CORNERS[a] + part * (_CORNERS[b] - _CORNERS[a]), 0.0)
        count += crosses
    return total / count


def _triangles(field: Field, cubes: Tensor, corners: Tensor) -> Tensor:
    """[T, 3] rows of vertices: of the cubes about the edge from the lowest corner along each axis."""
    places, keys = field.places()[cubes], field.keys[cubes]
    found = []
    for axis in range(3):
        b, c = (torch.eye(3, dtype=torch.int64)[(axis + k) % 3] for k in (1, 2))
        far = corners[:, [4, 2, 1][axis]]
        inside, other = field.distances[corners[:, 0]] > 0, field.distances[far] > 0
        around = torch.stack([_found(keys, key_of(places - step)) for step in (b * 0, b, b + c, c)], dim=1)
        crossing = (inside != other) & (around >= 0).all(1)
        quads = torch.where(inside[crossing, None], around[crossing].flip(1), around[crossing])
        found += [quads[:, [0, 1, 2]], quads[:, [0, 2, 3]]]
    return torch.cat(found)
