# SPDX-License-Identifier: Apache-2.0
"""Frames and rays that a step trains on."""

import pickle
from collections import Counter
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from tiny_capture import tiny_capture, tiny_shots

from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.lidar import Lidar, Sweep, azimuth_elevation
from nurec_lite.splat.views import CameraView, LidarView, camera_view, lidar_view
from nurec_lite.training.shots import ShotPlan, Shots, draw_sectors

PLAN = ShotPlan(tiny_capture(), seed=3, lidar_rays=128)
COLUMNS = 8  # of a sector


def same(a: Shots, b: Shots) -> bool:
    """Whether two values are equal, of any content, views included."""
    images = zip(a.images, b.images, strict=True)
    sweeps = zip(a.sweeps, b.sweeps, strict=True)
    return (
        a.step == b.step
        and all((x.index, x.camera) == (y.index, y.camera) and torch.equal(x.image, y.image) for x, y in images)
        and all(x.index == y.index and tensors_equal(x.sweep, y.sweep) for x, y in sweeps)
        and all(tensors_equal(x, y) for x, y in zip(a.views, b.views, strict=True))
    )


def tensors_equal(a: Any, b: Any) -> bool:
    """Whether tensors of two records are equal."""
    named = {f.name: (getattr(a, f.name), getattr(b, f.name)) for f in fields(a)}
    return all(torch.equal(x, y) for x, y in named.values() if isinstance(x, torch.Tensor))


def image_index(shots: Shots) -> int:
    (shot,) = shots.images
    return shot.index


def sweep_index(shots: Shots) -> int:
    (shot,) = shots.sweeps
    return shot.index


def lidar_and_sweep() -> tuple[Lidar, Sweep]:
    return tiny_capture().lidars[0], tiny_capture().sweeps[0].load()


def sectors(lidar: Lidar, sweep: Sweep) -> torch.Tensor:
    """[R] number of each ray's sector, from its azimuth alone."""
    width = 2 * torch.pi / lidar.cells().columns * COLUMNS
    return torch.floor((azimuth_elevation(sweep.directions)[:, 0] + torch.pi) / width).long()


def draw(n_rays: int, seed: int = 0) -> Sweep:
    lidar, sweep = lidar_and_sweep()
    return draw_sectors(sweep, lidar, n_rays, torch.Generator().manual_seed(seed), COLUMNS)


# Shots


def test_shots_depend_on_seed_and_step_alone() -> None:
    steps = (5, 0, 33, 5)
    first = [PLAN.load(step) for step in steps]
    torch.rand(100)  # the global generator plays no part
    again = {step: ShotPlan(tiny_capture(), 3, 128).load(step) for step in sorted(set(steps))}
    assert all(same(shots, again[step]) for step, shots in zip(steps, first, strict=True))
    assert [shots.step for shots in first] == list(steps)


def test_another_seed_is_another_order() -> None:
    orders = [[image_index(ShotPlan(tiny_capture(), seed, 0).load(step)) for step in range(16)] for seed in (0, 1, 2)]
    assert len({tuple(order) for order in orders}) == 3


def test_every_training_frame_comes_once_an_epoch() -> None:
    split = tiny_capture().split
    assert split is not None
    n, m = len(split.train_images), len(split.train_sweeps)
    loaded = [PLAN.load(step) for step in range(2 * n)]
    for epoch in (0, 1):
        assert sorted(image_index(b) for b in loaded[epoch * n : (epoch + 1) * n]) == list(split.train_images)
    for epoch in range(2 * n // m):
        drawn = [sweep_index(b) for b in loaded[epoch * m : (epoch + 1) * m]]
        assert sorted(drawn) == list(split.train_sweeps)
    assert [image_index(b) for b in loaded[:n]] != [image_index(b) for b in loaded[n:]]


@pytest.mark.parametrize("every", [2, 3])
def test_sweeps_may_come_in_some_steps_alone(every: int) -> None:
    """In the order of sweeps in every step, and images as ever."""
    some = replace(PLAN, sweeps_every=every)
    for step in range(4 * every):
        shots, turn = some.load(step), step // every
        assert image_index(shots) == image_index(PLAN.load(step))
        expected = [] if step % every else [sweep_index(PLAN.load(turn))]
        assert [shot.index for shot in shots.sweeps] == expected


@pytest.mark.parametrize("split", ["interp", "side"])
def test_held_out_frames_never_come(split: str) -> None:
    plan = ShotPlan(tiny_capture().with_split(split), 0, 64)
    chosen = plan.capture.split
    assert chosen is not None and chosen.test_images
    loaded = [plan.load(step) for step in range(3 * len(chosen.train_images))]
    assert {image_index(b) for b in loaded} == set(chosen.train_images)
    assert {sweep_index(b) for b in loaded} == set(chosen.train_sweeps)
    assert not {image_index(b) for b in loaded} & set(chosen.test_images)


def test_an_image_that_cannot_be_decoded_names_the_key_that_leaves_it_out() -> None:
    def broken() -> torch.Tensor:
        raise CaptureError("7.png is no whole PNG or JPEG image; copy it again from its source")

    images = tuple(replace(frame, load=broken) for frame in tiny_capture().images)
    plan = ShotPlan(replace(tiny_capture(), images=images), 0, 64)
    with pytest.raises(
        CaptureError, match=r"from its source, or leave the frame out by 'data.without=\[camera_[01]/\d\]'$"
    ):
        plan.load(0)


def test_shots_are_what_their_frames_hold() -> None:
    (image,), (rays,) = PLAN.load(4).images, PLAN.load(4).sweeps
    assert torch.equal(image.image, tiny_capture().images[image.index].load())
    assert tiny_capture().cameras[image.camera].name == tiny_capture().images[image.index].sensor
    whole = tiny_capture().sweeps[rays.index].load()
    known = {(tuple(d.tolist()), r) for d, r in zip(whole.directions, whole.ranges.tolist(), strict=True)}
    drawn = {(tuple(d.tolist()), r) for d, r in zip(rays.sweep.directions, rays.sweep.ranges.tolist(), strict=True)}
    assert 0 < len(drawn) < len(known) and drawn <= known


def test_views_are_those_of_the_frames() -> None:
    capture, shots = tiny_capture(), PLAN.load(4)
    (image,), (rays,) = shots.images, shots.sweeps
    assert [type(view) for view in shots.views] == [CameraView, LidarView]
    assert tensors_equal(image.view, camera_view(capture, capture.images[image.index], "cpu"))
    assert tensors_equal(rays.view, lidar_view(capture, capture.sweeps[rays.index], rays.sweep, "cpu"))
    assert image.view.camera is capture.cameras[image.camera] and rays.view.lidar is capture.lidars[0]


def test_image_and_sweep_of_a_step_are_drawn_independently() -> None:
    images, sweeps = tiny_capture().images, tiny_capture().sweeps
    loaded = [PLAN.load(step) for step in range(40)]
    moments = [(images[image_index(b)].index, sweeps[sweep_index(b)].index) for b in loaded]
    assert sum(a == b for a, b in moments) < 20
    assert len(set(moments)) > 20


@pytest.mark.parametrize("case", ["no rays wanted", "no sweeps"])
def test_there_may_be_no_lidar(case: str) -> None:
    capture, rays = tiny_capture(), 128
    if case == "no sweeps":
        capture = replace(capture, lidars=(), sweeps=()).with_split("interp")
    else:
        rays = 0
    shots = ShotPlan(capture, 0, rays).load(2)
    assert shots.sweeps == () and len(shots.views) == 1
    assert shots.images[0].image.shape == (24, 40, 3)


def test_a_split_is_needed() -> None:
    with pytest.raises(AssertionError, match="split"):
        ShotPlan(replace(tiny_capture(), split=None), 0, 0).load(0)


# Copies


def test_images_come_before_sweeps_whatever_their_number() -> None:
    shots = tiny_shots((0, 1, 2), (3, 4))
    assert shots.views == (*(s.view for s in shots.images), *(s.view for s in shots.sweeps))
    assert [type(view) for view in shots.views] == [CameraView] * 3 + [LidarView] * 2


def test_every_tensor_is_copied_and_a_shared_one_once() -> None:
    """A sweep's directions are its view's, too; sensors stay where they are."""
    shots, copied = tiny_shots((0, 1), (2,)), []

    def copy(tensor: torch.Tensor) -> torch.Tensor:
        copied.append(id(tensor))
        return tensor.clone()

    (sweep,) = shots.sweeps
    assert sweep.view.directions is sweep.sweep.directions
    found = shots.copied(copy)
    assert same(shots, found) and len(copied) == len(set(copied)) == 2 * 6 + 11
    (own,) = found.sweeps
    assert own.view.directions is own.sweep.directions and own.view.directions is not sweep.view.directions
    assert found.images[0].image is not shots.images[0].image
    assert own.view.lidar is sweep.view.lidar and found.images[1].view.camera is shots.images[1].view.camera


def test_the_same_image_twice_is_copied_once() -> None:
    (image,) = tiny_shots((0,), ()).images
    found = Shots(0, (image, image), ()).copied(torch.clone)
    assert found.images[0].image is found.images[1].image is not image.image


def test_shots_of_another_process_get_the_capture_s_own_sensors() -> None:
    """Values that are computed once for a sensor are kept by it."""
    shots = tiny_shots((0, 1), (2,))
    again = Shots.from_numpy(pickle.loads(pickle.dumps(shots.to_numpy())), tiny_capture())
    assert same(again, shots)
    for shot in again.images:
        assert shot.view.camera is tiny_capture().cameras[shot.camera]
    assert again.sweeps[0].view.lidar is tiny_capture().lidars[0]
    assert again.sweeps[0].view.directions is again.sweeps[0].sweep.directions


def test_shots_for_another_process_hold_no_tensor() -> None:
    """Each takes a file of shared memory, and the help of the process that made it, which may be dead by then."""
    shots = tiny_shots((0,), (2,))
    held: list[torch.Tensor] = []
    shots.to_numpy().copied(lambda t: held.append(t) or t if isinstance(t, torch.Tensor) else t)  # type: ignore[func-returns-value]
    assert held == []


# Sectors


def test_sectors_are_drawn_whole() -> None:
    lidar, sweep = lidar_and_sweep()
    held = Counter(sectors(lidar, sweep).tolist())
    for seed in range(10):
        drawn = Counter(sectors(lidar, draw(200, seed)).tolist())
        assert all(held[sector] == n for sector, n in drawn.items())


def test_about_as_many_rays_as_asked_for_and_at_least_one_sector() -> None:
    _, sweep = lidar_and_sweep()
    one = len(sweep) / 2  # 64 steps make 16 columns, which are 2 sectors
    for n_rays in (1, 100, 200, 300, 511):
        drawn = len(draw(n_rays))
        assert one - 1 <= drawn and abs(drawn - n_rays) <= max(one / 2, one - n_rays) + 1


def test_the_number_of_rays_follows_the_number_asked_for() -> None:
    lidar = replace(tiny_capture().lidars[0], azimuth_steps=2048)
    angles = torch.linspace(-torch.pi, torch.pi, 8001)[:-1] + 1e-4
    directions = torch.stack([angles.cos(), angles.sin(), torch.zeros_like(angles)], dim=-1)
    n = len(directions)
    sweep = Sweep(directions, torch.ones(n), torch.ones(n), torch.zeros(n), torch.zeros(n).long(), torch.ones(n).bool())
    for n_rays in (500, 1000, 4000, 7000):
        drawn = draw_sectors(sweep, lidar, n_rays, torch.Generator().manual_seed(0), COLUMNS)
        assert len(drawn) == pytest.approx(n_rays, abs=n / 64)


@pytest.mark.parametrize(("columns", "runs"), [(4, 16), (16, 4), (64, 1), (512, 1)])
def test_wider_sectors_are_fewer(columns: int, runs: int) -> None:
    """An eighth of a turn of 512 columns, in as many runs of neighbours as it has sectors, if no two of them touch."""
    lidar = replace(tiny_capture().lidars[0], azimuth_steps=2048)
    angles = torch.linspace(-torch.pi, torch.pi, 8193)[:-1] + 1e-4
    directions = torch.stack([angles.cos(), angles.sin(), torch.zeros_like(angles)], dim=-1)
    n = len(directions)
    sweep = Sweep(
        directions, torch.ones(n), torch.ones(n), torch.arange(n).float(), torch.zeros(n).long(), torch.ones(n).bool()
    )
    number = draw_sectors(sweep, lidar, n // 8, torch.Generator().manual_seed(0), columns).times.long()
    assert len(number) == (n if columns == 512 else n // 8)
    found = 1 + int((number.diff() != 1).sum())
    assert found <= runs and (columns > 16 or found > runs // 2)


@pytest.mark.parametrize(
    ("n_rays", "sector", "columns"),
    [(4096, None, 8), (16384, None, 32), (129000, None, 256), (1, None, 1), (16384, 8, 8), (16384, 600, 600)],
)
def test_rays_come_in_two_sectors_unless_their_width_is_given(n_rays: int, sector: int | None, columns: int) -> None:
    """One sweep is like KITTI's, and one has some rays less."""
    lidar = replace(tiny_capture().lidars[0], azimuth_steps=2048)
    plan = ShotPlan(tiny_capture(), 0, n_rays, sector=sector)
    assert plan.columns(lidar, 129184) == plan.columns(lidar, 125000) == columns


@pytest.mark.parametrize("n_rays", [512, 513, 10**9])
def test_all_rays_in_their_order_when_no_more_are_wanted_than_there_are(n_rays: int) -> None:
    _, sweep = lidar_and_sweep()
    drawn = draw(n_rays)
    assert len(sweep) == 512
    assert all(torch.equal(getattr(drawn, f), getattr(sweep, f)) for f in Sweep.__dataclass_fields__)


def test_every_sector_is_drawn_sooner_or_later() -> None:
    lidar, sweep = lidar_and_sweep()
    seen = {s for seed in range(20) for s in sectors(lidar, draw(100, seed)).tolist()}
    assert seen == set(sectors(lidar, sweep).tolist())


def test_rays_come_sector_by_sector_and_keep_their_order_within() -> None:
    lidar = replace(tiny_capture().lidars[0], azimuth_steps=512)  # 16 sectors
    _, sweep = lidar_and_sweep()
    drawn = draw_sectors(sweep, lidar, 200, torch.Generator().manual_seed(0), COLUMNS)
    place = {tuple(d.tolist()): i for i, d in enumerate(sweep.directions)}
    rows = [place[tuple(d.tolist())] for d in drawn.directions]
    keys = list(zip(sectors(lidar, drawn).tolist(), rows, strict=True))
    assert keys == sorted(keys) and rows != sorted(rows)
    assert len({sector for sector, _ in keys}) == 6
