# SPDX-License-Identifier: Apache-2.0
"""Pinhole camera with OpenCV's radial and tangential distortion and a rolling shutter.

Camera frame: x right, y down, z forward; the centre of the first pixel is at (0.5, 0.5).
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

SHUTTERS = ("global", "top_to_bottom", "bottom_to_top", "left_to_right", "right_to_left")


@dataclass(frozen=True)
class Camera:
    """Intrinsics and mounting of one camera. A frame's start and end are the times of its first and its last row (or column)."""

    name: str
    width: int  # pixels
    height: int  # pixels
    fx: float  # pixels
    fy: float
    cx: float
    cy: float
    T_rig_cam: Tensor  # [4, 4] float64
    distortion: tuple[float, ...] = ()  # OpenCV's k1, k2, p1, p2, k3; empty for a rectified image
    shutter: str = "global"  # one of SHUTTERS: the edge that is read first and the one that is read last

    def __post_init__(self) -> None:
        if self.shutter not in SHUTTERS:
            raise ValueError(
                f"camera {self.name}: shutter is '{self.shutter}', but must be one of {', '.join(SHUTTERS)}"
            )
        if len(self.distortion) not in (0, 5):
            raise ValueError(
                f"camera {self.name}: distortion has {len(self.distortion)} coefficients, but must have 0 or 5"
            )

    def downscaled(self, factor: int) -> "Camera":
        """The camera of an image reduced by averaging blocks of factor x factor pixels (a remainder at the edge is cut off)."""
        return replace(
            self, width=self.width // factor, height=self.height // factor,
            fx=self.fx / factor, fy=self.fy / factor, cx=self.cx / factor, cy=self.cy / factor,
        )  # fmt: skip


def distort(
    camera: Camera,
    xy: Tensor,  # [..., 2] x / z, y / z
) -> Tensor:  # [..., 2]
    """OpenCV's model: radial 1 + k1 r2 + k2 r4 + k3 r6 and tangential p1, p2."""
    if not camera.distortion:
        return xy
    k1, k2, p1, p2, k3 = camera.distortion
    x, y = xy.unbind(-1)
    r2 = x * x + y * y
    radial = 1 + r2 * (k1 + r2 * (k2 + r2 * k3))
    dx = 2 * p1 * x * y + p2 * (r2 + 2 * x * x)
    dy = p1 * (r2 + 2 * y * y) + 2 * p2 * x * y
    return torch.stack([x * radial + dx, y * radial + dy], dim=-1)


def undistort(
    camera: Camera,
    xy: Tensor,  # [..., 2] distorted
) -> Tensor:  # [..., 2] such that distort(camera, result) = xy
    """Newton's method; 10 rounds reach rounding wherever the lens model still grows with the radius."""
    if not camera.distortion:
        return xy
    k1, k2, p1, p2, k3 = camera.distortion
    result = xy
    for _ in range(10):
        x, y = result.unbind(-1)
        r2 = x * x + y * y
        radial = 1 + r2 * (k1 + r2 * (k2 + r2 * k3))
        slope = 2 * (k1 + r2 * (2 * k2 + r2 * 3 * k3))
        a = radial + slope * x * x + 2 * p1 * y + 6 * p2 * x  # Jacobian [[a, b], [b, c]]
        b = slope * x * y + 2 * p1 * x + 2 * p2 * y
        c = radial + slope * y * y + 6 * p1 * y + 2 * p2 * x
        u, v = (xy - distort(camera, result)).unbind(-1)
        result = result + torch.stack([c * u - b * v, a * v - b * u], dim=-1) / (a * c - b * b)[..., None]
    return result


def project_points(
    camera: Camera,
    points: Tensor,  # [..., 3] metres, camera frame
) -> tuple[Tensor, Tensor]:  # pixels [..., 2], depth z [...] in metres (pixels mean nothing where it is not positive)
    z = points[..., 2]
    safe = torch.where(z.abs() < 1e-6, torch.full_like(z, 1e-6), z)
    xy = distort(camera, points[..., :2] / safe[..., None])
    u, v = xy.unbind(-1)
    return torch.stack([u * camera.fx + camera.cx, v * camera.fy + camera.cy], dim=-1), z


@lru_cache(maxsize=32)
def pixel_directions(
    camera: Camera,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Tensor:  # [H, W, 3] unit, camera frame, through the pixel centres
    """Made once for each camera and kept: nothing may be written into the result."""
    u, v = _pixel_centres(camera).unbind(-1)
    xy = undistort(camera, torch.stack([(u - camera.cx) / camera.fx, (v - camera.cy) / camera.fy], dim=-1))
    directions = F.normalize(torch.cat([xy, torch.ones_like(xy[..., :1])], dim=-1), dim=-1)
    return directions.to(device=device, dtype=dtype)


@lru_cache(maxsize=32)
def pixel_fractions(
    camera: Camera,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Tensor:  # [H, W]
    """Time of each pixel as `shutter_fraction` gives it; made once and kept."""
    return shutter_fraction(camera, _pixel_centres(camera)).to(device=device, dtype=dtype)


def _pixel_centres(camera: Camera) -> Tensor:  # [H, W, 2] float64
    v, u = torch.meshgrid(
        torch.arange(camera.height, dtype=torch.float64) + 0.5,
        torch.arange(camera.width, dtype=torch.float64) + 0.5,
        indexing="ij",
    )
    return torch.stack([u, v], dim=-1)


def shutter_fraction(
    camera: Camera,
    pixels: Tensor,  # [..., 2]
) -> (
    Tensor
):  # [...] 0 at the first row's (or column's) centre, 1 at the last one's; 0.5 throughout for a global shutter
    """Time of a pixel as a fraction of the readout; not clamped, so that points outside the image move on steadily."""
    u, v = pixels.unbind(-1)
    if camera.shutter == "global":
        return torch.full_like(u, 0.5)
    along, size = (v, camera.height) if camera.shutter in ("top_to_bottom", "bottom_to_top") else (u, camera.width)
    fraction = (along - 0.5) / max(size - 1, 1)
    return fraction if camera.shutter in ("top_to_bottom", "left_to_right") else 1 - fraction
