# SPDX-License-Identifier: Apache-2.0
"""Cameras at the resolution that `data.downscale` asks for."""

from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.camera import Camera


def downscaled(camera: Camera, factor: int) -> Camera:
    """The camera of images that are reduced to the mean of blocks; CaptureError where nothing is left of them."""
    largest = min(camera.width, camera.height)
    if not 1 <= factor <= largest:
        raise CaptureError(
            f"data.downscale is {factor}, but {camera.name} has {camera.width}x{camera.height} pixels; "
            f"choose a factor from 1 to {largest}"
        )
    return camera.downscaled(factor)
