# SPDX-License-Identifier: Apache-2.0
"""What the kernels are told about a view, computed on the host; without a wait for the device where the poses are known there."""

import math

import numpy as np
import torch
from torch import Tensor

from nurec_lite.geometry import host
from nurec_lite.geometry.camera import SHUTTERS
from nurec_lite.geometry.host import Rows, Vector
from nurec_lite.splat.views import CameraView, LidarView


def view_numbers(view: CameraView | LidarView) -> Tensor:
    """[45] as `View` of kernels/math/sensor.cuh lists them."""
    start, end, centre = _poses(view)
    columns = [row[k] for T in (start, end) for k in range(3) for row in T[:3]]
    origins = [x for T in (start, end) for x in host.transposed_times(T, host.minus(centre, host.position(T)))]
    q0, q1 = host.matrix_to_quat(start), host.matrix_to_quat(end)
    x, y, z = host.turn_between(q0, q1)
    forward = host.forward_axis(host.quat_multiply(q0, host.rotvec_to_quat((0.5 * x, 0.5 * y, 0.5 * z))))
    travel = math.hypot(*host.minus(host.position(end), host.position(start)))
    turning = math.hypot(*(b[k] - a[k] for a, b in zip(start[:3], end[:3], strict=True) for k in range(3)))
    rest = [travel, turning / math.sqrt(2), float(isinstance(view, CameraView)), *_sensor_numbers(view)]
    return torch.tensor([*columns, *origins, view.time_end - view.time_start, *forward, *rest], dtype=torch.float32)


def trajectory(view: CameraView | LidarView) -> Tensor:
    """[14] as `Trajectory` of kernels/math/rays.cuh lists them."""
    start, end, centre = _poses(view)
    q = host.matrix_to_quat(start)
    ends = [x for T in (start, end) for x in host.minus(host.position(T), centre)]
    numbers = [*q, *host.turn_between(q, host.matrix_to_quat(end)), *ends, view.time_end - view.time_start]
    return torch.tensor(numbers, dtype=torch.float32)


def centre_of(view: CameraView | LidarView) -> list[float]:
    """[3] metres, as View.centre() rounds it: what the kernels subtract from means."""
    return list(_poses(view)[2])


def _poses(view: CameraView | LidarView) -> tuple[Rows, Rows, Vector]:
    """[4, 4] at the start and at the end, and the centre as View.centre() rounds it."""
    start, end = (T.tolist() for T in view.poses_on_host())
    x, y, z = (0.5 * float(np.float32(a[3]) + np.float32(b[3])) for a, b in zip(start[:3], end[:3], strict=True))
    return start, end, (x, y, z)


def _sensor_numbers(view: CameraView | LidarView) -> list[float]:
    """12 of the camera and 2 of the lidar; zeros for the one that the view is not of."""
    if isinstance(view, LidarView):
        return [0.0] * 12 + [view.lidar.spin_rate, view.lidar.azimuth_start]
    c = view.camera
    model = [c.width, c.height, c.fx, c.fy, c.cx, c.cy, *(c.distortion or [0.0] * 5), SHUTTERS.index(c.shutter)]
    return [*model, 0.0, 0.0]
