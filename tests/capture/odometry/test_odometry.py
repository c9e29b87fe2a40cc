# SPDX-License-Identifier: Apache-2.0
"""Poses from sweeps and velocities: those of a simulated street come back, and a capture's own poses stay if they are as sharp."""

import logging
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hidden_poses import SWEEPS, altered, errors, hidden, measured, middles, street
from tiny_capture import Loaded, tiny_capture
from torch import Tensor

from nurec_lite.capture.odometry import drive
from nurec_lite.capture.odometry.choose import posed
from nurec_lite.capture.odometry.clouds import cloud_of
from nurec_lite.capture.odometry.glance import poses_of
from nurec_lite.capture.odometry.matches import tasks
from nurec_lite.capture.odometry.reckoning import exp
from nurec_lite.capture.odometry.sharpness import jitter
from nurec_lite.capture.pack import read_pack, write_pack
from nurec_lite.capture.types import CHOSEN, ESTIMATED, POSITIONED, Capture, CaptureError, SweepFrame
from nurec_lite.geometry.lidar import Sweep
from nurec_lite.geometry.se3 import invert, pose_matrix, transform
from nurec_lite.geometry.tracks import Tracks

GAP = 10


@pytest.fixture(scope="module")
def alone() -> Capture:
    """The street by its sweeps alone."""
    return posed(hidden(street()), "auto")


def noise_of(capture: Capture) -> tuple[float, float]:
    times = middles(capture)
    return jitter(times, poses_of(capture.sweeps)(times))


def interpolate_rows(times: Tensor, rows: Tensor, at: Tensor) -> Tensor:
    return torch.stack([torch.from_numpy(np.interp(at, times, row)) for row in rows.T], dim=1)


def test_sweeps_alone_give_the_path_back(alone: Capture) -> None:
    metres, degrees = errors(street(), alone, GAP)
    assert metres < 0.015 and degrees < 0.06
    assert noise_of(alone)[0] < 0.001


def test_images_get_the_poses_of_their_times(alone: Capture) -> None:
    truth, first = street(), street().sweeps[0].T_world_rig_start
    T = first @ invert(alone.sweeps[0].T_world_rig_start)
    for true, found in zip(truth.images, alone.images, strict=True):
        assert float((true.T_world_rig_start - T @ found.T_world_rig_start)[:3, 3].norm()) < 0.03


def test_boxes_stay_where_the_rig_saw_them(alone: Capture) -> None:
    def seen(capture: Capture) -> Tensor:
        tracks = capture.tracks
        boxes = pose_matrix(tracks.quaternions, tracks.translations)
        inside = (tracks.times > capture.sweeps[0].time_start) & (tracks.times < capture.sweeps[-1].time_end)
        return (invert(poses_of(capture.sweeps)(tracks.times)) @ boxes)[inside]

    assert len(seen(street())) > 20
    torch.testing.assert_close(
        seen(alone), seen(street()), atol=0.015, rtol=0
    )  # between the ends of a sweep, poses are interpolated


def test_velocities_with_a_wrong_scale_help() -> None:
    truth = street()
    found = posed(replace(hidden(truth), measured=measured(truth, scale=1.02, noise=0.02)), "lidar")
    metres, degrees = errors(truth, found, GAP)
    assert metres < 0.015 and degrees < 0.05
    assert errors(truth, found, 1)[0] < 0.003


def test_velocities_of_another_vehicle_are_not_used(caplog: pytest.LogCaptureFixture) -> None:
    truth = street()
    other = replace(measured(truth, scale=-1.0, noise=0.0), attitudes=None)
    with caplog.at_level(logging.INFO, "nurec_lite"):
        found = posed(replace(hidden(truth), measured=other), "lidar")
    assert "measured velocities" not in caplog.text
    assert errors(truth, found, GAP)[0] < 0.015


def test_velocities_that_shake_are_not_used(caplog: pytest.LogCaptureFixture) -> None:
    truth = street()
    at, wheels = middles(truth), measured(truth, scale=1.0, noise=0.0)
    shaken = 0.6 * torch.randn(len(at), 3, generator=torch.Generator().manual_seed(0)).double()
    noisy = interpolate_rows(at, shaken, wheels.times) + wheels.velocities
    with caplog.at_level(logging.INFO, "nurec_lite"):
        found = posed(replace(hidden(truth), measured=replace(wheels, velocities=noisy)), "lidar")
    assert "measured velocities" not in caplog.text
    assert errors(truth, found, 1)[0] < 0.01 and noise_of(found)[0] < 0.001


def test_a_jump_of_the_receiver_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    truth, half = street(), float(middles(street())[SWEEPS // 2])

    def jump(times: Tensor, poses: Tensor) -> Tensor:
        poses = poses.clone()
        poses[..., :2, 3] += 3.0 * (times > half).double()[..., None]
        return poses

    with caplog.at_level(logging.INFO, "nurec_lite"):
        found = posed(replace(altered(truth, jump), poses_from=POSITIONED), "auto")
    assert errors(truth, found, GAP)[0] < 0.015
    assert "poses: estimated from 13 sweeps; sweeps 10 apart lie within 0.0" in caplog.text
    assert found.sweeps[0].T_world_rig_start[:3, 3].sub(truth.sweeps[0].T_world_rig_start[:3, 3]).norm() < 0.01


def test_few_sweeps_are_said_to_be_compared_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    drive = street()
    few = replace(drive, sweeps=drive.sweeps[:5], poses_from=POSITIONED)
    with caplog.at_level(logging.INFO, "nurec_lite"):
        posed(few, "lidar")
    assert "poses: estimated from 5 sweeps; sweeps 4 apart lie within" in caplog.text


def test_a_gap_in_the_sweeps_is_bridged() -> None:
    truth = street()
    kept = replace(truth, sweeps=(*truth.sweeps[:6], *truth.sweeps[9:]))
    assert errors(kept, posed(hidden(kept), "auto"), 5)[0] < 0.02


def test_a_standing_vehicle_stands() -> None:
    """Every sweep is the first one, with a centimetre of noise in each range."""
    first, generator = street().sweeps[0], torch.Generator().manual_seed(0)
    sweep = first.load()

    def again(k: int) -> SweepFrame:
        noisy = torch.where(sweep.returned, sweep.ranges + 0.01 * torch.randn(len(sweep), generator=generator), 0.0)
        load = Loaded(replace(sweep, ranges=noisy, times=sweep.times + 0.1 * k))
        return replace(
            first, index=k, time_start=first.time_start + 0.1 * k, time_end=first.time_end + 0.1 * k, load=load
        )

    capture = replace(street(), sweeps=tuple(again(k) for k in range(12)), images=())
    found = posed(hidden(capture), "auto")
    places = torch.stack([frame.T_world_rig_start[:3, 3] for frame in found.sweeps])
    assert float((places - places[0]).norm(dim=1).max()) < 0.004
    assert noise_of(found)[0] < 0.0005


def test_the_place_where_a_drive_began_is_found_again() -> None:
    """Slowly forth and back: sweeps as a rig that stops for each of them would see them, a second apart."""
    truth, lidar = street(), street().lidars[0]
    poses, T = poses_of(truth.sweeps), lidar.T_rig_lidar

    def stopped(place: int, frame: SweepFrame) -> SweepFrame:
        cloud, time = cloud_of(lidar, frame), torch.tensor(frame.time_mid)
        seen = transform(invert(poses(time) @ T), cloud.moved(poses))
        n, ranges = len(seen), seen.norm(dim=1)
        sweep = Sweep(
            seen / ranges[:, None], ranges, ranges, torch.full((n,), float(place)), torch.zeros(n).long(), ranges > 0
        )
        return SweepFrame(frame.sensor, place, place - 0.05, place + 0.05, poses(time), poses(time), Loaded(sweep))

    way = [*range(SWEEPS), *reversed(range(SWEEPS - 1))]
    sweeps = tuple(stopped(i, truth.sweeps[k]) for i, k in enumerate(way))
    capture = replace(truth, sweeps=sweeps, images=(), tracks=Tracks.empty())
    found = poses_of(posed(hidden(capture), "auto").sweeps)(middles(capture))
    assert float((invert(found[0]) @ found[-1])[:3, 3].norm()) < 0.004


def test_maps_hold_what_was_seen_before() -> None:
    there = torch.stack([torch.arange(30.0), torch.zeros(30), torch.zeros(30)], dim=1)
    for own, others in tasks(torch.cat([there, there.flip(0)])):
        assert not set(own) & set(others) and len({k % 2 for k in own}) == 1
        if own[0] >= 50:
            assert min(others) < 10 and {k % 2 for k in others} != {own[0] % 2}


# ---- kept poses


def never(*_: Any) -> Any:
    raise AssertionError("nothing should be estimated")


def test_sharp_poses_are_kept_after_a_glance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drive, "estimated", never)
    found = posed(street(), "auto")
    assert found.sweeps == street().sweeps and found.poses_from == CHOSEN


def test_poses_that_were_chosen_are_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drive, "estimated", never)
    monkeypatch.setattr(drive, "seem_sharp", never)
    chosen = replace(street(), poses_from=CHOSEN)
    assert posed(chosen, "auto") is chosen
    assert posed(street(), "capture") is street()


def test_a_pack_keeps_that_its_poses_were_chosen(tmp_path: Any) -> None:
    write_pack(replace(tiny_capture(), poses_from=CHOSEN), tmp_path / "a.pack")
    assert read_pack(tmp_path / "a.pack").poses_from == CHOSEN
    write_pack(tiny_capture(), tmp_path / "b.pack")
    assert read_pack(tmp_path / "b.pack").poses_from == tiny_capture().poses_from != CHOSEN


def test_blurred_poses_are_replaced() -> None:
    """Each pose has two centimetres of noise."""
    truth = street()
    noise = 0.02 * torch.randn(4000, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def shaken(times: Tensor, poses: Tensor) -> Tensor:
        poses = poses.clone()
        poses[..., :3, 3] += noise[(times * 20).round().long()]
        return poses

    found = posed(altered(truth, shaken), "auto")
    assert errors(truth, found, GAP)[0] < 0.015 and noise_of(found)[0] < 0.001


@pytest.mark.parametrize("scale", [1.01, 1.03, 1.05])
def test_poses_of_wheels_that_are_too_long_are_replaced(scale: float) -> None:
    """The ground and the fronts of houses fit at any scale of the way."""

    def longer(times: Tensor, poses: Tensor) -> Tensor:
        poses = poses.clone()
        poses[..., :3, 3] *= scale
        return poses

    found = posed(altered(street(), longer), "auto")
    assert found.poses_from == ESTIMATED and errors(street(), found, GAP)[0] < 0.015


def test_poses_that_are_wrong_are_left_to_the_checks() -> None:
    """Inverted ones would be replaced without a word about the file that they are from."""
    wrong = altered(street(), lambda times, poses: invert(poses))
    assert posed(wrong, "auto") is wrong
    assert errors(street(), posed(wrong, "lidar"), GAP)[0] < 0.015


# ---- too little


def test_a_plain_is_too_little() -> None:
    """Rings on the street, as a lidar sees them at any speed."""
    frames = [replace(f, load=Loaded(f.load())) for f in street().sweeps]

    def flat(frame: SweepFrame) -> SweepFrame:
        sweep = frame.load()
        down = -sweep.directions[:, 2] * 1.0
        seen = down > 0.03
        ranges = torch.where(seen, 1.85 / down.clamp(min=0.03), 0.0)
        return replace(frame, load=Loaded(replace(sweep, ranges=ranges, returned=seen)))

    plain = replace(street(), sweeps=tuple(map(flat, frames)), images=())
    with pytest.raises(CaptureError, match=r"100% of them show too few surfaces.*data\.poses\.file"):
        posed(hidden(plain), "auto")
    own = replace(plain, poses_from=POSITIONED)
    assert posed(own, "auto").sweeps == own.sweeps


def empty(frame: SweepFrame) -> SweepFrame:
    sweep = frame.load()
    return replace(frame, load=Loaded(replace(sweep, returned=torch.zeros_like(sweep.returned))))


def test_sweeps_without_points_leave_the_poses(caplog: pytest.LogCaptureFixture) -> None:
    nothing = replace(street(), sweeps=tuple(map(empty, street().sweeps)))
    assert posed(nothing, "auto").sweeps == nothing.sweeps
    assert posed(replace(nothing, poses_from=POSITIONED), "auto").sweeps == nothing.sweeps
    assert "the capture's own, since none can be estimated" in caplog.text
    with pytest.raises(CaptureError, match=r"no poses can be estimated.*data\.poses=capture.*data\.poses\.file"):
        posed(nothing, "lidar")


def test_one_empty_sweep_costs_nothing() -> None:
    sweeps = list(street().sweeps)
    sweeps[7] = empty(sweeps[7])
    found = posed(hidden(replace(street(), sweeps=tuple(sweeps))), "auto")
    assert errors(street(), found, GAP)[0] < 0.02


def test_poses_of_nowhere_are_replaced() -> None:
    def nowhere(times: Tensor, poses: Tensor) -> Tensor:
        poses = poses.clone()
        poses[..., :3, 3] = 1e7 * torch.sin(1e3 * times)[..., None]
        return poses

    found = posed(replace(altered(street(), nowhere), poses_from=POSITIONED), "auto")
    assert errors(street(), found, GAP)[0] < 0.015


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_sweeps(count: int) -> None:
    few = replace(street(), sweeps=street().sweeps[:count], lidars=street().lidars if count else ())
    assert posed(few, "auto") is few
    with pytest.raises(CaptureError, match="fewer than 3 sweeps"):
        posed(few, "lidar")
    with pytest.raises(CaptureError, match="fewer than 3 sweeps"):
        posed(hidden(few), "auto")


def test_a_twist_is_a_screw() -> None:
    """A quarter turn to the left about a point two metres to the left."""
    T = exp(torch.tensor([0, 0, torch.pi / 2, torch.pi, 0, 0], dtype=torch.float64))
    torch.testing.assert_close(
        transform(T, torch.zeros(1, 3, dtype=torch.float64))[0], torch.tensor([2.0, 2.0, 0.0]).double()
    )
