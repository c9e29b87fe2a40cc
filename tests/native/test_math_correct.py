# SPDX-License-Identifier: Apache-2.0
"""kernels/math/correct.cuh in float64, against nurec_lite/scene/calibration.py, and corrected.py and pose_delta.py of nurec_lite/splat."""

import math

import pytest
import torch
from kernel_math import F64, autograd, call, close, differences
from splat_scenes import CAMERA_MOTION, LIDAR_MOTION, make_camera_view, make_lidar, make_lidar_view
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.geometry.se3 import pose_matrix, quat_multiply, quat_to_matrix, rotvec_to_quat
from nurec_lite.scene.calibration import Calibration
from nurec_lite.splat.corrected import corrected_row
from nurec_lite.splat.pose_delta import pose_vjp_by_torch
from nurec_lite.splat.view_row import view_row

N = 40


def rotations(n: int = N) -> Tensor:  # [n, 3, 3]
    return quat_to_matrix(F.normalize(torch.randn(n, 4, dtype=F64), dim=-1))


def vectors(n: int = N) -> Tensor:
    return torch.randn(n, 3, dtype=F64)


def calibration_of(knots: Tensor) -> Calibration:
    none = torch.zeros(0, 3, dtype=F64)
    rows = torch.zeros(len(knots), 3, dtype=F64)
    return Calibration(
        knots, (), rows, rows.clone(), none, none.clone(), torch.zeros(0, len(knots), 2, 3, dtype=F64), none, none[:, 0]
    )


@pytest.mark.parametrize("n", [2, 3, 11])
def test_places_between_knots(n: int) -> None:
    """Within the rounding of times of day in seconds; a moment that is not a number stays within the knots, too."""
    first, spacing = 47_000.25, 0.5
    calibration = calibration_of(first + spacing * torch.arange(n, dtype=F64))
    moments = first + torch.tensor([-1e9, -0.1, 0.0, 0.1, 0.5, 0.75, (n - 1) * 0.5, n * 0.5, 1e9], dtype=F64)
    found = call("between_knots", first, spacing, float(n), moments[:, None])
    assert (found[:, 0] >= 0).all() and (found[:, 0] <= n - 2).all()
    rows = torch.arange(len(moments))
    weights = torch.zeros(len(moments), n, dtype=F64)
    weights[rows, found[:, 0].long()], weights[rows, found[:, 0].long() + 1] = 1 - found[:, 1], found[:, 1]
    close(weights, torch.stack([calibration.weights(moment) for moment in moments]), 1e-9)
    lost = call("between_knots", first, spacing, float(n), torch.full((1, 1), math.nan, dtype=F64))
    assert 0 <= lost[0, 0] <= n - 2 and 0 <= lost[0, 1] <= 1


def sensor_correction(axes: Tensor, place: Tensor, turn: Tensor, shift: Tensor, own: Tensor) -> Tensor:  # [n, 6]
    levered = shift + torch.linalg.cross(turn, place)
    return torch.cat([(v[:, None] @ axes)[:, 0] for v in (turn, levered)], dim=1) + own


def test_a_sensor_s_correction_and_its_derivative() -> None:
    axes, place, turn, shift = rotations(), vectors(), vectors(), vectors()
    own, d = torch.randn(2, N, 6, dtype=F64)
    close(call("sensor_correction", axes, place, turn, shift, own), sensor_correction(axes, place, turn, shift, own))
    found = call("sensor_correction_backward", axes, place, d)

    def forward(turn: Tensor, shift: Tensor) -> Tensor:
        return sensor_correction(axes, place, turn, shift, own)

    close(found, autograd(forward, [turn, shift], d))
    close(found, differences(forward, [turn, shift], d), 1e-8)


def test_a_sensor_that_is_later_and_its_derivative() -> None:
    c, velocity, d = torch.randn(3, N, 6, dtype=F64)
    seconds = torch.randn(N, 1, dtype=F64)

    def later(seconds: Tensor) -> Tensor:
        return c + seconds * velocity

    close(call("drifted", c, velocity, seconds), later(seconds))
    close(call("drifted_backward", velocity, d), autograd(later, [seconds], d))


def test_a_matrix_transposed_times_another() -> None:
    a, b = torch.randn(2, N, 3, 3, dtype=F64)
    close(call("transposed_product", a, b), a.mT @ b)


def test_in_world_and_its_derivative() -> None:
    R, c, d = rotations(), torch.randn(N, 6, dtype=F64), torch.randn(N, 6, dtype=F64)

    def world(c: Tensor) -> Tensor:
        return (c.view(N, 2, 3) @ R).flatten(1)

    close(call("in_world", R, c), world(c))
    close(call("in_world_backward", R, d), autograd(world, [c], d))


def test_poses_move_on_their_own_side() -> None:
    q, t = F.normalize(torch.randn(N, 4, dtype=F64), dim=-1), 1e4 * vectors()
    turn, shift = 0.1 * vectors(), vectors()
    turns = rotvec_to_quat(turn)
    found = call("move_pose", pose_matrix(q, t), quat_to_matrix(turns), shift)
    close(found, (pose_matrix(q, t) @ pose_matrix(turns, shift)).flatten(1))


TURNS = ((0.0, 0.0, 0.0), (1e-9, 0.0, 0.0), (0.0, -0.99e-4, 1e-6), (0.02, -0.03, 0.01), (3.0, -0.5, 0.1))


@pytest.mark.parametrize("turn", TURNS, ids=str)
@pytest.mark.parametrize("sensor", ["still camera", "moving camera", "lidar"])
def test_rows_of_corrected_views(sensor: str, turn: tuple[float, float, float]) -> None:
    moving = ("top_to_bottom", CAMERA_MOTION) if "moving" in sensor else ()
    lidar = make_lidar_view(make_lidar(8, 48), LIDAR_MOTION)
    view = lidar if sensor == "lidar" else make_camera_view(17, 13, 16.0, *moving)
    row, shift = view_row(view).double(), torch.tensor([0.3, -0.2, 0.1], dtype=F64)
    correction = torch.cat([torch.tensor(turn, dtype=F64), shift])
    close(call("correct_row", row[None], correction[None]), corrected_row(row, correction[:3], shift)[None])


def test_pose_gradient_of_a_gaussian() -> None:
    """The formula agrees with the definition: the gradient of all Gaussians moved the other way."""
    means, quats, centre = vectors(), F.normalize(torch.randn(N, 4, dtype=F64), dim=-1), torch.zeros(3, dtype=F64)
    d_means, d_quats = vectors(), torch.randn(N, 4, dtype=F64)
    found = call("pose_vjp", means, quats, d_means, d_quats)
    rows = zip(*(t[:, None] for t in (means, quats, d_means, d_quats)), strict=True)
    each = [pose_vjp_by_torch(centre, [m, q], [dm, dq]) for m, q, dm, dq in rows]
    close(found, torch.stack(each))

    def moved(pose_delta: Tensor) -> Tensor:
        w, v = pose_delta[:, :3], pose_delta[:, 3:]
        turned = quat_multiply(torch.cat([torch.ones(N, 1, dtype=F64), -0.5 * w], dim=1), quats)
        return torch.cat([means - torch.linalg.cross(w, means) - v, turned], dim=1)

    close(found, autograd(moved, [torch.zeros(N, 6, dtype=F64)], torch.cat([d_means, d_quats], dim=1)))
