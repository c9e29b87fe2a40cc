# SPDX-License-Identifier: Apache-2.0
"""`collect_gaussian_parameters`: actors move with their poses, the background stays."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation, Slerp
from splat_scenes import F64, make_camera_view, make_pose, make_sky, oracle_camera, tensor, turn, uniform
from torch import Tensor
from torch.autograd import gradcheck
from torch.nn import functional as F

from nurec_lite.geometry.se3 import matrix_to_quat
from nurec_lite.geometry.tracks import TrackPoses, Tracks, interpolate
from nurec_lite.scene.collect import collect_gaussian_parameters
from nurec_lite.scene.gaussians import BACKGROUND, Gaussians, WorldGaussians
from nurec_lite.scene.scene import Scene
from nurec_lite.splat.project import project
from nurec_lite.splat.render import render_camera
from nurec_lite.splat.tiles import tile
from nurec_lite.splat.views import CameraView

NODES = (0, 1, 2, 0, 1, 0, 2, 2, 0)  # background and two actors, mixed
KEYS = ([0.0, 0.1, 0.25, 0.4], [0.2, 0.35, 0.5])  # seconds
MID = 0.28  # both exist, between keyframes


def make_gaussians(node: tuple[int, ...], coefficients: int = 9) -> Gaussians:
    n = len(node)
    return Gaussians(
        means=torch.randn(n, 3, dtype=F64),
        quats=2 * torch.randn(n, 4, dtype=F64),
        log_scales=uniform(-2.0, -0.5, n, 3),
        opacity_logits=torch.randn(n, dtype=F64),
        sh0=0.5 * torch.randn(n, 1, 3, dtype=F64),
        sh_rest=0.3 * torch.randn(n, coefficients - 1, 3, dtype=F64),
        lidar_logits=torch.randn(n, 2, dtype=F64),
        node=torch.tensor(node, dtype=torch.int64),
    )


def make_tracks(keys: tuple[list[float], ...] = KEYS) -> Tracks:
    m = sum(map(len, keys))
    translations = torch.cumsum(torch.randn(m, 3, dtype=F64), dim=0)
    return Tracks(
        ids=tuple(map(str, range(len(keys)))),
        classes=("Car",) * len(keys),
        sizes=torch.ones(len(keys), 3, dtype=F64),
        offsets=(0, *np.cumsum([len(k) for k in keys]).tolist()),
        times=torch.tensor([t for k in keys for t in k], dtype=F64),
        translations=translations,
        quaternions=F.normalize(torch.randn(m, 4, dtype=F64) + tensor(2.0, 0, 0, 0), dim=-1),
    )


def make_scene(node: tuple[int, ...] = NODES, tracks: Tracks | None = None) -> Scene:
    tracks = make_tracks() if tracks is None else tracks
    exposure = torch.zeros(1, 2, 3, dtype=F64)
    return Scene(
        make_gaussians(node), make_sky(), tracks, tracks.translations.clone(), tracks.quaternions.clone(), exposure
    )


def of_node(scene: Scene, node: int) -> Tensor:
    return torch.nonzero(scene.gaussians.node == node).squeeze(-1)


def pose_at(tracks: Tracks, k: int, time: float) -> tuple[Tensor, Tensor]:
    """Rotation matrix and position of track k by scipy."""
    rows = slice(tracks.offsets[k], tracks.offsets[k + 1])
    times, t, q = (x[rows].numpy() for x in (tracks.times, tracks.translations, tracks.quaternions))
    R = Slerp(times, Rotation.from_quat(q[:, [1, 2, 3, 0]]))(time).as_matrix()
    return torch.from_numpy(R), torch.tensor([np.interp(time, times, t[:, a]) for a in range(3)])


# ---- values


def test_the_background_stays_where_it_is() -> None:
    scene = make_scene()
    world, g = collect_gaussian_parameters(scene, MID), scene.gaussians
    i = of_node(scene, BACKGROUND)
    assert len(world) == len(NODES)
    assert torch.equal(world.means[i], g.means[i]) and torch.equal(world.sh[i], torch.cat([g.sh0, g.sh_rest], 1)[i])
    torch.testing.assert_close(world.quats[i], g.quats[i] / g.quats[i].norm(dim=-1, keepdim=True))
    assert world.frames[i].tolist() == [[1, 0, 0, 0]] * len(i) and not world.velocities[i].any()


def test_activations() -> None:
    scene = make_scene()
    world, g = collect_gaussian_parameters(scene, MID), scene.gaussians
    torch.testing.assert_close(world.scales, torch.exp(g.log_scales))
    torch.testing.assert_close(world.opacities, 1 / (1 + torch.exp(-g.opacity_logits)))
    torch.testing.assert_close(world.lidar, 1 / (1 + torch.exp(-g.lidar_logits)))
    torch.testing.assert_close(world.quats.norm(dim=-1), torch.ones(len(NODES), dtype=F64))


@pytest.mark.parametrize("time", [0.2, 0.25, MID, 0.39])
def test_means_and_rotations_of_actors_move_with_the_pose(time: float) -> None:
    scene = make_scene()
    world, g = collect_gaussian_parameters(scene, time), scene.gaussians
    for k in range(2):
        i = of_node(scene, k + 1)
        R, t = pose_at(scene.tracks, k, time)
        torch.testing.assert_close(world.means[i], g.means[i] @ R.T + t)
        own = turn(g.quats[i] / g.quats[i].norm(dim=-1, keepdim=True))
        torch.testing.assert_close(turn(world.quats[i]), R @ own)
        torch.testing.assert_close(turn(world.frames[i]), R.expand(len(i), 3, 3))


def test_the_learned_keyframes_count_not_those_of_the_tracks() -> None:
    scene = make_scene()
    moved = replace(scene, track_translations=scene.track_translations + 5.0)
    a, b = collect_gaussian_parameters(scene, MID), collect_gaussian_parameters(moved, MID)
    actor = scene.gaussians.node != BACKGROUND
    torch.testing.assert_close(b.means, a.means + 5.0 * actor[:, None])


def test_velocities_are_finite_differences_in_time() -> None:
    scene, h = make_scene(), 1e-6
    before, now, after = (collect_gaussian_parameters(scene, MID + dt) for dt in (-h, 0.0, h))
    differences = (after.means - before.means) / (2 * h)
    assert (differences[scene.gaussians.node != BACKGROUND].norm(dim=-1) > 1).all()
    torch.testing.assert_close(now.velocities, differences, atol=1e-5, rtol=1e-6)  # steps of 1e-6 s


@pytest.mark.parametrize(("time", "nodes"), [(-0.1, {0}), (0.1, {0, 1}), (0.3, {0, 1, 2}), (0.45, {0, 2}), (0.6, {0})])
def test_actors_that_do_not_exist_at_the_time_are_absent(time: float, nodes: set[int]) -> None:
    scene = make_scene()
    world = collect_gaussian_parameters(scene, time)
    i = torch.tensor([n in nodes for n in NODES])
    assert len(world) == int(i.sum())
    for name in ("means", "quats", "scales", "opacities", "sh", "frames", "lidar", "velocities"):
        assert len(getattr(world, name)) == len(world), name
    torch.testing.assert_close(world.scales, torch.exp(scene.gaussians.log_scales[i]))  # in the order of the store
    background = torch.tensor([n == BACKGROUND for n in NODES if n in nodes])
    assert torch.equal(world.means[background], scene.gaussians.means[of_node(scene, BACKGROUND)])


def test_no_tracks() -> None:
    scene = make_scene((0,) * 5, Tracks.empty())
    world = collect_gaussian_parameters(scene, 0.0)
    assert len(world) == 5 and torch.equal(world.means, scene.gaussians.means) and not world.velocities.any()


def test_no_gaussians() -> None:
    world = collect_gaussian_parameters(make_scene(()), MID)
    assert len(world) == 0 and world.means.shape == (0, 3) and world.sh.shape == (0, 9, 3)


def test_a_track_without_gaussians_and_gaussians_of_one_track_only() -> None:
    tracks = make_tracks()
    whole = make_scene(NODES, tracks)
    world = collect_gaussian_parameters(whole, MID)
    i = of_node(whole, 2)
    part = replace(whole, gaussians=Gaussians(**{k: v[i] for k, v in vars(whole.gaussians).items()}))
    for name in ("means", "quats", "velocities"):
        torch.testing.assert_close(getattr(collect_gaussian_parameters(part, MID), name), getattr(world, name)[i])


def test_the_stage_that_interpolates_is_the_one_that_is_given() -> None:
    calls: list[Tensor] = []

    def recorded(tracks: Tracks, times: Tensor) -> TrackPoses:
        calls.append(times)
        return interpolate(tracks, times)

    collect_gaussian_parameters(make_scene(), MID, recorded)
    assert len(calls) == 1 and calls[0].tolist() == [MID] and calls[0].dtype == F64


def test_single_precision() -> None:
    scene = make_scene()
    g = Gaussians(**{k: v if k == "node" else v.float() for k, v in vars(scene.gaussians).items()})
    keyframes = {k: getattr(scene, k).float() for k in ("track_translations", "track_quaternions")}
    small = replace(scene, gaussians=g, tracks=scene.tracks.to("cpu"), **keyframes)
    result, expected = collect_gaussian_parameters(small, MID), collect_gaussian_parameters(scene, MID)
    for name in ("means", "quats", "scales", "opacities", "sh", "frames", "lidar", "velocities"):
        assert getattr(result, name).dtype == torch.float32, name
        torch.testing.assert_close(getattr(result, name).double(), getattr(expected, name), atol=1e-4, rtol=1e-5)


# ---- gradients


def test_gradients_in_gaussians_and_keyframes() -> None:
    scene = make_scene((0, 1, 2, 1))
    names = Gaussians.trained()
    inputs = [getattr(scene.gaussians, name).clone().requires_grad_() for name in names]
    inputs += [scene.track_translations.clone().requires_grad_(), scene.track_quaternions.clone().requires_grad_()]

    def world(*tensors: Tensor) -> tuple[Tensor, ...]:
        g = replace(scene.gaussians, **dict(zip(names, tensors[:-2], strict=True)))
        w = collect_gaussian_parameters(
            replace(scene, gaussians=g, track_translations=tensors[-2], track_quaternions=tensors[-1]), MID
        )
        return w.means, w.quats, w.scales, w.opacities, w.sh, w.frames, w.lidar, w.velocities

    assert gradcheck(world, inputs, atol=1e-5)


def test_gradients_reach_the_keyframes_around_the_time_and_no_others() -> None:
    scene = make_scene()
    t, q = scene.track_translations.requires_grad_(), scene.track_quaternions.requires_grad_()
    w = collect_gaussian_parameters(scene, MID)
    weights = torch.randn_like(w.means)
    gradients = torch.autograd.grad((w.means * weights).sum() + (w.quats * w.frames).sum(), (t, q))
    for gradient in gradients:
        assert gradient.any(dim=1).tolist() == [False, False, True, True, True, True, False]


def test_gradients_without_actors_are_finite() -> None:
    scene = make_scene()
    g = scene.gaussians
    leaves = [x.requires_grad_() for x in (g.means, g.quats, scene.track_translations, scene.track_quaternions)]
    w = collect_gaussian_parameters(scene, -1.0)  # before all tracks
    gradients = torch.autograd.grad((w.means.sum() + w.quats.sum()), leaves, allow_unused=True)
    assert all(x is None or x.isfinite().all() for x in gradients)
    assert gradients[0] is not None and not gradients[0][g.node != BACKGROUND].any()


# ---- the scene for a sensor


def photograph(scene: Scene, time: float, T_world_cam: Tensor) -> Tensor:
    view = make_camera_view(12, 9, 10.0, T_world_cam=T_world_cam)
    world = collect_gaussian_parameters(scene, time)
    return render_camera(world, view, tile(project(world, view), view), torch.zeros(3, 2, 4, dtype=F64)).colour


def turning_actor() -> tuple[Scene, list[Tensor]]:
    """An actor that turns by 100 degrees about a tilted axis and moves, and its poses at the two keyframes."""
    poses = [make_pose((0.1, -0.2, 0.3), (5, 1, 0)), make_pose((0.4, 0.3, 2.1), (9, -4, 1))]
    base = make_tracks(([0.0, 1.0],))
    tracks = replace(
        base,
        translations=torch.stack([T[:3, 3] for T in poses]),
        quaternions=torch.stack([matrix_to_quat(T[:3, :3]) for T in poses]),
    )
    return make_scene((1,) * 12, tracks), poses


def test_colours_turn_with_the_actor() -> None:
    """A camera fixed in the actor's frame sees the same image wherever the actor has moved and turned."""
    scene, poses = turning_actor()
    T_actor_cam = make_pose((0.2, 0.1, -0.1), (0.3, -0.2, -5.0))
    first, second = (photograph(scene, time, T @ T_actor_cam) for time, T in zip((0.0, 1.0), poses, strict=True))
    assert (first - 0.5).abs().max() > 0.2
    torch.testing.assert_close(first, second, atol=1e-9, rtol=0)


def test_colours_depend_on_the_side_that_is_seen() -> None:
    """Were the harmonics in world axes, a camera that does not turn with the actor would see the same colour as before."""
    scene, poses = turning_actor()
    isotropic = replace(
        scene.gaussians, means=0 * scene.gaussians.means, log_scales=torch.full((12, 3), -0.5, dtype=F64)
    )
    scene = replace(scene, gaussians=isotropic)
    away = make_pose((0.0, 0.0, 0.0), (0.0, 0.0, -5.0))
    images = []
    for time, T in zip((0.0, 1.0), poses, strict=True):
        T_world_cam = away.clone()
        T_world_cam[:3, 3] += T[:3, 3]
        images.append(photograph(scene, time, T_world_cam))
    assert (images[0] - images[1]).abs().max() > 0.05


def test_a_rolling_shutter_sees_a_moving_actor_as_the_oracle_does() -> None:
    """Velocities of collection, delays of rays: an actor that only translates is where its track is at each row's own time."""
    base = make_tracks(([0.0, 1.0],))
    tracks = replace(
        base, translations=tensor([0.0, 0, 6], [8.0, 2, 7]), quaternions=tensor([1.0, 0, 0, 0], [1, 0, 0, 0])
    )
    scene, start, end = make_scene((1,) * 10, tracks), 0.45, 0.55
    scene.gaussians.sh_rest.zero_()  # colours are those of the view direction in the middle
    eye = torch.eye(4, dtype=F64)
    eye[:3, 3] = tensor(4.0, 1.0, 0.0)
    still = make_camera_view(7, 6, 6.0, "top_to_bottom", T_world_cam=eye)
    view = CameraView(eye, eye, start, end, still.camera)
    world = collect_gaussian_parameters(scene, 0.5)
    image = render_camera(world, view, tile(project(world, view), view), scene.sky).colour
    for row in (0, 3, 5):
        time = start + row / 5 * (end - start)
        then = collect_gaussian_parameters(scene, time)
        frozen: WorldGaussians = replace(then, velocities=torch.zeros_like(then.velocities))
        expected = oracle_camera(frozen, replace(view, time_start=time, time_end=time), scene.sky).colour[row]
        torch.testing.assert_close(image[row], expected, atol=1e-9, rtol=0)
    assert math.isclose(view.time_mid, 0.5) and float(view.moment()) == view.time_mid
