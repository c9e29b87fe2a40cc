# SPDX-License-Identifier: Apache-2.0
"""Fused surfaces and the ground: where the rays ended, seen from where they came, and opened by another library."""

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("trimesh")
import numpy as np
import torch
import trimesh
from torch.nn import functional as F

from nurec_lite.base.errors import ConfigError
from nurec_lite.output.interchange.mesh_files import mesh_bytes
from nurec_lite.output.interchange.notes import Notes
from nurec_lite.output.interchange.ply import is_ply
from nurec_lite.output.surface.fusion import BAND, FieldTooLargeError, Hits, fused
from nurec_lite.output.surface.ground import ground_of
from nurec_lite.output.surface.mesh import Mesh
from nurec_lite.output.surface.surface_nets import surface_of, without_small

CELL = 0.1


def sphere_hits(n: int = 40_000, radius: float = 1.0, centre: tuple[float, float, float] = (-3.0, 5.0, 0.2)) -> Hits:
    """Rays from 4 m away, each towards the centre of a sphere."""
    directions = F.normalize(torch.randn(n, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), dim=1)
    origins = torch.tensor(centre, dtype=torch.float64) - 4 * directions
    return Hits(origins, directions, torch.full((n,), 4.0 - radius), torch.tensor([0.2, 0.4, 0.8]).expand(n, 3))


def floor_mesh(heights: np.ndarray, cell: float) -> Mesh:
    """A grid of heights as a surface."""
    x, y = np.indices(heights.shape)
    number = np.arange(heights.size).reshape(heights.shape)
    a, b, c, d = (part.ravel() for part in (number[:-1, :-1], number[1:, :-1], number[1:, 1:], number[:-1, 1:]))
    vertices = np.stack([x * cell, y * cell, heights], -1).reshape(-1, 3).astype(np.float32)
    return Mesh(vertices, np.concatenate([np.stack([a, b, c], 1), np.stack([a, c, d], 1)]).astype(np.int32))


def opened(mesh: Mesh, folder: Path, up: str = "z") -> trimesh.Trimesh:
    (folder / "m.ply").write_bytes(mesh_bytes(mesh, Notes(("a sentence",), up)))
    return trimesh.load(folder / "m.ply", process=False)


# ---- surfaces


@pytest.mark.parametrize("offset", [0.0, 17.03, -1000.0])
def test_a_sphere_is_closed_and_has_its_size(offset: float, tmp_path: Path) -> None:
    """Within 2 % of its volume and a tenth of a cell of its radius, and its faces point outwards."""
    hits = sphere_hits(centre=(offset, 5.0, 0.2))
    mesh = opened(surface_of(fused([hits], CELL), CELL), tmp_path)
    radii = np.linalg.norm(mesh.vertices - [offset, 5.0, 0.2], axis=1)
    assert mesh.is_watertight and mesh.euler_number == 2
    assert mesh.volume == pytest.approx(4 / 3 * np.pi, rel=0.02)
    assert abs(radii.mean() - 1) < 0.1 * CELL and abs(radii - 1).max() < CELL / 2
    np.testing.assert_allclose(mesh.visual.vertex_colors[:, :3].mean(0) / 255, [0.2, 0.4, 0.8], atol=0.01)


def test_views_one_after_another_give_what_all_at_once_give(monkeypatch: pytest.MonkeyPatch) -> None:
    hits = sphere_hits(6000)
    parts = [Hits(**{k: v[i::3] for k, v in vars(hits).items()}) for i in range(3)]
    monkeypatch.setattr("nurec_lite.output.surface.fusion._PENDING", 1000)
    one, many = fused([hits], CELL), fused(parts, CELL)
    assert torch.equal(one.keys, many.keys) and torch.equal(one.weights, many.weights)
    torch.testing.assert_close(one.distances, many.distances, atol=1e-5, rtol=0)


def test_colours_come_from_the_sensors_that_see_them() -> None:
    hits = sphere_hits(2000)
    both = fused([hits, replace(hits, colours=None)], CELL)
    torch.testing.assert_close(both.colours, hits.colours[0].expand(len(both.keys), 3))
    assert (fused([replace(hits, colours=None)], CELL).colours == 0.5).all()
    assert float(both.distances.abs().max()) <= BAND * CELL + 1e-6


def test_nothing_seen_gives_nothing() -> None:
    empty = fused([], CELL)
    assert len(surface_of(empty, CELL).triangles) == 0
    one = Hits(torch.zeros(1, 3, dtype=torch.float64), torch.tensor([[1.0, 0, 0]]).double(), torch.ones(1), None)
    assert len(surface_of(fused([one], CELL), CELL).triangles) == 0
    with pytest.raises(FieldTooLargeError):
        fused([replace(one, ranges=torch.tensor([1e7]))], CELL)


def test_small_pieces_go() -> None:
    big, small = floor_mesh(np.zeros((9, 9)), 1.0), floor_mesh(np.ones((3, 3)), 1.0)
    both = Mesh(
        np.concatenate([small.vertices, big.vertices]),
        np.concatenate([small.triangles, big.triangles + len(small.vertices)]),
    )
    kept = without_small(both, 64)
    assert len(kept.triangles) == len(big.triangles) and np.array_equal(kept.vertices, big.vertices)


# ---- ground


def test_the_ground_is_what_is_connected_to_the_path(tmp_path: Path) -> None:
    """A slope with a bump of noise; a roof, a wall's top and a far terrace are no ground; a hole under the rig is filled."""
    cell = 0.4
    x, _ = np.indices((120, 60)) * 0.2
    slope = 0.05 * x + 0.01 * np.random.default_rng(0).standard_normal(x.shape)
    slope[20:60, 5:15] += 2.5  # a roof over parked cars: its walls are not upward
    slope[:, 50:] += 1.5  # a terrace
    surface = floor_mesh(slope, 0.2)
    hole = (surface.vertices[surface.triangles].mean(1)[:, :2] - [12.0, 6.0]) / 0.5
    surface = replace(surface, triangles=surface.triangles[(hole**2).sum(1) > 1])
    path = np.stack([np.linspace(2, 22, 9), np.full(9, 6.0), 0.05 * np.linspace(2, 22, 9) + 1.7], 1)
    ground = ground_of(surface, path, cell)
    error = ground.vertices[:, 2] - 0.05 * ground.vertices[:, 0]
    inner = (ground.vertices[:, 1] < 9.4) & (ground.vertices[:, 0] > 0.5) & (ground.vertices[:, 0] < 23)
    assert np.abs(error[inner]).max() < 0.06 and np.abs(error).max() < 0.5
    assert ground.vertices[:, 1].max() < 10.5
    mesh = opened(ground, tmp_path)
    assert (mesh.face_normals[:, 2] > 0.9).all()
    places = np.stack([path[:, 0], path[:, 1]], 1)
    nearest = np.linalg.norm(ground.vertices[None, :, :2] - places[:, None], axis=2).min(1)
    assert nearest.max() < cell


def test_a_rig_that_stands_has_ground_about_it() -> None:
    ground = ground_of(floor_mesh(np.zeros((40, 40)), 0.2), np.array([[4.0, 4.0, 1.7]]), 0.4)
    assert len(ground.triangles) > 200 and np.abs(ground.vertices[:, 2]).max() < 1e-6


@pytest.mark.parametrize(
    ("heights", "said"), [(np.zeros((1, 1)), "no face that points upwards"), (np.zeros((9, 9)), "under the path")]
)
def test_no_ground_is_reported(heights: np.ndarray, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        ground_of(floor_mesh(heights, 0.2), np.array([[100.0, 4.0, 1.7], [101.0, 4.0, 1.7]]), 0.4)


# ---- files


@pytest.mark.parametrize(("up", "axis"), [("z", 2), ("y", 1), ("-y", 1)])
def test_meshes_turn_with_the_axes(up: str, axis: int, tmp_path: Path) -> None:
    mesh = opened(floor_mesh(np.full((4, 5), 2.0), 1.0), tmp_path, up)
    np.testing.assert_allclose(mesh.vertices[:, axis], -2 if up == "-y" else 2, atol=1e-6)
    normal = np.eye(3)[axis] * (-1 if up == "-y" else 1)
    np.testing.assert_allclose(mesh.face_normals, np.tile(normal, (len(mesh.faces), 1)), atol=1e-6)
    head = (tmp_path / "m.ply").read_bytes()[:4096]
    assert is_ply(head) and b"comment a sentence\n" in head
