# SPDX-License-Identifier: Apache-2.0
"""Measures a scene on held-out frames and draws them."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from nurec_lite.capture.types import Capture, ImageFrame, SweepFrame
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
    images, sweeps = ImageMetrics(), LidarMetrics()
    for n, i in enumerate(frames.images):
        drawn = pictures if _is_drawn(n, len(frames.images), PICTURES) else None
        _measure_image(stages, scene, capture, capture.images[i], images, drawn)
    for n, i in enumerate(frames.sweeps):
        drawn = pictures if _is_drawn(n, len(frames.sweeps), PICTURES // 2) else None
        _measure_sweep(stages, scene, capture, capture.sweeps[i], sweeps, drawn)
    return images.summary() | sweeps.summary()


def _is_drawn(n: int, total: int, wanted: int) -> bool:
    return n % max(1, -(-total // wanted)) == 0


def _measure_image(
    stages: Stages, scene: Scene, capture: Capture, frame: ImageFrame, metrics: ImageMetrics, pictures: Path | None
) -> None:
    truth, rendered = frame.load(), image_of(stages, scene, capture, frame)
    metrics.add(rendered, truth, capture, frame)
    if pictures is not None:
        save_png(pictures / f"{frame.sensor}_{frame.index:04d}.png", comparison(truth, rendered))


def _measure_sweep(
    stages: Stages, scene: Scene, capture: Capture, frame: SweepFrame, metrics: LidarMetrics, pictures: Path | None
) -> None:
    sweep = frame.load()
    view = lidar_view(capture, frame, sweep, scene.sky.device)
    returns = _to_cpu(render_sweep(stages, scene, view))
    metrics.add(returns, sweep)
    if pictures is not None:
        picture = range_picture(sweep, returns, capture.lidar(frame.sensor))
        save_png(pictures / f"{frame.sensor}_{frame.index:04d}.png", picture)


@torch.no_grad()
def image_of(stages: Stages, scene: Scene, capture: Capture, frame: ImageFrame) -> Tensor:
    """[H, W, 3] as the frame's camera would see it, 0 to 1, on the host."""
    rendered = render_frame(stages, scene, camera_view(capture, frame, scene.sky.device))
    return exposed(scene, capture.camera_index(frame.sensor), rendered.colour).clamp(0, 1).cpu()


def _to_cpu(returns: LidarReturns) -> LidarReturns:
    return LidarReturns(*(getattr(returns, f).cpu() for f in LidarReturns.__dataclass_fields__))
