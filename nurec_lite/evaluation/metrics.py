# SPDX-License-Identifier: Apache-2.0
"""Metrics of held-out images and sweeps; results are named as in `metrics.json`."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from nurec_lite.base.left_out import LeftOut
from nurec_lite.capture.deskew import project_into_frames
from nurec_lite.capture.types import Capture, ImageFrame
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lidar import Sweep
from nurec_lite.geometry.masks import blackened, seen_mean
from nurec_lite.geometry.se3 import quat_rotate
from nurec_lite.geometry.tracks import Tracks, interpolate
from nurec_lite.scene.neighbours import nearest
from nurec_lite.splat.render import LidarReturns
from nurec_lite.training.losses import ssim, ssim_map

Crops = dict[str, tuple[slice, slice]]  # track id -> rows and columns
AT_ONCE = 64  # images whose places of actors are found at a time
MOVING_M = 2.0  # a track moves if two of its keyframes lie at least this far apart
ACTOR_DEPTH_M = 0.5  # every corner of a measured box lies at least this far in front of the camera
ACTOR_PIXELS = 64  # a smaller crop is not measured
NEVER_CROSSED_M = 80.0  # range of a ray whose transmittance never crosses 0.5
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
    return decibel(float((as_unit(rendered.detach()) - as_unit(target)).double().square().mean()))


def decibel(mse: float) -> float:
    return -10 * math.log10(max(mse, _MSE_FLOOR))


def seen_ssim(
    rendered: Tensor,  # [H, W, 3] 0 to 1
    target: Tensor,  # [H, W, 3] 0 to 1
    mask: Tensor | None,  # [H, W] bool, where the images are equal
) -> Tensor:  # [] mean over the windows about pixels that are not masked
    return ssim(rendered, target) if mask is None else seen_mean(ssim_map(rendered, target).movedim(0, -1), mask)


class ImageMetrics:
    """PSNR and SSIM (means over images), and PSNR inside the boxes of moving actors, all without masked pixels. Nothing waits for the
    device before `summary`."""

    def __init__(
        self,
        left_out: LeftOut | None = None,
        coming: Sequence[ImageFrame] = (),  # in their order: places of actors are found for many at a time
    ) -> None:
        self._left_out, self._coming = left_out or LeftOut(), coming
        self._images: list[Tensor] = []  # [2] float64: mean squared error and SSIM, NaN where it failed
        self._actors: dict[str, list[tuple[Tensor, int]]] = {}  # id -> sum of squared errors, number of values
        self._moving: tuple[Tracks, list[int]] | None = None
        self._crops: dict[str, dict[float, Crops]] = {}  # by sensor and time: those of its next frames

    def add(
        self,
        rendered: Tensor,  # [H, W, 3], exposure applied; clipped to 0..1
        target: Tensor,  # [H, W, 3] uint8 or 0 to 1
        capture: Capture,  # its tracks say where actors are
        frame: ImageFrame,  # by a camera of that size
    ) -> Tensor:  # [2] float64, on the render's device: mean squared error and SSIM of this image
        mask = capture.camera(frame.sensor).mask
        rendered, target = (blackened(as_unit(x), mask) for x in (rendered.detach(), target.to(rendered.device)))
        squared = (rendered - target).double().square()
        structure = self._left_out.tried("SSIM", lambda: seen_ssim(rendered, target, mask).double())
        structure = squared.new_tensor(math.nan) if structure is None else structure
        self._images.append(torch.stack([seen_mean(squared, mask), structure]))
        self._left_out.tried("PSNR of moving actors", lambda: self._add_actors(squared, capture, frame))
        return self._images[-1]

    def _add_actors(
        self,
        squared: Tensor,  # [H, W, 3] errors
        capture: Capture,
        frame: ImageFrame,
    ) -> None:
        camera = capture.camera(frame.sensor)
        for name, (rows, columns) in self._crops_in(capture, camera, frame).items():
            crop = squared[rows, columns]
            masked = 0 if camera.mask is None else 3 * int(camera.mask[rows, columns].sum())
            if masked < crop.numel():
                self._actors.setdefault(name, []).append((crop.sum(), crop.numel() - masked))

    def _crops_in(self, capture: Capture, camera: Camera, frame: ImageFrame) -> Crops:
        """Crops of the frame, found together with those of the next frames of its sensor."""
        known = self._crops.get(frame.sensor, {})
        if frame.time_mid in known:
            return known[frame.time_mid]
        tracks = capture.tracks
        if self._moving is None or self._moving[0] is not tracks:
            self._moving = tracks, moving_tracks(tracks)
        of = [f for f in self._coming if f.sensor == frame.sensor]
        some = next((of[i : i + AT_ONCE] for i, f in enumerate(of) if f is frame), [frame])
        found = actor_crops(tracks, camera, some, self._moving[1])
        if len(some) > 1:
            self._crops[frame.sensor] = dict(zip((f.time_mid for f in some), found, strict=True))
        return found[0]

    def summary(self) -> dict[str, Any]:
        """`psnr`, `ssim`: means over images. `psnr_per_actor`: of the squared errors of all crops of an actor together;
        `psnr_actors`: their mean over actors. A mean of nothing is NaN."""
        errors, structures = zip(*torch.stack(self._images).tolist(), strict=True) if self._images else ((), ())
        per_actor = {name: decibel(_pooled(crops)) for name, crops in self._actors.items()}
        return {
            "psnr": _mean([decibel(mse) for mse in errors]),
            "ssim": _mean([value for value in structures if not math.isnan(value)]),
            "psnr_actors": _mean(list(per_actor.values())),
            "psnr_per_actor": per_actor,
        }


def _pooled(crops: list[tuple[Tensor, int]]) -> float:
    """Mean of all values of some crops."""
    return float(torch.stack([total for total, _ in crops]).sum()) / sum(count for _, count in crops)


def moving_tracks(tracks: Tracks) -> list[int]:
    """Numbers of the tracks with two keyframes at least MOVING_M apart."""
    keys = [
        tracks.translations[a:b].detach().double() for a, b in zip(tracks.offsets[:-1], tracks.offsets[1:], strict=True)
    ]
    return [k for k, points in enumerate(keys) if float(torch.cdist(points, points).max()) >= MOVING_M]


def actor_crops(
    tracks: Tracks,
    camera: Camera,
    frames: Sequence[ImageFrame],  # F of this camera
    moving: list[int],  # the tracks that move
) -> list[Crops]:  # of each frame
    """Bounding rectangles, in the images, of the boxes of moving actors at the mid times. Actors behind others count too."""
    if not moving:
        return [{} for _ in frames]
    corners, valid = (found[:, moving] for found in box_corners(tracks, [frame.time_mid for frame in frames]))
    given = corners.flatten(1, 2) if len(frames) > 1 else corners.flatten(0, 2)
    places, depths = project_into_frames(camera, frames, given)
    size, places = places.new_tensor([camera.width, camera.height]), places.view(*valid.shape, 8, 2)
    first = (places.amin(2).clamp(min=0) - 0.5).ceil()  # of the pixels with centres between the outermost corners
    last = (torch.minimum(places.amax(2), size) - 0.5).floor() + 1
    shown = valid & (depths.view(*valid.shape, 8) > ACTOR_DEPTH_M).all(2)
    shown &= (last - first).clamp(min=0).prod(2) >= ACTOR_PIXELS
    crops: list[Crops] = [{} for _ in frames]
    for f, k in shown.nonzero().tolist():
        (left, top), (right, bottom) = first[f, k].long().tolist(), last[f, k].long().tolist()
        crops[f][tracks.ids[moving[k]]] = slice(top, bottom), slice(left, right)
    return crops


def box_corners(
    tracks: Tracks,
    times: Sequence[float],  # Q, seconds
) -> tuple[Tensor, Tensor]:  # corners [Q, K, 8, 3] in metres, world, float64, and which tracks exist [Q, K] bool
    poses = interpolate(tracks, tracks.times.new_tensor(times))
    sign = tracks.sizes.new_tensor([-0.5, 0.5]).double()
    corners = torch.cartesian_prod(sign, sign, sign) * tracks.sizes.double()[:, None]
    turned = quat_rotate(poses.quaternions.detach().double()[:, :, None], corners)
    return turned + poses.translations.detach().double()[:, :, None], poses.valid


class LidarMetrics:
    """Range, opacity, intensity, ray drop and Chamfer distance over all rays of the sweeps that were added."""

    def __init__(self, left_out: LeftOut | None = None) -> None:
        self._left_out = left_out or LeftOut()
        self._absolute: list[Tensor] = []  # [rays that returned] metres, a sweep; kept for the median
        self._opaque, self._intensity, self._drop = _Mean(), _Mean(), _Mean()
        self._chamfer: list[Tensor] = []  # [] metres, a sweep

    def add(
        self,
        returns: LidarReturns,  # of R rays
        sweep: Sweep,  # the same rays, on the same device
    ) -> Tensor:  # [] metres, float64: median range error of this sweep, NaN if nothing returned
        hit, (intensity, drop) = sweep.returned, (values.detach() for values in returns.values())
        median, opacity = returns.median.detach(), returns.opacity.detach()
        self._absolute.append(range_errors(median, sweep.ranges)[hit])
        self._opaque.add((opacity >= 0.5)[hit])
        self._intensity.add((intensity - sweep.intensities)[hit].double().square())
        self._drop.add((drop > 0.5) == ~hit)
        seen = (drop <= 0.5) & (median > 0)
        if len(self._absolute[-1]):
            predicted = (median[:, None] * sweep.directions)[seen]
            measured = (sweep.ranges[:, None] * sweep.directions)[hit]
            found = self._left_out.tried("The Chamfer distance", lambda: chamfer(predicted, measured))
            self._chamfer += [] if found is None else [found]
        return middle(self._absolute[-1]).mean()

    def summary(self) -> dict[str, float]:
        """`lidar_median_abs_m`, `lidar_mean_abs_m`, `lidar_median_sq_m2`: errors of the rendered median range over all rays that
        returned (rays that never cross 0.5 count as 80 m; the median of an even number is the mean of the middle two).
        `lidar_opacity_half`: share of these rays with an opacity of at least 0.5. `intensity_rmse`: over these rays.
        `drop_accuracy`: share of all rays with (drop > 0.5) == not returned. `chamfer_m`: see `chamfer`; mean over sweeps.
        A figure without measurements is NaN."""
        absolute = torch.cat(self._absolute) if self._absolute else torch.zeros(0)
        low, high = middle(absolute).tolist()
        return {
            "lidar_median_abs_m": (low + high) / 2,
            "lidar_mean_abs_m": float(absolute.double().mean()),
            "lidar_median_sq_m2": (low**2 + high**2) / 2,
            "lidar_opacity_half": self._opaque.value,
            "intensity_rmse": math.sqrt(self._intensity.value),
            "drop_accuracy": self._drop.value,
            "chamfer_m": _mean(torch.stack(self._chamfer).tolist()) if self._chamfer else math.nan,
        }


class _Mean:
    """Mean of values that come in parts; NaN where there are none."""

    def __init__(self) -> None:
        self._totals: list[Tensor] = []
        self._count = 0

    def add(self, values: Tensor) -> None:  # [n]
        self._totals.append(values.sum(dtype=torch.float64))
        self._count += len(values)

    @property
    def value(self) -> float:
        return float(torch.stack(self._totals).sum()) / self._count if self._count else math.nan


def range_errors(
    median: Tensor,  # [R] metres, rendered; 0 for rays that never cross 0.5, which count as 80 m
    ranges: Tensor,  # [R] metres, measured
) -> Tensor:  # [R] metres
    return (torch.where(median > 0, median, NEVER_CROSSED_M) - ranges).abs()


def middle(
    values: Tensor,  # [n]
) -> Tensor:  # [2] float64, the same twice if n is odd: their mean is the median; NaN if there are none
    n = len(values)
    if n == 0:
        return values.new_full((2,), math.nan, dtype=torch.float64)
    ranks = (n + 1) // 2, n // 2 + 1
    if values.is_cuda:  # where one block of threads would look for a rank
        ordered = values.sort().values
        return torch.stack([ordered[k - 1] for k in ranks]).double()
    low, high = (values.kthvalue(k).values for k in ranks)
    return torch.stack([low, high]).double()


def chamfer(
    predicted: Tensor,  # [n, 3] metres
    measured: Tensor,  # [m, 3] metres, m > 0
) -> Tensor:  # [] metres, float64; infinite if nothing is predicted
    """Mean distance of a predicted point to the nearest measured one plus that of a measured point to the nearest predicted one.

    Of a sweep: the points, in the lidar's frame, of rays predicted to return (drop <= 0.5 and the transmittance crosses 0.5)
    against those of rays that did. Papers differ: some square the distances, some halve the sum, some cut off far points.
    """
    if len(predicted) == 0:
        return measured.new_tensor(math.inf, dtype=torch.float64)
    a, b = predicted.double(), measured.double()
    return nearest(a, b, 1)[0].mean() + nearest(b, a, 1)[0].mean()


def to_json(value: Any) -> Any:
    """NaN and infinity, which JSON lacks, become None; in dictionaries and lists of any depth."""
    if isinstance(value, dict):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if len(values) else math.nan
