# SPDX-License-Identifier: Apache-2.0
"""kernels/math/rays.cuh in double precision against the rays of a view."""

from dataclasses import replace

import pytest
import torch
from kernel_math import F64, call, close
from splat_scenes import LIDAR_MOTION, POSE, Motion, make_lidar, make_pose, rays_view
from test_view_row import trajectory_by_torch
from torch import Tensor
from torch.nn import functional as F

TURNS = ((0.0, 0.0, 0.0), (1e-9, 0.0, 0.0), (0.0, 1e-4, 0.0), (0.0, -0.99e-4, 1e-6), (3.0, -0.5, 0.1))


def along(view_motion: Motion) -> tuple[Tensor, Tensor]:
    """Rays found and expected, [n, 7]: direction, origin, delay; fractions lie outside 0..1, too."""
    directions = F.normalize(torch.randn(101, 3, dtype=F64), dim=-1)
    fractions = torch.cat([torch.linspace(-0.5, 1.5, 99, dtype=F64), torch.tensor([0.0, 1.0], dtype=F64)])
    view = rays_view(make_lidar(), directions, fractions, view_motion, POSE)
    # the centre is rounded to float32: only a view of such poses has the same in double precision
    view = replace(
        view,
        T_world_sensor_start=on_grid(view.T_world_sensor_start),
        T_world_sensor_end=on_grid(view.T_world_sensor_end),
    )
    rays = view.rays()
    expected = torch.cat([rays.directions, rays.origins, rays.delays[:, None]], dim=1)
    return call("ray_at", trajectory_by_torch(view)[None], directions, fractions[:, None]), expected


def on_grid(T: Tensor) -> Tensor:
    """Positions in steps of 1/1024 m."""
    T = T.clone()
    T[:3, 3] = (1024 * T[:3, 3]).round() / 1024
    return T


@pytest.mark.parametrize("turn", TURNS, ids=str)
def test_rays_of_a_sensor_that_turns(turn: tuple[float, float, float]) -> None:
    close(*along(replace(LIDAR_MOTION, turn=turn)))


def test_rays_between_poses_half_a_turn_apart() -> None:
    """Either way about is as short; both go by the sign that the quaternions have."""
    start, end = torch.eye(4, dtype=F64), make_pose((0.0, 0.0, 0.0), (1.0, 0.0, 0.0))
    end[1, 1] = end[2, 2] = -1
    directions = F.normalize(torch.randn(11, 3, dtype=F64), dim=-1)
    fractions = torch.linspace(0, 1, 11, dtype=F64)
    view = replace(rays_view(make_lidar(), directions, fractions), T_world_sensor_start=start, T_world_sensor_end=end)
    rays = view.rays()
    assert rays.directions[-1].tolist() == pytest.approx((directions[-1] * torch.tensor([1, -1, -1])).tolist())
    expected = torch.cat([rays.directions, rays.origins, rays.delays[:, None]], dim=1)
    close(call("ray_at", trajectory_by_torch(view)[None], directions, fractions[:, None]), expected)
