# SPDX-License-Identifier: Apache-2.0
"""Lidar returns as depths in an image: what stands for rendered rays where the renderer draws images alone (render=gsplat).

A return, placed in the world at its own ray's time, is projected into an image of about the same time; the expected depth of the pixel
it falls on is compared with its own. What an actor moves between both times is neglected, and a point that the lidar sees past what
hides it from the camera counts like any other: weaknesses of this kind of supervision, which its users accept.
Letters: R lidar rays.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nurec_lite.capture.loader import Batch
from nurec_lite.capture.types import Capture, ImageFrame, SweepFrame
from nurec_lite.config import ConfigError
from nurec_lite.geometry.camera import pixel_directions, project_points
from nurec_lite.geometry.se3 import transform
from nurec_lite.profiling.ranges import span
from nurec_lite.scene.scene import exposed
from nurec_lite.splat import peer
from nurec_lite.splat.project import NEAR
from nurec_lite.splat.render import CameraImage
from nurec_lite.splat.views import CameraView, LidarView, lidar_view
from nurec_lite.stages import PEER, Stages, StepResult, TrainState, learn, render_frame, views

_NO_OPACITY = 1e-10  # below it a pixel has no depth: gsplat's bound


def peer_stages(ops: str, device: torch.device) -> Stages:
    """Images by gsplat, lidar as their depth; whatever is neither is the baseline's."""
    if ops == "reference":
        raise ConfigError("render=gsplat has no plain torch reference; leave ops=native, or use render=own")
    return stages_of(peer.load_peer(device))


def stages_of(gsplat: peer.Peer) -> Stages:
    return Stages().swap(
        PEER,
        project=peer.project,
        tile=peer.tile,
        render_camera=partial(peer.render_camera, peer=gsplat),
        render_lidar=peer.render_lidar,
        step=depth_step,
    )


def depth_step(stages: Stages, state: TrainState, batch: Batch) -> StepResult:
    """One image, with the returns of a sweep as depths of its pixels: render, compare, differentiate, update, adapt."""
    with span("to_device"):
        batch = batch.to(state.device)
        camera, lidar = views(state, batch)
    rendered = render_frame(stages, state.scene, camera)
    sensor = state.plan.capture.images[batch.image_index].sensor
    image = exposed(state.scene, state.plan.capture.camera_index(sensor), rendered.colour)
    target = batch.image.float() / 255
    with span("loss"):
        loss, terms = stages.loss(state, batch, image, target, None)
        if lidar is not None and batch.sweep is not None:
            returns = project_returns(lidar, batch.sweep.ranges, batch.sweep.returned, camera)
            terms["range"] = returns.mean(returns.errors(rendered, camera))
            loss = loss + state.config.loss.range * terms["range"]
    return learn(stages, state, loss, terms, image, target)


@dataclass(frozen=True)
class ImagedReturns:
    """R rays of a sweep as a camera sees where they ended."""

    pixels: Tensor  # [R] int64, row by row; 0 where not inside
    depths: Tensor  # [R] z in metres
    inside: Tensor  # [R] bool: the ray returned, from within the image

    def errors(self, image: CameraImage, view: CameraView) -> Tensor:  # [R] metres
        return (expected_depth(image, view).flatten().index_select(0, self.pixels) - self.depths).abs()

    def mean(self, values: Tensor) -> Tensor:  # [] over those inside, 0 if there are none
        return torch.where(self.inside, values, torch.zeros_like(values)).sum() / self.inside.sum().clamp(min=1)


def project_returns(
    sweep: LidarView,  # R rays
    ranges: Tensor,  # [R] metres
    returned: Tensor,  # [R] bool
    view: CameraView,
) -> ImagedReturns:
    """From the pose in the middle of the exposure, from which the peer draws the whole image. Nothing here waits for the device."""
    camera, rays = view.camera, sweep.rays()
    points = rays.origins + ranges[:, None] * rays.directions + (sweep.centre() - view.centre())
    places, depths = project_points(camera, transform(peer.mid_exposure(view), points))
    column, row = places.floor().long().unbind(-1)
    inside = (column >= 0) & (column < camera.width) & (row >= 0) & (row < camera.height)
    inside = inside & returned & (depths >= NEAR)
    return ImagedReturns(torch.where(inside, row * camera.width + column, 0), depths, inside)


def expected_depth(
    image: CameraImage,
    view: CameraView,
) -> Tensor:  # [H, W] metres along the camera's axis; 0 where nothing is drawn
    """sum w z / sum w from the distance sum w t, with z = t d_z along the unit ray d."""
    along = pixel_directions(view.camera, image.distance.dtype, image.distance.device)[..., 2]
    return image.distance * along / image.opacity.clamp(min=_NO_OPACITY)


class DepthMetrics:
    """Errors of expected depth at the returns of sweeps, over images of the same frame index."""

    def __init__(
        self,
        capture: Capture,
        sweeps: tuple[int, ...],  # indices into its sweeps: those that are compared
    ) -> None:
        self._capture = capture
        self._sweeps = [capture.sweeps[i] for i in sweeps]
        self._errors: list[np.ndarray] = []  # [returns inside] metres, of an image and a sweep

    def add(
        self,
        rendered: CameraImage,
        view: CameraView,
        frame: ImageFrame,
    ) -> float | None:  # metres, median of this image; NaN without a return in it, None without a sweep
        found = [self._of(rendered, view, sweep) for sweep in self._sweeps if sweep.index == frame.index]
        self._errors += found
        return _median(np.concatenate(found)) if found else None

    def _of(self, rendered: CameraImage, view: CameraView, frame: SweepFrame) -> np.ndarray:
        sweep, device = frame.load().to(rendered.distance.device), rendered.distance.device
        lidar = lidar_view(self._capture, frame, sweep, device)
        returns = project_returns(lidar, sweep.ranges, sweep.returned, view)
        return returns.errors(rendered, view)[returns.inside].double().cpu().numpy()

    def summary(self) -> dict[str, Any]:
        """`lidar_median_abs_m`, `lidar_mean_abs_m`: over all returns inside the images; `lidar_errors` says what they are errors of.
        Where nothing is drawn the depth is 0. Empty if nothing was measured."""
        errors = np.concatenate([np.zeros(0), *self._errors])
        if not len(errors):
            return {}
        return {
            "lidar_median_abs_m": _median(errors),
            "lidar_mean_abs_m": float(errors.mean()),
            "lidar_errors": "image depth",
        }


def _median(errors: np.ndarray) -> float:
    return float(np.median(errors)) if len(errors) else math.nan
