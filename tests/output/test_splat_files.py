# SPDX-License-Identifier: Apache-2.0
"""PLY, compressed PLY and SPZ: other libraries read them, and they show the picture of the scene within a stated error."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("gaussforge")
pytest.importorskip("trimesh")
import gaussforge
import numpy as np
import torch
import trimesh
from exported import (
    columns,
    harmonics,
    numbered,
    photograph,
    psnr,
    read_ply,
    rows,
    still_view,
    turned_scene,
    world_of,
)
from torch.nn import functional as F

from nurec_lite.base.errors import ConfigError, OutputError
from nurec_lite.config import ExportConfig
from nurec_lite.export import run
from nurec_lite.geometry.harmonics import rotate_sh
from nurec_lite.geometry.se3 import quat_conjugate, quat_multiply, quat_normalize, quat_rotate, quat_to_matrix
from nurec_lite.output.interchange.flatten import UPS, PlainGaussians, in_axes
from nurec_lite.output.interchange.notes import Notes
from nurec_lite.output.interchange.ply import compressed_ply_bytes
from nurec_lite.output.interchange.spz import spz_bytes
from nurec_lite.scene.collect import collect_gaussian_parameters
from nurec_lite.scene.gaussians import WorldGaussians
from nurec_lite.scene.scene import Scene

NOTES = Notes(("the sky is left out",))
# Decibels of the picture of a file, compared with that of the scene; measured 1 dB above or more
LEAST_PSNR = {"compressed": 35.0, "spz": 35.0}


def export(scene: Scene, out: Path, **keys: object) -> str:
    return run(ExportConfig(checkpoint=str(out.with_name("c.pt")), out=str(out), **keys), scene)  # type: ignore[arg-type]


def many(n: int = 700, degree: int = 2) -> PlainGaussians:
    """Gaussians of a street: within 60 m, scales from millimetres to metres."""
    g = torch.Generator().manual_seed(3)
    random = lambda *shape: torch.randn(*shape, generator=g)  # noqa: E731
    sh = torch.cat([random(n, 1, 3).clamp(-3, 3), 0.2 * random(n, (degree + 1) ** 2 - 1, 3)], dim=1)
    opacities = (2 * random(n)).clamp(min=-5)
    return PlainGaussians(20 * random(n, 3), quat_normalize(random(n, 4)), random(n, 3) - 2, opacities, sh)


def read_by_gaussforge(data: bytes, kind: str, folder: Path) -> dict[str, np.ndarray]:
    """Another library's reading, by the names of a plain PLY."""
    found = gaussforge.GaussForge().convert(data, kind, "ply")
    assert "error" not in found, found["error"]
    (folder / "converted").write_bytes(found["data"])
    return read_ply(folder / "converted")


def turned_back(world: WorldGaussians, up: str) -> WorldGaussians:
    """The Gaussians in axes with z up."""
    q = quat_conjugate(torch.tensor(UPS[up]).expand(len(world), 4))
    turned = {"means": quat_rotate(q, world.means), "quats": quat_multiply(q, world.quats)}
    return replace(world, **turned, frames=q)  # the harmonics stay in the file's axes


# ---- other libraries


def test_trimesh_reads_the_same_points(tmp_path: Path) -> None:
    export(turned_scene(2), tmp_path / "a.ply", normals=True)
    mine, cloud = read_ply(tmp_path / "a.ply"), trimesh.load(tmp_path / "a.ply")
    vertex = cloud.metadata["_ply_raw"]["vertex"]
    places = np.stack([mine[k] for k in "xyz"], -1)
    np.testing.assert_array_equal(np.asarray(cloud.vertices, np.float32), places)
    np.testing.assert_array_equal(cloud.bounds.astype(np.float32), [places.min(0), places.max(0)])
    assert list(vertex["properties"]) == list(mine) and vertex["length"] == len(places)
    assert list(mine)[3:6] == ["nx", "ny", "nz"] and not any(mine[k].any() for k in ("nx", "ny", "nz"))


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
@pytest.mark.parametrize("kind", ["compressed.ply", "spz"])
def test_gaussforge_reads_the_same_gaussians(kind: str, degree: int, tmp_path: Path) -> None:
    """Errors are half a step of the format, or a whole one where gsplat's exporter rounds down."""
    g = many(degree=degree)
    found = read_by_gaussforge(spz_bytes(g, NOTES) if kind == "spz" else compressed_ply_bytes(g, NOTES), kind, tmp_path)
    world, places = world_of(found), columns(found, "x", "y", "z")
    order = torch.cdist(places, g.means).argmin(1)
    assert len(places) == len(g) == len(order.unique())
    means, scales, rest = (0.0002, 1 / 32, 1 / 256) if kind == "spz" else (0.065, 0.01, 1 / 32)
    assert (places - g.means[order]).abs().max() < means
    assert (numbered(found, "scale_") - g.log_scales[order]).abs().max() <= scales + 1e-6
    assert (harmonics(found)[:, 0] - g.sh[order, 0]).abs().max() < 0.02
    assert degree == 0 or (harmonics(found) - g.sh[order])[:, 1:].abs().max() <= rest + 1e-6
    assert (world.opacities - g.opacity_logits[order].sigmoid()).abs().max() < 0.003
    assert (quat_to_matrix(world.quats) - quat_to_matrix(g.quats[order])).abs().max() < 0.01


@pytest.mark.parametrize(
    ("kind", "up"), [("compressed", None), ("spz", None), ("spz", "-y"), ("spz", "z"), ("compressed", "-y")]
)
def test_a_file_shows_the_picture_of_the_scene(kind: str, up: str | None, tmp_path: Path) -> None:
    """SPZ has y up; SuperSplat's reader takes y down, as of PLY."""
    scene, view = turned_scene(3), still_view()
    scene.gaussians.sh_rest *= 0.3
    file = tmp_path / ("a.spz" if kind == "spz" else "a.compressed.ply")
    export(scene, file, time=view.time_mid, up=up)
    world = world_of(read_by_gaussforge(file.read_bytes(), "spz" if kind == "spz" else "compressed.ply", tmp_path))
    expected = photograph(collect_gaussian_parameters(scene, view.time_mid), view)
    shown = photograph(turned_back(world, up or {"spz": "y", "compressed": "z"}[kind]), view)
    assert psnr(shown, expected) > LEAST_PSNR[kind]


@pytest.mark.parametrize("up", list(UPS))
def test_axes_turn_with_the_colours(up: str, tmp_path: Path) -> None:
    scene, view = turned_scene(3), still_view()
    export(scene, tmp_path / "a.ply", time=view.time_mid, up=up)
    ply = read_ply(tmp_path / "a.ply")
    vertical = {"z": ply["z"], "y": ply["y"], "-y": -ply["y"]}[up]
    original = collect_gaussian_parameters(scene, view.time_mid)
    np.testing.assert_allclose(np.sort(vertical), np.sort(original.means[:, 2].numpy()), atol=1e-5)
    shown = photograph(turned_back(world_of(ply), up), view)
    torch.testing.assert_close(shown, photograph(original, view), atol=1e-4, rtol=0)


@pytest.mark.parametrize("degree", [0, 1, 3])
@pytest.mark.parametrize("up", ["z", "-y"])
def test_a_checkpoint_of_gsplat_holds_the_gaussians_of_the_ply(up: str, degree: int, tmp_path: Path) -> None:
    """Its viewer loads `splats`, activates scales and opacities, and joins the harmonics."""
    scene, time = turned_scene(degree), still_view().time_mid
    for name in ("a.ply", "a.pt"):
        export(scene, tmp_path / name, time=time, up=up)
    content = torch.load(tmp_path / "a.pt", weights_only=True)
    splats, ply = content["splats"], world_of(read_ply(tmp_path / "a.ply"))
    torch.testing.assert_close(splats["means"], ply.means)
    torch.testing.assert_close(F.normalize(splats["quats"], dim=-1), ply.quats)
    torch.testing.assert_close(splats["scales"].exp(), ply.scales)
    torch.testing.assert_close(splats["opacities"].sigmoid(), ply.opacities)
    torch.testing.assert_close(torch.cat([splats["sh0"], splats["shN"]], dim=-2), ply.sh)
    assert "the sky is left out" in content["notes"] and isinstance(content["step"], int)
    assert (tmp_path / "a.pt").stat().st_size < (tmp_path / "a.ply").stat().st_size + 10_000


# ---- each node


@pytest.mark.parametrize("up", ["z", "y"])
def test_each_node_and_its_trajectory_make_the_whole(up: str, tmp_path: Path) -> None:
    """At a keyframe, where nothing is interpolated."""
    scene = turned_scene(1)
    time = float(scene.tracks.times[2])
    export(scene, tmp_path / "a.ply", time=time, up=up)
    said = export(scene, tmp_path / "b.ply", node="each", up=up)
    described = json.loads((tmp_path / "b-trajectories.json").read_text())
    assert said.endswith(f"{tmp_path / 'b-trajectories.json'}: trajectories of {len(scene.tracks)} actors")
    places = [columns(read_ply(tmp_path / described["background"]), "x", "y", "z")]
    for name, track in zip(scene.tracks.ids, described["tracks"], strict=True):
        (pose,) = (pose for pose in track["poses"] if pose["time_s"] == time)
        own = columns(read_ply(tmp_path / track["file"]), "x", "y", "z")
        q = torch.tensor(pose["quaternion_wxyz"]).expand(len(own), 4)
        places.append(quat_rotate(q, own) + torch.tensor(pose["position_m"]))
        assert track["id"] == name and track["first_s"] <= time <= track["last_s"]
    whole = columns(read_ply(tmp_path / "a.ply"), "x", "y", "z")
    torch.testing.assert_close(torch.cat(places), whole, atol=2e-5, rtol=0)


def test_ids_that_make_the_same_name_get_files_of_their_own(tmp_path: Path) -> None:
    scene = turned_scene()
    ids = ("a b", "a_b", "background", "ground", *scene.tracks.ids[4:])
    named = replace(scene, tracks=replace(scene.tracks, ids=ids))
    export(named, tmp_path / "s.ply", node="each")
    assert not (tmp_path / "s-ground.ply").exists()  # the name of a mesh
    described = json.loads((tmp_path / "s-trajectories.json").read_text())
    files = [described["background"], *(track["file"] for track in described["tracks"])]
    assert len(set(files)) == len(scene.tracks) + 1 == len(list(tmp_path.glob("*.ply")))


# ---- output


def test_files_say_what_they_lack(tmp_path: Path) -> None:
    run(ExportConfig(checkpoint=str(tmp_path / "c.pt"), formats=["ply", "compressed", "spz"]), turned_scene())
    for name in ("scene.ply", "scene.compressed.ply"):
        header = (tmp_path / name).read_bytes().partition(b"end_header")[0].decode()
        for what in (
            "the sky is left out",
            "exposure of cameras is left out",
            "lidars are left out",
            "motion is left out",
        ):
            assert what in header, name
    comment = (tmp_path / "scene.spz").read_bytes()[10:].partition(b"\0")[0].decode()
    assert "the sky is left out" in comment and "y up" in comment
    assert gzip.decompress((tmp_path / "scene.spz").read_bytes())[:4] == b"NGSP"


def test_two_exports_share_a_folder_and_foreign_files_stay(tmp_path: Path) -> None:
    scene = turned_scene()
    for _ in range(2):  # the second replaces the files of the first
        for node in ("all", "each"):
            run(
                ExportConfig(
                    checkpoint=str(tmp_path / "c.pt"), formats=["compressed", "spz", "ply", "gsplat"], node=node
                ),
                scene,
            )
    count = len(list(tmp_path.iterdir()))
    assert count == 4 * (2 + len(scene.tracks)) + 1 and not list(tmp_path.glob(".*"))
    for name in ("b.ply", "b.compressed.ply", "b.spz", "b.pt", "b-trajectories.json"):
        (tmp_path / name).write_bytes(b"a file of somebody")
        each = (
            {"node": "each", "out": str(tmp_path / "b.ply")} if name.endswith("json") else {"out": str(tmp_path / name)}
        )
        with pytest.raises(OutputError, match="was not written by nurec_lite"):
            run(ExportConfig(checkpoint=str(tmp_path / "c.pt"), **each), scene)  # type: ignore[arg-type]
        assert (tmp_path / name).read_bytes() == b"a file of somebody"


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            {"formats": ["obj"]},
            "formats holds 'obj', but takes some of ply, compressed, spz, gsplat, usdz, ground, surface",
        ),
        ({"formats": []}, "formats is empty, but takes some of"),
        ({"formats": ["spz"], "out": "a.ply"}, r"out=a.ply, but must name a file that ends in .spz"),
        (
            {"out": "a.usd"},
            r"out=a.usd, but must name a file that ends in .ply or .compressed.ply or .spz or .pt or .usdz",
        ),
        (
            {"formats": ["ply"], "out": "a.compressed.ply"},
            r"out=a.compressed.ply, which is of formats=compressed, but must name a file that ends in .ply",
        ),
        ({"up": "x"}, "up=x, but must be one of z, y, -y"),
        ({"node": "each", "time": 1.0}, "leave time out, or use node=all"),
        ({"node": "background", "time": 1.0}, "node=background stands still at any time; leave time out"),
        (
            {"formats": ["spz", "usdz"], "normals": True},
            "normals=true changes ply alone, but formats asks for spz and usdz",
        ),
        (
            {"formats": ["usdz"], "up": "-y"},
            "up=-y turns ply, compressed, spz, gsplat, ground and surface, but usdz always has z up; leave up out",
        ),
        ({"rig": False}, "rig=false changes usdz alone, but formats asks for ply; leave rig out"),
        ({"cell": 0.5}, "cell=0.5 changes ground and surface alone"),
        ({"formats": ["surface"], "node": "000"}, "node=000 changes ply, compressed, spz, gsplat and usdz alone"),
        (
            {"formats": ["ground"], "time": 1.0},
            "time=1.0 changes .* alone, but formats asks for ground; leave time out",
        ),
    ],
)
def test_mistakes_are_reported_in_a_sentence(keys: dict[str, object], said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        run(ExportConfig(checkpoint=str(tmp_path / "c.pt"), **keys), turned_scene())  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


# ---- the edges of the formats


@pytest.mark.parametrize("n", [1, 256, 257])
def test_constant_axes_survive_compression(n: int, tmp_path: Path) -> None:
    """Ranges of a chunk are then empty, and the exporter divides zero by zero."""
    g = many(1)
    g.opacity_logits.fill_(3.0)
    alike = PlainGaussians(**{k: v.expand(n, *v.shape[1:]).clone() for k, v in vars(g).items()})
    found = read_by_gaussforge(compressed_ply_bytes(alike, NOTES), "compressed.ply", tmp_path)
    assert len(found["x"]) == n
    torch.testing.assert_close(columns(found, "x", "y", "z"), alike.means)
    torch.testing.assert_close(numbered(found, "scale_"), alike.log_scales)
    torch.testing.assert_close(harmonics(found)[:, 0], alike.sh[:, 0])


def test_an_empty_file_that_readers_refuse_is_not_written(tmp_path: Path) -> None:
    scene = turned_scene()
    scene.gaussians.opacity_logits[scene.gaussians.node == 1] = -9.0  # no renderer draws them
    for name, formats in (("a.spz", None), ("a.compressed.ply", None), ("a.ply", ["ply", "spz"]), ("a.pt", None)):
        with pytest.raises(ConfigError, match="refuse an empty file; use ply"):
            export(rows(scene, torch.arange(0)), tmp_path / name, formats=formats)
    with pytest.raises(ConfigError, match=r"actor 000 in its own frame: no Gaussian would be in a.compressed.ply"):
        export(scene, tmp_path / "a.compressed.ply", node="000")
    assert not list(tmp_path.iterdir())
    said = export(scene, tmp_path / "b.compressed.ply", node="each")
    assert "b-000.compressed.ply: not written" in said and not (tmp_path / "b-000.compressed.ply").exists()
    described = json.loads((tmp_path / "b-trajectories.json").read_text())
    assert [track["file"] for track in described["tracks"]][:2] == [None, "b-001.compressed.ply"]


@pytest.mark.parametrize("far", [0.0, 2047.0, 2049.0, 50_000.0])
def test_spz_holds_gaussians_at_any_distance(far: float, tmp_path: Path) -> None:
    """Most writers fix 12 bits after the point, which ends at 2 048 m."""
    g = many(5)
    g.means[0] = torch.tensor([far, -far, 1.0])
    found = columns(read_by_gaussforge(spz_bytes(g, NOTES), "spz", tmp_path), "x", "y", "z")
    assert (found - g.means).abs().max() <= max(far / 2**22, 2.0**-13) + 1e-4


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
@pytest.mark.parametrize("n", [0, 1, 33])
def test_harmonics_turn_as_those_of_actors_do(n: int, degree: int) -> None:
    g = many(n, degree)
    turned = in_axes(g, "-y")
    expected = rotate_sh(g.sh, torch.tensor(UPS["-y"]).expand(n, 4))
    torch.testing.assert_close(turned.sh, expected, atol=1e-6, rtol=0)
    assert turned.means.shape == (n, 3) and in_axes(g, "z") is g
