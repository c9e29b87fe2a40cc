# SPDX-License-Identifier: Apache-2.0
"""Lenses beyond OpenCV's k1, k2, p1, p2 and k3, of the strength that real ones have."""

from dataclasses import replace

import torch
from splat_scenes import POSE, STILL, Motion, make_camera_view, uniform
from torch import Tensor

from nurec_lite.geometry.camera import unproject
from nurec_lite.splat.views import CameraView

LENSES: dict[str, tuple[str, tuple[float, ...]]] = {
    "rational": ("pinhole", (0.3, 0.02, 0.001, -0.002, 0.01, 0.35, 0.05, 0.003)),
    "prism": ("pinhole", (0.3, 0.02, 0.001, -0.002, 0.01, 0.35, 0.05, 0.003, 2e-3, -1e-3, 3e-3, 5e-4)),
    "fisheye": ("fisheye", (0.02, -0.004, 0.0006, -0.00005)),
    "thin_prism_fisheye": ("fisheye", (0.02, -0.004, 0.0006, -0.00005, 1e-3, -2e-3, 1e-3, -1e-3)),
    "ftheta": ("ftheta", (0.01, -0.02, 0.003, 0.0005, 0.002, -0.003)),
}
ANGULAR = ("fisheye", "thin_prism_fisheye", "ftheta")


def lens_view(
    kind: str,  # of LENSES
    width: int = 33,
    height: int = 31,
    focal: float | None = None,  # pixels; None: 200 degrees from side to side, or 90 through a pinhole
    shutter: str = "global",
    motion: Motion = STILL,
    T_world_cam: Tensor = POSE,
) -> CameraView:
    model, numbers = LENSES[kind]
    focal = focal or (width / 3.5 if kind in ANGULAR else width / 2)
    view = make_camera_view(width, height, focal, shutter, motion, T_world_cam)
    return replace(view, camera=replace(view.camera, lens=model, distortion=numbers))


def seen_through(view: CameraView, n: int, low: float, high: float) -> Tensor:
    """[n, 3] points in the camera's frame whose images lie in the image, `low` to `high` metres away."""
    camera = view.camera
    pixels = torch.rand(n, 2, dtype=torch.float64) * torch.tensor([camera.width, camera.height])
    return uniform(low, high, n, 1) * unproject(camera, pixels)
