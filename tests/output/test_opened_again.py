# SPDX-License-Identifier: Apache-2.0
"""Exported files as other libraries have them: counts, bounds and pictures, against the scene."""

import ast
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("gaussforge")
pytest.importorskip("tinyusdz")
pytest.importorskip("trimesh")
pytest.importorskip("pxr")
import gaussforge
import numpy as np
import tinyusdz
import torch
import trimesh
from exported import columns, photograph, psnr, read_ply, rows, still_view, turned_scene, world_from, world_of
from gsplat_picture import picture
from mesh_rays import distances
from tiny_capture import TINY, tiny_capture, tiny_scene

from nurec_lite.config import ExportConfig
from nurec_lite.export import Drive, run
from nurec_lite.geometry.se3 import matrix_to_quat, pose_matrix, quat_multiply, transform
from nurec_lite.output.interchange.choice import Choice
from nurec_lite.output.interchange.names import files_of
from nurec_lite.output.interchange.usd_files import write_usd
from nurec_lite.output.surface.hits import hits_of
from nurec_lite.scene.collect import collect_gaussian_parameters
from nurec_lite.scene.gaussians import WorldGaussians
from nurec_lite.scene.scene import Scene
from nurec_lite.training.baseline import reference_stages

CELL, STEP = 0.3, 0.3  # metres: of the mesh, and between discs
RAYS = 300
DENSE = replace(
    TINY, frames=6, width=96, height=60, beams=16, azimuth_steps=160
)  # a drive that sees the planes closely
ARRAYS = ("positions", "orientations", "scales", "opacities", "radiance:sphericalHarmonicsCoefficients")


def solid_scene() -> Scene:
    """Flat discs on the road, and on a wall 5 m to the left: rendered depth is that of two planes."""
    along, across = torch.arange(-4, 16, STEP), torch.arange(-3, 5, STEP)
    road = torch.cartesian_prod(along, across, torch.tensor([0.0]))
    wall = torch.cartesian_prod(along, torch.tensor([5.0]), torch.arange(0, 4, STEP))
    means = torch.cat([road, wall])
    thin = torch.tensor([[STEP, STEP, 0.01]] * len(road) + [[STEP, 0.01, STEP]] * len(wall))
    scene = rows(tiny_scene(), torch.zeros(len(means), dtype=torch.int64))
    g = scene.gaussians
    g.node.zero_()
    plain = torch.tensor([1.0, 0, 0, 0]).expand(len(means), 4)
    lidar = torch.full_like(g.lidar_logits, -3.0)  # returns from everywhere
    lidar[:, 2:] = 4.0
    changed = {"means": means, "quats": plain, "log_scales": thin.log(), "lidar_logits": lidar}
    return replace(scene, gaussians=replace(g, **changed, opacity_logits=torch.full((len(means),), 6.0)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("solid")
    config = ExportConfig(checkpoint=str(out / "c.pt"), formats=["usdz", "ground", "surface"], cell=CELL)
    (out / "said").write_text(run(config, solid_scene(), Drive(tiny_capture(DENSE), reference_stages())))
    return out


def seen(vertices: np.ndarray, triangles: np.ndarray, low: bool) -> np.ndarray:
    """Differences between the ranges of the mesh and those that the scene renders, of rays that end on the road or elsewhere."""
    found = hits_of(reference_stages(), solid_scene(), tiny_capture(DENSE))
    hits = [
        one for one in found if one.colours is not None
    ]  # of cameras: beams of the lidar are farther apart than cells
    origins, directions, ranges = (
        torch.cat([getattr(one, name) for one in hits]).numpy() for name in ("origins", "directions", "ranges")
    )
    ends = origins + ranges[:, None] * directions
    kept = np.flatnonzero((ranges < 10) & ((ends[:, 2] < 0.1) | (not low)))
    kept = np.random.default_rng(0).choice(kept, RAYS, replace=False)
    return np.abs(distances(vertices, triangles, origins[kept], directions[kept]) - ranges[kept])


# ---- meshes


@pytest.mark.parametrize("name", ["ground", "surface"])
def test_meshes_are_seen_where_the_scene_renders_them(name: str, folder: Path) -> None:
    """A quarter of a cell in the median, a cell at most for 95 %. A twentieth of the rays may end at edges, where no cell is seen whole."""
    ply = trimesh.load(folder / f"scene-{name}.ply", process=False)
    off = seen(np.asarray(ply.vertices), np.asarray(ply.faces), low=name == "ground")
    met = off[np.isfinite(off)]
    assert len(met) > 0.95 * RAYS and np.median(met) < CELL / 4 and np.quantile(met, 0.95) < CELL


@pytest.mark.parametrize("name", ["ground", "surface"])
def test_the_meshes_of_usd_are_those_of_ply(name: str, folder: Path) -> None:
    """Read by tinyusdz, which did not write them."""
    ply = trimesh.load(folder / f"scene-{name}.ply", process=False)
    prim = tinyusdz.load(str(folder / "scene.usdz")).get_prim_at_path(f"/World/{name}")
    points = np.asarray(prim.get_attribute("points").value)
    assert prim.type_name == "Mesh" and len(points) == len(ply.vertices) > 100
    np.testing.assert_allclose(points, ply.vertices, atol=1e-6)
    np.testing.assert_allclose([points.min(0), points.max(0)], ply.bounds, atol=1e-6)
    assert np.array_equal(np.asarray(prim.get_attribute("faceVertexIndices").value).reshape(-1, 3), ply.faces)
    assert (np.asarray(prim.get_attribute("faceVertexCounts").value) == 3).all()
    assert f"scene-{name}.ply: {name} of {len(ply.faces)} triangles" in (folder / "said").read_text()


# ---- Gaussians


@pytest.mark.parametrize("normals", [False, True])
def test_gaussforge_reads_the_picture_of_a_plain_ply(normals: bool, tmp_path: Path) -> None:
    """Counts and bounds are equal, the picture is within 60 dB."""
    scene, view, file = turned_scene(3), still_view(), tmp_path / "a.ply"
    run(ExportConfig(checkpoint="c.pt", out=str(file), time=view.time_mid, normals=normals), scene)
    found = gaussforge.GaussForge().convert(file.read_bytes(), "ply", "ply")
    assert "error" not in found, found["error"]
    (tmp_path / "converted").write_bytes(found["data"])
    ply, expected = read_ply(tmp_path / "converted"), collect_gaussian_parameters(scene, view.time_mid)
    shown = world_of(ply)
    assert len(shown) == len(expected)
    torch.testing.assert_close(columns(ply, *"xyz").aminmax(dim=0), expected.means.aminmax(dim=0), atol=1e-5, rtol=0)
    assert psnr(photograph(shown, view), photograph(expected, view)) > 60


@pytest.mark.parametrize("degree", [0, 3])
def test_gsplat_projects_a_plain_ply_where_the_scene_does(degree: int, tmp_path: Path) -> None:
    """Its ellipses in place of rays' own responses: within 40 dB where Gaussians are small. Rotations in another order give less."""
    scene, view, file = turned_scene(degree), still_view(), tmp_path / "a.ply"
    scene.gaussians.log_scales -= 1.0
    run(ExportConfig(checkpoint="c.pt", out=str(file), time=view.time_mid), scene)
    ply, expected = read_ply(file), photograph(collect_gaussian_parameters(scene, view.time_mid), view)
    turned = ply | {"rot_0": ply["rot_3"], "rot_3": ply["rot_0"]}
    assert psnr(picture(ply, view, blur=0.0), expected) > 40
    assert psnr(picture(turned, view, blur=0.0), expected) < 36


def test_tinyusdz_reads_the_picture_of_a_usdz(tmp_path: Path) -> None:
    """Places and motion come from tinyusdz alone, at a keyframe of all actors."""
    scene, view = turned_scene(2), still_view()
    time = float(scene.tracks.times[2])
    moment = replace(view, time_start=time, time_end=time)
    run(ExportConfig(checkpoint="c.pt", out=str(tmp_path / "s.usdz"), rig=False), scene)
    shown = composed_by_tinyusdz(tmp_path / "s.usdz", (time - float(scene.tracks.times.min())) * 30, scene)
    expected = collect_gaussian_parameters(scene, time)
    assert len(shown) == len(expected)
    torch.testing.assert_close(shown.means.aminmax(dim=0), expected.means.aminmax(dim=0), atol=1e-4, rtol=0)
    assert psnr(photograph(shown, moment), photograph(expected, moment)) > 60


def test_tinyusdz_reads_each_part_of_a_large_usdz(tmp_path: Path) -> None:
    scene, files = turned_scene(1), files_of(ExportConfig(checkpoint="c.pt", out=str(tmp_path / "s.usdz")))
    write_usd(scene, Choice("all", None, None, ()), files, None, {}, largest=len(scene.gaussians) * 4 * 23 - 1)
    prims = [prim for part in sorted(tmp_path.glob("*.usdz")) for prim in tinyusdz.traverse(tinyusdz.load(str(part)))]
    places = [
        np.array(prim.get_attribute("positions").value)
        for prim in prims
        if prim.name.startswith(("background", "actor"))
    ]
    assert len(list(tmp_path.glob("*.usdz"))) == 2 and sum(map(len, places)) == len(scene.gaussians)
    found = torch.from_numpy(np.concatenate(places))
    torch.testing.assert_close(found.sort(0).values, scene.gaussians.means.sort(0).values, atol=0, rtol=0)


def composed_by_tinyusdz(file: Path, code: float, scene: Scene) -> WorldGaussians:
    root = tinyusdz.load(str(file))
    parts = []
    for name in ("background", *(f"actor_{track}" for track in scene.tracks.ids)):
        prim = root.get_prim_at_path(f"/World/{name}")
        means, quats, scales, opacities, sh = (torch.tensor(np.array(prim.get_attribute(a).value)) for a in ARRAYS)
        T = torch.eye(4) if name == "background" else placed_at(prim, code)
        frame = matrix_to_quat(T[:3, :3]).expand(len(means), 4)
        turned = quat_multiply(frame, quats[:, [3, 0, 1, 2]])
        world = world_from(transform(T, means), turned, scales, opacities, sh.view(len(means), -1, 3))
        parts.append(replace(world, frames=frame))
    return replace(parts[0], **{k: torch.cat([getattr(part, k) for part in parts]) for k in vars(parts[0])})


def placed_at(prim: tinyusdz.Prim, code: float) -> torch.Tensor:  # [4, 4]
    """The pose of an actor at one of its time samples."""

    def sample(name: str) -> torch.Tensor:
        codes, values = zip(*prim.get_attribute_timesamples(name), strict=True)
        (value,) = [v for c, v in zip(codes, values, strict=True) if abs(c - code) < 1e-6]
        return torch.tensor(ast.literal_eval(value.to_string()))

    return pose_matrix(sample("xformOp:orient"), sample("xformOp:translate"))
