# SPDX-License-Identifier: Apache-2.0
"""USDZ: read by tinyusdz, which did not write it, and composed by Pixar's library, it holds the scene, its motion and its sensors."""

import ast
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("tinyusdz")
pytest.importorskip("pxr")
import numpy as np
import tinyusdz
import torch
from exported import parted_in_time, photograph, psnr, still_view, turned_scene, without_tracks, world_from
from PIL import Image
from pxr import Usd, UsdGeom, UsdLux, UsdValidation
from tiny_capture import tiny_capture
from torch import Tensor

from nurec_lite.base.errors import ConfigError, OutputError
from nurec_lite.capture.trajectory import trajectory_of
from nurec_lite.config import ExportConfig
from nurec_lite.export import Drive, run
from nurec_lite.geometry.camera import project_points
from nurec_lite.geometry.se3 import invert, matrix_to_quat, quat_multiply, quat_normalize, quat_to_matrix, transform
from nurec_lite.geometry.tracks import spans
from nurec_lite.output.interchange import usd_files
from nurec_lite.output.interchange.choice import Choice
from nurec_lite.output.interchange.names import files_of
from nurec_lite.scene.calibration import none_known
from nurec_lite.scene.collect import collect_gaussian_parameters
from nurec_lite.scene.gaussians import WorldGaussians
from nurec_lite.scene.scene import Scene
from nurec_lite.scene.sky import sample_sky

CODES = 30.0
ATTRIBUTES = ("positions", "orientations", "scales", "opacities", "radiance:sphericalHarmonicsCoefficients")


def export(scene: Scene, folder: Path, capture: bool = True, **keys: object) -> Path:
    out = folder / "s.usdz"
    run(ExportConfig(checkpoint="c.pt", out=str(out), **keys), scene, Drive(tiny_capture()) if capture else None)  # type: ignore[arg-type]
    return out


def composed(stage: Usd.Stage, seconds: float) -> WorldGaussians:
    """All Gaussians of a stage at a time, where its transforms put them."""
    code = (seconds - stage.GetRootLayer().customLayerData["nurec_lite"]["first_second"]) * CODES
    parts = []
    for prim in stage.Traverse():
        if (
            prim.GetTypeName() == "ParticleField3DGaussianSplat"
            and UsdGeom.Imageable(prim).ComputeVisibility(code) != "invisible"
        ):
            matrix = UsdGeom.Xformable(prim).ComputeLocalToWorldTransform(code)
            parts.append(placed(lambda name, prim=prim: np.array(prim.GetAttribute(name).Get()), np.array(matrix).T))
    return replace(parts[0], **{k: torch.cat([getattr(part, k) for part in parts]) for k in vars(parts[0])})


def placed(read: Callable[[str], np.ndarray], T: np.ndarray) -> WorldGaussians:
    """The Gaussians of a prim, moved by T [4, 4]."""
    means, quats, scales, opacities, sh = (torch.from_numpy(np.array(read(name), np.float32)) for name in ATTRIBUTES)
    pose = torch.from_numpy(np.array(T)).float()
    quats = quats[:, [3, 0, 1, 2]]  # arrays hold xyzw
    frame = matrix_to_quat(pose[:3, :3]).expand(len(means), 4)
    world = world_from(
        transform(pose, means), quat_multiply(frame, quats), scales, opacities, sh.view(len(means), -1, 3)
    )
    return replace(world, frames=frame)


# ---- contents


@pytest.mark.parametrize("degree", [0, 3])
def test_another_library_reads_the_values_of_each_node(degree: int, tmp_path: Path) -> None:
    scene = turned_scene(degree)
    stage = tinyusdz.load(str(export(scene, tmp_path)))
    prims = {prim.name: prim for prim in tinyusdz.traverse(stage)}
    for node, name in enumerate(("background", *(f"actor_{name}" for name in scene.tracks.ids))):
        g, prim = scene.gaussians, prims[name]
        mine = g.node == node
        array = {a: np.asarray(prim.get_attribute(a).value) for a in ATTRIBUTES}
        assert prim.type_name == "ParticleField3DGaussianSplat" and len(array["positions"]) == mine.sum() > 0
        np.testing.assert_array_equal(array["positions"], g.means[mine].numpy())
        axes = quat_to_matrix(torch.from_numpy(array["orientations"].copy())[:, [3, 0, 1, 2]])
        torch.testing.assert_close(axes, quat_to_matrix(quat_normalize(g.quats[mine])), atol=1e-5, rtol=0)
        np.testing.assert_array_equal(array["scales"], g.log_scales[mine].exp().numpy())
        np.testing.assert_allclose(array["opacities"], g.opacity_logits[mine].sigmoid().numpy(), atol=1e-7)
        np.testing.assert_array_equal(array[ATTRIBUTES[4]], g.sh()[mine].flatten(0, 1).numpy())
        extent = np.asarray(prim.get_attribute("extent").value)
        assert (extent[0] <= array["positions"].min(0)).all() and (extent[1] >= array["positions"].max(0)).all()
    assert "upAxis=Z metersPerUnit=1" in repr(stage) and "defaultPrim=World" in repr(stage)


@pytest.mark.parametrize("part", [0.2, 0.5, 0.9])
def test_the_stage_shows_the_picture_of_the_scene_at_any_time(part: float, tmp_path: Path) -> None:
    """Within 60 dB, between keyframes, too."""
    scene, view = turned_scene(2), still_view()
    first, last = spans(scene.tracks)
    time = float(first.min() + part * (last.max() - first.min()))
    moved = replace(view, time_start=time, time_end=time)
    shown = composed(Usd.Stage.Open(str(export(scene, tmp_path))), time)
    expected = collect_gaussian_parameters(scene, time)
    assert len(shown) == len(expected)
    assert psnr(photograph(shown, moved), photograph(expected, moved)) > 60


def test_actors_are_seen_while_they_exist(tmp_path: Path) -> None:
    scene = parted_in_time(turned_scene())
    stage = Usd.Stage.Open(str(export(scene, tmp_path, capture=False)))
    first, last = (ends.tolist() for ends in spans(scene.tracks))
    zero = stage.GetRootLayer().customLayerData["nurec_lite"]["first_second"]
    for k, name in enumerate(scene.tracks.ids):
        prim = UsdGeom.Imageable(stage.GetPrimAtPath(f"/World/actor_{name}"))
        for seconds, seen in (
            (first[k] - 0.01, False),
            (first[k] + 1e-4, True),
            (last[k] - 1e-4, True),
            (last[k] + 0.01, False),
        ):
            assert (prim.ComputeVisibility((seconds - zero) * CODES) != "invisible") == seen, (name, seconds)


def test_another_library_reads_the_motion(tmp_path: Path) -> None:
    scene = turned_scene()
    root = tinyusdz.load(str(export(scene, tmp_path)))
    zero, t = float(trajectory_of(tiny_capture()).times[0]), scene.tracks
    for k, name in enumerate(t.ids):
        rows = slice(t.offsets[k], t.offsets[k + 1])
        prim = root.get_prim_at_path(f"/World/actor_{name}")
        codes, places = zip(*prim.get_attribute_timesamples("xformOp:translate"), strict=True)
        np.testing.assert_allclose(codes, (t.times[rows] - zero).numpy() * CODES, atol=1e-6)
        np.testing.assert_allclose(
            [ast.literal_eval(p.to_string()) for p in places], scene.track_translations[rows].numpy(), atol=1e-5
        )


def test_ids_of_any_text_become_names(tmp_path: Path) -> None:
    scene = turned_scene()
    ids = ("a b", "a_b", "é/../x", '"', *scene.tracks.ids[4:])
    named = replace(scene, tracks=replace(scene.tracks, ids=ids))
    stage = Usd.Stage.Open(str(export(named, tmp_path, capture=False)))
    prims = [p for p in stage.GetPrimAtPath("/World").GetChildren() if p.GetName().startswith("actor")]
    assert [p.GetCustomDataByKey("id") for p in prims] == list(ids) and len({p.GetName() for p in prims}) == len(ids)


def test_cameras_see_points_where_the_captures_cameras_do(tmp_path: Path) -> None:
    capture = tiny_capture()
    stage = Usd.Stage.Open(str(export(turned_scene(), tmp_path)))
    for frame in capture.images[::5]:
        camera = capture.camera(frame.sensor)
        prim = stage.GetPrimAtPath(f"/World/rig/{camera.name}")
        code = (frame.time_mid - trajectory_of(capture).times[0].item()) * CODES
        gf = UsdGeom.Camera(prim).GetCamera(code)
        T_world_cam = trajectory_of(capture).at(frame.time_mid) @ camera.T_rig_cam.double()
        points = transform(
            T_world_cam, torch.tensor([[0.3, 0.2, 5.0], [-1.0, 0.5, 8.0], [0, 0, 3]], dtype=torch.float64)
        )
        pixels, _ = project_points(camera, transform(invert(T_world_cam), points))
        ndc = seen_by(gf, points) * torch.tensor([0.5, -0.5]) + 0.5
        torch.testing.assert_close(ndc * torch.tensor([camera.width, camera.height]), pixels, atol=1e-3, rtol=0)
        assert prim.GetCustomDataByKey("width") == camera.width and prim.GetCustomDataByKey("shutter") == camera.shutter


def seen_by(camera: object, points: Tensor) -> Tensor:
    """[n, 2] places of points in the frustum of a USD camera, -1 to 1, y up."""
    frustum = camera.frustum  # type: ignore[attr-defined]
    matrix = np.array(frustum.ComputeViewMatrix() * frustum.ComputeProjectionMatrix())
    clip = np.concatenate([points.numpy(), np.ones((len(points), 1))], 1) @ matrix
    return torch.from_numpy(clip[:, :2] / clip[:, 3:])


def test_corrected_cameras_stand_where_they_are_believed_to_have_stood(tmp_path: Path) -> None:
    scene, capture = turned_scene(), tiny_capture()
    known = none_known(capture, 1.0, "cpu")
    known.camera_translations[0] = torch.tensor([0.5, 0.0, 0.0])
    known.rig_translations[:] = torch.tensor([0.0, 0.0, 0.25])
    stage = Usd.Stage.Open(str(export(replace(scene, calibration=known), tmp_path)))
    frame = next(f for f in capture.images if f.sensor == capture.cameras[0].name)
    T = trajectory_of(capture).at(frame.time_mid) @ capture.cameras[0].T_rig_cam.double()
    prim = UsdGeom.Xformable(stage.GetPrimAtPath(f"/World/rig/{frame.sensor}"))
    code = (frame.time_mid - trajectory_of(capture).times[0].item()) * CODES
    place = np.array(prim.ComputeLocalToWorldTransform(code))[3, :3]
    up = trajectory_of(capture).at(frame.time_mid)[:3, 2] * 0.25
    np.testing.assert_allclose(place, (T[:3, 3] + T[:3, 0] * 0.5 + up).numpy(), atol=1e-4)


def test_the_dome_shows_the_sky_in_its_direction(tmp_path: Path) -> None:
    """The picture of a dome has longitude 0 in its middle, at z, and rises to pi at its left edge, over x (OpenEXR's latlong)."""
    scene = turned_scene()
    scene.sky = torch.randn(3, 8, 16)
    out = export(scene, tmp_path)
    stage = Usd.Stage.Open(str(out))
    dome = UsdLux.DomeLight(stage.GetPrimAtPath("/World/sky"))
    with zipfile.ZipFile(out) as package, package.open("sky.png") as file:
        image = np.asarray(Image.open(file))
    turn = np.array(UsdGeom.Xformable(dome).ComputeLocalToWorldTransform(0)).T[:3, :3]
    for row, column in ((0, 0), (2, 3), (4, 8), (6, 13)):
        longitude, latitude = np.pi * (1 - (column + 0.5) / 8), np.pi * (0.5 - (row + 0.5) / 8)
        local = np.array([np.cos(latitude) * np.sin(longitude), np.sin(latitude), np.cos(latitude) * np.cos(longitude)])
        seen = sample_sky(scene.sky, torch.from_numpy(turn @ local)[None].float())[0]
        np.testing.assert_allclose(image[row, column] / 255, seen.numpy(), atol=0.003)


# ---- packages


def test_a_package_is_stored_and_aligned(tmp_path: Path) -> None:
    out = export(turned_scene(), tmp_path)
    data = out.read_bytes()
    with zipfile.ZipFile(out) as package:
        for info in package.infolist():
            lengths = np.frombuffer(data, "<u2", 2, info.header_offset + 26)  # of the name, and of the padding
            assert info.compress_type == zipfile.ZIP_STORED and (info.header_offset + 30 + lengths.sum()) % 64 == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s.usdz"]


def test_the_validators_of_openusd_find_nothing(tmp_path: Path) -> None:
    stage = Usd.Stage.Open(str(export(turned_scene(), tmp_path)))
    validators = UsdValidation.ValidationRegistry().GetOrLoadAllValidators()
    assert len(validators) > 5
    assert [error.GetErrorAsString() for error in UsdValidation.ValidationContext(validators).Validate(stage)] == []


def test_parts_make_the_whole(tmp_path: Path) -> None:
    scene = turned_scene(1)
    choice, files = (
        Choice("all", None, None, ()),
        files_of(ExportConfig(checkpoint="c.pt", out=str(tmp_path / "s.usdz"))),
    )
    actors = int((scene.gaussians.node > 0).sum())
    lines = usd_files.write_usd(scene, choice, files, None, {}, largest=(actors + 100) * 4 * 23)
    names = sorted(p.name for p in tmp_path.iterdir())
    background = len(scene.gaussians) - actors
    assert names == sorted(["s.usda", *(f"s-part{i + 1}.usdz" for i in range(-(-background // 100)))])
    assert "open this one" in lines[-1]
    time = float(scene.tracks.times[3])
    joined = composed(Usd.Stage.Open(str(tmp_path / "s.usda")), time)
    whole = collect_gaussian_parameters(scene, time)
    torch.testing.assert_close(joined.means.sort(0).values, whole.means.sort(0).values, atol=1e-5, rtol=0)
    usd_files.write_usd(scene, choice, files, None, {}, largest=(actors + 100) * 4 * 23)  # over its own
    with pytest.raises(ConfigError, match="actors and meshes leave no room for Gaussians in packages of 4 GiB"):
        usd_files.write_usd(scene, choice, files, None, {}, largest=actors * 4 * 23)


@pytest.mark.parametrize("node", ["background", "001"])
def test_one_node(node: str, tmp_path: Path) -> None:
    scene = turned_scene()
    stage = Usd.Stage.Open(str(export(scene, tmp_path, node=node)))
    names = [p.GetName() for p in stage.Traverse() if p.GetTypeName() == "ParticleField3DGaussianSplat"]
    assert names == ["background" if node == "background" else "actor_001"]
    assert bool(stage.GetPrimAtPath("/World/rig")) == bool(stage.GetPrimAtPath("/World/sky")) == (node == "background")


def test_a_scene_without_tracks(tmp_path: Path) -> None:
    stage = Usd.Stage.Open(str(export(without_tracks(turned_scene()), tmp_path, capture=False)))
    assert len(composed(stage, 0.0)) > 0 and stage.GetEndTimeCode() == 0


def test_what_is_broken_stays_out(tmp_path: Path) -> None:
    scene = turned_scene()
    scene.gaussians.means[0] = torch.nan
    scene.track_translations[: scene.tracks.offsets[1]] = torch.nan
    stage = Usd.Stage.Open(str(export(scene, tmp_path)))
    assert (
        len(stage.GetPrimAtPath("/World/background").GetAttribute("positions").Get())
        == int((scene.gaussians.node == 0).sum()) - 1
    )
    names = [p.GetName() for p in stage.GetPrimAtPath("/World").GetChildren()]
    assert f"actor_{scene.tracks.ids[0]}" not in names and f"actor_{scene.tracks.ids[1]}" in names


def test_the_file_says_what_it_lacks(tmp_path: Path) -> None:
    stage = Usd.Stage.Open(str(export(turned_scene(), tmp_path)))
    comment = stage.GetRootLayer().comment
    for what in ("exposure of cameras is left out", "of lidars are left out", "rolling shutter", "no map of lanes"):
        assert what in comment


def test_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = turned_scene()
    with pytest.raises(ConfigError, match="not one moment; leave time out"):
        export(scene, tmp_path, time=1.0)
    (tmp_path / "s.usdz").write_bytes(b"PK\x03\x04 somebody's")
    with pytest.raises(OutputError, match="was not written by nurec_lite"):
        export(scene, tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "pxr.UsdVol", None)
    with pytest.raises(ConfigError, match="needs the extra `usd`, which is not installed: pip install usd-core"):
        export(scene, tmp_path)
