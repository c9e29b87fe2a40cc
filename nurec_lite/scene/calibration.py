# SPDX-License-Identifier: Apache-2.0
"""Corrections of a capture's sensors: the rig's poses, the cameras' places on it and their clocks, brightness over time
and from the centre of an image to its corners, and, if asked for, locally (nurec_lite/scene/bilateral.py).

Corrections are linear in time between knots, so that a moment without training frames gets the correction of its neighbours. A correction
of a pose is a rotation vector and a translation, in radians and metres, applied on the sensor's side: T' = T exp(correction). The lidar's
place on the rig stays, which leaves no freedom between rig and cameras.

A camera with a clock that is `offset` seconds late took at t + offset the image stamped t. To first order the rig's velocity moves it
by exp(offset velocity), at the start of an exposure as at its end, and all that depends on time is looked up at t + offset: corrections
of the rig, exposures, and where actors were, though from these an offset learns nothing. The lidar's clock is the rig's; without a
lidar the first camera's is (nurec_lite/splat/views.py), and a rig that stands tells of no offset. Letters: K knots, C cameras.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from nurec_lite.capture.checks.starts import Start
from nurec_lite.capture.types import Capture
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lidar import Lidar
from nurec_lite.scene.bilateral import NUMBERS

POSES = ("rig_rotations", "rig_translations", "camera_rotations", "camera_translations")
TRAINED = (*POSES, "exposure_drift", "vignetting")  # and `bilateral`, if there is one, and last OFFSETS
OFFSETS = "camera_offsets"  # not in checkpoints from before there were any


class Correction(NamedTuple):
    """The correction of one sensor at one moment, in its own axes."""

    turn: Tensor  # [3] radians, a rotation vector
    shift: Tensor  # [3] metres
    drift: Tensor | None  # [2, 3] log gain and offset of a camera's exposure, added to those of the whole drive
    moment: Tensor  # [] float64 seconds, when that was on the rig's clock; without gradient


@dataclass
class Calibration:
    """Learned corrections; all zeros leave the capture as it is."""

    knots: Tensor  # [K] float64 seconds, evenly spaced, two at least; not trained
    cameras: tuple[str, ...]  # names, in the order of the rows below; not trained
    rig_rotations: Tensor  # [K, 3] in the rig's axes
    rig_translations: Tensor  # [K, 3]
    camera_rotations: Tensor  # [C, 3] in the camera's own axes
    camera_translations: Tensor  # [C, 3]
    exposure_drift: Tensor  # [C, K, 2, 3] log gain and offset, added to those of the whole drive
    vignetting: Tensor  # [C, 3] log gain at the corners: of the square, the fourth and the sixth power of the distance from the centre
    camera_offsets: Tensor  # [C] seconds that the camera's clock is behind the rig's
    bilateral: Tensor | None = None  # [C, K, 12, Z, Y, X] as in nurec_lite.scene.bilateral; None: nothing local

    def parameters(self) -> dict[str, Tensor]:
        """Parameters by name, offsets last, so that the moments of older checkpoints, which go by place, are those of the parameters before
        them."""
        grids = () if self.bilateral is None else ("bilateral",)
        return {name: getattr(self, name) for name in (*TRAINED, *grids, OFFSETS)}

    def weights(
        self,
        moment: Tensor,  # [] float64 seconds
    ) -> Tensor:  # [K] of the knots; beyond them the first and the last hold
        first, spacing = self.knots[0], self.knots[1] - self.knots[0]
        steps = (self.knots - first) / spacing
        place = torch.minimum(((moment - first) / spacing).clamp(min=0), steps[-1])
        return (1 - (steps - place).abs()).clamp(min=0).to(self.rig_rotations.dtype)

    def of(
        self,
        sensor: Camera | Lidar,
        moment: Tensor,  # [] float64 seconds, by the sensor's clock
        velocity: Tensor
        | None = None,  # [6] its turning and motion then, in its own axes, a second; None: it tells of no offset
    ) -> Correction:
        c = self.camera_row(sensor)
        offset = None if c is None else self.camera_offsets[c]
        moment = moment if offset is None else moment + offset.detach()
        weights = self.weights(moment)
        turn, shift = weights @ self.rig_rotations, weights @ self.rig_translations
        turn, shift = _seen_from(self.mount(sensor), turn, shift)
        if c is None or offset is None:
            return Correction(turn, shift, None, moment)
        turn, shift = turn + self.camera_rotations[c], shift + self.camera_translations[c]
        if velocity is not None:
            turn, shift = turn + offset * velocity[:3], shift + offset * velocity[3:]
        drift = (weights[:, None, None] * self.exposure_drift[c]).sum(0)
        return Correction(turn, shift, drift, moment)

    def grid(
        self,
        camera: int,  # its row
        moment: Tensor,  # [] float64 seconds
    ) -> Tensor | None:  # [12, Z, Y, X]
        """The camera's bilateral grid at that moment; None where none is learned."""
        if self.bilateral is None:
            return None
        of_knots = self.bilateral[camera]
        return (self.weights(moment) @ of_knots.flatten(1)).view(of_knots.shape[1:])

    def camera_row(self, sensor: Camera | Lidar) -> int | None:
        """The row of a camera that is corrected; None for another sensor."""
        found = isinstance(sensor, Camera) and sensor.name in self.cameras
        return self.cameras.index(sensor.name) if found else None

    def eyes(
        self,
        camera: int,  # its row
    ) -> list[int]:
        """Rows of the cameras that correct the images of this one: its own; for a camera without training images, all learned ones. Waits
        for the device."""
        learned = self._learned()
        return [camera] if learned[camera] or not any(learned) else [c for c, own in enumerate(learned) if own]

    def _learned(self) -> list[bool]:  # [C]
        """Whether any correction of the camera's images was learned."""
        known = [self.exposure_drift, self.vignetting, *(() if self.bilateral is None else (self.bilateral,))]
        learned: list[bool] = torch.stack([part.detach().flatten(1).any(1) for part in known]).any(0).tolist()
        return learned

    def completed(
        self,
        cameras: Sequence[Camera],  # of the capture
    ) -> "Calibration":
        """Calibration with cameras without training images completed. They get the mean motion and delay of the others: the cameras of a
        rig are measured against each other better than against its lidar, and one pulse triggers them all. Waits for the device."""
        learned = dict(zip(self.cameras, self._learned(), strict=True))
        known = [camera for camera in cameras if learned.get(camera.name)]
        if not known or all(learned.values()):
            return self
        rows = [self.cameras.index(camera.name) for camera in known]
        turn, shift = (torch.stack(parts).mean(0) for parts in zip(*map(self._moved, known), strict=True))
        own = replace(self, **{name: getattr(self, name).detach().clone() for name in (*POSES[2:], OFFSETS)})
        for camera in cameras:
            if not learned.get(camera.name, True):
                c, mount = self.cameras.index(camera.name), self.mount(camera)
                own.camera_rotations[c], own.camera_translations[c] = _seen_from(mount, turn, shift)
                own.camera_offsets[c] = self.camera_offsets[rows].mean()
        return own

    def turn(self, camera: Camera) -> Tensor:  # [3] radians
        """The turn of a camera on the rig, as a rotation vector in the rig's axes."""
        return self._moved(camera)[0]

    def _moved(self, camera: Camera) -> tuple[Tensor, Tensor]:  # [3] radians, [3] metres
        """The displacement of a camera on the rig, as the turn and shift of the whole rig that would move it so."""
        c, mount = self.cameras.index(camera.name), self.mount(camera)
        turn = mount[:3] @ self.camera_rotations[c].detach()
        return turn, mount[:3] @ self.camera_translations[c].detach() - torch.linalg.cross(turn, mount[3])

    def mount(self, sensor: Camera | Lidar) -> Tensor:
        """[4, 3] rows of the sensor's axes on the rig, and its place there in metres."""
        return _mount(sensor, self.rig_rotations.device, self.rig_rotations.dtype)

    def found(self) -> dict[str, dict[str, float]]:
        """Largest corrections by name. A camera: degrees and metres on the rig, milliseconds of its clock. `rig`: the
        largest motion at any knot. `exposure`: the largest gain of any camera at any knot, less 1. `corners`: the same
        for any camera's corners. `local`: the largest number of any grid, if there are grids."""
        moved = {
            name: (self.camera_rotations[c : c + 1], self.camera_translations[c : c + 1])
            for c, name in enumerate(self.cameras)
        } | {"rig": (self.rig_rotations, self.rig_translations)}
        lengths = {name: [float(v.detach().norm(dim=1).max()) for v in pair] for name, pair in moved.items()}
        late = dict(zip(self.cameras, (1000 * self.camera_offsets.detach()).tolist(), strict=True))
        clocks = {name: {"milliseconds": late[name]} if name in late else {} for name in lengths}
        gain = math.expm1(float(self.exposure_drift[:, :, 0].detach().abs().max()))
        corner = math.expm1(float(self.vignetting.detach().sum(1).abs().max()))
        local = {} if self.bilateral is None else {"local": {"gain": float(self.bilateral.detach().abs().max())}}
        return {
            **{
                name: {"degrees": math.degrees(turn), "metres": shift} | clocks[name]
                for name, (turn, shift) in lengths.items()
            },
            "exposure": {"gain": gain},
            "corners": {"gain": corner},
            **local,
        }


def none_known(
    capture: Capture,
    spacing: float,  # seconds between knots
    device: torch.device | str,
    grid: Sequence[int] | None = None,  # cells of bilateral grids across, down and over luminance; None: there are none
) -> Calibration:
    """Calibration of a capture that is believed, with knots from its first frame to its last."""
    frames = (*capture.images, *capture.sweeps)
    first, last = min(f.time_start for f in frames), max(f.time_end for f in frames)
    k, c = 1 + max(1, math.ceil((last - first) / spacing)), len(capture.cameras)
    knots = first + spacing * torch.arange(k, dtype=torch.float64)
    grids = () if grid is None else ((c, k, NUMBERS, *reversed(grid)),)
    shapes: Sequence[tuple[int, ...]] = (k, 3), (k, 3), (c, 3), (c, 3), (c, k, 2, 3), (c, 3), (c,), *grids
    zeros = (torch.zeros(shape, device=device) for shape in shapes)
    return Calibration(knots.to(device), tuple(camera.name for camera in capture.cameras), *zeros)


@torch.no_grad()
def add_starts(
    known: Calibration,
    starts: Mapping[str, Start],  # of cameras, by their names
) -> None:
    """Adds corrections of cameras, in place."""
    for name, start in starts.items():
        row = known.cameras.index(name)
        known.camera_rotations[row, 1] -= math.radians(start.degrees)  # a camera's y axis points down
        known.camera_offsets[row] += start.seconds


def _seen_from(
    mount: Tensor,  # [4, 3] as Calibration.mount has it
    turn: Tensor,  # [3] radians, of the rig
    shift: Tensor,  # [3] metres
) -> tuple[Tensor, Tensor]:
    """Returns turn and shift of a sensor that the rig carries, in the sensor's axes."""
    return turn @ mount[:3], (shift + torch.linalg.cross(turn, mount[3])) @ mount[:3]


@lru_cache(maxsize=64)
def _mount(sensor: Camera | Lidar, device: torch.device, dtype: torch.dtype) -> Tensor:
    T = sensor.T_rig_cam if isinstance(sensor, Camera) else sensor.T_rig_lidar
    return torch.cat([T[:3, :3], T[None, :3, 3]]).to(device, dtype)
