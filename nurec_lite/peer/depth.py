# SPDX-License-Identifier: Apache-2.0
"""Lidar returns as depths in an image: a substitute for rendered rays if the renderer draws images alone (render=gsplat).

A return, placed in the world at its own ray's time, is projected into the images of the same moment; the expected depth of the
pixel it falls on is compared with its own. The motion of actors between both times is neglected, and a point that is hidden from the
camera counts like any other: weaknesses of this kind of supervision, which its users accept.
Letters: R lidar rays; M of them ended inside an image.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nurec_lite.base.errors import ConfigError
from nurec_lite.capture.types import Capture, SweepFrame
from nurec_lite.geometry.camera import pixel_directions, project_points
from nurec_lite.geometry.lidar import Sweep
from nurec_lite.geometry.masks import at_pixels
from nurec_lite.geometry.se3 import transform
from nurec_lite.peer import rasterize
from nurec_lite.splat.project import NEAR
from nurec_lite.splat.render import CameraImage
from nurec_lite.splat.views import CameraView, LidarView, lidar_view
from nurec_lite.training import baseline
from nurec_lite.training.shots import ImageShot, Shots
from nurec_lite.training.stages import PEER, Stages
from nurec_lite.training.state import Rendered, TrainState
from nurec_lite.training.step import mean

_NO_OPACITY = 1e-10  # below it a pixel has no depth: gsplat's bound


def peer_stages(
    base: Stages,  # in plain torch
    ops: str,
    device: torch.device,
) -> Stages:
    """Images by gsplat, lidar as their depth; all other stages are the baseline's."""
    if ops == "reference":
        raise ConfigError("render=gsplat has no plain torch reference; leave ops=native, or use render=own")
    return stages_of(base, rasterize.load_peer(device))


def stages_of(base: Stages, peer: rasterize.Peer) -> Stages:
    return base.swap(
        PEER,
        project=rasterize.project,
        tile=rasterize.tile,
        render_camera=partial(rasterize.render_camera, peer=peer),
        render_lidar=rasterize.render_lidar,
        terms=DepthLoss(),
    )


@dataclass(frozen=True)
class ImagedReturns:
    """M returns of lidar rays as a camera sees them."""

    pixels: Tensor  # [M] int64, row by row
    depths: Tensor  # [M] z in metres

    def errors(self, image: CameraImage, view: CameraView) -> Tensor:  # [M] metres
        return (expected_depth(image, view).flatten().index_select(0, self.pixels) - self.depths).abs()


class DepthLoss:
    """The baseline's loss, and returns as depths of the images' pixels. Where they fall is found once an image and kept on the device,
    so that no sweep has to be loaded again."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, str], ImagedReturns | None] = {}  # by the image's index and the kind of its view

    def __call__(self, stages: Stages, state: TrainState, shots: Shots, rendered: Rendered) -> dict[str, Tensor]:
        terms = baseline.terms(stages, state, shots, rendered)
        stages.streams.join()
        pairs = zip(shots.images, rendered.images, strict=True)
        errors = [error for shot, image in pairs if (error := self._error(state, shot, image)) is not None]
        if errors:
            terms["range"] = mean(errors)
        return terms

    def _error(self, state: TrainState, shot: ImageShot, image: CameraImage) -> Tensor | None:
        """Depth errors of one image, metres; None without a sweep to compare with."""
        returns = self._returns(state, shot.index, shot.view)
        return None if returns is None else returns.errors(image, shot.view).sum() / max(len(returns.depths), 1)

    def _returns(self, state: TrainState, image: int, view: CameraView) -> ImagedReturns | None:
        capture = state.plan.capture
        if state.config.train.lidar_rays == 0 or capture.split is None:
            return None
        key = image, view.kind
        if key not in self._kept:
            self._kept[key] = returns_in_image(capture, capture.split.train_sweeps, image, view)
        return self._kept[key]


@torch.no_grad()
def returns_in_image(
    capture: Capture,
    sweeps: tuple[int, ...],  # indices into its sweeps: those that may be used
    image: int,  # index into its images
    view: CameraView,  # of that image
) -> ImagedReturns | None:  # None without a sweep of the same moment
    moment, of = capture.moments.images[image], capture.moments.sweeps
    found = [_loaded(capture, capture.sweeps[i], view) for i in sweeps if of[i] == moment]
    if not found:
        return None
    return ImagedReturns(torch.cat([r.pixels for r in found]), torch.cat([r.depths for r in found]))


def _loaded(capture: Capture, frame: SweepFrame, view: CameraView) -> ImagedReturns:
    sweep = frame.load()
    return project_returns(lidar_view(capture, frame, sweep, view.T_world_sensor_start.device), sweep, view)


def project_returns(
    lidar: LidarView,  # R rays
    sweep: Sweep,  # the same rays
    view: CameraView,
) -> ImagedReturns:
    """Returns in an image, from the pose in the middle of the exposure: the peer draws the whole image from it."""
    camera, rays = view.camera, lidar.rays()
    ranges, returned = sweep.ranges.to(rays.origins), sweep.returned.to(rays.origins.device)
    points = rays.origins + ranges[:, None] * rays.directions + (lidar.centre() - view.centre())
    places, depths = project_points(camera, transform(rasterize.mid_exposure(view), points))
    column, row = places.floor().long().unbind(-1)
    inside = (column >= 0) & (column < camera.width) & (row >= 0) & (row < camera.height)
    inside &= returned & (depths >= NEAR) & ~at_pixels(camera.mask, places)
    return ImagedReturns((row * camera.width + column)[inside], depths[inside])


def expected_depth(
    image: CameraImage,
    view: CameraView,
) -> Tensor:  # [H, W] metres along the camera's axis; 0 where nothing is drawn
    """sum w z / sum w from the distance sum w t, with z = t d_z along the unit ray d."""
    along = pixel_directions(view.camera, image.distance.dtype, image.distance.device)[..., 2]
    return image.distance * along / image.opacity.clamp(min=_NO_OPACITY)


class DepthMetrics:
    """Errors of expected depth at the returns of sweeps, over images of the same moment."""

    def __init__(
        self,
        capture: Capture,
        sweeps: tuple[int, ...],  # indices into its sweeps: those that are compared
    ) -> None:
        self._capture, self._sweeps = capture, sweeps
        self._errors: list[np.ndarray] = [np.zeros(0)]  # [M] metres, of an image

    def add(
        self,
        rendered: CameraImage,
        view: CameraView,
        image: int,  # index into the capture's images
    ) -> float | None:  # metres, median of this image; NaN without a return in it, None without a sweep
        returns = returns_in_image(self._capture, self._sweeps, image, view)
        if returns is None:
            return None
        self._errors.append(returns.errors(rendered, view).double().cpu().numpy())
        return _median(self._errors[-1])

    def summary(self) -> dict[str, Any]:
        """`lidar_median_abs_m`, `lidar_mean_abs_m`: over all returns inside the images; `lidar_errors` names the compared quantity.
        Where nothing is drawn the depth is 0. Empty if nothing was measured."""
        errors = np.concatenate(self._errors)
        if not len(errors):
            return {}
        return {
            "lidar_median_abs_m": _median(errors),
            "lidar_mean_abs_m": float(errors.mean()),
            "lidar_errors": "image depth",
        }


def _median(errors: np.ndarray) -> float:
    return float(np.median(errors)) if len(errors) else math.nan
