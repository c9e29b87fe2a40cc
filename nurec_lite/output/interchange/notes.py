# SPDX-License-Identifier: Apache-2.0
"""Sentences inside exported files: the origin, the axes, and the parts of the rendered scene that the file lacks."""

from dataclasses import dataclass

from nurec_lite.capture.types import Origin
from nurec_lite.scene.scene import Scene

MADE = "made by nurec_lite"
NO_MAP = "There is no map of lanes: a scene does not know them; take them from the map of your drive"
_AXES = {"z": "z up", "y": "y up: (x, z, -y) of the scene", "-y": "y down: (x, -z, y) of the scene"}


@dataclass(frozen=True)
class Notes:
    """Sentences of a file about itself."""

    lost: tuple[str, ...]  # sentences: parts of the rendered scene that the file lacks
    up: str = "z"  # of `flatten.UPS`
    origin: Origin = (0.0, 0.0, 0.0)  # metres, added to coordinates with z up for the world of the capture

    def lines(self) -> list[str]:
        """The sentences, each on one line."""
        origin = " ".join(f"{metres:.3f}" for metres in self.origin)
        where = [f"origin {origin}: add it to x y z (z up) for the world of the capture"] if any(self.origin) else []
        return [*where, f"{MADE}; metres, {_AXES[self.up]}", *self.lost]


def lost_of_splats(scene: Scene, still: bool) -> tuple[str, ...]:
    """Sentences on the limits of files of Gaussians alone."""
    motion = ["motion is left out: the file holds one moment"] if still else []
    return tuple(["the sky is left out", *motion, *_lost_of_sensors(scene)])


def lost_of_usd(scene: Scene) -> tuple[str, ...]:
    """Sentences on the limits of USD."""
    lens = "rolling shutter and distortion of lenses are left out: each camera is a pinhole at mid-exposure"
    return ("the sky is a light with a picture of 8 bits", lens, *_lost_of_sensors(scene), NO_MAP)


def _lost_of_sensors(scene: Scene) -> list[str]:
    corrected = ", vignetting and tones" if scene.calibration is not None else ""
    lines = [f"exposure of cameras is left out: colours are those before gain, offset{corrected}"]
    own = scene.gaussians.lidar_logits.shape[1] > 2
    return [*lines, f"intensity{', ray drop and own opacity' if own else ' and ray drop'} of lidars are left out"]
