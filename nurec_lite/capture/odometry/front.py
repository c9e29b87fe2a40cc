# SPDX-License-Identifier: Apache-2.0
"""A first path: each sweep is laid onto the map of those before it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from nurec_lite.capture.odometry.clouds import Cloud, thinned
from nurec_lite.capture.odometry.reckoning import Twists, exp, integrated, log
from nurec_lite.geometry.se3 import invert, transform

if TYPE_CHECKING:
    import small_gicp

CELL = 0.6  # metres: one point of a sweep is compared in each cube of this size
VOXEL = 1.0  # metres of a cell of the map, whose points make one surface
NEIGHBOURS = 10  # points that make a surface
REACH = 2.0  # metres to the surface that a point may lie on
SPEEDS = (0.0, 10.0, 20.0, 30.0, 40.0, -10.0)  # metres a second of the rig at first, where nothing says how fast it was
SUDDEN = (0.5, 3.0)  # radians and metres a second by which a velocity changes from one sweep to the next at most
LONG = 0.3  # seconds between sweeps, after which a vehicle may have slowed down
ROUNDS = 20  # of the registration at most


def scan_to_map(
    clouds: Sequence[Cloud],
    twists: Twists | None,  # that say where to look first; None: the last motion goes on
) -> Tensor:  # [n, 4, 4] T_first_k of the rig at the middles of the sweeps
    import small_gicp  # what needs no poses starts without it

    world = small_gicp.GaussianVoxelMap(VOXEL)
    still = torch.zeros(6, dtype=torch.float64)
    poses, velocity = [torch.eye(4, dtype=torch.float64)], still
    for k, cloud in enumerate(clouds):
        before = clouds[max(0, k - 1)].time
        guesses = _velocities(twists, velocity if k > 1 else None, before, cloud.time)
        source = _source(cloud, guesses[0] if k or twists is not None else still)
        if k:
            seconds = cloud.time - before
            found = _best(world, source, [poses[-1] @ exp(guess * seconds) for guess in guesses])
            poses.append(torch.from_numpy(np.array(found.T_target_source)))
            velocity = log(invert(poses[-2]) @ poses[-1]) / seconds
        world.insert(source, poses[-1].numpy())
    return torch.stack(poses)


def _velocities(twists: Twists | None, last: Tensor | None, start: float, end: float) -> list[Tensor]:  # [6] each
    """Those that the rig may have between two sweeps. The last one is tried, too, where twists differ from it by more than driving does."""
    if twists is None:
        if last is None:
            return [_ahead(speed) for speed in SPEEDS]
        return [last] if end - start < LONG else [last, 0.5 * last, 0 * last]
    if end <= start:
        return [twists.at(torch.tensor(end, dtype=torch.float64))]
    said = log(integrated(twists, *torch.tensor([[start], [end]], dtype=torch.float64))[0]) / (end - start)
    turn, way = (said - (said if last is None else last)).view(2, 3).norm(dim=1).tolist()
    return [said] if last is None or (turn < SUDDEN[0] and way < SUDDEN[1]) else [last, said]


def _best(
    world: "small_gicp.GaussianVoxelMap", source: "small_gicp.PointCloud", guesses: Sequence[Tensor]
) -> "small_gicp.RegistrationResult":
    """From the guess after which most points lie on the map, and lie there best."""
    import small_gicp

    found = [small_gicp.align(world, source, guess.numpy(), REACH, max_iterations=ROUNDS) for guess in guesses]
    return max(found, key=lambda fit: fit.num_inliers / (1 + fit.error / max(1, fit.num_inliers)))


def _ahead(speed: float) -> Tensor:  # [6]
    return torch.tensor([0, 0, 0, speed, 0, 0], dtype=torch.float64)


def _source(cloud: Cloud, velocity: Tensor) -> "small_gicp.PointCloud":
    """Points as the rig sees them in the middle of the sweep."""
    import small_gicp

    some = thinned(cloud.points, CELL)
    still = transform(exp(velocity * (cloud.times[some] - cloud.time)[:, None]), cloud.points[some, None])[:, 0]
    source = small_gicp.PointCloud(still.numpy())
    small_gicp.estimate_covariances(source, num_neighbors=NEIGHBOURS)
    return source
