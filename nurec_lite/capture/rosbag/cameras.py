# SPDX-License-Identifier: Apache-2.0
"""Cameras of a recording: CameraInfo, or the mapping's values, as the renderer's camera. Lenses stay as they are."""

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from nurec_lite.capture.rosbag.mapping import MODELS, CameraEntry, Intrinsics
from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.camera import Camera

HALF = 0.5  # pixels: ROS counts pixel centres from 0, here they lie at 0.5
_ALIASES = {"fisheye": "equidistant", "": "plumb_bob", "radtan": "plumb_bob", "plumb bob": "plumb_bob"}
_COUNTS = {
    "plumb_bob": 12,
    "rational_polynomial": 12,
    "equidistant": 4,
}  # coefficients at most: some drivers call all plumb_bob
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
    if not (cx > 0 and cy > 0) or not all(map(math.isfinite, (fx, fy, cx, cy, *D))):
        raise CaptureError(
            f"{where} has no calibration (its centre is {cx:g}, {cy:g}, its coefficients are {', '.join(f'{v:g}' for v in D) or 'none'}); "
            f"give cameras.{entry.name}.intrinsics"
        )
    if model not in MODELS:
        raise CaptureError(
            f"{where} has the distortion model '{model}', but the models that are read are {', '.join(MODELS)}; rectify the images"
        )
    across, down = max(1, int(info.binning_x)), max(1, int(info.binning_y))
    roi = info.roi
    width, height = (roi.width, roi.height) if roi.width and roi.height else (info.width, info.height)
    if not (width and height):
        raise CaptureError(f"{where} has no size (it is {width}x{height} pixels); give cameras.{entry.name}.intrinsics")
    left, top = (roi.x_offset, roi.y_offset) if roi.width and roi.height else (0, 0)
    return Intrinsics(
        int(width) // across, int(height) // down, fx / across, fy / down,
        (cx - left + HALF) / across - HALF, (cy - top + HALF) / down - HALF, model, tuple(D),
    )  # fmt: skip


def lens_of(known: Intrinsics, where: str) -> Intrinsics:
    """Intrinsics with as many coefficients as the renderer's lenses have: 0, 5, 8 or 12 of a pinhole, 4 of equidistant."""
    D, count = known.distortion, _COUNTS[known.model]
    if any(D[count:]):
        raise CaptureError(f"{where} has {len(D)} coefficients, but {known.model} has {count}; rectify the images")
    D = (*D, *[0.0] * count)[:count]
    if known.model != "equidistant":
        D = (*D, *[0.0] * 12)[: 12 if any(D[8:]) else 8 if any(D[5:]) else 5 if any(D) else 0]
    return replace(known, distortion=D)


def camera_of(entry: CameraEntry, lens: Intrinsics, T_rig_frame: Tensor) -> Camera:  # [4, 4]
    return Camera(
        entry.name, lens.width, lens.height, lens.fx, lens.fy, lens.cx + HALF, lens.cy + HALF,
        T_rig_cam=optical(entry, T_rig_frame), distortion=lens.distortion, shutter=entry.shutter,
        lens="fisheye" if lens.model == "equidistant" else "pinhole",
    )  # fmt: skip


def optical(entry: CameraEntry, T_rig_frame: Tensor) -> Tensor:  # [4, 4] T_rig_cam, z ahead
    axes_of_body = float(T_rig_frame[2, 2]) > _UP if entry.optical is None else not entry.optical
    return T_rig_frame @ BODY_OPTICAL if axes_of_body else T_rig_frame
