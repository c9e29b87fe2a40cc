# SPDX-License-Identifier: Apache-2.0
"""The row of a view for the kernels, in Python's floats, against the torch formulas."""

import ctypes
import math
from dataclasses import replace

import pytest
import torch
from kernel_math import library
from parity import EPS, cast_view
from splat_scenes import CAMERA_MOTION, F64, LIDAR_MOTION, POSE, Motion, make_camera_view, make_lidar, make_lidar_view
from test_math import TINY, quat_pairs, quats, turns
from tiny_capture import tiny_capture
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.geometry import host, se3
from nurec_lite.geometry.camera import SHUTTERS
from nurec_lite.splat.view_row import FIELDS, NUMBERS, view_row
from nurec_lite.splat.views import CameraView, LidarView, camera_view, lidar_view

TURNS = [Motion(turn=turn) for turn in ((0.0, 0.0, 0.0), (1e-6, 0.0, 0.0), (2.0, -1.0, 0.5))]


def views(T: Tensor = POSE) -> list[CameraView | LidarView]:
    """Views in float32: every shutter, a lidar, a distorted camera; standing, turning, and as vehicles move."""
    cameras = [make_camera_view(9, 7, 8.0, shutter, CAMERA_MOTION, T) for shutter in SHUTTERS]
    turning = [make_camera_view(9, 7, 8.0, "top_to_bottom", motion, T) for motion in TURNS]
    distorted = make_camera_view(9, 7, 8.0, "global", CAMERA_MOTION, T, (-0.3, 0.1, 1e-3, -2e-3, 0.01))
    lidar = make_lidar_view(replace(make_lidar(), clockwise=False), LIDAR_MOTION, T)
    return [cast_view(view, torch.float32) for view in (*cameras, *turning, distorted, lidar)]


def centre_of(start: Tensor, end: Tensor) -> Tensor:
    """The centre, rounded as by View.centre()."""
    return (0.5 * (start.float() + end.float())[:3, 3]).double()


def poses(view: CameraView | LidarView) -> tuple[Tensor, Tensor]:
    return view.T_world_sensor_start.double(), view.T_world_sensor_end.double()


def bounds_row(view: CameraView | LidarView) -> Tensor:
    return view_row(view)[:45]


def trajectory(view: CameraView | LidarView) -> Tensor:
    return view_row(view)[45:59]


def by_torch(view: CameraView | LidarView) -> Tensor:
    """[31]: all but the sensor's own numbers."""
    start, end = poses(view)
    centre, R0, R1 = centre_of(start, end), start[:3, :3], end[:3, :3]
    axes = se3.quat_to_matrix(se3.interpolate_between(start, end, start.new_tensor(0.5))[0])
    moves = [R0.T.flatten(), R1.T.flatten(), R0.T @ (centre - start[:3, 3]), R1.T @ (centre - end[:3, 3])]
    seconds = start.new_tensor([view.time_end - view.time_start])
    travel, turning = (end - start)[:3, 3].norm(), (R1 - R0).norm() / math.sqrt(2)
    kind = start.new_tensor(isinstance(view, CameraView))
    return torch.cat([*moves, seconds, axes[:, 2], torch.stack([travel, turning, kind])])


def trajectory_by_torch(view: CameraView | LidarView) -> Tensor:
    start, end = poses(view)
    q0, q1 = se3.matrix_to_quat(torch.stack([start, end])[:, :3, :3])
    turn = se3.quat_to_rotvec(se3.quat_multiply(se3.quat_conjugate(q0), q1))
    places = [T[:3, 3] - centre_of(start, end) for T in (start, end)]
    return torch.cat([q0, turn, *places, start.new_tensor([view.time_end - view.time_start])])


def equal_in_float32(found: Tensor, expected: Tensor) -> None:
    """Doubles that differ in their last digits round to the same float32 or to neighbours; for numbers that come out near 0 by
    cancellation only the remaining digits of a double count."""
    assert found.dtype == torch.float32 and found.device.type == "cpu" and found.shape == expected.shape
    torch.testing.assert_close(found.double(), expected.float().double(), rtol=2 * EPS, atol=1e-14)


@pytest.mark.parametrize("far", [0.0, 50000.0])
def test_numbers_of_a_view(far: float) -> None:
    T = POSE.clone()
    T[:2, 3] += far
    for view in views(T):
        found = bounds_row(view)
        assert view_row(view).shape == (NUMBERS,) == (84,)
        assert torch.equal(view_row(view)[FIELDS["centre"]].double(), centre_of(*poses(view)))
        equal_in_float32(found[:31], by_torch(view))
        equal_in_float32(trajectory(view), trajectory_by_torch(view))


def test_numbers_of_poses_of_any_turn() -> None:
    for view in views()[:1]:
        for a, b in zip(*(quats()[torch.randperm(100)] for _ in range(2)), strict=True):
            ends = [se3.pose_matrix(q, torch.randn(3, dtype=F64)).float() for q in (a, b)]
            turned = replace(view, T_world_sensor_start=ends[0], T_world_sensor_end=ends[1])
            equal_in_float32(bounds_row(turned)[:31], by_torch(turned))
            equal_in_float32(trajectory(turned), trajectory_by_torch(turned))


def test_numbers_of_the_sensor() -> None:
    *_, distorted, lidar = views()
    assert isinstance(lidar, LidarView)
    model = [9, 7, 8.0, 8.8, 4.68, 3.15, -0.3, 0.1, 1e-3, -2e-3, 0.01, 0, 0, 0]
    equal_in_float32(bounds_row(distorted)[31:], torch.tensor(model, dtype=F64))
    spin = torch.tensor([0] * 12 + [1 / (2 * math.pi), math.pi], dtype=F64)
    equal_in_float32(bounds_row(lidar)[31:], spin)
    for shutter, view in zip(range(5), views(), strict=False):
        assert view_row(view)[FIELDS["view.camera.shutter"]] == shutter


class Field(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("first", ctypes.c_size_t), ("numbers", ctypes.c_size_t))


def test_names_are_those_of_the_struct() -> None:
    n = ctypes.c_size_t.in_dll(library(), "view_fields_count").value
    fields = library().view_fields
    fields.restype = ctypes.POINTER(Field)
    found = fields()[:n]
    assert {f.name.decode(): (f.first, f.first + f.numbers) for f in found} == {
        name: (place.start, place.stop) for name, place in FIELDS.items()
    }


def test_views_of_frames_bring_their_row() -> None:
    """On the device of the poses, made where the poses are known."""
    capture = tiny_capture()
    sweep = capture.sweeps[0]
    found = camera_view(capture, capture.images[0], "cpu"), lidar_view(capture, sweep, sweep.load(), "cpu")
    for view in found:
        assert view.row is not None and torch.equal(view.row, view_row(view))
        assert view.middle is not None and view.middle.dtype == F64 and float(view.middle) == view.time_mid


def test_poses_that_are_not_finite_give_numbers_that_are_not() -> None:
    """Operators then say so; nothing else is raised before."""
    view = views()[1]
    for bad in (math.nan, math.inf, -math.inf):
        for place in ((0, 0), (1, 2), (2, 3)):
            start = view.T_world_sensor_start.clone()
            start[place] = bad
            for numbers in (bounds_row, trajectory):
                assert not numbers(replace(view, T_world_sensor_start=start)).isfinite().all()


# ---- rotations


def rows(values: list[tuple[float, ...]]) -> Tensor:
    return torch.tensor(values, dtype=F64)


def test_rotations() -> None:
    """Rotations include half turns, where a component changes its sign, and small ones, where series take over."""
    a, b = quat_pairs()
    pairs = list(zip(a.tolist(), b.tolist(), strict=True))
    close = {"atol": 1e-15, "rtol": 1e-14}
    torch.testing.assert_close(rows([host.quat_multiply(p, q) for p, q in pairs]), se3.quat_multiply(a, b), **close)
    expected = se3.quat_to_rotvec(se3.quat_multiply(se3.quat_conjugate(a), b))
    torch.testing.assert_close(rows([host.turn_between(p, q) for p, q in pairs]), expected, **close)
    torch.testing.assert_close(rows([host.forward_axis(p) for p, _ in pairs]), se3.quat_to_matrix(a)[..., 2], **close)
    vectors = torch.cat([turns((*TINY, 3, math.pi, 7)), torch.zeros(1, 3, dtype=F64)])
    found = rows([host.rotvec_to_quat(v) for v in vectors.tolist()])
    torch.testing.assert_close(found, se3.rotvec_to_quat(vectors), **close)


def test_quaternions_of_matrices() -> None:
    """Exact half turns about the axes, where w is 0, and rotations that no float32 matrix is quite."""
    R = se3.quat_to_matrix(torch.cat([quats(), F.normalize(torch.randn(100, 4, dtype=F64), dim=-1)]))
    R = torch.cat([R, R.float().double()])
    found = rows([host.matrix_to_quat(m) for m in R.tolist()])
    torch.testing.assert_close(found, se3.matrix_to_quat(R), atol=1e-15, rtol=1e-14)


def test_products_with_a_transposed_matrix() -> None:
    T, v = torch.randn(4, 4, dtype=F64), torch.randn(3, dtype=F64)
    found = rows([host.transposed_times(T.tolist(), tuple(v.tolist()))])
    torch.testing.assert_close(found[0], T[:3, :3].T @ v, atol=1e-15, rtol=1e-14)
