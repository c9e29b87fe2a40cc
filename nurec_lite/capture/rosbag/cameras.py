# SPDX-License-Identifier: Apache-2.0
"""Cameras of a recording: CameraInfo, or what the mapping says, as the renderer's camera.

The renderer knows OpenCV's radial and tangential distortion (plumb_bob). Images of other lenses are resampled to a pinhole.
"""

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.capture.rosbag.mapping import MODELS, CameraEntry, Intrinsics
from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.camera import Camera

HALF = 0.5  # pixels: ROS counts pixel centres from 0, here they lie at 0.5
_ALIASES = {"fisheye": "equidistant", "": "plumb_bob", "radtan": "plumb_bob", "plumb bob": "plumb_bob"}
_WIDER = 1.05  # by which the focal length of a resampled image grows until it shows nothing beyond the image
_WIDEST = 4.0  # at most
# from the camera's optical axes (right, down, ahead) to those of a vehicle (ahead, left, up)
BODY_OPTICAL = torch.tensor([[0, 0, 1, 0], [-1, 0, 0, 0], [0, -1, 0, 0], [0, 0, 0, 1]], dtype=torch.float64)
_UP = 0.7  # cosine: the z axis of a camera points up, so its frame has the axes of a vehicle


def intrinsics_of(info: Any, entry: CameraEntry, where: str) -> Intrinsics:
    """Intrinsics of CameraInfo; CaptureError where the camera is not calibrated or its lens is unknown."""
    K, P, D = ([float(v) for v in getattr(info, key, getattr(info, key.upper(), []))] for key in "kpd")
    model = _ALIASES.get(info.distortion_model.lower(), info.distortion_model.lower())
    fx, fy, cx, cy = (P[0], P[5], P[2], P[6]) if entry.rectified else (K[0], K[4], K[2], K[5])
    if not (fx > 0 and fy > 0):
        raise CaptureError(
            f"{where} has no calibration (its focal length is {fx:g}); give cameras.{entry.name}.intrinsics"
        )
    if entry.rectified:
        model, D = "plumb_bob", []
    if model not in MODELS:
        raise CaptureError(
            f"{where} has the distortion model '{model}', but the models that are read are {', '.join(MODELS)}; rectify the images"
        )
    across, down = max(1, int(info.binning_x)), max(1, int(info.binning_y))
    roi = info.roi
    width, height = (roi.width, roi.height) if roi.width and roi.height else (info.width, info.height)
    left, top = (roi.x_offset, roi.y_offset) if roi.width and roi.height else (0, 0)
    return Intrinsics(
        int(width) // across, int(height) // down, fx / across, fy / down,
        (cx - left + HALF) / across - HALF, (cy - top + HALF) / down - HALF, model, tuple(D),
    )  # fmt: skip


def lens_of(known: Intrinsics, where: str) -> Intrinsics:
    """Intrinsics with all coefficients of the model. A rational polynomial without a denominator is plumb_bob."""
    D = known.distortion
    if known.model != "equidistant":
        if any(D[8:]):
            raise CaptureError(
                f"{where} has a thin prism (coefficients beyond the eighth), which is not read; rectify the images"
            )
        D = (*D, *[0.0] * 8)[:8]
        model = "rational_polynomial" if any(D[5:]) else "plumb_bob"
        return _with(known, model, () if not any(D) else D if model == "rational_polynomial" else D[:5])
    if len(D) > 4 and any(D[4:]):
        raise CaptureError(f"{where} has {len(D)} coefficients, but equidistant has 4; rectify the images")
    return _with(known, "equidistant", (*D, *[0.0] * 4)[:4])


def _with(known: Intrinsics, model: str, distortion: tuple[float, ...]) -> Intrinsics:
    return Intrinsics(known.width, known.height, known.fx, known.fy, known.cx, known.cy, model, distortion)


def is_plain(lens: Intrinsics) -> bool:
    """Whether the renderer knows the lens."""
    return lens.model == "plumb_bob"


def camera_of(entry: CameraEntry, lens: Intrinsics, T_rig_frame: Tensor) -> Camera:
    zoom = 1.0 if is_plain(lens) else zoom_of(lens)
    return Camera(
        entry.name, lens.width, lens.height, zoom * lens.fx, zoom * lens.fy, lens.cx + HALF, lens.cy + HALF,
        T_rig_cam=optical(entry, T_rig_frame), distortion=lens.distortion if is_plain(lens) else (), shutter=entry.shutter,
    )  # fmt: skip


def optical(entry: CameraEntry, T_rig_frame: Tensor) -> Tensor:  # [4, 4] T_rig_cam, z ahead
    axes_of_body = float(T_rig_frame[2, 2]) > _UP if entry.optical is None else not entry.optical
    return T_rig_frame @ BODY_OPTICAL if axes_of_body else T_rig_frame


# ---- lenses that the renderer does not know


def distorted(
    lens: Intrinsics,
    xy: Tensor,  # [..., 2] x / z, y / z
) -> Tensor:  # [..., 2], by the model's own formula
    D, r2 = lens.distortion, xy.square().sum(-1, keepdim=True)
    if lens.model == "equidistant":
        r = r2.sqrt().clamp(min=1e-12)
        theta = torch.atan(r)
        t2 = theta.square()
        return xy * theta * (1 + t2 * (D[0] + t2 * (D[1] + t2 * (D[2] + t2 * D[3])))) / r
    k1, k2, p1, p2, k3, k4, k5, k6 = D
    radial = (1 + r2 * (k1 + r2 * (k2 + r2 * k3))) / (1 + r2 * (k4 + r2 * (k5 + r2 * k6)))
    x, y = xy[..., :1], xy[..., 1:]
    tangential = torch.cat([2 * p1 * x * y + p2 * (r2 + 2 * x * x), p1 * (r2 + 2 * y * y) + 2 * p2 * x * y], dim=-1)
    return xy * radial + tangential


@lru_cache(maxsize=32)
def zoom_of(lens: Intrinsics) -> float:
    """Factor of the focal length with which a pinhole of the same size sees only what the image shows."""
    zoom = 1.0
    while zoom < _WIDEST and float(_grid(lens, zoom).abs().max()) > 1:
        zoom *= _WIDER
    return zoom


def _grid(lens: Intrinsics, zoom: float) -> Tensor:  # [H, W, 2] places in the image, its edges at +-1
    v, u = torch.meshgrid(
        torch.arange(lens.height, dtype=torch.float64), torch.arange(lens.width, dtype=torch.float64), indexing="ij"
    )
    xy = torch.stack([(u - lens.cx) / (zoom * lens.fx), (v - lens.cy) / (zoom * lens.fy)], dim=-1)
    pixels = distorted(lens, xy) * torch.tensor([lens.fx, lens.fy]) + torch.tensor([lens.cx, lens.cy])
    return (2 * pixels + 1) / torch.tensor([lens.width, lens.height]) - 1


@lru_cache(maxsize=8)
def _grid_of(lens: Intrinsics) -> Tensor:  # [1, H, W, 2] float32
    return _grid(lens, zoom_of(lens)).float()[None]


def resampled(
    image: Tensor,  # [H, W, 3] uint8
    lens: Intrinsics,
) -> Tensor:  # [H, W, 3] uint8, as a pinhole of zoom_of times the focal length sees it
    values = image.permute(2, 0, 1)[None].float()
    found = F.grid_sample(values, _grid_of(lens), mode="bilinear", padding_mode="border", align_corners=False)
    return found[0].permute(1, 2, 0).round().clamp(0, 255).to(torch.uint8).contiguous()
