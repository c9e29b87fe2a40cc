# SPDX-License-Identifier: Apache-2.0
"""Cameras at the resolution that `data.downscale` asks for."""

from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.camera import Camera


def downscaled(camera: Camera, factor: int) -> Camera:
    """The camera of images that are reduced to the mean of blocks; CaptureError where nothing is left of them."""
    if not 1 <= factor <= min(camera.width, camera.height):
        raise CaptureError(
            f"data.downscale is {factor}, but {camera.name} has {camera.width}x{camera.height} pixels; choose a factor between"
        )
    return camera.downscaled(factor)
