# SPDX-License-Identifier: Apache-2.0
"""The rig's path between its known poses, and frames at any time, on it and off it."""

import math
import pickle
from dataclasses import replace

import pytest
import torch
from tiny_capture import tiny_capture

from nurec_lite.capture.trajectory import Trajectory, frame_at, nearest, shifted, trajectory_of
from nurec_lite.capture.types import Capture
from nurec_lite.geometry.se3 import invert, pose_matrix, rotvec_to_quat
from nurec_lite.splat.views import camera_view


def curve(angle: float, forward: float) -> torch.Tensor:
    q = rotvec_to_quat(torch.tensor([0, 0, angle], dtype=torch.float64))
    return pose_matrix(q, torch.tensor([forward, 0, 0], dtype=torch.float64))


def test_trajectory_hits_both_ends_of_every_frame() -> None:
    capture = tiny_capture()
    path = trajectory_of(capture)
    assert (path.times.diff() > 0).all() and path.poses.dtype == torch.float64
    for frame in (*capture.images, *capture.sweeps):
        for time, pose in ((frame.time_start, frame.T_world_rig_start), (frame.time_end, frame.T_world_rig_end)):
            torch.testing.assert_close(path.at(time), pose, rtol=0, atol=1e-12)


def test_poses_of_one_moment_are_merged() -> None:
    capture = tiny_capture()
    ends = {round(t, 6) for f in (*capture.images, *capture.sweeps) for t in (f.time_start, f.time_end)}
    path = trajectory_of(capture)
    assert len(path.times) == len(ends)
    assert path.span == (pytest.approx(min(ends)), pytest.approx(max(ends)))


def test_between_keys_position_and_heading_change_steadily() -> None:
    path = Trajectory(torch.tensor([1.0, 3.0], dtype=torch.float64), torch.stack([curve(0.2, 5), curve(1.0, 9)]))
    torch.testing.assert_close(path.at(1.5), curve(0.4, 6))
    torch.testing.assert_close(path.at(0.5), curve(0.0, 4))  # beyond the end the velocity goes on


def test_one_pose_is_everywhere() -> None:
    path = Trajectory(torch.tensor([1.0], dtype=torch.float64), curve(0.2, 5)[None])
    torch.testing.assert_close(path.at(7.0), curve(0.2, 5))


def frames(capture: Capture, sensor: str) -> list:
    return [f for f in (*capture.images, *capture.sweeps) if f.sensor == sensor]


@pytest.mark.parametrize("sensor", ["camera_0", "camera_1", "lidar"])
def test_frame_at_the_middle_of_a_frame_is_that_frame(sensor: str) -> None:
    capture = tiny_capture()
    for frame in frames(capture, sensor):
        again = frame_at(frames(capture, sensor), trajectory_of(capture), frame.time_mid)
        assert (again.index, again.sensor) == (frame.index, sensor)
        assert again.time_start == pytest.approx(frame.time_start) and again.time_end == pytest.approx(frame.time_end)
        torch.testing.assert_close(again.T_world_rig_start, frame.T_world_rig_start, rtol=0, atol=1e-9)
        torch.testing.assert_close(again.T_world_rig_end, frame.T_world_rig_end, rtol=0, atol=1e-9)


def test_frame_at_keeps_the_exposure_of_the_sensor() -> None:
    capture = tiny_capture()
    path, images = trajectory_of(capture), frames(capture, "camera_0")
    frame = frame_at(images, path, 0.4321)
    assert frame.time_mid == pytest.approx(0.4321)
    assert frame.time_end - frame.time_start == pytest.approx(images[0].time_end - images[0].time_start)
    torch.testing.assert_close(frame.T_world_rig_start, path.at(frame.time_start))
    torch.testing.assert_close(frame.T_world_rig_end, path.at(frame.time_end))


def test_frame_at_keeps_the_rays_of_the_nearest_sweep_and_their_offsets() -> None:
    capture = tiny_capture()
    sweeps = frames(capture, "lidar")
    frame, like = frame_at(sweeps, trajectory_of(capture), sweeps[3].time_mid + 0.03), sweeps[3]
    rays, measured = pickle.loads(pickle.dumps(frame.load))(), like.load()
    assert torch.equal(rays.directions, measured.directions) and torch.equal(rays.rings, measured.rings)
    torch.testing.assert_close(rays.times - frame.time_start, measured.times - like.time_start, rtol=0, atol=1e-9)
    assert like.load().times[0] == measured.times[0]  # the capture's own sweep stays as it is


def test_nearest_is_by_the_middle_of_a_frame() -> None:
    sweeps = frames(tiny_capture(), "lidar")
    assert nearest(sweeps, sweeps[2].time_mid + 0.04).index == 2
    assert nearest(sweeps, sweeps[2].time_mid + 0.06).index == 3
    assert nearest(sweeps, -99).index == 0


def test_no_shift_changes_nothing() -> None:
    frame = tiny_capture().images[3]
    same = shifted(frame, [0, 0, 0])
    assert torch.equal(same.T_world_rig_start, frame.T_world_rig_start)
    assert torch.equal(same.T_world_rig_end, frame.T_world_rig_end)


def test_shift_is_along_the_axes_of_the_rig_also_in_a_curve() -> None:
    frame = replace(tiny_capture().images[3], T_world_rig_start=curve(0.0, 5), T_world_rig_end=curve(math.pi / 2, 5))
    moved = shifted(frame, [3, 1, 0.5])
    torch.testing.assert_close(moved.T_world_rig_start[:3, 3], torch.tensor([8, 1, 0.5], dtype=torch.float64))
    torch.testing.assert_close(moved.T_world_rig_end[:3, 3], torch.tensor([4, 3, 0.5], dtype=torch.float64))
    torch.testing.assert_close(moved.T_world_rig_end[:3, :3], frame.T_world_rig_end[:3, :3])


def test_a_metre_to_the_left_moves_a_point_by_the_focal_length_over_its_distance() -> None:
    """The point stands still in the world: seen from 1 m further left it appears fx / z pixels further right."""
    capture = tiny_capture()
    frame, camera = capture.images[0], capture.cameras[0]
    still = replace(frame, T_world_rig_end=frame.T_world_rig_start)
    T_world_cam = still.T_world_rig_start @ camera.T_rig_cam
    point = (T_world_cam @ torch.tensor([0.7, -0.3, 20.0, 1], dtype=torch.float64))[:3].float()
    pixels = []
    for seen in (still, shifted(still, [0, 1, 0])):
        view = camera_view(capture, seen, "cpu")
        pixel, depth = view.project((point - view.centre())[None], torch.zeros(1, 3))
        pixels.append(pixel[0])
        assert float(depth) == pytest.approx(20, abs=1e-4)
    assert (pixels[1] - pixels[0]).tolist() == pytest.approx([camera.fx / 20, 0], abs=1e-3)


def test_shift_equals_a_capture_that_was_driven_there() -> None:
    frame = tiny_capture().sweeps[2]
    moved = shifted(frame, [0, 1, 0])
    offset = invert(frame.T_world_rig_start) @ moved.T_world_rig_start
    torch.testing.assert_close(offset[:3, 3], torch.tensor([0, 1, 0], dtype=torch.float64))
    assert moved.load is frame.load and moved.time_start == frame.time_start


@pytest.mark.parametrize("keys", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 33])
def test_points_in_the_rig_are_those_of_the_poses_at_their_times(keys: int, count: int) -> None:
    """Times before the first pose and after the last one count, too."""
    generator = torch.Generator().manual_seed(keys)
    poses = torch.stack([curve(0.1 * k, 3.0 * k) for k in range(keys)])
    path = Trajectory(0.1 * torch.arange(keys, dtype=torch.float64), poses)
    points = 50 * torch.randn(count, 3, generator=generator, dtype=torch.float64)
    times = 0.7 * torch.rand(count, generator=generator, dtype=torch.float64) - 0.1
    T = invert(path.at(times))
    expected = (T[:, :3, :3] @ points[:, :, None])[..., 0] + T[:, :3, 3]
    torch.testing.assert_close(path.to_rig(points, times), expected, rtol=0, atol=1e-9)
