# SPDX-License-Identifier: Apache-2.0
"""The KITTI reader on the real drive: rings, time, poses, calibration and tracks agree with each other."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from nurec_lite.capture.deskew import world_points
from nurec_lite.capture.kitti.calibration import matrix_of, read_calibration, read_rigid
from nurec_lite.capture.kitti.raw import IMAGE_DELAY, read_kitti_raw
from nurec_lite.capture.types import Capture, SweepFrame
from nurec_lite.geometry.camera import project_points
from nurec_lite.geometry.lidar import Sweep, azimuth_elevation
from nurec_lite.geometry.se3 import invert, quat_conjugate, quat_rotate, transform


@pytest.fixture(scope="module")
def capture(kitti_root: Path) -> Capture:
    extra = kitti_root / "extra"
    return read_kitti_raw(
        kitti_root, poses_file=extra / "poses_velo.txt", tracks_file=extra / "label_02_0001.txt", frames=range(5, 45)
    )


@pytest.fixture(scope="module")
def sweeps(capture: Capture) -> list[tuple[SweepFrame, Sweep]]:
    return [(frame, frame.load()) for frame in capture.sweeps[::6]]


def test_contents(capture: Capture) -> None:
    assert capture.name == "2011_09_26_drive_0009"
    assert [c.name for c in capture.cameras] == ["image_02", "image_03"]
    assert [f.index for f in capture.sweeps] == list(range(5, 45))
    assert len(capture.images) == 80 and capture.images[0].load().shape == (375, 1242, 3)
    capture.with_split("interp")


def test_downscale_reads_the_small_camera(kitti_root: Path) -> None:
    capture = read_kitti_raw(kitti_root, downscale=2, frames=range(0, 2), cameras=("image_03",))
    camera = capture.cameras[0]
    assert (camera.width, camera.height) == (621, 187)
    assert capture.images[0].load().shape == (187, 621, 3)


@pytest.mark.parametrize("name", ["image_02", "image_03"])
def test_lidar_projected_into_the_image_agrees_with_the_calibration_formula(
    kitti_root: Path, capture: Capture, name: str
) -> None:
    """P_rect R_rect T_velo_to_cam x of KITTI's readme, against rig, lidar and camera frames; a pixel centre is at +0.5 here."""
    folder = kitti_root / "2011_09_26"
    entries = read_calibration(folder / "calib_cam_to_cam.txt")
    P = matrix_of(folder, entries, f"P_rect_{name[-2:]}", 3, 4)
    R_rect = torch.eye(4, dtype=torch.float64)
    R_rect[:3, :3] = matrix_of(folder, entries, "R_rect_00", 3, 3)
    points = torch.rand(1000, 3, dtype=torch.float64) * torch.tensor([50, 30, 6]) + torch.tensor([5, -15, -2])
    homogeneous = torch.cat([points, torch.ones(1000, 1, dtype=torch.float64)], dim=1)
    expected = homogeneous @ (P @ R_rect @ read_rigid(folder / "calib_velo_to_cam.txt")).T
    camera, lidar = capture.camera(name), capture.lidars[0]
    pixels, depth = project_points(camera, transform(invert(camera.T_rig_cam) @ lidar.T_rig_lidar, points))
    torch.testing.assert_close(pixels, expected[:, :2] / expected[:, 2:] + 0.5, atol=1e-3, rtol=0)
    torch.testing.assert_close(depth, expected[:, 2], atol=1e-5, rtol=0)


def test_64_rings_from_top_to_bottom(capture: Capture, sweeps: list[tuple[SweepFrame, Sweep]]) -> None:
    elevations = capture.lidars[0].elevations
    assert len(elevations) == 64 and (elevations.diff() < 0).all()
    assert math.degrees(elevations[0]) == pytest.approx(3, abs=1) and math.degrees(elevations[-1]) < -22
    for _, sweep in sweeps:
        assert (sweep.rings.diff() >= 0).all()
        rays = torch.bincount(sweep.rings, minlength=64)
        assert len(rays) == 64 and (rays[:36] > 2140).all() and (rays[:36] < 2200).all()
        elevation = azimuth_elevation(sweep.directions.double())[sweep.returned, 1]
        rings = sweep.rings[sweep.returned]
        medians = torch.stack([elevation[rings == ring].median() for ring in range(64)])
        assert (medians - elevations).abs().max() < math.radians(0.6)


def test_points_and_missing_rays(sweeps: list[tuple[SweepFrame, Sweep]]) -> None:
    for frame, sweep in sweeps:
        returned = sweep.returned
        assert 110_000 < returned.sum() < 125_000
        assert 5_000 < (~returned).sum() < 20_000
        assert (sweep.ranges[~returned] == 0).all() and (sweep.intensities[~returned] == 0).all()
        assert (sweep.ranges[returned] > 1).all() and sweep.ranges.max() < 81
        assert sweep.intensities.max() > 0.5 and sweep.intensities.max() <= 1
        torch.testing.assert_close(sweep.directions.norm(dim=1), torch.ones(len(sweep)))
        assert frame.time_start <= sweep.times.min() and sweep.times.max() <= frame.time_end
        assert frame.time_end - frame.time_start == pytest.approx(0.1034, abs=0.001)


def test_time_runs_clockwise_from_behind(sweeps: list[tuple[SweepFrame, Sweep]]) -> None:
    for frame, sweep in sweeps:
        azimuth = azimuth_elevation(sweep.directions.double())[:, 0]
        fraction = (sweep.times - frame.time_start) / (frame.time_end - frame.time_start)
        torch.testing.assert_close(fraction, 0.5 - azimuth / (2 * math.pi), atol=1e-6, rtol=0)


def test_map_is_sharpest_with_this_time(capture: Capture, sweeps: list[tuple[SweepFrame, Sweep]]) -> None:
    """Static surfaces occupy fewest voxels when each ray takes the pose of its own time."""

    def voxels(factor: float) -> int:
        clouds = []
        for frame, sweep in sweeps:
            near = sweep.select(
                sweep.returned & (sweep.ranges < 40) & (sweep.rings < 40)
            )  # walls and cars, not the road
            times = frame.time_mid + factor * (near.times - frame.time_mid)
            clouds.append(world_points(frame, replace(near, times=times), capture.lidars[0]))
        return len(((torch.cat(clouds) / 0.1).floor().long() + 4000).matmul(torch.tensor([1, 8000, 8000**2])).unique())

    assert voxels(1) < 0.98 * voxels(0) < 0.98 * voxels(-1)


def test_images_are_exposed_as_the_lidar_faces_forward(capture: Capture) -> None:
    """Images are stamped 10.5 ms after the lidar's forward time; IMAGE_DELAY of it lies between the exposure and the stamp."""
    forward = {frame.index: frame.time_mid for frame in capture.sweeps}
    for image in capture.images:
        assert image.time_mid + IMAGE_DELAY - forward[image.index] == pytest.approx(0.0105, abs=0.001)


def test_poses_follow_the_file(kitti_root: Path, capture: Capture) -> None:
    """Up to the odometry's jitter of 2 cm: the middle of a sweep lies between its start and its end, the row on one side."""
    rows = [line.split() for line in (kitti_root / "extra/poses_velo.txt").read_text().splitlines()]
    T = torch.eye(4, dtype=torch.float64).repeat(len(rows), 1, 1)
    T[:, :3] = torch.tensor([[float(v) for v in row] for row in rows], dtype=torch.float64).view(-1, 3, 4)
    T_rig_lidar = capture.lidars[0].T_rig_lidar
    first, last = capture.sweeps[0], capture.sweeps[-1]

    def velo(frame: SweepFrame) -> Tensor:
        middle = 0.5 * (frame.T_world_rig_start + frame.T_world_rig_end)
        return middle @ T_rig_lidar

    expected = invert(T[first.index]) @ T[last.index]
    torch.testing.assert_close(torch.linalg.inv(velo(first)) @ velo(last), expected, atol=0.03, rtol=0)


def test_world_is_the_first_rig_pose(kitti_root: Path) -> None:
    for poses_file in (None, kitti_root / "extra/poses_velo.txt"):
        capture = read_kitti_raw(kitti_root, frames=range(0, 2), poses_file=poses_file, missing_rays=False)
        pose = capture.sweeps[0].T_world_rig_end  # 0.05 s, or 0.6 m, after the origin
        assert (pose[:3, :3] - torch.eye(3)).abs().max() < 0.01
        assert 0.3 < pose[0, 3] < 0.8 and pose[1:3, 3].abs().max() < 0.1


def test_oxts_and_poses_file_agree_roughly(kitti_root: Path) -> None:
    """oxts drifts by up to 1.4 m over the 55 m of this drive."""
    a = read_kitti_raw(kitti_root, missing_rays=False)
    b = read_kitti_raw(kitti_root, missing_rays=False, poses_file=kitti_root / "extra/poses_velo.txt")
    assert len(a.tracks) == 0
    for frame_a, frame_b in zip(a.images, b.images, strict=True):
        assert frame_a.time_start == frame_b.time_start
        assert (frame_a.T_world_rig_start - frame_b.T_world_rig_start)[:3, 3].norm() < 3.0


def test_tracks_lie_on_lidar_points(capture: Capture, sweeps: list[tuple[SweepFrame, Sweep]]) -> None:
    """Each box holds points of the sweep that it was drawn on, and hardly any right outside its sides."""
    tracks, lidar = capture.tracks, capture.lidars[0]
    assert len(tracks) >= 8 and set(tracks.classes) <= {"Car", "Van", "Truck", "Pedestrian", "Misc"}
    assert (tracks.sizes[:, 0] > tracks.sizes[:, 1]).all()
    inside = around = 0
    for frame, sweep in sweeps:
        points = world_points(frame, sweep.select(sweep.returned & (sweep.ranges < 40)), lidar)
        for k in range(len(tracks)):
            rows = slice(tracks.offsets[k], tracks.offsets[k + 1])
            row = tracks.offsets[k] + int((tracks.times[rows] - frame.time_mid).abs().argmin())
            if not frame.time_start < tracks.times[row] < frame.time_end:
                continue
            local = quat_rotate(quat_conjugate(tracks.quaternions[row]), points - tracks.translations[row]).abs()
            half = tracks.sizes[k] / 2
            body = local[:, 2] < half[2] - 0.25  # neither the ground nor branches above
            n_around = int(((local < half + torch.tensor([0.4, 0.4, 0])).all(1) & body).sum())
            if n_around > 100:
                inside += int(((local < half + 0.05).all(1) & body).sum())
                around += n_around
    assert around > 10_000 and inside > 0.95 * around
