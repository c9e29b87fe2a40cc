# SPDX-License-Identifier: Apache-2.0
"""Exports that need the drive, its edits, or its absence."""

import json
import resource
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("trimesh")
pytest.importorskip("pxr")
import numpy as np
import torch
import trimesh
from exported import rows, turned_scene
from pxr import Usd, UsdGeom
from tiny_capture import tiny_capture, tiny_config, tiny_scene, tiny_state

from nurec_lite.base.errors import ConfigError, OutputError, UserError
from nurec_lite.capture.digest import digest_of
from nurec_lite.config import DataConfig, ExportConfig
from nurec_lite.export import Drive, main, run
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.checkpoint import save_checkpoint
from nurec_lite.training.loop import save
from nurec_lite.training.optim import make_optimizer

MESHED = ["usdz", "ground", "surface"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Meshes and USD of a scene with solid Gaussians."""
    scene, out = tiny_scene(), tmp_path_factory.mktemp("meshes")
    scene.gaussians.opacity_logits.fill_(3.0)
    config = ExportConfig(checkpoint=str(out / "c.pt"), formats=MESHED, cell=0.4)
    (out / "said").write_text(run(config, scene, Drive(tiny_capture(), reference_stages())))
    return out


def test_meshes_lie_in_the_drive_and_below_it(folder: Path) -> None:
    """The street of the simulator is flat at height 0; Gaussians that nobody trained are a third of a metre thick."""
    ground = trimesh.load(folder / "scene-ground.ply", process=False)
    surface = trimesh.load(folder / "scene-surface.ply", process=False)
    assert abs(np.median(ground.vertices[:, 2])) < 0.2 and (ground.face_normals[:, 2] > 0).all()
    assert (surface.bounds[1] > [15, 3, 3]).all() and len(surface.faces) > 1000
    assert f"scene-ground.ply: ground of {len(ground.faces)} triangles" in (folder / "said").read_text()


def test_usd_holds_the_same_meshes_as_guides(folder: Path) -> None:
    stage = Usd.Stage.Open(str(folder / "scene.usdz"))
    for name in ("ground", "surface"):
        ply = trimesh.load(folder / f"scene-{name}.ply", process=False)
        mesh = UsdGeom.Mesh(stage.GetPrimAtPath(f"/World/{name}"))
        np.testing.assert_allclose(np.array(mesh.GetPointsAttr().Get()), ply.vertices, atol=1e-6)
        assert np.array_equal(np.array(mesh.GetFaceVertexIndicesAttr().Get()).reshape(-1, 3), ply.faces)
        assert mesh.GetPurposeAttr().Get() == "guide"


def test_meshes_of_an_empty_scene_are_refused(tmp_path: Path) -> None:
    scene = rows(tiny_scene(), torch.arange(0))
    for formats in (["surface"], ["ply", "usdz", "surface"]):
        config = ExportConfig(checkpoint=str(tmp_path / "c.pt"), formats=formats, cell=0.4)
        with pytest.raises(ConfigError, match="no surface was found in the rendered depth"):
            run(config, scene, Drive(tiny_capture(), reference_stages()))
    assert not list(tmp_path.iterdir())


def test_a_mesh_does_not_replace_what_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "scene-ground.ply").write_text("ply\nformat ascii 1.0\ncomment mine\n")
    config = ExportConfig(checkpoint=str(tmp_path / "c.pt"), formats=["ply", "ground"])
    with pytest.raises(OutputError, match="was not written by nurec_lite"):
        run(config, tiny_scene(), Drive(tiny_capture(), reference_stages()))
    assert [p.name for p in tmp_path.iterdir()] == ["scene-ground.ply"]


@pytest.mark.parametrize("formats", [["ply"], ["compressed"], ["spz"], ["gsplat"], ["usdz"]])
@pytest.mark.parametrize("node", ["all", "each"])
def test_a_full_disk_is_reported_and_nothing_is_left(formats: list[str], node: str, tmp_path: Path) -> None:
    """Files may have 2 000 bytes: writing fails as on a full disk."""
    scene, (soft, hard) = turned_scene(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
    try:
        with pytest.raises(OutputError, match=rf"{tmp_path}/scene"):
            run(ExportConfig(checkpoint=str(tmp_path / "c.pt"), formats=formats, node=node), scene)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.iterdir())


def test_edits_reach_every_format(tmp_path: Path) -> None:
    scene, edits = turned_scene(), tmp_path / "e.yaml"
    first, second, *_ = scene.tracks.ids
    edits.write_text(f"remove: ['{first}']\nmove:\n  - {{track: '{second}', left_m: 100}}\n")
    keys = {"checkpoint": str(tmp_path / "c.pt"), "edits": str(edits)}
    run(ExportConfig(**keys, formats=["usdz", "spz"]), scene)
    run(ExportConfig(**keys, node="each"), scene)
    stage = Usd.Stage.Open(str(tmp_path / "scene-e.usdz"))
    names = [p.GetName() for p in stage.GetPrimAtPath("/World").GetChildren() if p.GetName().startswith("actor")]
    described = json.loads((tmp_path / "scene-e-trajectories.json").read_text())
    kept = list(scene.tracks.ids[1:])
    assert names == [f"actor_{name}" for name in kept] and [t["id"] for t in described["tracks"]] == kept
    place = np.array(UsdGeom.Xformable(stage.GetPrimAtPath(f"/World/actor_{second}")).ComputeLocalToWorldTransform(0))[
        3, :3
    ]
    start = np.array(described["tracks"][0]["poses"][0]["position_m"])
    own = scene.track_translations[scene.tracks.offsets[1]].numpy()
    np.testing.assert_allclose(place, start, atol=1e-3)
    assert np.linalg.norm(start - own) == pytest.approx(100, abs=1e-3)


def test_a_drive_that_is_gone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """USD without its sensors needs the checkpoint alone."""
    config, scene, path = tiny_config(), turned_scene(), tmp_path / "c.pt"
    config.data = DataConfig(kind="pack", root="a/pack/that/is/gone", name="gone")
    save_checkpoint(
        path, scene, make_optimizer(scene, config.lr), torch.Generator(), config, {"step": 1, "seconds": 1.0}, []
    )
    with pytest.raises(
        ConfigError, match=r"a/pack/that/is/gone, which does not exist.*; or leave them out by rig=false"
    ):
        main([f"checkpoint={path}", "formats=usdz"])
    with pytest.raises(ConfigError, match="a/pack/that/is/gone, which does not exist"):
        main([f"checkpoint={path}", "formats=ground"])
    with pytest.raises(
        ConfigError, match="formats holds 'obj', but takes some of ply, compressed, spz, gsplat, usdz, ground, surface"
    ):
        main([f"checkpoint={path}", "formats=obj"])
    main([f"checkpoint={path}", "formats=usdz", "rig=false"])
    main([f"checkpoint={path}", "up=y", f"out={tmp_path}/up.ply"])
    assert f"{tmp_path / 'scene.usdz'}: {len(scene.gaussians)} Gaussians" in capsys.readouterr().out


def test_the_checkpoint_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is on the list of its folder, whose files may be replaced; the format of gsplat has the same ending."""
    path, state = tmp_path / "run" / "checkpoint.pt", tiny_state()
    path.parent.mkdir()
    save(state, path)
    (path.parent / ".nurec_lite").write_text("nurec_lite 1 train\ncheckpoint.pt\n")
    before = path.read_bytes()
    for _ in range(2):
        with pytest.raises(OutputError, match=f"{path} is another result of train; name another file by out=FILE"):
            main([f"checkpoint={path}", f"out={path}"])
        main([f"checkpoint={path}", "formats=gsplat"])  # the second replaces that of the first
    with pytest.raises(UserError, match=r"scene\.pt is a checkpoint of gsplat; give one of train, such as OUT/check"):
        main([f"checkpoint={path.with_name('scene.pt')}"])
    assert path.read_bytes() == before and f"{path.with_name('scene.pt')}: " in capsys.readouterr().out


@pytest.mark.parametrize(("time", "refused"), [(-0.6, True), (-0.1, False), (1.5, True), (1500.0, True)])
def test_a_time_outside_of_the_drive_is_refused(time: float, refused: bool, tmp_path: Path) -> None:
    """A file without actors would be the answer to milliseconds."""
    config = ExportConfig(checkpoint=str(tmp_path / "c.pt"), time=time)
    if refused:
        with pytest.raises(ConfigError, match=r"but the drive spans 0\.000 to 0\.900 s; choose a time within it"):
            run(config, turned_scene(), span=(0.0, 0.9))
    assert not list(tmp_path.iterdir())
    if not refused:
        assert run(config, turned_scene(), span=(0.0, 0.9))


def test_the_middle_of_the_drive_is_that_of_its_frames(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Boxes may go on for longer than the frames that a run was trained on."""
    capture, state = tiny_capture(), tiny_state()
    state.digest = digest_of(replace(capture, images=capture.images[:2], sweeps=()), {})
    last = capture.images[1].time_end
    save(state, tmp_path / "c.pt")
    main([f"checkpoint={tmp_path / 'c.pt'}", f"out={tmp_path / 'a.ply'}"])
    assert f"actors at {0.5 * (capture.images[0].time_start + last):.3f} s" in capsys.readouterr().out
