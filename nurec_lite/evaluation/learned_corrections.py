# SPDX-License-Identifier: Apache-2.0
"""Turns of cameras and offsets of their clocks that a run learned."""

from dataclasses import dataclass

import torch
from torch import Tensor

from nurec_lite.capture.types import Capture
from nurec_lite.scene.calibration import Calibration

TURNED = 0.1  # degrees, more than the corrections of correctly mounted cameras
LATE = 9.0  # milliseconds: clocks of right drives were corrected by up to 9 ms (PandaSet)


@dataclass(frozen=True)
class Learned:
    """Learned corrections of cameras, one row each that has any."""

    names: list[str]
    turns: Tensor  # [c, 3] degrees
    late: Tensor  # [c, 1] milliseconds that clocks are behind

    def can_be_wrong(self) -> bool:
        """Whether two cameras, or all of them, may be corrected by TURNED or LATE."""
        return 2 * float(self.turns.norm(dim=1).max()) >= TURNED or 2 * float(self.late.abs().max()) >= LATE


def learned_corrections(known: Calibration, capture: Capture) -> Learned | None:
    """Returns the corrections; None without any. Waits for the device."""
    rows = [k for k, _ in enumerate(known.cameras) if known.eyes(k) == [k]]
    cameras = [camera for camera in capture.cameras if known.camera_row(camera) in rows]
    if not cameras:
        return None
    names = [camera.name for camera in cameras]
    turns = torch.rad2deg(torch.stack([known.turn(camera) for camera in cameras]).cpu())
    late = 1000 * known.camera_offsets.detach().cpu()[[known.cameras.index(name) for name in names], None]
    return Learned(names, turns, late)
