# SPDX-License-Identifier: Apache-2.0
"""Edits by file: each kind changes its actor as the file says and nothing else, mistakes are refused, and the page's example renders."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rounding import assert_rounded_alike
from test_export import checkpoint, read_ply, turned_scene
from test_render import names, picture, reconstruction, render

from nurec_lite.api.scene import TrainedScene
from nurec_lite.base.errors import ConfigError, UserError
from nurec_lite.config import ExportConfig
from nurec_lite.export import run as export
from nurec_lite.geometry.se3 import quat_normalize
from nurec_lite.output.edit_file import read_edits
from nurec_lite.scene.collect import collect_gaussian_parameters
from nurec_lite.scene.edit import Move, edited, with_moved_actors, without_actors
from nurec_lite.scene.gaussians import LIDAR_VALUES, WorldGaussians
from nurec_lite.scene.scene import Scene

PAGE = Path(__file__).resolve().parents[2] / "docs/editing.md"
POSES = "poses: [{time_s: 0, x_m: 100, y_m: 200, z_m: 3, yaw_deg: 90}, {time_s: 2, x_m: 110, y_m: 200, z_m: 3, yaw_deg: 90}]"
MIDDLE = torch.tensor([105.0, 200.0, 3.0])  # of POSES, at 1 s


@pytest.fixture
def scene() -> Scene:
    return turned_scene()


def after(scene: Scene, folder: Path, text: str) -> Scene:
    return edited(scene, read_edits(written(folder, text), scene))


def written(folder: Path, text: str) -> Path:
    path = folder / "edits.yaml"
    path.write_text(text)
    return path


def actor(scene: Scene, k: int, time: float) -> WorldGaussians:
    node = scene.gaussians.node == k + 1
    alone = replace(scene, gaussians=type(scene.gaussians)(*(v[node] for v in vars(scene.gaussians).values())))
    return collect_gaussian_parameters(alone, time)


def assert_same(a: Scene, b: Scene) -> None:
    for name, value in a.parameters().items():
        assert_rounded_alike(value, b.parameters()[name])
    assert torch.equal(a.gaussians.node, b.gaussians.node) and a.tracks.ids == b.tracks.ids


def test_remove_and_move_are_those_of_the_command_line(scene: Scene, tmp_path: Path) -> None:
    found = after(scene, tmp_path, "{remove: [000], move: [{track: 001, forward_m: 1, left_m: -2, yaw_deg: 180}]}")
    assert_same(found, with_moved_actors(without_actors(scene, ["000"]), [("001", Move(1, -2, 0, np.pi))]))


def test_an_actor_follows_another_trajectory_and_the_others_their_own(scene: Scene, tmp_path: Path) -> None:
    scene = replace(scene, origin=(90.0, 0.0, 1.0))
    found = after(scene, tmp_path, f"follow: [{{track: 001, {POSES}}}]")
    local = scene.gaussians.means[scene.gaussians.node == 2]
    turned = torch.stack([-local[:, 1], local[:, 0], local[:, 2]], dim=1)  # by 90 degrees to the left
    world = actor(found, 1, 1.0)
    torch.testing.assert_close(world.means, turned + MIDDLE - torch.tensor(scene.origin), rtol=0, atol=1e-4)
    velocity = torch.tensor([5.0, 0, 0]).expand_as(world.velocities)
    torch.testing.assert_close(world.velocities, velocity, rtol=0, atol=1e-4)
    time = float(scene.tracks.times.mean())
    for k in (0, 2):
        assert_rounded_alike(actor(found, k, time).means, actor(scene, k, time).means)
    assert len(actor(found, 1, 3.0 + scene.tracks.margin)) == 0


@pytest.mark.parametrize("degrees", [(1, 3), (3, 1)])
@pytest.mark.parametrize("own", [(False, True), (True, False)])
def test_a_copy_looks_as_in_its_own_run(degrees: tuple[int, int], own: tuple[bool, bool], tmp_path: Path) -> None:
    """Scenes with other numbers of bands and with and without a lidar opacity, either way round."""
    scene, source = (with_opacity(turned_scene(d), has) for d, has in zip(degrees, own, strict=True))
    file = checkpoint(source, tmp_path / "other.pt")
    found = after(scene, tmp_path, f"copy: [{{name: 7_0, checkpoint: {file}, track: 002, {POSES}}}]")
    assert found.tracks.ids == (*scene.tracks.ids, "7_0") and bool((found.gaussians.node.diff() >= 0).all())
    for by_lidar in (False, True):
        new, old = (collect_gaussian_parameters(s, 1.0, by_lidar=by_lidar) for s in (found, scene))
        n, rows = len(old), source.gaussians.node == 3
        assert_rounded_alike(new.means[:n], old.means)
        assert_rounded_alike(new.opacities[:n], old.opacities)
        logits = source.gaussians.lidar_logits if by_lidar and own[1] else source.gaussians.opacity_logits[:, None]
        assert_rounded_alike(new.opacities[n:], logits[rows, -1].sigmoid())
        bands = source.gaussians.sh().shape[1]
        assert torch.equal(new.sh[n:, :bands], source.gaussians.sh()[rows]) and not new.sh[n:, bands:].any()
        torch.testing.assert_close(new.means[n:].mean(0)[2], source.gaussians.means[rows].mean(0)[2] + 3)
    size = source.tracks.sizes[2]
    assert torch.equal(found.tracks.sizes[-1], size) and found.tracks.classes[-1] == source.tracks.classes[2]


def with_opacity(scene: Scene, own: bool) -> Scene:
    g = scene.gaussians
    logits = torch.cat([g.lidar_logits[:, :LIDAR_VALUES], *([g.opacity_logits[:, None] - 1] if own else [])], dim=1)
    return replace(scene, gaussians=replace(g, lidar_logits=logits))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("remove: [9]", "edits.yaml names '9', but the ids of the tracks are 000, 001, 002"),
        ("remove: [Actors]", "names 'Actors', but the ids of the tracks are .*; did you mean actors?"),
        ("move: [{track: Actors, left_m: 1}]", "names 'Actors', but the ids of the tracks are 000, 001, 002, 003$"),
        ("removed: [000]", "key removed is unknown; did you mean remove"),
        ("move: [{track: 000, left: 1}]", r"key move\[0\].left is unknown; did you mean move\[0\].left_m"),
        ("move: [{track: 000}]", "has no offset"),
        ("move: [{left_m: 1}]", r"move\[0\].track is missing"),
        ("move: [{track: 000, left_m: .nan}]", r"left_m is .*, but must lie between"),
        ("{remove: [000], move: [{track: 000, left_m: 1}]}", "edits track '000' twice"),
        ("remove: [000, 000]", "edits track '000' twice"),
        ("{remove: [actors], move: [{track: 000, left_m: 1}]}", "removes all actors and edits '000'"),
        ("{remove: [000], remove: [001]}", "holds remove twice"),
        ("remove: 000", "must be a list"),
        ("remove: [[000]]", r"remove\[0\] is .* must be the id"),
        ("move: [000]", "must hold keys and values"),
        ("[1]", "must hold some of the keys remove, move, follow, copy"),
        ("", "is empty"),
        ("{", "is no YAML"),
        ("remove:\t[7]", r"is no YAML \(line 1: found character '\\t' that cannot start any token\); docs/editing"),
        (f"remove: {'[' * 3000}{']' * 3000}", r"is no YAML \(it is nested too deeply\); docs/editing"),
        ("follow: [{track: 000}]", r"follow\[0\].poses is missing"),
        ("follow: [{track: 000, poses: [{time_s: 1, x_m: 0, y_m: 0, z_m: 0}]}]", "has 1 pose, but takes 2"),
        (f"follow: [{{track: 000, {POSES.replace('time_s: 2', 'time_s: 0')}}}]", "must be after 0, the time before it"),
        (f"follow: [{{track: 000, {POSES.replace('y_m: 200', 'y_m: east')}}}]", "y_m is 'east', but must"),
        (f"copy: [{{name: '', checkpoint: no.pt, track: 000, {POSES}}}]", r"copy\[0\].name is missing"),
        (f"copy: [{{name: a, checkpoint: no.pt, track: 000, {POSES}}}]", "no.pt does not exist"),
    ],
)
def test_mistakes_end_with_a_sentence(scene: Scene, text: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=sentence) as error:
        read_edits(written(tmp_path, text), scene)
    assert "edits.yaml" in str(error.value) or "no.pt" in str(error.value)


@pytest.mark.parametrize("span", [(2.5, 9.0), (-9.0, -0.5), (0.5, 1.0), (1.9, 9.0)])
def test_an_actor_that_no_moment_of_the_drive_shows_is_refused(
    span: tuple[float, float], scene: Scene, tmp_path: Path
) -> None:
    """POSES last from 0 to 2 s."""
    scene = replace(scene, tracks=replace(scene.tracks, margin=0.1))
    other = checkpoint(scene, tmp_path / "other.pt")
    followed, copied = (
        f"follow: [{{track: 000, {POSES}}}]",
        f"copy: [{{name: a, checkpoint: {other}, track: 001, {POSES}}}]",
    )
    for text, said in (
        (followed, r"follow\[0\].poses .* track under remove"),
        (copied, r"copy\[0\].poses .* leave the copy out"),
    ):
        file = written(tmp_path, text)
        assert read_edits(file, scene).names() is not None  # without a drive
        if span[0] > 2.1 or span[1] < -0.1:
            with pytest.raises(ConfigError, match=f"{said}") as error:
                read_edits(file, scene, span)
            assert f"from 0 to 2 s, but the drive from {span[0]:g} to {span[1]:g} s" in str(error.value)
        else:
            read_edits(file, scene, span)


def test_a_copy_needs_a_free_name_and_a_known_track(scene: Scene, tmp_path: Path) -> None:
    file = checkpoint(scene, tmp_path / "other.pt")
    for name, track, sentence in (
        ("000", "001", "which is taken"),
        ("a", "9", r"copy\[0\].track .* names '9'"),
        *(
            (word, "001", f"'{word}', which stands for several tracks, or for none")
            for word in ("all", "Each", "actors")
        ),
        ("a/b", "001", "'a/b', which is not one plain part of a path"),
        ('"a\\nb"', "001", r"'a\\nb', which is not 1 to 64 printable characters"),
        ("q" * 65, "001", "which is not 1 to 64 printable characters"),
        ("' a'", "001", "which begins or ends with a space"),
        ("000_above", "001", "which gives files the names of '000'"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            after(scene, tmp_path, f"copy: [{{name: {name}, checkpoint: {file}, track: {track}, {POSES}}}]")
    with torch.no_grad():
        file = checkpoint(without_actors(scene, ["001"]), tmp_path / "empty.pt")
    with pytest.raises(ConfigError, match=r"copy\[0\].track is '001', which has no Gaussians in .*empty.pt"):
        after(scene, tmp_path, f"copy: [{{name: a, checkpoint: {file}, track: 001, {POSES}}}]")


def test_the_example_of_the_page_renders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = turned_scene()
    checkpoint(scene, tmp_path / "runs/other/checkpoint.pt")
    (text,) = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    written(tmp_path, text)
    keys = {"times": [0.4], "sensors": ["camera_0", "lidar"]}
    _, plain = render(reconstruction(tmp_path / "plain", scene=scene, **keys))
    run = reconstruction(tmp_path / "out", scene=scene, edits="edits.yaml", **keys)
    _, out = render(run)
    assert names(out) == names(plain)
    first = "camera_0_t0000.400.png"
    assert not np.array_equal(picture(out / first), picture(plain / first))
    tracks = TrainedScene(run, tmp_path).edited("edits.yaml").tracks
    assert tracks.ids == (*scene.tracks.ids[1:], "visitor")
    torch.testing.assert_close(tracks.translations[-1], torch.tensor([5.0, -3, 0.8]).double(), rtol=0, atol=1e-5)
    assert float(quat_normalize(tracks.quaternions[-1])[3].abs()) == pytest.approx(1)


def test_the_command_line_may_not_edit_a_track_of_the_file_again(tmp_path: Path) -> None:
    file = written(tmp_path, "move: [{track: 000, left_m: 1}]")
    with pytest.raises(ConfigError, match="edits track '000' twice"):
        render(reconstruction(tmp_path / "out", scene=turned_scene(), edits=str(file), remove=["000"]))
    assert not (tmp_path / "out").exists()


def test_export_writes_the_edited_scene(scene: Scene, tmp_path: Path) -> None:
    file = written(tmp_path, f"{{remove: [000], follow: [{{track: 001, {POSES}}}]}}")
    config = ExportConfig(checkpoint=str(tmp_path / "c.pt"), node="001", time=1.0, edits=str(file))
    export(config, scene)
    ply = read_ply(tmp_path / "001-t0001.000-edits.ply")
    means = actor(after(scene, tmp_path, file.read_text()), 1, 1.0).means
    assert_rounded_alike(torch.tensor(np.stack([ply[a] for a in "xyz"], axis=-1)), means)
    with pytest.raises(ConfigError, match=r"node=000 is removed by .*edits.yaml"):
        export(replace(config, node="000"), scene)
    said = export(replace(config, node="all", out=str(tmp_path / "all.ply")), scene)
    assert f"of {len(scene.tracks) - 1} actors" in said
    assert len(read_ply(tmp_path / "all.ply")["x"]) <= int((scene.gaussians.node != 1).sum())
