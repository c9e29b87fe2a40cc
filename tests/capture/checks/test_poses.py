# SPDX-License-Identifier: Apache-2.0
"""Poses are held against the sweeps: the convention that fits is named, and right poses are not doubted."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from tiny_capture import ROOT, tiny_capture
from wrong_poses import CONVENTIONS, MIRROR, in_axes, posed, relative, scaled, street, tunnel, with_rays

from nurec_lite.capture.checks.poses import check_poses
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.deskew import world_points
from nurec_lite.capture.kitti.raw import read_kitti_raw
from nurec_lite.capture.odometry.choose import posed as with_best_poses
from nurec_lite.capture.pack import read_pack
from nurec_lite.capture.types import Capture
from nurec_lite.geometry.se3 import invert, pose_matrix, rotvec_to_quat


def verdict(capture: Capture, sweeps: int = 9) -> Verdict:
    (found,) = check_poses(Sample(capture, sweeps=sweeps))
    return found


@pytest.mark.parametrize("name", CONVENTIONS)
def test_the_convention_that_fits_is_named(name: str) -> None:
    change, sentence = CONVENTIONS[name]
    found = verdict(posed(street(), change))
    assert found.level is Level.CERTAIN and sentence in found.text
    assert found.figures["error_m"] < 0.03 and found.figures["way_m"] == pytest.approx(8, abs=0.1)
    if name != "standing":
        assert found.figures["fitting_m"] < 0.1 < found.figures["apart_m"]


def test_poses_that_stand_still_may_come_from_the_sweeps() -> None:
    still = posed(street(), CONVENTIONS["standing"][0])
    assert "or estimate them from the sweeps by data.poses.source=lidar" in verdict(still).text
    assert verdict(with_best_poses(still, "lidar")).level is Level.RIGHT


def test_relative_poses_are_named() -> None:
    found = verdict(relative(street()))
    assert (
        found.level is Level.CERTAIN and "if each is relative to the frame before or after it; chain them" in found.text
    )


def test_poses_of_a_camera_are_named() -> None:
    camera = street().cameras[0]
    found = verdict(posed(street(), lambda T: T @ camera.T_rig_cam))
    assert found.level is Level.CERTAIN
    assert "if they are those of camera_0; multiply them by the inverse of its mounting" in found.text


@pytest.mark.parametrize("name", ["inverse", "mirror", "half", "transposed"])
def test_the_corrected_capture_is_the_right_one(name: str) -> None:
    """The way between any two sweeps, to within the interpolation between their middles."""
    found = verdict(posed(street(), CONVENTIONS[name][0]))
    assert found.corrected is not None
    corrected = found.corrected(posed(street(), CONVENTIONS[name][0]))
    for i, j in ((0, 5), (4, 12)):
        ways = [invert(c.sweeps[i].T_world_rig_start) @ c.sweeps[j].T_world_rig_start for c in (street(), corrected)]
        torch.testing.assert_close(ways[0], ways[1], rtol=0, atol=0.02)


@pytest.mark.parametrize("factor", [0.8, 1.15])
def test_scales_near_one_are_named(factor: float) -> None:
    found = verdict(posed(street(), partial(scaled, factor)))
    assert found.level is Level.CERTAIN and f"multiply their translations by {1 / factor:.2f}"[:-1] in found.text


@pytest.mark.parametrize(
    ("columns", "signs", "axes"),
    [([1, 0, 2], (1, 1, 1), "(y, x, z)"), ([0, 1, 2], (1, -1, 1), "(x, -y, z)"), ([1, 0, 2], (1, -1, 1), "(-y, x, z)")],
)
def test_rays_in_other_axes_are_blamed_on_the_lidar(columns: list[int], signs: tuple[int, int, int], axes: str) -> None:
    found = verdict(with_rays(street(), columns, signs))
    assert found.level is Level.CERTAIN
    assert f"if the rays of lidar are in other axes; give their directions as {axes}" in found.text
    assert found.corrected is not None
    frame, wrong = street().sweeps[3], found.corrected(with_rays(street(), columns, signs)).sweeps[3]
    lidar = street().lidars[0]
    torch.testing.assert_close(
        world_points(frame, frame.load(), lidar), world_points(wrong, wrong.load(), lidar), rtol=0, atol=1e-4
    )


def test_a_mounting_that_is_inverted_is_blamed_on_the_lidar() -> None:
    """It looks 50 degrees to the left."""
    T = pose_matrix(rotvec_to_quat(torch.tensor([0.0, 0, 0.87]).double()), torch.tensor([1.0, 0.2, 1.8]).double())
    capture, lidar = street(), street().lidars[0]
    turn = (T[:3, :3].T @ lidar.T_rig_lidar[:3, :3].double()).float()
    sweeps = tuple(
        replace(f, load=lambda f=f: replace(f.load(), directions=f.load().directions @ turn.T)) for f in capture.sweeps
    )
    mounted = replace(lidar, T_rig_lidar=with_the_place_of(lidar.T_rig_lidar, T))
    right = replace(capture, lidars=(mounted,), sweeps=sweeps)
    assert verdict(right).level is Level.RIGHT
    wrong = replace(right, lidars=(replace(mounted, T_rig_lidar=invert(mounted.T_rig_lidar)),))
    found = verdict(wrong)
    assert found.level is Level.CERTAIN and "if T_rig_lidar of lidar is inverted; invert it" in found.text


def test_a_lidar_that_is_mounted_backwards_may_be_to_blame() -> None:
    """Its sweeps fit as well if the poses are the lidar's own."""
    back = torch.diag(torch.tensor([-1.0, -1, 1, 1], dtype=torch.float64))
    lidar = street().lidars[0]
    found = verdict(replace(street(), lidars=(replace(lidar, T_rig_lidar=lidar.T_rig_lidar.double() @ back),)))
    assert found.level is Level.CERTAIN and "or correct T_rig_lidar" in found.text


def with_the_place_of(place: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    mounted = turn.clone()
    mounted[:3, 3] = place[:3, 3]
    return mounted


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(0, marks=pytest.mark.portable),
        *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6)),
    ],
)
def test_right_poses_are_not_doubted(seed: int) -> None:
    found = verdict(street(seed))
    assert found.level is Level.RIGHT and found.figures["apart_m"] < 0.05


def test_the_bundled_street_is_not_doubted() -> None:
    assert verdict(read_pack(ROOT / "data/street.pack")).level is Level.RIGHT


def test_a_world_far_away_and_turned_is_as_good() -> None:
    T = pose_matrix(rotvec_to_quat(torch.tensor([0.1, -0.2, 2.0]).double()), torch.tensor([5e5, 4e6, 100.0]).double())
    assert verdict(posed(street(), lambda pose: T @ pose)).level is Level.RIGHT


@pytest.mark.parametrize("change", [None, "inverse", "mirror", "half", "standing"])
def test_a_tunnel_raises_no_alarm(change: str | None) -> None:
    capture = tunnel() if change is None else posed(tunnel(), CONVENTIONS[change][0])
    assert verdict(capture).level in (Level.UNKNOWN, Level.RIGHT)


def test_a_lidar_with_few_beams_says_nothing() -> None:
    assert verdict(tiny_capture()).level is Level.UNKNOWN


@pytest.mark.parametrize("sweeps", [1, 2])
def test_few_sweeps_raise_no_alarm(sweeps: int) -> None:
    capture = replace(street(), sweeps=street().sweeps[:sweeps])
    assert verdict(capture).level in (Level.UNKNOWN, Level.RIGHT)


def test_one_motion_proves_nothing() -> None:
    """Two sweeps contradict the poses: that is likely wrong, and no reason to stop."""
    inverse = posed(street(), CONVENTIONS["inverse"][0])
    assert verdict(replace(inverse, sweeps=inverse.sweeps[:2])).level is Level.LIKELY


def test_a_vehicle_that_stands_is_right_in_any_convention() -> None:
    first = street().sweeps[0]
    frames = tuple(
        replace(f, load=first.load, T_world_rig_start=torch.eye(4).double(), T_world_rig_end=torch.eye(4).double(),
                time_start=first.time_start + 0.1 * i, time_end=first.time_end + 0.1 * i)
        for i, f in enumerate(street().sweeps)
    )  # fmt: skip
    standing = replace(street(), sweeps=tuple(_late(f, 0.1 * i) for i, f in enumerate(frames)))
    assert verdict(standing).level is Level.RIGHT
    assert verdict(posed(standing, invert)).level is Level.RIGHT


def _late(frame, seconds: float):
    sweep = frame.load()
    return replace(frame, load=lambda: replace(sweep, times=sweep.times + seconds))


def test_the_lidar_that_disagrees_is_blamed_where_another_one_agrees() -> None:
    capture = street()
    second = replace(capture.lidars[0], name="second")
    others = tuple(replace(f, sensor="second") for f in with_rays(capture, [0, 1, 2], (-1, -1, 1)).sweeps)
    both = replace(capture, lidars=(*capture.lidars, second), sweeps=(*capture.sweeps, *others))
    first, wrong = check_poses(Sample(both))
    assert first.level is Level.RIGHT and wrong.level is Level.CERTAIN
    assert "if the rays of second are in other axes; give their directions as (-x, -y, z)" in wrong.text


# ---- a real drive


@pytest.fixture(scope="module")
def kitti(kitti_root: Path) -> Capture:
    return read_kitti_raw(kitti_root, poses_file=kitti_root / "extra/poses_velo.txt")


def test_right_poses_of_a_real_drive_are_not_doubted(kitti: Capture, kitti_root: Path) -> None:
    assert verdict(kitti).level is Level.RIGHT
    assert verdict(read_kitti_raw(kitti_root)).level is Level.RIGHT  # oxts, which drifts by 2 percent


@pytest.mark.slow
@pytest.mark.parametrize("frames", [slice(51), slice(20)])
def test_a_real_drive_that_is_mirrored_is_found(kitti: Capture, frames: slice) -> None:
    """It drives straight on: only its roll, pitch and yaw of a degree tell, and of half a degree in its first 20 frames."""
    mirrored = replace(
        posed(kitti, partial(in_axes, MIRROR)),
        readings=(),
        sweeps=posed(kitti, partial(in_axes, MIRROR)).sweeps[frames],
    )
    found = verdict(mirrored, sweeps=12)
    assert found.level is Level.CERTAIN and "left-handed axes with x forward, y right and z up" in found.text
