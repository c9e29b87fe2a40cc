# SPDX-License-Identifier: Apache-2.0
"""Measures a scene on held-out frames and draws them."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from nurec_lite.capture.types import Capture, ImageFrame
from nurec_lite.metrics import ImageMetrics, LidarMetrics
from nurec_lite.pictures import comparison, range_picture, save_png
from nurec_lite.scene.scene import Scene, exposed
from nurec_lite.splat.render import LidarReturns
from nurec_lite.splat.views import camera_view, lidar_view
from nurec_lite.stages import Stages, render_frame, render_sweep

PICTURES = 6  # images, and half as many sweeps, that are drawn


@dataclass(frozen=True)
class Frames:
    """Indices into a capture's images and sweeps."""

    images: tuple[int, ...]
    sweeps: tuple[int, ...]


def held_out(capture: Capture) -> Frames:
    assert capture.split is not None
    return Frames(capture.split.test_images, capture.split.test_sweeps)


@torch.no_grad()
def evaluate(
    stages: Stages,
    scene: Scene,
    capture: Capture,
    frames: Frames,
    pictures: Path | None = None,  # folder for PNGs; None: no pictures
) -> dict[str, object]:
    """All metrics of the frames, by the names of `nurec_lite.metrics`."""
    device = scene.sky.device
    images, sweeps = ImageMetrics(), LidarMetrics()
    for n, i in enumerate(frames.images):
        frame = capture.images[i]
        truth, rendered = frame.load(), image_of(stages, scene, capture, frame)
        images.add(rendered, truth, capture, frame)
        if pictures is not None and n % max(1, -(-len(frames.images) // PICTURES)) == 0:
            save_png(pictures / f"{frame.sensor}_{frame.index:04d}.png", comparison(truth, rendered))
    for n, i in enumerate(frames.sweeps):
        frame, lidar = capture.sweeps[i], capture.lidar(capture.sweeps[i].sensor)
        sweep = frame.load()
        returns = _to_cpu(render_sweep(stages, scene, lidar_view(capture, frame, sweep, device)))
        sweeps.add(returns, sweep)
        if pictures is not None and n % max(1, -(-2 * len(frames.sweeps) // PICTURES)) == 0:
            save_png(pictures / f"{frame.sensor}_{frame.index:04d}.png", range_picture(sweep, returns, lidar))
    return images.summary() | sweeps.summary()


@torch.no_grad()
def image_of(stages: Stages, scene: Scene, capture: Capture, frame: ImageFrame) -> Tensor:
    """[H, W, 3] as the frame's camera would see it, 0 to 1, on the host."""
    rendered = render_frame(stages, scene, camera_view(capture, frame, scene.sky.device))
    return exposed(scene, capture.camera_index(frame.sensor), rendered.colour).clamp(0, 1).cpu()


def _to_cpu(returns: LidarReturns) -> LidarReturns:
    return LidarReturns(*(getattr(returns, f).cpu() for f in LidarReturns.__dataclass_fields__))
