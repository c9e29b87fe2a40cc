# SPDX-License-Identifier: Apache-2.0
"""Processes that decode frames for a GPU, where there are so many pixels that threads would keep the training from Python's lock."""

from collections.abc import Iterable

import torch

from nurec_lite.base.threads import cores
from nurec_lite.capture.types import Capture, ImageFrame, SweepFrame

MUCH = 1 << 29  # bytes: 86 images of 1920x1080; a process starts in 30 ms, and threads decode KITTI 0009 in a second
ENOUGH = 4  # cores
KEPT = 2  # cores for the process that asks
RAY_BYTES = 64  # of all tensors of a ray, at most


def decoders() -> int:
    """The number of processes."""
    return max(1, cores() - KEPT)


def decode_apart(device: torch.device, sizes: Iterable[int]) -> bool:
    """Whether processes decode frames of so many bytes for the device."""
    return device.type == "cuda" and cores() >= ENOUGH and sum(sizes) > MUCH


def frame_size(capture: Capture, frame: ImageFrame | SweepFrame) -> int:
    """Bytes of a frame that is decoded, at most: a sweep as its lidar states it."""
    if isinstance(frame, ImageFrame):
        camera = capture.camera(frame.sensor)
        return 3 * camera.width * camera.height
    lidar = capture.lidar(frame.sensor)
    return RAY_BYTES * len(lidar.elevations) * lidar.azimuth_steps
