# SPDX-License-Identifier: Apache-2.0
"""Actors taken away or moved: exactly they change, and the scene that was given does not."""

import math
from dataclasses import fields, replace

import pytest
import torch
from rounding import assert_rounded_alike
from tiny_capture import tiny_scene
from torch import Tensor

from nurec_lite.base.errors import ConfigError
from nurec_lite.geometry.se3 import quat_normalize, quat_rotate, quat_to_matrix, rotvec_to_quat
from nurec_lite.scene.collect import collect_gaussian_parameters
from nurec_lite.scene.edit import Move, parse_move, removed_tracks, with_moved_actors, without_actors
from nurec_lite.scene.gaussians import WorldGaussians
from nurec_lite.scene.scene import Scene

TIME = 0.43  # seconds, between two keyframes


def scene_with_actors() -> Scene:
    """Every actor has Gaussians, and the first one turns while it drives."""
    scene = tiny_scene()
    g = scene.gaussians
    i = torch.arange(0, len(g), 3)
    g.node[i], g.means[i] = 1 + i % len(scene.tracks), torch.randn(len(i), 3)
    first = slice(0, scene.tracks.offsets[1])
    angles = torch.linspace(0, 1, first.stop)
    spin = rotvec_to_quat(angles[:, None] * torch.tensor([0.0, 0, 1]))
    q = scene.track_quaternions.clone()
    q[first] = 1.3 * spin  # the length of a learned quaternion is arbitrary
    return replace(scene, track_quaternions=q)


def snapshot(scene: Scene) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in scene.parameters().items()} | {"node": scene.gaussians.node.clone()}


def assert_untouched(scene: Scene, before: dict[str, Tensor]) -> None:
    now = snapshot(scene)
    assert all(torch.equal(now[name], before[name]) for name in before)


def of_node(scene: Scene, world: WorldGaussians, k: int) -> WorldGaussians:
    return world.select(torch.nonzero(scene.gaussians.node == k + 1).squeeze(-1))


def assert_equal(a: WorldGaussians, b: WorldGaussians) -> None:
    """Asserts that Gaussians are equal up to rounding: the same formulas ran beside other rows."""
    for f in fields(WorldGaussians):
        assert_rounded_alike(getattr(a, f.name), getattr(b, f.name))


def test_removing_takes_the_gaussians_of_that_node_and_leaves_the_others_bitwise() -> None:
    scene = scene_with_actors()
    before = snapshot(scene)
    less = without_actors(scene, [scene.tracks.ids[1]])
    assert 2 not in less.gaussians.node and {1, 3} <= set(less.gaussians.node.tolist())
    others = scene.gaussians.node != 2
    for f in fields(scene.gaussians):
        assert torch.equal(getattr(less.gaussians, f.name), getattr(scene.gaussians, f.name)[others])
    whole, rest = (collect_gaussian_parameters(s, TIME) for s in (scene, less))
    assert_equal(whole.select(torch.nonzero(others).squeeze(-1)), rest)
    assert_untouched(scene, before)


def test_removing_all_actors_leaves_the_background() -> None:
    scene = scene_with_actors()
    less = without_actors(scene, ["actors"])
    assert len(less.gaussians) == int((scene.gaussians.node == 0).sum()) > 0
    assert removed_tracks(scene.tracks, ["actors"]) == list(range(len(scene.tracks)))


def test_removing_an_actor_that_is_absent_at_a_time_changes_nothing_then() -> None:
    scene = scene_with_actors()
    late = 1e3 + scene.tracks.times
    k = 2
    rows = slice(scene.tracks.offsets[k], scene.tracks.offsets[k + 1])
    times = torch.cat([scene.tracks.times[: rows.start], late[rows], scene.tracks.times[rows.stop :]])
    scene = replace(scene, tracks=replace(scene.tracks, times=times))
    less = without_actors(scene, [scene.tracks.ids[k]])
    assert len(less.gaussians) < len(scene.gaussians)
    assert_equal(collect_gaussian_parameters(scene, TIME), collect_gaussian_parameters(less, TIME))


def test_removing_nothing_and_moving_by_nothing_change_nothing() -> None:
    scene = scene_with_actors()
    whole = collect_gaussian_parameters(scene, TIME)
    still = Move(0, 0, 0, 0)
    for same in (
        without_actors(scene, []),
        with_moved_actors(scene, []),
        with_moved_actors(scene, [(name, still) for name in scene.tracks.ids]),
    ):
        assert_equal(collect_gaussian_parameters(same, TIME), whole)


def pose(scene: Scene, k: int, key: int) -> tuple[Tensor, Tensor]:
    row = scene.tracks.offsets[k] + key
    return quat_normalize(scene.track_quaternions[row]), scene.track_translations[row]


@pytest.mark.parametrize("turn", [0.0, math.radians(90), math.radians(-35)])
def test_moving_displaces_the_gaussians_in_the_axes_of_the_actor(turn: float) -> None:
    scene = scene_with_actors()
    before = snapshot(scene)
    moved = with_moved_actors(scene, [(scene.tracks.ids[0], Move(1.5, -2, 0.25, turn))])
    time = float(scene.tracks.times[2])  # at a key, where the composition is exact
    old, new = (of_node(s, collect_gaussian_parameters(s, time), 0) for s in (scene, moved))
    q, t = pose(scene, 0, 2)
    local = scene.gaussians.means[scene.gaussians.node == 1]
    c, s = math.cos(turn), math.sin(turn)
    turned = local @ torch.tensor([[c, -s, 0], [s, c, 0], [0, 0, 1]]).T
    expected = quat_rotate(q, turned + torch.tensor([1.5, -2, 0.25])) + t
    torch.testing.assert_close(new.means, expected, rtol=0, atol=2e-5)
    assert torch.equal(new.scales, old.scales) and torch.equal(new.opacities, old.opacities)
    yaw = quat_to_matrix(new.frames[0]) @ quat_to_matrix(old.frames[0]).T
    assert float(torch.atan2(yaw[1, 0], yaw[0, 0])) == pytest.approx(turn, abs=1e-5)
    assert_untouched(scene, before)


def test_moving_leaves_everything_else_bitwise() -> None:
    scene = scene_with_actors()
    moved = with_moved_actors(scene, [(scene.tracks.ids[1], Move(1, 0, 0, 0.3))])
    others = torch.nonzero(scene.gaussians.node != 2).squeeze(-1)
    whole, changed = (collect_gaussian_parameters(s, TIME).select(others) for s in (scene, moved))
    assert_equal(whole, changed)


def test_moves_of_one_actor_follow_each_other() -> None:
    scene = scene_with_actors()
    name = scene.tracks.ids[0]
    quarter, forward = Move(0, 0, 0, math.pi / 2), Move(1, 0, 0, 0)
    twice = with_moved_actors(scene, [(name, quarter), (name, forward)])
    once = with_moved_actors(scene, [(name, Move(0, 1, 0, math.pi / 2))])
    torch.testing.assert_close(twice.track_translations, once.track_translations, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "text, name, numbers",
    [
        ("000:0:1:0:90", "000", (0, 1, 0, math.pi / 2)),
        ("3:-1.5:1e-1:.5:-0", "3", (-1.5, 0.1, 0.5, 0)),
        ("car-1:0:1:0:0", "car-1", (0, 1, 0, 0)),
        ("a:b c:0:1:0:0", "a:b c", (0, 1, 0, 0)),
    ],
)
def test_parse_move(text: str, name: str, numbers: tuple[float, ...]) -> None:
    parsed, move = parse_move(text)
    assert parsed == name and (move.forward, move.left, move.up, move.turn) == pytest.approx(numbers)


@pytest.mark.parametrize("text", ["", "000", "000:1:2:3", "000:a:0:0:0", "000:nan:0:0:0", "000:inf:0:0:0"])
def test_a_move_that_cannot_be_read_says_how_to_write_it(text: str) -> None:
    with pytest.raises(ConfigError, match=r"move holds .*ID:FORWARD:LEFT:UP:TURN"):
        parse_move(text)


def test_an_unknown_id_lists_the_ids_and_many_of_them_are_shortened() -> None:
    scene = scene_with_actors()
    with pytest.raises(ConfigError, match=r"remove names 'x', but the ids .* are 000, 001, 002"):
        without_actors(scene, ["x"])
    with pytest.raises(ConfigError, match="move names 'x'"):
        with_moved_actors(scene, [("x", Move(0, 0, 0, 0))])
    many = replace(scene.tracks, ids=tuple(f"{k}" for k in range(50)), offsets=tuple(range(51)))
    with pytest.raises(ConfigError, match=r"18, 19 and 30 more"):
        removed_tracks(many, ["x"])
    with pytest.raises(ConfigError, match="no tracks"):
        removed_tracks(replace(scene.tracks, ids=()), ["x"])
