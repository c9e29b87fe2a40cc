# SPDX-License-Identifier: Apache-2.0
"""The KITTI reader on a tiny drive that the tests write: exact values."""

import math
import pickle
from pathlib import Path

import pytest
import torch
from kitti_drive import DRIVE, N_BEAMS, STEPS, label, points_of, ring_angles, tracklet, tracklet_file, write_drive
from rounding import assert_rounded_alike
from torch import Tensor

from nurec_lite.capture.images import block_mean
from nurec_lite.capture.kitti.beams import drive_beams, ring_medians
from nurec_lite.capture.kitti.gaps import missing_angles
from nurec_lite.capture.kitti.order import RingByRing
from nurec_lite.capture.kitti.raw import IMAGE_DELAY, read_kitti_raw
from nurec_lite.capture.kitti.scan import Scan
from nurec_lite.capture.kitti.survey import survey
from nurec_lite.capture.kitti.sweeps import make_sweep
from nurec_lite.capture.kitti.turns import find_turns
from nurec_lite.geometry.lidar import azimuth_elevation
from nurec_lite.geometry.se3 import quat_rotate


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_drive(tmp_path)


# ---- sweeps


def test_rings_survive_noise_gaps_and_empty_rings() -> None:
    def skip(degrees: Tensor, ring: int) -> Tensor:
        start = 20 + 30 * (ring % 5)
        return ((degrees > start) & (degrees < start + 200)) | torch.tensor(ring < 2)

    angles, rings = ring_angles(skip)
    noisy = angles[:, 0] + torch.deg2rad(0.01 * torch.randn(len(angles), dtype=torch.float64))
    assert torch.equal(find_turns(noisy), rings - 2)  # the two empty ones leave no trace


def test_ring_boundary_with_noise_around_azimuth_zero() -> None:
    degrees = torch.tensor([10.0, 180, -0.01, 0.005, -0.002, 0.01, 90, 270, -0.5])
    assert find_turns(torch.deg2rad(degrees).double()).tolist() == [0, 0, 0, 1, 1, 1, 1, 1, 1]


def test_beams_are_those_of_the_rings() -> None:
    angles, rings = ring_angles(lambda degrees, ring: torch.full_like(degrees, ring in (0, 30), dtype=torch.bool))
    beams = drive_beams([ring_medians(angles[:, 1], find_turns(angles[:, 0]))])
    expected = torch.deg2rad(2 - 0.4 * rings.unique().double())
    torch.testing.assert_close(beams, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("gap", [(100, 130), (-1, 20), (170, 200), (350, 361), (1, 359)])
def test_missing_rays_restore_the_ring(gap: tuple[float, float]) -> None:
    whole, whole_rings = ring_angles()
    kept, rings = ring_angles(lambda degrees, ring: (degrees > gap[0]) & (degrees < gap[1]) & torch.tensor(ring != 5))
    angles, new_rings = missing_angles(kept, rings)
    both, both_rings = torch.cat([kept, angles]), torch.cat([rings, new_rings])
    key = (both_rings * 1000 + torch.rad2deg(both[:, 0]) % 360).sort().values
    torch.testing.assert_close(key, whole_rings * 1000 + torch.rad2deg(whole[:, 0]) % 360)


def test_missing_rays_interpolate_the_elevation() -> None:
    angles = torch.deg2rad(torch.tensor([[0, 1.0], [1, 1], [2, 1], [6, 3], [7, 3]], dtype=torch.float64))
    new = torch.rad2deg(missing_angles(angles, torch.zeros(5, dtype=torch.long))[0])
    torch.testing.assert_close(new[:3], torch.tensor([[3, 1.5], [4, 2], [5, 2.5]], dtype=torch.float64))
    assert len(new) == 3 + 352


def scan_of(elevations: Tensor) -> Scan:
    return Scan(RingByRing(elevations), torch.zeros(len(elevations), 360, dtype=torch.bool))


def test_sweep_times_and_order() -> None:
    angles, rings = ring_angles(lambda degrees, ring: (degrees > 100) & (degrees < 110))
    sweep = make_sweep(points_of(angles), scan_of(ring_medians(angles[:, 1], rings)), forward_time=7.0, period=0.1)
    assert len(sweep) == N_BEAMS * STEPS and int((~sweep.returned).sum()) == N_BEAMS * 3
    found = azimuth_elevation(sweep.directions.double())
    torch.testing.assert_close(sweep.times, 7 - 0.1 * found[:, 0] / (2 * math.pi), atol=1e-8, rtol=0)
    left, right = (sweep.times[(found[:, 0] - side).abs() < 0.1] for side in (math.pi / 2, -math.pi / 2))
    assert left.max() < 7 < right.min()  # it turns clockwise: first the left side, then the right one
    assert (torch.diff(sweep.rings * 7 + found[:, 0] % (2 * math.pi)) > 0).all()
    assert torch.equal(sweep.rings[sweep.returned], rings)


def test_points_close_together_do_not_call_for_billions_of_missing_rays() -> None:
    """The step between rays comes from the file."""
    azimuth = torch.arange(1000, dtype=torch.float64) * 1e-9 + 0.1
    points = points_of(torch.stack([azimuth, torch.zeros(1000)], dim=1))
    sweep = make_sweep(points, scan_of(torch.zeros(1)), forward_time=0.0, period=0.1)
    assert len(sweep) < 10_000


def test_own_vehicle_is_left_out(tmp_path: Path) -> None:
    """Neither its returns nor the directions that it blocks are rays of the sweep."""

    def blocked(degrees: Tensor, ring: int) -> Tensor:
        return (degrees > 150) & (degrees < 210) & torch.tensor(ring > 40)

    angles, rings = ring_angles(blocked)
    points = points_of(angles)
    mirror = (rings == 50) & (angles[:, 0].abs() < 0.02)
    points[mirror, :3] /= 10
    (tmp_path / "0.bin").write_bytes(points.numpy().astype("<f4").tobytes())
    sweep = make_sweep(points, survey([tmp_path / "0.bin"]), 0.0, 0.1)
    assert int(mirror.sum()) == 1 and int(sweep.returned.sum()) == len(points) - 1
    # between the rings' own gaps of 3 degrees nothing is seen either, so only few missing rays may be left beside the hole
    assert int((~sweep.returned).sum()) <= 2 * 23


# ---- the whole drive


def test_times_poses_and_calibration(root: Path) -> None:
    capture = read_kitti_raw(root)
    assert [f.time_mid for f in capture.sweeps] == pytest.approx([0.0, 0.1, 0.2], abs=1e-9)
    assert [f.time_start for f in capture.images[:3]] == pytest.approx(
        [0.0105 - IMAGE_DELAY + 0.1 * i for i in range(3)]
    )
    first = capture.sweeps[0]  # oxts is stamped 12 ms later, where the world has its origin
    torch.testing.assert_close(first.T_world_rig_start[:3, 3], torch.tensor([-0.62, 0, 0]).double(), atol=1e-5, rtol=0)
    torch.testing.assert_close(first.T_world_rig_end[:3, 3], torch.tensor([0.38, 0, 0]).double(), atol=1e-5, rtol=0)
    left, right = capture.cameras
    assert (left.cx, left.cy, left.fx) == (6.5, 4.5, 10.0)
    torch.testing.assert_close(left.T_rig_cam[:3, 3] - right.T_rig_cam[:3, 3], torch.tensor([0, 1.0, 0]).double())
    torch.testing.assert_close(left.T_rig_cam[:3, 3], torch.tensor([0.5 + 0.25, -0.25 + 0.5, 1 - 0.125]).double())
    torch.testing.assert_close(capture.lidars[0].T_rig_lidar[:3, 3], torch.tensor([0.5, -0.25, 1]).double())


def test_frames_select_without_moving_the_clock(root: Path) -> None:
    whole, part = read_kitti_raw(root), read_kitti_raw(root, frames=range(1, 2), image_delay=0.0)
    assert [f.index for f in part.sweeps] == [1] and [f.index for f in part.images] == [1, 1]
    assert part.sweeps[0].time_start == whole.sweeps[1].time_start
    assert_rounded_alike(part.sweeps[0].T_world_rig_end, whole.sweeps[1].T_world_rig_end)
    assert part.images[0].time_start == pytest.approx(0.1105, abs=1e-9)


def test_loaders_pickle(root: Path) -> None:
    capture = read_kitti_raw(root)
    for frame in (capture.images[0], capture.sweeps[0]):
        again = pickle.loads(pickle.dumps(frame))
        assert len(again.load()) == len(frame.load())


def test_poses_file_is_of_the_lidar(root: Path) -> None:
    path = root / "poses.txt"
    path.write_text(
        "".join(f"0 -1 0 {10 + i} 1 0 0 0 0 0 1 0\n" for i in range(3))
    )  # faces y, drives along x: sideways
    capture = read_kitti_raw(root, poses_file=path)
    T = capture.sweeps[2].T_world_rig_start  # at 0.15 s
    torch.testing.assert_close(T[:3, 3], torch.tensor([0, -1.5, 0]).double(), atol=1e-6, rtol=0)


def test_images_shrink_by_the_mean_of_blocks(root: Path) -> None:
    image = read_kitti_raw(root).images[0].load()
    small = read_kitti_raw(root, downscale=3).images[0].load()
    assert small.shape == (2, 4, 3)
    mean = image[:6].double().view(2, 3, 4, 3, 3).mean(dim=(1, 3))
    assert torch.equal(small.double(), (mean + 0.5).floor())
    assert torch.equal(block_mean(image, 1), image)


# ---- tracks


def test_labels_become_boxes_in_the_world(root: Path) -> None:
    """A car 9.75 m ahead of camera 0 and 5 m left of it, facing like the rig: yaw is about the camera's y, from its x."""
    path = root / "labels.txt"
    dont_care = "0 -1 DontCare -1 -1 -10 1 2 3 4 -1000 -1000 -1000 -10 -1 -1 -1\n"
    path.write_text(label(0, -5, 1.5, 9.75, -math.pi / 2) + dont_care + label(9, 0, 0, 9, 0))
    tracks = read_kitti_raw(root, tracks_file=path).tracks
    assert tracks.ids == ("3",) and tracks.classes == ("Car",) and tracks.offsets == (0, 3)
    assert tracks.sizes.tolist() == [[4.2, 1.8, 1.5]]
    in_lidar = torch.tensor([10.0, 5.0, -0.75 - 0.125])  # camera 0 lies 0.25 m behind the lidar and 0.125 m below it
    time = -math.atan2(5, 10) / (2 * math.pi) * 0.1
    assert tracks.times.tolist() == pytest.approx([-0.05, time, 0.25])
    expected = in_lidar + torch.tensor([0.5 + 10 * (time - 0.012), -0.25, 1])
    torch.testing.assert_close(tracks.translations[1], expected.double(), atol=1e-4, rtol=0)
    forward, up = (quat_rotate(tracks.quaternions[1], torch.tensor(v).double()) for v in ([1.0, 0, 0], [0, 0, 1.0]))
    torch.testing.assert_close(forward, torch.tensor([1.0, 0, 0]).double(), atol=1e-6, rtol=0)
    torch.testing.assert_close(up, torch.tensor([0, 0, 1.0]).double(), atol=1e-6, rtol=0)


def test_what_is_parked_stands_there_throughout_the_drive(root: Path) -> None:
    """The rig drives at 10 m/s: an object that keeps its distance from it moves with it, and exists only while it is labelled."""
    path = root / "labels.txt"
    parked = label(1, -5, 1.5, 20, 0)
    moving = label(0, 5, 1.5, 20, 0, track=4) + label(1, 5, 1.5, 20, 0, track=4)  # seen when the lidar faces it
    path.write_text(parked + moving)
    tracks = read_kitti_raw(root, tracks_file=path).tracks
    assert tracks.ids == ("3", "4") and tracks.offsets == (0, 3, 5)
    assert tracks.times[[0, 2]].tolist() == pytest.approx([-0.05, 0.25])  # the first sweep's start, the last one's end
    late = math.atan2(5, 20.25) / (2 * math.pi) * 0.1  # it lies to the right: after the lidar has faced forward
    assert tracks.times[3:].tolist() == pytest.approx([late, 0.1 + late], abs=1e-6)
    for values in (tracks.translations, tracks.quaternions):
        assert_rounded_alike(values[1:3], values[:1].expand_as(values[1:3]))


def test_tracklets_agree_with_labels(root: Path) -> None:
    path = root / "labels.txt"
    path.write_text(label(1, -5, 1.5, 9.75, -math.pi / 2 - 0.3))
    a = read_kitti_raw(root, tracks_file=path).tracks
    (root / DRIVE / "tracklet_labels.xml").write_text(tracklet_file(tracklet("10 5 -1.625 0.3")))
    b = read_kitti_raw(root).tracks
    assert b.classes == ("Car",)
    for name in ("times", "translations", "quaternions", "sizes"):
        torch.testing.assert_close(getattr(a, name), getattr(b, name), atol=1e-6, rtol=0)
