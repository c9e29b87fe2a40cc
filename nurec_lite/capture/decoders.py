# SPDX-License-Identifier: Apache-2.0
"""Processes that decode frames for a GPU, where there are so many pixels that threads would keep the training from Python's lock."""

from collections.abc import Iterable, Sequence

import torch

from nurec_lite.base.early_device import ordinal_of
from nurec_lite.base.fork_server import begin_forks
from nurec_lite.base.place import place_of
from nurec_lite.base.threads import cores
from nurec_lite.capture.types import Capture
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lidar import Lidar

# bytes, 22 images of 1920x1080: threads that decode the 320 MB of KITTI 0009 double the time of the first steps
MUCH = 1 << 27
ENOUGH = 4  # cores
KEPT = 2  # cores for the process that asks
RAY_BYTES = 41  # of all tensors of a sweep and of its view


def begin_decoders(
    command: Sequence[str],  # words of the command line
) -> None:
    """Starts the server that will fork the processes, as the process that asks is still small. Does nothing for a command that uses no
    GPU."""
    if ordinal_of(command) is not None and torch.cuda.is_available():
        begin_forks()


def decoders() -> int:
    """The number of processes. Ranks of one host share its cores."""
    return max(1, cores() // place_of().local_size - KEPT)


def decode_apart(device: torch.device, sizes: Iterable[int]) -> bool:
    """Whether processes decode frames of so many bytes for the device."""
    return device.type == "cuda" and cores() >= ENOUGH and sum(sizes) > MUCH


def decoded_bytes(sensor: Camera | Lidar) -> int:
    """Bytes of a decoded frame of the sensor, about: a sweep as its lidar states it."""
    return 3 * sensor.width * sensor.height if isinstance(sensor, Camera) else RAY_BYTES * stated_rays(sensor)


def decoded_sizes(capture: Capture) -> dict[str, int]:
    """Bytes of a decoded frame, by the names of sensors."""
    cameras = {camera.name: decoded_bytes(camera) for camera in capture.cameras}
    return cameras | {lidar.name: decoded_bytes(lidar) for lidar in capture.lidars}


def stated_rays(lidar: Lidar) -> int:
    """Rays of a sweep of all beams."""
    return len(lidar.elevations) * lidar.azimuth_steps
