# SPDX-License-Identifier: Apache-2.0
"""A quick look at a few sweeps: whether poses are as sharp as the lidar can tell, so that nothing need be estimated."""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor

from nurec_lite.capture.odometry.clouds import Poses, clouds_of
from nurec_lite.capture.odometry.reckoning import exp
from nurec_lite.capture.odometry.sharpness import gap_of, jitter, to_surfaces
from nurec_lite.capture.odometry.surfaces import surface_map
from nurec_lite.capture.trajectory import MERGED_SECONDS
from nurec_lite.capture.types import SweepFrame
from nurec_lite.geometry.lidar import Lidar
from nurec_lite.geometry.se3 import interpolate_trajectory, transform

JITTER = 0.003  # metres of a sharp path at most
FITTED = 0.9  # part of the distances that is left at least when one sweep is moved onto the other as a whole
SOURCE = 4000  # points of a sweep that are compared
FEWEST = 200  # distances that tell anything
MOVED = 0.06  # metres of that motion at most: where the ground fits before and after, distances hardly tell
REACH = 0.5  # metres to a surface, of the registration
SCALES = (0.5, 0.3, 0.1, 0.05, 0.02, 0.02)  # metres that count fully, at least, round after round


def seem_sharp(frames: Sequence[SweepFrame], lidar: Lidar) -> bool:
    """Whether poses are sharp by two pairs of sweeps in the middle of the drive, or all that exist; also if sweeps show too little."""
    poses = poses_of(frames)
    middles = torch.tensor([frame.time_mid for frame in frames], dtype=torch.float64)
    if jitter(middles, poses(middles))[0] > JITTER:
        return False
    gap = gap_of(len(frames))
    start = max(0, len(frames) // 2 - gap)
    clouds = clouds_of([frames[k] for k in range(start, min(len(frames), start + 2 * gap + 1), gap)], lidar)
    world = [cloud.moved(poses)[: SOURCE if k else None] for k, cloud in enumerate(clouds)]
    fits = [fit for a, b in pairwise(world) if (fit := _fitted(a, b)) is not None]
    parts, moves = [part for part, _ in fits], [metres for _, metres in fits]
    return not fits or (sum(parts) / len(parts) > FITTED and max(moves) < MOVED)


def poses_of(frames: Sequence[SweepFrame]) -> Poses:
    """Poses of the frames as stored."""
    times = torch.tensor([t for f in frames for t in (f.time_start, f.time_end)], dtype=torch.float64)
    poses = torch.stack([T.double() for f in frames for T in (f.T_world_rig_start, f.T_world_rig_end)])
    times, order = times.sort(stable=True)
    new = torch.cat([torch.ones(1, dtype=torch.bool), times.diff() > MERGED_SECONDS])
    return partial(interpolate_trajectory, times[new], poses[order][new])


def _fitted(a: Tensor, b: Tensor) -> tuple[float, float] | None:
    """Median distance of points b to the surfaces of points a after b moves onto a, as a share of that before, and metres of that
    motion; None: too few lie near."""
    before = to_surfaces(a, b)
    if len(before) < FEWEST:
        return None
    made, middle = surface_map(a), b.mean(0)
    way = torch.zeros_like(middle)
    for scale in SCALES:
        near, at, normals = made.surfaces(b, REACH)
        r = ((b[near] - made.points[at]) * normals).sum(1)
        w = (1 + (r / max(scale, 1.5 * float(r.abs().median()))) ** 2) ** -2
        J = torch.cat([torch.linalg.cross(b[near] - middle, normals), normals], dim=1)
        step = -torch.linalg.solve((J * w[:, None]).T @ J + 1e-6 * torch.eye(6, dtype=torch.float64), J.T @ (w * r))
        b, way = transform(exp(step), b - middle) + middle, way + step[3:]
    return float(to_surfaces(a, b).median() / before.median().clamp(min=1e-9)), float(way.norm())
