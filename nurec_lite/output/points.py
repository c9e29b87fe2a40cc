# SPDX-License-Identifier: Apache-2.0
"""Rendered sweeps as files: every array as .npz, the points of the world as .ply."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nurec_lite.base.files import written
from nurec_lite.capture.deskew import world_points
from nurec_lite.capture.origin import to_users_world
from nurec_lite.capture.types import Origin, SweepFrame
from nurec_lite.evaluation.pictures import RANGE_MAP, Bar
from nurec_lite.geometry.lidar import Lidar, Sweep
from nurec_lite.splat.render import LidarReturns

NPZ_ARRAYS = """
  points_lidar [n,3], points_world [n,3]   metres, of the n rays that returned: in the lidar's frame at each ray's own time, and in
                                           the world (each ray at its own time: motion is taken out)
  returned [R]                             which of the R rays returned: drop <= 0.5, and the transmittance falls to 0.5 in range
  ranges [R]                               metres to where it does; 0 where it never does
  directions [R,3], times [R], rings [R]   unit vectors in the lidar's frame, seconds, index of the beam
  intensities [R], drop [R], opacity [R]   0 to 1; drop is the probability that nothing returns
  T_world_lidar_start, T_world_lidar_end   [4,4] poses of the lidar at time_start and time_end (seconds, also there)
  measured_ranges [R], measured_intensities [R], measured_returned [R]   of a captured sweep that is neither shifted nor edited
""".strip("\n")
_FAR_METRES = 60.0  # the end of the scale of colours in a PLY
_VERTEX = np.dtype(
    [("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("intensity", "<f4"), ("red", "u1"), ("green", "u1"), ("blue", "u1")]
)
_FAR_VERTEX = np.dtype(
    [(name, "<f8" if name in "xyz" else _VERTEX[name]) for name in _VERTEX.names or ()]
)  # where floats are too coarse
_PLY_TYPES = {"<f4": "float", "<f8": "double", "|u1": "uchar"}


@dataclass(frozen=True)
class RenderedSweep:
    """R rays on the host, and their returns from the scene."""

    frame: SweepFrame  # poses and times of the revolution
    lidar: Lidar
    rays: Sweep  # directions, times and rings; its ranges are the measured ones, if there are any
    returns: LidarReturns  # on the host
    origin: Origin = (0.0, 0.0, 0.0)  # metres, of the frame's poses in the world of the capture's source

    @cached_property
    def sweep(self) -> Sweep:
        """Sweep as a lidar reports it; ranges are 0 where nothing returned."""
        within = self.returns.median <= self.lidar.max_range
        returned = (self.returns.drop <= 0.5) & (self.returns.median > 0) & within
        zero = torch.zeros(())
        return replace(
            self.rays,
            ranges=torch.where(returned, self.returns.median, zero),
            intensities=torch.where(returned, self.returns.intensity, zero),
            returned=returned,
        )

    def points_world(self) -> Tensor:  # [n, 3] metres, float64, of the rays that returned; about the origin
        return world_points(self.frame, self.sweep, self.lidar)[self.sweep.returned]


def save_npz(
    path: Path,
    rendered: RenderedSweep,
    measured: bool,  # whether the rays' own ranges belong to this very frame
) -> None:
    """The arrays of NPZ_ARRAYS."""
    arrays: dict[str, Any] = _arrays(rendered) | (_measured(rendered.rays) if measured else {})
    with written(path) as file:
        np.savez_compressed(file, **arrays)


def _arrays(rendered: RenderedSweep) -> dict[str, np.ndarray]:
    sweep, returns, frame = rendered.sweep, rendered.returns, rendered.frame
    hits = sweep.ranges[:, None] * sweep.directions
    tensors = {
        "points_lidar": hits[sweep.returned],
        "points_world": to_users_world(rendered.points_world(), rendered.origin),
        "returned": sweep.returned,
        "ranges": returns.median,
        "directions": sweep.directions,
        "times": sweep.times,
        "rings": sweep.rings,
        "intensities": returns.intensity,
        "drop": returns.drop,
        "opacity": returns.opacity,
        "T_world_lidar_start": _users_pose(frame.T_world_rig_start @ rendered.lidar.T_rig_lidar, rendered.origin),
        "T_world_lidar_end": _users_pose(frame.T_world_rig_end @ rendered.lidar.T_rig_lidar, rendered.origin),
    }
    ends = {"time_start": np.array(frame.time_start), "time_end": np.array(frame.time_end)}
    return {name: tensor.detach().numpy() for name, tensor in tensors.items()} | ends


def _users_pose(pose: Tensor, origin: Origin) -> Tensor:
    pose = pose.clone()
    pose[:3, 3] = to_users_world(pose[:3, 3], origin)
    return pose


def _measured(sweep: Sweep) -> dict[str, np.ndarray]:
    names = ("ranges", "intensities", "returned")
    return {f"measured_{name}": getattr(sweep, name).numpy() for name in names}


def save_ply(path: Path, rendered: RenderedSweep) -> None:
    """Points in the world with their intensity, and colours by range, which viewers show."""
    sweep = rendered.sweep.select(rendered.sweep.returned)
    vertices = np.zeros(len(sweep), _FAR_VERTEX if any(rendered.origin) else _VERTEX)
    points = to_users_world(rendered.points_world(), rendered.origin)
    for name, values in zip("xyz", points.T.numpy(), strict=True):
        vertices[name] = values
    vertices["intensity"] = sweep.intensities.numpy()
    colours = Bar(RANGE_MAP, 0, _FAR_METRES).paint(sweep.ranges.numpy())
    for name, values in zip(("red", "green", "blue"), colours.T, strict=True):
        vertices[name] = values
    with written(path) as file:
        file.write(_ply_header(len(vertices), vertices.dtype).encode("ascii") + vertices.tobytes())


def _ply_header(count: int, vertex: np.dtype) -> str:
    """PLY 1.0 (Turk 1994)."""
    properties = [f"property {_PLY_TYPES[vertex[name].str]} {name}" for name in vertex.names or ()]
    lines = ["ply", "format binary_little_endian 1.0", "comment points in world metres, x forward, y left, z up"]
    return "\n".join([*lines, f"element vertex {count}", *properties, "end_header", ""])
