# SPDX-License-Identifier: Apache-2.0
"""The operator rays: origins, directions and delays of a view's rays."""

import torch
from torch import Tensor

from nurec_lite.geometry.camera import pixel_directions, pixel_fractions
from nurec_lite.native.operators.shared import lidar_directions, packed_view, wants_pose_grad
from nurec_lite.splat.views import CameraView, LidarView, Rays


def rays(view: CameraView | LidarView, with_origins: bool = True) -> Rays:
    """Returns the result of view.rays(), in one kernel; origins are [0, 3] if not needed. Rays with gradients come from view.rays()."""
    if wants_pose_grad(view):
        return view.rays()
    known = (lidar_directions(view), view.fractions.contiguous()) if isinstance(view, LidarView) else pixels(view)
    found: tuple[Tensor, Tensor, Tensor] = torch.ops.nurec_lite.rays(packed_view(view), *known, with_origins)
    return Rays(*found, targets=view.targets if isinstance(view, LidarView) else None)


def pixels(view: CameraView) -> tuple[Tensor, Tensor]:
    """Returns directions [R, 3] and fractions [R] of pixels, or fractions [1] if the sensor exposes all pixels at once."""
    device = view.T_world_sensor_start.device
    fractions = pixel_fractions(view.camera, torch.float32, device).flatten()
    directions = pixel_directions(view.camera, torch.float32, device).flatten(0, 1)
    return directions, fractions[:1] if view.camera.shutter == "global" else fractions
