# SPDX-License-Identifier: Apache-2.0
"""Plain cameras of one size as one camera with tensors for intrinsics, so that points are projected into all of their images at once."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nurec_lite.geometry.camera import Camera

Alike = tuple[object, ...]  # equal for cameras that one batch may hold


@dataclass(frozen=True)
class CameraBatch:
    """F cameras whose `is_plain` holds, in the fields that a projection reads."""

    width: int  # pixels
    height: int
    fx: Tensor  # [F, 1] float64, pixels
    fy: Tensor
    cx: Tensor
    cy: Tensor
    T_rig_cam: Tensor  # [F, 4, 4] float64
    distortion: tuple[Tensor, ...]  # [F, 1] float64 each
    shutter: str

    @staticmethod
    def of(cameras: Sequence[Camera], device: torch.device | str) -> "CameraBatch":
        """Cameras that `alike` calls equal; one at least."""
        first = cameras[0]
        rows = [[c.fx, c.fy, c.cx, c.cy, *c.distortion] for c in cameras]
        fx, fy, cx, cy, *distortion = torch.tensor(rows, dtype=torch.float64).to(device)[:, None].unbind(-1)
        mountings = torch.stack([c.T_rig_cam for c in cameras]).to(device)
        return CameraBatch(first.width, first.height, fx, fy, cx, cy, mountings, tuple(distortion), first.shutter)


def alike(camera: Camera) -> Alike:
    """The key that cameras of one batch share. A camera with another lens shares it with itself alone."""
    if not camera.is_plain:
        return (id(camera),)
    return camera.width, camera.height, camera.shutter, len(camera.distortion)
