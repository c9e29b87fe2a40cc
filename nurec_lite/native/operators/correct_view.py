# SPDX-License-Identifier: Apache-2.0
"""The operators correct_view and pose_gradient: views from the estimated poses of their sensors, and the gradients of these poses.

Letters: C cameras, K knots.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nurec_lite.base.ranges import BACKWARD, span
from nurec_lite.native.operators.shared import no_second_gradients, wants_pose_grad
from nurec_lite.scene.calibration import POSES, Calibration
from nurec_lite.splat.corrected import AnyView as OneView
from nurec_lite.splat.corrected import at, corrected


class CalibrationArgs(NamedTuple):
    """Learned corrections of a capture's sensors, as in nurec_lite.scene.calibration.Calibration, and their query: C
    cameras, K knots."""

    times: Tensor  # [K] float64 seconds of the knots
    moment: Tensor  # [] float64 seconds
    mount: Tensor  # [4, 3] rows of the sensor's axes on the rig, and its place there in metres
    velocity: Tensor  # [6] the sensor's turning and motion in its own axes, radians and metres a second
    rig_rotations: Tensor  # [K, 3]
    rig_translations: Tensor  # [K, 3]
    camera_rotations: Tensor  # [C, 3]
    camera_translations: Tensor  # [C, 3]
    exposure_drift: Tensor  # [C, K, 2, 3]
    camera_offsets: Tensor  # [C] seconds


def correct(view: OneView, calibration: Calibration | None) -> OneView:
    """Returns the result of nurec_lite.splat.corrected.corrected, in one kernel."""
    if calibration is None or view.row is None or wants_pose_grad(view):
        return corrected(view, calibration)
    ends, c = (view.T_world_sensor_start, view.T_world_sensor_end), calibration
    camera = c.camera_row(view.sensor)
    velocity = _no_velocity(view.row.device) if view.velocity is None else view.velocity
    parts = (getattr(c, name) for name in (*POSES, "exposure_drift", "camera_offsets"))
    known = CalibrationArgs(c.knots, view.moment(), c.mount(view.sensor), velocity, *parts)
    row, moved, pose_delta, drift, moment = torch.ops.nurec_lite.correct_view(
        view.row, *ends, known, -1 if camera is None else camera
    )
    return at(view, moved[0], moved[1], row, pose_delta, None if camera is None else drift, moment)


@lru_cache(maxsize=8)
def _no_velocity(device: torch.device) -> Tensor:  # [6]
    """Returns the velocity of a view that has none. Nothing may be written into it."""
    return torch.zeros(6, device=device)


def pose_vjp(
    centre: Tensor,  # [3]
    gaussians: list[Tensor],  # means [N, 3] and quaternions [N, 4], of one set of Gaussians or two
    grads: list[Tensor],
) -> Tensor:  # [6]
    """Returns the result of nurec_lite.splat.pose_delta.pose_vjp_by_torch, in two kernels."""
    return torch.ops.nurec_lite.pose_gradient(centre, gaussians, [grad.contiguous() for grad in grads])


def register() -> None:
    torch.library.register_autograd("nurec_lite::correct_view", _correct_gradients, setup_context=_keep_known)
    torch.library.register_autograd("nurec_lite::correct_view_backward", no_second_gradients)
    torch.library.register_autograd("nurec_lite::pose_gradient", no_second_gradients)


def _keep_known(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    view, _, _, known, ctx.camera = inputs
    row, ends, _, _, moment = output
    ctx.mark_non_differentiable(row, ends, moment)
    ctx.set_materialize_grads(False)  # these have none: zeros for each would be a launch
    ctx.save_for_backward(view, *known)


def _correct_gradients(
    ctx: Any, _row: None, _ends: None, d_pose_delta: Tensor | None, d_drift: Tensor | None, _moment: None
) -> tuple[Any, ...]:
    view, *known = ctx.saved_tensors
    d_pose_delta = view.new_zeros(6) if d_pose_delta is None else d_pose_delta
    d_drift = view.new_zeros(2, 3) if d_drift is None else d_drift
    with span("correct_view", within=BACKWARD):
        found = torch.ops.nurec_lite.correct_view_backward(
            view, known, ctx.camera, d_pose_delta.contiguous(), d_drift.contiguous()
        )
    return None, None, None, [None, None, None, None, *found], None
