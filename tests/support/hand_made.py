# SPDX-License-Identifier: Apache-2.0
"""A drive whose every number is known: a rig that drives ahead, one camera, one lidar, and points that stand where a test puts them."""

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.capture.types import Capture, ImageFrame, SweepFrame
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lidar import Lidar, Sweep
from nurec_lite.geometry.tracks import Tracks

AXES = torch.tensor([[0.0, 0, 1, 0], [-1, 0, 0, 0], [0, -1, 0, 0], [0, 0, 0, 1]], dtype=torch.float64)  # T_rig_cam
SIZE = (80, 60)  # width, height; fx = fy = 50, principal point in the middle


@dataclass
class HandMade:
    """Frames every 0.1 s. The lidar sees each point in every sweep, in the middle of the sweep; images are grey."""

    points: list[tuple[float, float, float]]  # metres, world
    speed: float = 10.0  # metres a second, ahead
    moving: float = 0.0  # metres a second, of all points, ahead
    frames: int = 4
    tracks: Tracks = field(default_factory=Tracks.empty)
    distortion: tuple[float, ...] = ()

    def pose(self, time: float) -> Tensor:
        matrix = torch.eye(4, dtype=torch.float64)
        matrix[0, 3] = self.speed * time
        return matrix

    def sweep(self, time: float) -> Sweep:
        seen = torch.tensor(self.points, dtype=torch.float64) - self.pose(time)[:3, 3]
        seen[:, 0] += self.moving * time
        n, ones = len(self.points), torch.ones(len(self.points))
        times = torch.full((n,), time, dtype=torch.float64)
        directions = F.normalize(seen, dim=1).float()
        return Sweep(directions, seen.norm(dim=1).float(), ones, times, ones.long() * 0, ones.bool())

    def capture(self) -> Capture:
        begins = [0.1 * i for i in range(self.frames)]
        width, height = SIZE
        camera = Camera("front", width, height, 50.0, 50.0, width / 2, height / 2, AXES, self.distortion)
        lidar = Lidar("top", torch.eye(4, dtype=torch.float64), torch.tensor([0.0]), azimuth_steps=90)
        grey = torch.full((height, width, 3), 128, dtype=torch.uint8)
        images = [
            ImageFrame("front", i, t + 0.05, t + 0.05, self.pose(t + 0.05), self.pose(t + 0.05), lambda: grey)
            for i, t in enumerate(begins)
        ]
        sweeps = [
            SweepFrame("top", i, t, t + 0.1, self.pose(t), self.pose(t + 0.1), lambda t=t: self.sweep(t + 0.05))
            for i, t in enumerate(begins)
        ]
        return Capture("made", (camera,), (lidar,), tuple(images), tuple(sweeps), self.tracks)


def one_track(
    size: tuple[float, float, float],  # metres
    times: list[float],  # seconds
    places: list[tuple[float, float, float]],  # metres, world
) -> Tracks:
    turns = torch.zeros(len(times), 4, dtype=torch.float64)
    turns[:, 0] = 1
    rows = (torch.tensor(values, dtype=torch.float64) for values in ([size], times, places))
    sizes, at, centres = rows
    return Tracks(("7",), ("Car",), sizes, (0, len(times)), at, centres, turns, margin=0.1)
