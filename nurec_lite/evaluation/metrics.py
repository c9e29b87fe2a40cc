# SPDX-License-Identifier: Apache-2.0
"""Metrics of held-out images and sweeps; results are named as in `metrics.json`."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nurec_lite.base.left_out import LeftOut
from nurec_lite.capture.deskew import project_world_points
from nurec_lite.capture.types import Capture, ImageFrame
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lidar import Sweep
from nurec_lite.geometry.se3 import quat_rotate
from nurec_lite.geometry.tracks import Tracks, interpolate
from nurec_lite.splat.render import LidarReturns
from nurec_lite.training.losses import ssim

MOVING_M = 2.0  # a track moves if two of its keyframes lie at least this far apart
ACTOR_DEPTH_M = 0.5  # every corner of a measured box lies at least this far in front of the camera
ACTOR_PIXELS = 64  # a smaller crop is not measured
NEVER_CROSSED_M = 80.0  # the range that a ray gets in which the transmittance never crosses 0.5
_MSE_FLOOR = 1e-10  # equal images have 100 dB, so that means stay finite


def as_unit(
    image: Tensor,  # [H, W, 3] uint8, or floating point
) -> Tensor:  # [H, W, 3] float32, 0 to 1
    return image.float() / 255 if image.dtype == torch.uint8 else image.float().clamp(0, 1)


def psnr(
    rendered: Tensor,  # [..., 3] clipped to 0..1
    target: Tensor,  # [..., 3] uint8 or 0 to 1
) -> float:  # decibel
    """-10 log10 of the mean squared error over pixels and channels."""
    return _decibel(float((as_unit(rendered.detach()) - as_unit(target)).double().square().mean()))


def _decibel(mse: float) -> float:
    return -10 * math.log10(max(mse, _MSE_FLOOR))


class ImageMetrics:
    """PSNR and SSIM (means over images), and PSNR inside the boxes of moving actors."""

    def __init__(self, left_out: LeftOut | None = None) -> None:
        self._left_out = left_out or LeftOut()
        self._psnr: list[float] = []
        self._ssim: list[float] = []
        self._actors: dict[str, tuple[float, int]] = {}  # id -> sum of squared errors, number of values

    def add(
        self,
        rendered: Tensor,  # [H, W, 3], exposure applied; clipped to 0..1
        target: Tensor,  # [H, W, 3] uint8 or 0 to 1
        capture: Capture,  # whose tracks tell where actors are
        frame: ImageFrame,  # by a camera of that size
    ) -> tuple[float, float]:  # PSNR in decibel and SSIM of this image
        rendered, target = as_unit(rendered.detach()), as_unit(target.to(rendered.device))
        decibel = psnr(rendered, target)
        self._psnr.append(decibel)
        structure = self._left_out.tried("SSIM", lambda: float(ssim(rendered, target)))
        self._ssim += [] if structure is None else [structure]
        squared = (rendered - target).double().square()
        self._left_out.tried("PSNR of moving actors", lambda: self._add_actors(squared, capture, frame))
        return decibel, math.nan if structure is None else structure

    def _add_actors(
        self,
        squared: Tensor,  # [H, W, 3] errors
        capture: Capture,
        frame: ImageFrame,
    ) -> None:
        for name, (rows, columns) in actor_crops(capture.tracks, capture.camera(frame.sensor), frame).items():
            total, count = self._actors.get(name, (0.0, 0))
            crop = squared[rows, columns]
            self._actors[name] = (total + float(crop.sum()), count + crop.numel())

    def summary(self) -> dict[str, Any]:
        """`psnr`, `ssim`: means over images. `psnr_per_actor`: of the squared errors of all crops of an actor together;
        `psnr_actors`: their mean over actors. A mean of nothing is NaN."""
        per_actor = {name: _decibel(total / count) for name, (total, count) in self._actors.items()}
        return {
            "psnr": _mean(self._psnr),
            "ssim": _mean(self._ssim),
            "psnr_actors": _mean(list(per_actor.values())),
            "psnr_per_actor": per_actor,
        }


def moving_tracks(tracks: Tracks) -> list[int]:
    """Numbers of the tracks with two keyframes at least MOVING_M apart."""
    keys = [
        tracks.translations[a:b].detach().double() for a, b in zip(tracks.offsets[:-1], tracks.offsets[1:], strict=True)
    ]
    return [k for k, points in enumerate(keys) if float(torch.cdist(points, points).max()) >= MOVING_M]


def actor_crops(
    tracks: Tracks,
    camera: Camera,
    frame: ImageFrame,
) -> dict[str, tuple[slice, slice]]:  # track id -> rows and columns
    """Bounding rectangles, in the image, of the boxes of moving actors at its mid time. Actors behind others count too."""
    moving = moving_tracks(tracks)
    corners, valid = box_corners(tracks, frame.time_mid)
    crops = {}
    for k in (k for k in moving if valid[k]):
        pixels, depth = project_world_points(camera, frame, corners[k])
        columns, rows = (_span(pixels[:, axis], size) for axis, size in enumerate((camera.width, camera.height)))
        area = max(0, rows.stop - rows.start) * max(0, columns.stop - columns.start)
        if bool((depth > ACTOR_DEPTH_M).all()) and area >= ACTOR_PIXELS:
            crops[tracks.ids[k]] = (rows, columns)
    return crops


def _span(
    along: Tensor,  # [8] pixels along one axis
    size: int,
) -> slice:  # of the pixels whose centres lie between the outermost; empty if stop <= start
    low, high = float(along.min()), float(along.max())
    return slice(math.ceil(max(low, 0) - 0.5), math.floor(min(high, size) - 0.5) + 1)


def box_corners(
    tracks: Tracks,
    time: float,  # seconds
) -> tuple[Tensor, Tensor]:  # corners [K, 8, 3] in metres, world, float64, and which tracks exist [K] bool
    poses = interpolate(tracks, tracks.times.new_tensor([time]))
    sign = tracks.sizes.new_tensor([-0.5, 0.5]).double()
    corners = torch.cartesian_prod(sign, sign, sign) * tracks.sizes.double()[:, None]
    turned = quat_rotate(poses.quaternions[0].detach().double()[:, None], corners)
    return turned + poses.translations[0].detach().double()[:, None], poses.valid[0]


class LidarMetrics:
    """Range, opacity, intensity, ray drop and Chamfer distance over all rays of the sweeps that were added."""

    def __init__(self, left_out: LeftOut | None = None) -> None:
        self._left_out = left_out or LeftOut()
        self._absolute: list[np.ndarray] = []  # [rays that returned] metres, a sweep; kept for the median
        self._opaque, self._intensity, self._drop = _Mean(), _Mean(), _Mean()
        self._chamfer: list[float] = []  # metres, a sweep

    def add(
        self,
        returns: LidarReturns,  # of R rays
        sweep: Sweep,  # the same rays
    ) -> None:
        hit = _numpy(sweep.returned)
        median, drop, ranges = _numpy(returns.median), _numpy(returns.drop), _numpy(sweep.ranges)
        self._absolute.append(np.abs(np.where(median > 0, median, NEVER_CROSSED_M) - ranges)[hit].astype(np.float32))
        self._opaque.add(_numpy(returns.opacity)[hit] >= 0.5)
        self._intensity.add((_numpy(returns.intensity) - _numpy(sweep.intensities))[hit].astype(np.float64) ** 2)
        self._drop.add((drop > 0.5) == ~hit)
        seen = (drop <= 0.5) & (median > 0)
        if hit.any():
            directions = _numpy(sweep.directions)
            predicted, measured = (median[:, None] * directions)[seen], (ranges[:, None] * directions)[hit]
            found = self._left_out.tried("The Chamfer distance", lambda: chamfer(predicted, measured))
            self._chamfer += [] if found is None else [found]

    def summary(self) -> dict[str, float]:
        """`lidar_median_abs_m`, `lidar_mean_abs_m`, `lidar_median_sq_m2`: errors of the rendered median range over all rays that
        returned (rays that never cross 0.5 count as 80 m; the median of an even number is the mean of the middle two).
        `lidar_opacity_half`: share of these rays with an opacity of at least 0.5. `intensity_rmse`: over these rays.
        `drop_accuracy`: share of all rays with (drop > 0.5) == not returned. `chamfer_m`: see `chamfer`; mean over sweeps.
        What nothing was measured for is NaN."""
        absolute = _joined(self._absolute).astype(np.float64)
        return {
            "lidar_median_abs_m": float(np.median(absolute)) if len(absolute) else math.nan,
            "lidar_mean_abs_m": _mean(absolute),
            "lidar_median_sq_m2": float(np.median(absolute**2)) if len(absolute) else math.nan,
            "lidar_opacity_half": self._opaque.value,
            "intensity_rmse": math.sqrt(self._intensity.value),
            "drop_accuracy": self._drop.value,
            "chamfer_m": _mean(self._chamfer),
        }


class _Mean:
    """Mean of values that come in parts; NaN where there are none."""

    def __init__(self) -> None:
        self._total, self._count = 0.0, 0

    def add(self, values: np.ndarray) -> None:
        self._total, self._count = self._total + float(values.sum()), self._count + len(values)

    @property
    def value(self) -> float:
        return self._total / self._count if self._count else math.nan


def chamfer(
    predicted: np.ndarray,  # [n, 3] metres
    measured: np.ndarray,  # [m, 3] metres, m > 0
) -> float:  # metres; infinite if nothing is predicted
    """Mean distance of a predicted point to the nearest measured one plus that of a measured point to the nearest predicted one.

    Of a sweep: the points, in the lidar's frame, of rays predicted to return (drop <= 0.5 and the transmittance crosses 0.5)
    against those of rays that did. Papers differ: some square the distances, some halve the sum, some cut off far points.
    """
    if len(predicted) == 0:
        return math.inf
    from scipy.spatial import cKDTree  # 0.3 s, which a start does without

    there = cKDTree(measured).query(predicted, workers=-1)[0].mean()
    back = cKDTree(predicted).query(measured, workers=-1)[0].mean()
    return float(there + back)


def to_json(value: Any) -> Any:
    """NaN and infinity, which JSON lacks, become None; in dictionaries and lists of any depth."""
    if isinstance(value, dict):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _mean(values: "list[float] | np.ndarray") -> float:
    return float(np.mean(values)) if len(values) else math.nan


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts) if parts else np.zeros(0)


def _numpy(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()
