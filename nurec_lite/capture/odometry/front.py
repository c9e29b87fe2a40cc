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
WAYS = (
    0.0,
    1.0,
    2.0,
    3.0,
    4.0,
    -1.0,
)  # metres ahead that the second sweep may be, where nothing says how fast the rig was
ROUNDS = 20  # of the registration at most


def scan_to_map(
    clouds: Sequence[Cloud],
    twists: Twists | None,  # measured ones; None: the last motion goes on
) -> Tensor:  # [n, 4, 4] T_first_k of the rig at the middles of the sweeps
    import small_gicp  # what needs no poses starts without it

    world = small_gicp.GaussianVoxelMap(VOXEL)
    poses, velocity = [torch.eye(4, dtype=torch.float64)], torch.zeros(6, dtype=torch.float64)
    for k, cloud in enumerate(clouds):
        guess, seconds = poses[0], 0.0
        if k:
            seconds = cloud.time - clouds[k - 1].time
            guess = poses[-1] @ _step(twists, velocity, clouds[k - 1].time, cloud.time)
        local = velocity if twists is None else twists.at(torch.tensor(cloud.time, dtype=torch.float64))
        source = _source(cloud, local)
        if k:
            guesses = [guess] if k > 1 or twists is not None else [guess @ _ahead(way) for way in WAYS]
            found = _best(world, source, guesses)
            poses.append(torch.from_numpy(np.array(found.T_target_source)))
            velocity = log(invert(poses[-2]) @ poses[-1]) / seconds
        world.insert(source, poses[-1].numpy())
    return torch.stack(poses)


def _best(
    world: "small_gicp.GaussianVoxelMap", source: "small_gicp.PointCloud", guesses: Sequence[Tensor]
) -> "small_gicp.RegistrationResult":
    """From the guess after which most points lie on the map."""
    import small_gicp

    found = [small_gicp.align(world, source, guess.numpy(), REACH, max_iterations=ROUNDS) for guess in guesses]
    if len(found) == 1:
        return found[0]
    return max(found, key=lambda fit: fit.num_inliers - fit.error)


def _ahead(metres: float) -> Tensor:  # [4, 4]
    T = torch.eye(4, dtype=torch.float64)
    T[0, 3] = metres
    return T


def _step(twists: Twists | None, velocity: Tensor, start: float, end: float) -> Tensor:  # [4, 4]
    if twists is None:
        return exp(velocity * (end - start))
    starts, ends = torch.tensor([[start], [end]], dtype=torch.float64)
    return integrated(twists, starts, ends)[0]


def _source(cloud: Cloud, velocity: Tensor) -> "small_gicp.PointCloud":
    """Points as the rig sees them in the middle of the sweep."""
    import small_gicp

    some = thinned(cloud.points, CELL)
    still = transform(exp(velocity * (cloud.times[some] - cloud.time)[:, None]), cloud.points[some, None])[:, 0]
    source = small_gicp.PointCloud(still.numpy())
    small_gicp.estimate_covariances(source, num_neighbors=NEIGHBOURS)
    return source
