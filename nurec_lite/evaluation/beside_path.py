# SPDX-License-Identifier: Apache-2.0
"""Renders some held-out moments off the path, measures the renders, and keeps the pictures of one moment."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from nurec_lite.base.pool import in_threads
from nurec_lite.capture.trajectory import shifted
from nurec_lite.capture.types import Capture, ImageFrame
from nurec_lite.evaluation.beside import DISTANCES, Beside, Measured, boxes_found, rays_beside, summary
from nurec_lite.evaluation.metrics import range_errors
from nurec_lite.evaluation.pictures import to_picture
from nurec_lite.evaluation.spread import spread
from nurec_lite.geometry.lidar import Sweep
from nurec_lite.scene.scene import Scene
from nurec_lite.splat.render import CameraImage
from nurec_lite.splat.views import LidarView, camera_view, lidar_view
from nurec_lite.training.batches import render_views_in_batches
from nurec_lite.training.stages import Stages

FRAMES = 8  # most images that are rendered off the path
AsSeen = Callable[[ImageFrame, Tensor], Tensor]  # [H, W, 3] of a rendered colour, as the frame's camera sees it


@dataclass(frozen=True)
class DrawnBeside:
    """One image from several distances."""

    sensor: str
    index: int
    side: str  # left or right
    pictures: dict[int, np.ndarray]  # metres to that side -> [H, W, 3] uint8


@torch.no_grad()
def measure_beside(
    stages: Stages,
    scene: Scene,
    capture: Capture,
    images: tuple[int, ...],  # indices of images that may be chosen
    seconds: float,  # until no further image is begun
    as_seen: AsSeen,
) -> tuple[dict[str, float], DrawnBeside | None]:
    """Metrics as `beside.summary` names them, and the pictures of the first image; nothing without images or time."""
    found, drawn = {distance: Beside() for distance in DISTANCES}, None
    begin = time.monotonic()
    chosen = spread(images, FRAMES)
    for number, sweeps in enumerate(in_threads(partial(_sweeps_of, capture), chosen)):
        if time.monotonic() - begin >= seconds:
            break
        i = chosen[number]
        look = _Moment(stages, scene, capture, i, 1 if number % 2 == 0 else -1, sweeps)
        seen = {distance: image for distance, image in look.images(found)}
        if stages.renders_lidar:
            look.sweeps(found)
        if drawn is None:
            frame = capture.images[i]
            pictures = {distance: to_picture(as_seen(frame, image.colour)) for distance, image in seen.items()}
            drawn = DrawnBeside(frame.sensor, frame.index, "left" if look.sign > 0 else "right", pictures)
    return summary(found), drawn


def _sweeps_of(capture: Capture, image: int) -> dict[int, Sweep]:
    """The decoded sweeps of an image's moment, by their indices."""
    moments = capture.moments
    return {i: capture.sweeps[i].load() for i, m in enumerate(moments.sweeps) if m == moments.images[image]}


class _Moment:
    """One image and the sweeps of its moment, as a rig further left or right would see them."""

    def __init__(
        self,
        stages: Stages,
        scene: Scene,
        capture: Capture,
        image: int,
        sign: int,
        sweeps: dict[int, Sweep],  # of the image's moment, by their indices
    ) -> None:
        self.stages, self.scene, self.capture, self.sign = stages, scene, capture, sign
        self.frame, self.device = capture.images[image], scene.sky.device
        self.measured = {i: Measured.of(capture, i, sweep.to(self.device)) for i, sweep in sweeps.items()}

    def images(self, found: dict[int, Beside]) -> Iterator[tuple[int, CameraImage]]:
        """The image from each distance. Adds the boxes that are found again."""
        moved = {d: shifted(self.frame, (0.0, self.sign * d, 0.0)) for d in DISTANCES}
        shots = ((d, camera_view(self.capture, frame, self.device)) for d, frame in moved.items())
        for d, view, image in render_views_in_batches(self.stages, self.scene, shots):
            for measured in self.measured.values():
                found[d].boxes += boxes_found(self.capture, moved[d], view, image, measured)
            yield d, image

    def sweeps(self, found: dict[int, Beside]) -> None:
        """Adds the errors of ranges."""
        shots = ((d, i) for i in self.measured for d in DISTANCES)
        for (d, rays), _, returns in render_views_in_batches(self.stages, self.scene, map(self._aimed, shots)):
            found[d].errors.append(range_errors(returns.median, rays.ranges))

    def _aimed(self, shot: tuple[int, int]) -> tuple[tuple[int, Sweep], LidarView]:
        d, i = shot
        frame = shifted(self.capture.sweeps[i], (0.0, self.sign * d, 0.0))
        rays = rays_beside(frame, self.capture.lidar(frame.sensor), self.measured[i])
        return (d, rays), lidar_view(self.capture, frame, rays, self.device)
