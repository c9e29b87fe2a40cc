# SPDX-License-Identifier: Apache-2.0
"""Export: a PLY file shows the same picture, and names the parts that it cannot hold."""

import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from exported import (
    columns,
    harmonics,
    numbered,
    parted_in_time,
    photograph,
    read_ply,
    rows,
    still_view,
    turned_scene,
    without_tracks,
    world_of,
)
from rounding import assert_rounded_alike
from tiny_capture import tiny_config
from torch.nn import functional as F

from nurec_lite.base.errors import ConfigError
from nurec_lite.config import DataConfig, ExportConfig
from nurec_lite.export import main, run
from nurec_lite.scene.collect import collect_gaussian_parameters
from nurec_lite.scene.gaussians import BACKGROUND, Gaussians
from nurec_lite.scene.scene import Scene
from nurec_lite.training.checkpoint import CheckpointError, save_checkpoint
from nurec_lite.training.optim import make_optimizer

DEGREES = (0, 1, 2, 3)
BROKEN = (float("nan"), float("inf"), -float("inf"))

# ---- files


def checkpoint(scene: Scene, path: Path) -> Path:
    config = tiny_config()
    config.data = DataConfig(kind="pack", root="a/pack/that/is/gone", name="gone")
    generator = torch.Generator().manual_seed(0)
    save_checkpoint(path, scene, make_optimizer(scene, config.lr), generator, config, {"step": 1, "seconds": 1.0}, [])
    return path


def exported(scene: Scene, folder: Path, **options: object) -> dict[str, np.ndarray]:
    out = folder / "x.ply"
    run(ExportConfig(checkpoint="c.pt", out=str(out), **options), scene)  # type: ignore[arg-type]
    return read_ply(out)


# ---- contents


@pytest.mark.parametrize("degree", DEGREES)
def test_properties_have_the_names_and_the_order_that_viewers_expect(degree: int, tmp_path: Path) -> None:
    rest = [f"f_rest_{i}" for i in range(3 * ((degree + 1) ** 2 - 1))]
    expected = ["x", "y", "z", "f_dc_0", "f_dc_1", "f_dc_2", *rest, "opacity", "scale_0", "scale_1", "scale_2",
                "rot_0", "rot_1", "rot_2", "rot_3"]  # fmt: skip
    assert list(exported(turned_scene(degree), tmp_path)) == expected


@pytest.mark.parametrize("degree", DEGREES)
def test_the_background_is_written_as_it_is_stored(degree: int, tmp_path: Path) -> None:
    scene = turned_scene(degree)
    whole, alone = exported(scene, tmp_path), exported(scene, tmp_path, node="background")
    i = torch.nonzero(scene.gaussians.node == BACKGROUND).squeeze(-1)
    assert len(whole["x"]) == len(scene.gaussians) and len(alone["x"]) == len(i) < len(whole["x"])
    for name in whole:
        assert_rounded_alike(torch.from_numpy(alone[name].copy()), torch.from_numpy(whole[name][i.numpy()].copy()))
    g = rows(scene, i).gaussians
    assert torch.equal(columns(alone, "x", "y", "z"), g.means) and torch.equal(numbered(alone, "scale_"), g.log_scales)
    assert torch.equal(columns(alone, "opacity")[:, 0], g.opacity_logits)
    assert torch.equal(harmonics(alone), torch.cat([g.sh0, g.sh_rest], dim=1))
    torch.testing.assert_close(numbered(alone, "rot_"), F.normalize(g.quats, dim=-1))


@pytest.mark.parametrize("degree", DEGREES)
def test_the_file_shows_the_picture_that_the_scene_does(degree: int, tmp_path: Path) -> None:
    """Actors included, which are turned with the colours of all their sides."""
    scene, view = turned_scene(degree), still_view()
    original = collect_gaussian_parameters(scene, view.time_mid)
    ply = exported(scene, tmp_path, time=view.time_mid)
    expected = photograph(original, view)
    torch.testing.assert_close(photograph(world_of(ply), view), expected, atol=1e-4, rtol=0)
    unturned = replace(world_of(ply), sh=original.sh)
    assert degree == 0 or (photograph(unturned, view) - expected).abs().max() > 0.02


def test_an_actor_in_its_own_frame_is_written_as_it_is_stored(tmp_path: Path) -> None:
    scene = turned_scene(2)
    for node, name in enumerate(scene.tracks.ids, 1):
        g, ply = rows(scene, scene.gaussians.node == node).gaussians, exported(scene, tmp_path, node=name)
        assert torch.equal(columns(ply, "x", "y", "z"), g.means) and torch.equal(harmonics(ply)[:, 1:], g.sh_rest)
        torch.testing.assert_close(numbered(ply, "rot_"), F.normalize(g.quats, dim=-1))


def test_an_actor_at_a_time_is_the_part_of_the_whole_that_is_its(tmp_path: Path) -> None:
    scene, time = turned_scene(3), still_view().time_mid
    whole = exported(scene, tmp_path, time=time)
    for node, name in enumerate(scene.tracks.ids, 1):
        mine = (scene.gaussians.node == node).numpy()
        alone = exported(scene, tmp_path, node=name, time=time)
        assert mine.any() and len(alone["x"]) == mine.sum()
        for key in whole:
            np.testing.assert_allclose(alone[key], whole[key][mine], atol=1e-6)


# ---- when


def test_without_a_time_it_is_the_middle_of_all_keyframes(tmp_path: Path) -> None:
    scene = turned_scene()
    middle = 0.5 * float(scene.tracks.times.min() + scene.tracks.times.max())
    default, other = exported(scene, tmp_path), exported(scene, tmp_path, time=middle + 0.1)
    assert all(np.array_equal(default[key], value) for key, value in exported(scene, tmp_path, time=middle).items())
    assert not np.array_equal(default["x"], other["x"])


def test_actors_that_do_not_exist_at_the_time_are_not_written(tmp_path: Path) -> None:
    scene = parted_in_time(turned_scene())
    times, node, n = scene.tracks.times, scene.gaussians.node, len(scene.tracks)
    first, none = float(times.min()), float(times.max()) + 1
    for time, nodes, said in ((first, [0, 1], f"1 of {n} actors"), (none, [0], f"0 of {n} actors")):
        config = ExportConfig(checkpoint="c.pt", out=str(tmp_path / "x.ply"), time=time)
        assert said in run(config, scene)
        assert len(read_ply(tmp_path / "x.ply")["x"]) == int(torch.isin(node, torch.tensor(nodes)).sum())


def test_an_actor_at_a_time_at_which_it_does_not_exist(tmp_path: Path) -> None:
    scene = parted_in_time(turned_scene())
    name, first = scene.tracks.ids[1], float(scene.tracks.times[scene.tracks.offsets[1]])
    with pytest.raises(ConfigError, match=rf"actor {name} exists from {first:.3f} s to .* but time=0.0;"):
        exported(scene, tmp_path, node=name, time=0.0)
    assert not list(tmp_path.iterdir())


def test_a_scene_without_tracks(tmp_path: Path) -> None:
    scene = without_tracks(turned_scene())
    assert len(exported(scene, tmp_path)["x"]) == len(exported(scene, tmp_path, time=7.0)["x"]) == len(scene.gaussians)
    with pytest.raises(ConfigError, match="node=3 is unknown; use all or background: there are no tracks"):
        exported(scene, tmp_path, node="3")


@pytest.mark.parametrize("time", BROKEN)
def test_a_time_that_is_none(time: float, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must be a number of seconds"):
        exported(turned_scene(), tmp_path, time=time)


# ---- few, and broken


@pytest.mark.parametrize("degree", DEGREES)
@pytest.mark.parametrize("n", [0, 1])
def test_no_gaussian_and_one(n: int, degree: int, tmp_path: Path) -> None:
    scene = turned_scene(degree)
    few = rows(scene, torch.arange(n))
    names = list(exported(scene, tmp_path))
    for node in ("all", "background", scene.tracks.ids[0]):
        ply = exported(few, tmp_path, node=node)
        assert list(ply) == names and len(ply["x"]) == (n if node in ("all", "background") else 0)


@pytest.mark.parametrize("name", ["means", "quats", "log_scales", "opacity_logits", "sh0", "sh_rest"])
@pytest.mark.parametrize("value", BROKEN)
def test_gaussians_that_are_not_finite_are_left_out_and_counted(name: str, value: float, tmp_path: Path) -> None:
    """One lies in the background and one in an actor; the exporter would drop every Gaussian for one such opacity."""
    scene = turned_scene()
    actor = int(torch.nonzero(scene.gaussians.node != BACKGROUND)[3])
    intact = exported(scene, tmp_path)
    for i in (2, actor):
        getattr(scene.gaussians, name)[i].view(-1)[-1] = value
    said = run(ExportConfig(checkpoint="c.pt", out=str(tmp_path / "x.ply")), scene)
    assert "left out: 2 Gaussians with values that are not finite" in said
    ply, kept = read_ply(tmp_path / "x.ply"), np.delete(np.arange(len(scene.gaussians)), [2, actor])
    for key in ply:
        assert_rounded_alike(torch.from_numpy(ply[key].copy()), torch.from_numpy(intact[key][kept].copy()))


def test_a_rotation_of_length_zero_is_left_out(tmp_path: Path) -> None:
    """Viewers would divide by it."""
    scene = turned_scene()
    scene.gaussians.quats[5] = 0
    assert len(exported(scene, tmp_path)["x"]) == len(scene.gaussians) - 1


def test_a_scene_in_which_nothing_is_finite(tmp_path: Path) -> None:
    scene = turned_scene()
    scene.gaussians.means.fill_(float("nan"))
    assert len(exported(scene, tmp_path)["x"]) == 0


def test_an_actor_whose_pose_is_not_finite_is_left_out(tmp_path: Path) -> None:
    scene = turned_scene()
    scene.track_translations[: scene.tracks.offsets[1]] = float("nan")
    assert len(exported(scene, tmp_path)["x"]) == int((scene.gaussians.node != 1).sum())


def test_values_too_large_for_single_precision_are_left_out(tmp_path: Path) -> None:
    scene = turned_scene()
    g = scene.gaussians
    g = Gaussians(**{f.name: v if (v := getattr(g, f.name)).dtype == torch.int64 else v.double() for f in fields(g)})
    g.means[2, 1] = 1e300
    ply = exported(replace(scene, gaussians=g), tmp_path, node="background")
    assert len(ply["x"]) == int((g.node == BACKGROUND).sum()) - 1


# ---- command lines


def test_an_unknown_node(tmp_path: Path) -> None:
    scene = turned_scene()
    with pytest.raises(ConfigError, match=rf"node=nobody is unknown; use all, background or .*{scene.tracks.ids[0]}"):
        exported(scene, tmp_path, node="nobody")


def test_a_long_list_of_tracks_is_shortened(tmp_path: Path) -> None:
    scene = turned_scene()
    ids = tuple(f"track{i}" for i in range(500))
    many = replace(scene, tracks=replace(scene.tracks, ids=ids, offsets=(0,) * 501))
    with pytest.raises(ConfigError, match=r"500 tracks \(track0, track1, .*, \.\.\.\)") as error:
        exported(many, tmp_path, node="nobody")
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("out", ["scene.obj", "scene", ".ply", "folder/", "scene.ply.gz"])
def test_another_kind_of_file_is_refused(out: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"must name a file that ends in \.ply"):
        run(ExportConfig(checkpoint="c.pt", out=out), turned_scene())


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("7", "7.ply"),
        ("a b/../c", "a_b_.._c.ply"),
        ("../up", "_up.ply"),
        ("..", "node.ply"),
        ("é" * 300, "_" * 100 + ".ply"),
    ],
)
def test_ids_become_names_of_files_beside_the_checkpoint(name: str, file: str, tmp_path: Path) -> None:
    scene = turned_scene()
    named = replace(scene, tracks=replace(scene.tracks, ids=(name, *scene.tracks.ids[1:])))
    said = run(ExportConfig(checkpoint=str(tmp_path / "checkpoint.pt"), node=name), named)
    assert [p.name for p in tmp_path.iterdir()] == [file] and said.startswith(str(tmp_path / file))


def test_a_checkpoint_is_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The capture is gone; the names of the files, the counts and the sizes are told."""
    scene = turned_scene()
    path = checkpoint(scene, tmp_path / "run" / "checkpoint.pt")
    for node, file in (("all", "scene.ply"), ("background", "background.ply")):
        main([f"checkpoint={path}", f"node={node}"])
        out = path.with_name(file)
        n, size = len(read_ply(out)["x"]), out.stat().st_size
        assert capsys.readouterr().out.startswith(f"{out}: {n} Gaussians, {size} bytes; the background")
    main([f"checkpoint={path}", "time=0.25"])
    assert {p.name for p in path.parent.glob("*.ply")} == {"scene.ply", "background.ply", "scene-t0000.250.ply"}
    main([f"checkpoint={path}", f"node={scene.tracks.ids[0]}", f"out={tmp_path}/deep/A.PLY"])
    assert len(read_ply(tmp_path / "deep" / "A.PLY")["x"]) == int((scene.gaussians.node == 1).sum())


def test_a_checkpoint_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="does not exist"):
        main([f"checkpoint={tmp_path}/checkpoint.pt"])
    with pytest.raises(ConfigError, match="checkpoint is missing"):
        main([])


def shell(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, where no compiler can be found."""
    environment = {"PATH": "", "CUDA_HOME": "/nowhere", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "nurec_lite.export", *arguments]
    root = Path(__file__).resolve().parents[2]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=root, check=False)


def test_the_command_line(tmp_path: Path) -> None:
    path = checkpoint(turned_scene(), tmp_path / "checkpoint.pt")
    done = shell(f"checkpoint={path}")
    assert (done.returncode, done.stderr) == (0, "") and str(path.with_name("scene.ply")) in done.stdout
    with pytest.raises(ConfigError, match="node=nobody is unknown"):  # tests/cli has the status of errors
        main([f"checkpoint={path}", "node=nobody"])
