# SPDX-License-Identifier: Apache-2.0
"""The scene that training starts from lies where the simulated surfaces are and looks as the images do."""

from dataclasses import fields, replace
from functools import lru_cache

import pytest
import torch
from odd_captures import without_lidar
from tiny_capture import TINY, Loaded, tiny_capture, tiny_config, tiny_scene
from torch import Tensor

from nurec_lite.capture.deskew import project_world_points
from nurec_lite.capture.simulate import simulate, simulate_depth
from nurec_lite.capture.types import Capture, CaptureError, SweepFrame
from nurec_lite.config import ModelConfig
from nurec_lite.evaluation.measure import image_of
from nurec_lite.evaluation.metrics import psnr
from nurec_lite.geometry.camera import pixel_directions
from nurec_lite.geometry.harmonics import DEGREE_0
from nurec_lite.geometry.lidar import Sweep
from nurec_lite.geometry.se3 import quat_rotate
from nurec_lite.geometry.tracks import Tracks, interpolate
from nurec_lite.scene import moments
from nurec_lite.scene.beyond import far_positions, panorama
from nurec_lite.scene.gaussians import BACKGROUND, Gaussians
from nurec_lite.scene.init import make_scene
from nurec_lite.scene.moments import Asked, Seen, seen
from nurec_lite.scene.points import BOX_MARGIN, GROUND_METRES, Points, actors_in, assign_to_actors
from nurec_lite.scene.sky import sample_sky
from nurec_lite.scene.unmeasured import unmeasured_positions
from nurec_lite.splat.views import camera_view
from nurec_lite.training.baseline import reference_stages

MODEL = tiny_config().model
CPU = torch.device("cpu")
FIELDS = tuple(Gaussians.__dataclass_fields__)
DENSE = replace(
    TINY, frames=5, moving_cars=3, parked_cars=6, beams=24, azimuth_steps=200, range_noise_m=0.0, drop_rays=False
)
EVERYTHING = 10**6  # more Gaussians than there are points: nothing is merged


def dense() -> Capture:
    """Exact ranges."""
    return tiny_capture(DENSE)


def all_seen(capture: Capture, far: Tensor | None = None, sky_height: int = 8) -> Seen:
    """All that the capture sees; nothing far away if no points are given."""
    return seen(Asked(capture, torch.zeros(0, 3, dtype=torch.float64) if far is None else far, sky_height))


def sky_of(capture: Capture, height: int) -> Tensor:
    return panorama(all_seen(capture, sky_height=height).sky, height)


@lru_cache(maxsize=1)
def dense_points() -> Points:
    return measured(all_seen(dense()))


def measured(found: Seen) -> Points:
    return Points.cat([found.background, found.actors])


def measured_only(points: int, actor_points: int = EVERYTHING) -> ModelConfig:
    nothing = {"raised_points": 0, "far_points": 0, "mirror_actors": False}
    return replace(MODEL, points=points, actor_points=actor_points, **nothing)


def looking_up(capture: Capture) -> Capture:
    """Its cameras see the zenith alone."""
    T = torch.eye(4, dtype=torch.float64)
    T[:3, :3] = torch.tensor([[0.0, 1, 0], [-1, 0, 0], [0, 0, 1]])
    return replace(capture, cameras=tuple(replace(c, T_rig_cam=T, fx=60.0, fy=60.0) for c in capture.cameras))


def painted(capture: Capture, image: Tensor) -> Capture:  # [H, W, 3] uint8
    """All its images show the same."""
    return replace(capture, images=tuple(replace(frame, load=Loaded(image)) for frame in capture.images))


# Points


def test_points_lie_on_the_surfaces_that_the_cameras_see() -> None:
    """No background point floats in front of exact depth images, and most lie on them."""
    points = dense_points()
    world = points.xyz[points.node == BACKGROUND]
    seen = simulate(replace(DENSE, width=320, height=192, moving_cars=0))  # static surfaces hide nothing that moves
    shown, floating, in_view = 0, 0, 0
    for frame in seen.images[:8:2]:
        camera = seen.camera(frame.sensor)
        pixels, z = project_world_points(camera, frame, world)
        u, v = torch.floor(pixels).long().unbind(-1)
        inside = (z > 1) & (u >= 0) & (v >= 0) & (u < camera.width) & (v < camera.height)
        u, v, z = u[inside], v[inside], z[inside]
        depth = simulate_depth(frame)[v, u] * pixel_directions(camera, torch.float64)[v, u, 2]
        slack = 0.05 + 0.03 * z  # across a pixel, surfaces slope
        in_view += len(z)
        shown += int(((z - depth).abs() < slack).sum())
        floating += int((z < depth - slack).sum())
    assert in_view > 5000
    assert shown > 0.8 * in_view
    assert floating < 0.04 * in_view  # pixels at silhouettes and at grazing incidence


def test_ground_points_of_all_sweeps_lie_on_the_ground() -> None:
    z = dense_points().xyz[dense_points().node == BACKGROUND, 2]
    ground = z.abs() < 0.3
    assert ground.float().mean() > 0.3
    assert (z[ground].abs() < 1e-3).float().mean() > 0.5  # the road; kerbs are higher
    assert z.min() > -1e-3


def test_actors_points_lie_in_their_boxes_in_the_frame_of_the_box() -> None:
    points, tracks = dense_points(), dense().tracks
    hit = [k for k in range(len(tracks)) if (points.node == k + 1).sum() >= 20]
    assert len(hit) >= 5 and 0 in hit  # the first one drives ahead
    for k in hit:
        local = points.xyz[points.node == k + 1]
        assert (local.abs() <= 0.5 * BOX_MARGIN * tracks.sizes[k] + 1e-9).all()
        assert (
            local[:, 2] > GROUND_METRES - 0.5 * tracks.sizes[k, 2]
        ).all()  # the ground under a car does not move with it
        above_ground = local[local[:, 2] > -0.49 * tracks.sizes[k, 2]]
        assert (above_ground.abs() <= 0.5 * tracks.sizes[k] + 2e-3).all(-1).float().mean() > 0.98


def test_a_moving_actor_s_points_come_together_in_its_frame() -> None:
    """The car ahead is hit from behind: in its frame all sweeps see the same rear; in the world they are metres apart."""
    points, tracks = dense_points(), dense().tracks
    rear = -0.5 * tracks.sizes[0, 0]
    local = points.xyz[points.node == 1]
    assert ((local[:, 0] - rear).abs() < 0.02).float().mean() > 0.3
    assert local[:, 0].max() < 0.2 * tracks.sizes[0, 0]  # some pass over the roof
    path = tracks.translations[tracks.offsets[0] : tracks.offsets[1], 0]
    assert path.max() - path.min() > 1.5


@pytest.mark.parametrize("metres_per_second", [0.0, 20.0, -60.0])
def test_a_fast_actor_keeps_its_points_from_the_first_ray_to_the_last(metres_per_second: float) -> None:
    times, keys = torch.linspace(1.0, 1.1, 201, dtype=torch.float64), torch.tensor([0.9, 1.2], dtype=torch.float64)
    path, ahead = torch.zeros(2, 3, dtype=torch.float64), torch.tensor([[1.9, 0.8, -0.5]], dtype=torch.float64)
    path[:, 0] = metres_per_second * keys
    upright = torch.tensor([[1.0, 0, 0, 0]], dtype=torch.float64).expand(2, 4)
    tracks = Tracks(("a",), ("Car",), torch.tensor([[4.0, 2, 1.5]], dtype=torch.float64), (0, 2), keys, path, upright)
    world = ahead.repeat(len(times), 1)
    world[:, 0] += metres_per_second * times
    none = torch.zeros(len(times))
    sweep = Sweep(none[:, None].expand(-1, 3), none, none, times, none.long(), none > -1)
    frame = SweepFrame("lidar", 0, 1.0, 1.1, torch.eye(4), torch.eye(4), lambda: sweep)
    node, local = assign_to_actors(actors_in(tracks, [frame])[0], sweep, world)
    assert (node == 1).all()
    torch.testing.assert_close(local, ahead.expand(len(times), 3), atol=1e-9, rtol=0)


def test_no_background_point_is_left_inside_a_box() -> None:
    points, tracks = dense_points(), dense().tracks
    parked = [k for k in range(len(tracks)) if k >= DENSE.moving_cars]
    poses = interpolate(tracks, torch.zeros(1, dtype=torch.float64))
    world = points.xyz[points.node == BACKGROUND]
    for k in parked:
        q = poses.quaternions[0, k] * torch.tensor([1.0, -1, -1, -1], dtype=torch.float64)
        local = quat_rotate(q.expand(len(world), 4), world - poses.translations[0, k])
        inside = (local.abs() < 0.5 * tracks.sizes[k]).all(-1)
        assert (local[inside, 2] <= GROUND_METRES - 0.5 * tracks.sizes[k, 2]).all()


def test_colours_are_those_of_the_pixels_at_that_moment() -> None:
    capture = dense()
    frame = capture.images[2]
    assert capture.split is not None and 2 in capture.split.train_images
    single = replace(capture, images=(frame,), sweeps=capture.sweeps[frame.index : frame.index + 1])
    single = replace(single, split=replace(capture.split, train_images=(0,), train_sweeps=(0,)))
    points = measured(all_seen(single))
    world = points.xyz[points.node == BACKGROUND]
    pixels, z = project_world_points(capture.camera(frame.sensor), frame, world)
    u, v = torch.floor(pixels).long().unbind(-1)
    inside = (z > 0.1) & (u >= 0) & (u < 40) & (v >= 0) & (v < 24)
    coloured = points.coloured[points.node == BACKGROUND]
    assert torch.equal(coloured, inside) and 100 < int(coloured.sum()) < len(world)
    expected = frame.load()[v[inside], u[inside]].float() / 255
    torch.testing.assert_close(points.colour[points.node == BACKGROUND][inside], expected)


def test_raised_points_stand_above_what_the_lidar_hit() -> None:
    raised, measured = all_seen(dense()).raised, dense_points()
    assert len(raised) > 10 and raised.coloured.all() and (raised.node == BACKGROUND).all()
    nearest = torch.cdist(raised.xyz[:, :2], measured.xyz[measured.node == BACKGROUND][:, :2]).min(1)
    assert nearest.values.median() < 0.1  # upright above a return, but for returns on actors
    assert raised.xyz[:, 2].min() > 2


def test_far_points_are_seen_by_an_image_and_as_far_as_stated() -> None:
    path = torch.zeros(1, 3, dtype=torch.float64)
    far = all_seen(dense(), far_positions(path, 2000, 150.0, seed=0)).far
    distance = far.xyz.norm(dim=-1)
    assert 100 < len(far) < 2000 and far.coloured.all()
    assert distance.min() >= 15 - 1e-6 and distance.max() <= 150 + 1e-6 and (distance > 75).any()
    assert (far.xyz[:, 0] > 0).all()  # the cameras look ahead


# The store


def test_gaussians_are_the_points_where_nothing_is_merged() -> None:
    points, g = dense_points(), make_scene(dense(), measured_only(EVERYTHING), 0, "cpu").gaussians
    assert len(g) == len(points) and torch.equal(g.node, points.node.sort(stable=True).values)
    torch.testing.assert_close(g.means, points.xyz[points.node.argsort(stable=True)].float(), rtol=0, atol=0)


@pytest.mark.parametrize("n", [200, 1000, 4000])
def test_the_background_has_about_the_number_asked_for(n: int) -> None:
    g = make_scene(dense(), measured_only(n, actor_points=20), 0, "cpu").gaussians
    count = torch.bincount(g.node, minlength=len(dense().tracks) + 1)
    assert 0.7 * n <= count[BACKGROUND] <= n
    available = torch.bincount(dense_points().node, minlength=len(count))
    assert (count[1:] <= 20).all() and (count[1:][available[1:] > 0] > 0).all()
    background = dense_points().xyz[dense_points().node == BACKGROUND].float()
    nearest = torch.cdist(g.means[g.node == BACKGROUND], background).min(1).values
    assert nearest.median() < 2 * (200 / n) ** 0.5  # metres, about half a voxel


@pytest.mark.parametrize("part", ["points", "actor_points", "raised_points", "far_points"])
def test_a_part_that_is_not_wanted_is_left_out(part: str) -> None:
    count = torch.bincount(tiny_scene().gaussians.node)
    less = torch.bincount(make_scene(tiny_capture(), replace(MODEL, **{part: 0}), 0, "cpu").gaussians.node)
    if part == "actor_points":
        assert less.tolist() == count[:1].tolist()
    else:
        assert less[0] < count[0] and torch.equal(less[1:], count[1:])


def test_every_tensor_is_sound() -> None:
    scene = tiny_scene()
    g = scene.gaussians
    assert all(getattr(g, f.name).isfinite().all() and len(getattr(g, f.name)) == len(g) for f in fields(g))
    colour = g.sh0[:, 0] * DEGREE_0 + 0.5
    assert colour.min() >= -1e-6 and colour.max() <= 1 + 1e-6 and not g.sh_rest.any()
    scales = g.log_scales.exp()
    assert scales.min() > 0 and scales.max() < 10
    torch.testing.assert_close(g.quats.norm(dim=-1), torch.ones(len(g)))
    opacities = torch.sigmoid(g.opacity_logits)
    assert {round(o, 4) for o in opacities.tolist()} == {MODEL.opacity, MODEL.guessed_opacity}
    assert not scene.exposure.any() and scene.exposure.shape == (2, 2, 3)
    assert g.node.dtype == torch.int64 and g.node.min() >= 0 and g.node.max() <= len(scene.tracks)
    for parameter in scene.parameters().values():
        assert parameter.dtype == torch.float32


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_harmonics_have_the_degree_asked_for(degree: int) -> None:
    g = make_scene(tiny_capture(), replace(MODEL, sh_degree=degree), 0, "cpu").gaussians
    assert g.sh0.shape == (len(g), 1, 3) and g.sh_rest.shape == (len(g), (degree + 1) ** 2 - 1, 3)


def test_disks_lie_flat_on_the_ground() -> None:
    g = make_scene(dense(), measured_only(4000, actor_points=0), 0, "cpu").gaussians
    near = (g.means[:, 2].abs() < 0.005) & (g.means[:, :2].norm(dim=-1) < 15)
    thin = g.log_scales.argmin(-1)
    axis = torch.eye(3)[thin]
    normal = quat_rotate(g.quats, axis)
    assert near.sum() > 200
    assert (normal[near, 2].abs() > 0.99).float().mean() > 0.8


def test_the_first_render_resembles_the_images() -> None:
    scene, capture = make_scene(dense(), replace(MODEL, points=5000), 0, "cpu"), dense()
    gains = []
    for frame in capture.images[:4]:
        truth = frame.load().float() / 255
        constant = truth.mean((0, 1)).expand_as(truth)
        gains.append(psnr(image_of(reference_stages(), scene, capture, frame), truth) - psnr(constant, truth))
    assert min(gains) > 3, gains


def test_equal_seeds_give_equal_scenes() -> None:
    first, again, other = (make_scene(tiny_capture(), MODEL, seed, "cpu") for seed in (0, 0, 1))
    for f in fields(Gaussians):
        assert torch.equal(getattr(first.gaussians, f.name), getattr(again.gaussians, f.name))
    assert torch.equal(first.sky, again.sky)
    assert not torch.equal(first.gaussians.means, other.gaussians.means[: len(first.gaussians)])


def test_held_out_frames_leave_no_trace() -> None:
    capture = tiny_capture()
    assert capture.split is not None
    dark = torch.zeros(24, 40, 3, dtype=torch.uint8)
    gone = capture.sweeps[0].load().select(torch.arange(0))
    images, sweeps = list(capture.images), list(capture.sweeps)
    for i in capture.split.test_images:
        images[i] = replace(images[i], load=Loaded(dark))
    for i in capture.split.test_sweeps:
        sweeps[i] = replace(sweeps[i], load=Loaded(gone))
    scene = make_scene(replace(capture, images=tuple(images), sweeps=tuple(sweeps)), MODEL, 0, "cpu")
    for name, value in tiny_scene().parameters().items():
        assert torch.equal(value, scene.parameters()[name]), name


# Missing parts


def test_without_tracks_everything_is_background() -> None:
    scene = make_scene(replace(tiny_capture(), tracks=Tracks.empty()), MODEL, 0, "cpu")
    assert len(scene.gaussians) > 300 and not scene.gaussians.node.any()
    assert scene.track_translations.shape == (0, 3) and scene.track_quaternions.shape == (0, 4)


def test_without_sweeps_points_are_guessed_on_the_rays_of_images() -> None:
    capture = without_lidar(tiny_capture())
    scene = make_scene(capture, MODEL, 0, "cpu")
    assert 0.9 * MODEL.points < len(scene.gaussians) <= MODEL.points + MODEL.far_points
    assert torch.equal(scene.sky, tiny_scene().sky)
    truth = capture.images[0].load()
    assert psnr(image_of(reference_stages(), scene, capture, capture.images[0]), truth) > 12


def test_points_that_no_image_sees_are_grey() -> None:
    scene = make_scene(looking_up(tiny_capture()), MODEL, 0, "cpu")
    assert len(scene.gaussians) > 200
    torch.testing.assert_close(scene.gaussians.sh0, torch.zeros_like(scene.gaussians.sh0))


def test_a_few_points_are_enough() -> None:
    capture = without_lidar(tiny_capture())
    for n in (2, 5, 20):
        g = make_scene(capture, replace(MODEL, points=0, far_points=n), 3, "cpu").gaussians
        assert 1 <= len(g) <= n and all(getattr(g, f.name).isfinite().all() for f in fields(g))


def test_a_capture_that_shows_nothing_is_an_error() -> None:
    with pytest.raises(CaptureError, match="street_0 shows nothing to start from"):
        make_scene(looking_up(without_lidar(tiny_capture())), replace(MODEL, points=0), 0, "cpu")


def test_guessed_points_lie_before_a_camera_from_6_m_to_far_away() -> None:
    whole = tiny_capture()
    assert whole.split is not None
    capture, frame = replace(whole, split=replace(whole.split, train_images=(0,))), whole.images[0]
    points = unmeasured_positions(capture, 500, 100.0, 0)
    assert points.shape == (500, 3) and torch.equal(points, unmeasured_positions(capture, 500, 100.0, 0))
    T = frame.T_world_rig_start @ capture.camera(frame.sensor).T_rig_cam
    distance = (points - T[:3, 3]).norm(dim=1)
    assert 6 <= distance.min() < 7 and 50 < distance.max() <= 100
    assert bool(((points - T[:3, 3]) @ T[:3, 2] > 0).all())
    assert unmeasured_positions(capture, 0, 100.0, 0).shape == (0, 3)
    torch.testing.assert_close(
        (unmeasured_positions(capture, 9, 2.0, 0) - T[:3, 3]).norm(dim=1), torch.full((9,), 2.0).double()
    )


# Sky


def sky_at(sky: Tensor, capture: Capture, image: int) -> Tensor:  # [H, W, 3] the map's colours behind the pixels
    view = camera_view(capture, capture.images[image], torch.device("cpu"))
    camera = capture.camera(capture.images[image].sensor)
    return sample_sky(sky, view.rays().directions).view(camera.height, camera.width, 3)


def test_the_panorama_of_one_colour_has_that_colour_everywhere() -> None:
    colour = torch.tensor([200, 50, 120], dtype=torch.uint8)
    sky = sky_of(painted(tiny_capture(), colour.expand(24, 40, 3)), 16)
    assert sky.shape == (3, 16, 32)
    torch.testing.assert_close(torch.sigmoid(sky), (colour.float() / 255)[:, None, None].expand(3, 16, 32))


def test_the_panorama_has_the_images_colours_in_their_directions() -> None:
    image = torch.zeros(24, 40, 3, dtype=torch.uint8)
    image[:12, :, 0], image[12:, :, 1], image[:, 20:, 2] = 200, 150, 250  # every quarter has its own colour
    capture = painted(tiny_capture(), image)
    behind = sky_at(sky_of(capture, 64), capture, 0)
    truth = (image.float() / 255).clamp(0.02, 0.98)
    inner = torch.zeros(24, 40, dtype=torch.bool)
    for rows in (slice(2, 9), slice(15, 22)):
        for columns in (slice(2, 16), slice(24, 38)):
            inner[rows, columns] = True
    assert (behind - truth)[inner].abs().mean() < 0.03
    assert ((behind - truth)[inner].abs() < 0.1).float().mean() > 0.95


def test_directions_that_no_image_sees_have_the_mean_colour() -> None:
    sky = torch.sigmoid(tiny_scene().sky)
    behind = sky[:, :, [0, -1]]  # the cameras look ahead
    torch.testing.assert_close(behind, behind[:, :1, :1].expand_as(behind))
    images = torch.stack([f.load() for f in tiny_capture().images]).float() / 255
    assert (behind[:, 0, 0] - images.mean((0, 1, 2))).abs().max() < 0.15


def test_processes_decode_the_same_scene(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = make_scene(tiny_capture(), MODEL, 0, "cpu")
    monkeypatch.setattr(moments, "decoders", lambda: 2)
    monkeypatch.setattr(moments, "in_threads", lambda work, frames: map(work, frames))
    monkeypatch.setattr(moments, "_noted", lambda capture, frames: next(moments._decoded_apart(capture, [frames], CPU)))
    apart = make_scene(tiny_capture(), MODEL, 0, "cpu")
    assert all(torch.equal(getattr(scene.gaussians, f), getattr(apart.gaussians, f)) for f in FIELDS)
    assert torch.equal(scene.sky, apart.sky)
