# SPDX-License-Identifier: Apache-2.0
"""Views with the estimated poses of their sensors (nurec_lite/scene/calibration.py), computed on the device."""

from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from nurec_lite.geometry.se3 import pose_matrix, quat_multiply, quat_to_matrix, rotvec_to_quat
from nurec_lite.scene.calibration import Calibration
from nurec_lite.splat.view_row import FIELDS
from nurec_lite.splat.views import CameraView, LidarView

AnyView = TypeVar("AnyView", CameraView, LidarView)


def corrected(
    view: AnyView,
    calibration: Calibration | None,  # None: nothing is corrected
) -> AnyView:
    """The view from where its sensor is believed to have been. Its poses carry no gradient; its `pose_delta` does."""
    if calibration is None:
        return view
    turn, shift, drift, moment = calibration.of(view.sensor, view.moment(), view.velocity)
    axes = view.T_world_sensor_start[:3, :3]
    pose_delta = torch.cat([axes @ turn, axes @ shift])
    with torch.no_grad():
        T = pose_matrix(rotvec_to_quat(turn), shift)
        row = None if view.row is None else corrected_row(view.row, turn, shift)
        return at(view, view.T_world_sensor_start @ T, view.T_world_sensor_end @ T, row, pose_delta, drift, moment)


def at(
    view: AnyView,
    start: Tensor,  # [4, 4] world from sensor
    end: Tensor,
    row: Tensor | None,
    pose_delta: Tensor,
    drift: Tensor | None,
    moment: Tensor,  # [] float64 seconds, when its middle was on the rig's clock
) -> AnyView:
    """The view with all that a correction changes."""
    ends: dict[str, Any] = {"T_world_sensor_start": start, "T_world_sensor_end": end}
    return replace(view, **ends, row=row, pose_delta=pose_delta, drift=drift, middle=moment)


def corrected_row(
    row: Tensor,  # [84] as nurec_lite.splat.view_row makes it
    turn: Tensor,  # [3] radians, in the sensor's axes
    shift: Tensor,  # [3] metres
) -> Tensor:  # [84] of the corrected poses, without the host
    q = rotvec_to_quat(turn)
    E, found = quat_to_matrix(q), row.clone()
    moved, off = [], []
    for k, end in enumerate(("start", "end")):
        axes = _of(row, f"view.motion.R{k}").view(3, 3)  # sensor from world
        off.append(shift @ axes)
        moved.append(_of(row, f"path.{end}") + off[k])
        _of(found, f"view.motion.R{k}").copy_((E.T @ axes).flatten())
    middle = 0.5 * (off[0] + off[1])
    for k, end in enumerate(("start", "end")):
        place = moved[k] - middle
        _of(found, f"path.{end}").copy_(place)
        _of(found, f"view.motion.t{k}").copy_(-(_of(found, f"view.motion.R{k}").view(3, 3) @ place))
    half = quat_multiply(_of(row, "path.q"), rotvec_to_quat(0.5 * _of(row, "path.turn")))
    _of(found, "path.q").copy_(quat_multiply(_of(row, "path.q"), q))
    _of(found, "path.turn").copy_(_of(row, "path.turn") @ E)
    _of(found, "view.forward").copy_(quat_to_matrix(quat_multiply(half, q))[:, 2])
    _of(found, "view.travel").copy_((moved[1] - moved[0]).norm()[None])
    _of(found, "centre").add_(middle)
    return found


def _of(row: Tensor, name: str) -> Tensor:
    return row[FIELDS[name]]
