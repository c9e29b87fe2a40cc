# SPDX-License-Identifier: Apache-2.0
"""Possible surfaces without a lidar: points that came with the images, and places at any distance on rays of the images."""

import torch
from torch import Tensor

from nurec_lite.capture.types import Capture, ImageFrame
from nurec_lite.geometry.camera import Camera, directions_through

NEAREST = 6.0  # metres


def unmeasured_positions(
    capture: Capture,
    n: int,
    far_metres: float,
    seed: int,
) -> Tensor:  # [n, 3] metres, world, float64
    """Points that came with the capture, at most half of n, and guesses."""
    if capture.points is None:
        return _guesses(capture, n, far_metres, seed)
    most = min(len(capture.points), n // 2)
    chosen = torch.randperm(len(capture.points), generator=torch.Generator().manual_seed(seed))[:most]
    return torch.cat([capture.points[chosen], _guesses(capture, n - most, far_metres, seed)])


def _guesses(capture: Capture, n: int, far_metres: float, seed: int) -> Tensor:  # [n, 3] metres, world, float64
    """Points on random pixels of the training images, equally many of each, evenly in inverse distance from 6 m to
    far_metres: most lie near the vehicle, where images show distances."""
    assert capture.split is not None
    generator, images = torch.Generator().manual_seed(seed), [capture.images[i] for i in capture.split.train_images]
    bounds = [n * k // len(images) for k in range(len(images) + 1)]
    parts = []
    for frame, first, last in zip(images, bounds, bounds[1:], strict=False):
        u = torch.rand(2, last - first, generator=generator, dtype=torch.float64)
        distance = 1 / (1 / far_metres + u[1] * max(1 / NEAREST - 1 / far_metres, 0))
        parts.append(_on_rays(capture.camera(frame.sensor), frame, u[0], distance))
    return torch.cat(parts)


def _on_rays(
    camera: Camera,
    frame: ImageFrame,
    place: Tensor,  # [m] which pixel, 0 to 1 in reading order
    distance: Tensor,  # [m] metres
) -> Tensor:  # [m, 3] metres, world
    """Points on rays from the pose at the start of the image, which is near enough for a guess."""
    pixel = (place * (camera.width * camera.height)).long()
    centres = torch.stack([pixel % camera.width, pixel // camera.width], dim=-1) + 0.5
    chosen = directions_through(camera, centres.double()) * distance[:, None]
    pose = frame.T_world_rig_start @ camera.T_rig_cam
    return chosen @ pose[:3, :3].T + pose[:3, 3]
