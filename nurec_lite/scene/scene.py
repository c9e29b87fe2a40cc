# SPDX-License-Identifier: Apache-2.0
"""Everything that training learns about a drive: Gaussians, sky, tracks, exposure, and corrections of its sensors."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from nurec_lite.capture.types import Origin
from nurec_lite.geometry.tracks import Tracks
from nurec_lite.scene.bilateral import sliced
from nurec_lite.scene.calibration import Calibration
from nurec_lite.scene.gaussians import Gaussians


@dataclass
class Scene:
    """A reconstruction. `tracks` holds the fixed parts; its keyframes are replaced by the learned ones in `learned_tracks`."""

    gaussians: Gaussians
    sky: Tensor  # [3, H, W] environment map over azimuth (wrapping) and elevation, before the sigmoid
    tracks: Tracks
    track_translations: Tensor  # [M, 3]
    track_quaternions: Tensor  # [M, 4]
    exposure: Tensor  # [cameras, 2, 3] log gain and offset a colour channel
    origin: Origin = (0.0, 0.0, 0.0)  # metres: where this scene's origin lies in the world of the capture's source
    calibration: Calibration | None = None  # None: the capture is taken at its word

    def learned_tracks(self) -> Tracks:
        return replace(self.tracks, translations=self.track_translations, quaternions=self.track_quaternions)

    def first_rows(self) -> Tensor:  # [K + 2] int64
        """First row of each node's Gaussians, the background's first, and N."""
        node = self.gaussians.node
        return torch.searchsorted(node, torch.arange(len(self.tracks) + 2, device=node.device))

    def parameters(self) -> dict[str, Tensor]:
        """Every trained tensor by its name; the optimizer and the checkpoint use these names."""
        own = {name: getattr(self, name) for name in ("sky", "track_translations", "track_quaternions", "exposure")}
        learned = {} if self.calibration is None else self.calibration.parameters()
        return {name: getattr(self.gaussians, name) for name in Gaussians.trained()} | own | learned


def exposed_by(
    image: Tensor,  # [H, W, 3]
    log_gain: Tensor,  # [3]
    offset: Tensor,  # [3]
    vignetting: Tensor | None,  # [3] of the even powers of the distance from the centre
) -> Tensor:  # [H, W, 3]
    """Applies gain, offset and vignetting to an image. Vignetting: Goldman and Chen, Vignette and Exposure Calibration and Compensation
    (ICCV 2005)."""
    if vignetting is not None:
        log_gain = log_gain + _radial(image.shape[0], image.shape[1], image.dtype, image.device) @ vignetting[:, None]
    return image * torch.exp(log_gain) + offset


class Exposure(NamedTuple):
    """Exposure of a camera at one time."""

    log_gain: Tensor  # [3]
    offset: Tensor  # [3]
    grid: Tensor | None  # [12, Z, Y, X] the bilateral grid; None: there is none


def exposure(
    scene: Scene,
    camera: int,
    drift: Tensor | None,  # [2, 3] log gain and offset of that moment, added to those of the drive; None: zero
    moment: Tensor,  # [] float64 seconds
) -> Exposure:
    """The exposure of a camera. The mean log gain of all cameras is zero: otherwise the scene could trade brightness with it."""
    own = scene.exposure[camera] if drift is None else scene.exposure[camera] + drift
    log_gain, offset = own.unbind()
    grid = None if scene.calibration is None else scene.calibration.grid(camera, moment)
    return Exposure(log_gain - scene.exposure[:, 0].mean(0), offset, grid)


def exposed(
    scene: Scene,
    camera: int,
    image: Tensor,  # [H, W, 3] linear in the light of the scene
    through: Exposure,
    expose: Callable[..., Tensor] = exposed_by,
    slice_grid: Callable[[Tensor, Tensor], Tensor] = sliced,
) -> Tensor:  # [H, W, 3] as the camera sees it
    """Exposes an image: gain and offset of a camera at one time, and vignetting where sensors are corrected. Then its bilateral grid of
    that moment, if there is one, since a camera maps tones after the exposure."""
    vignetting = None if scene.calibration is None else scene.calibration.vignetting[camera]
    seen = expose(image, through.log_gain, through.offset, vignetting)
    return seen if through.grid is None else slice_grid(through.grid, seen)


@lru_cache(maxsize=16)
def _radial(height: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """[H, W, 3] powers 2, 4 and 6 of a pixel's distance from the image's centre, 1 in the corners. Nothing may be written into it."""
    y, x = (torch.arange(n, dtype=torch.float64) - 0.5 * (n - 1) for n in (height, width))
    squares = (y[:, None] ** 2 + x**2) / max(float(y[0] ** 2 + x[0] ** 2), 1e-12)
    return torch.stack([squares, squares**2, squares**3], dim=-1).to(device, dtype)
