# SPDX-License-Identifier: Apache-2.0
"""A first path: each sweep is laid onto the map of those before it. Where its surfaces leave a direction open, as in a tunnel or on a
plain, the guess is kept in that direction (Zhang, Kaess and Singh 2016)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nurec_lite.base.aside import go_on
from nurec_lite.capture.odometry.beside import STILL, speed_of_rest, upright
from nurec_lite.capture.odometry.clouds import Cloud, thinned
from nurec_lite.capture.odometry.reckoning import Twists, exp, integrated, log
from nurec_lite.geometry.se3 import invert

if TYPE_CHECKING:
    import small_gicp

CELL = 0.6  # metres: one point of a sweep is compared in each cube of this size
VOXEL = 1.0  # metres of a cell of the map; its points make one surface
NEIGHBOURS = 10  # points that make a surface
REACH = 2.0  # metres to the surface that a point may lie on
SPEEDS = (0.0, 10.0, 20.0, 30.0, 40.0, -10.0)  # metres a second of the rig at first, where nothing says how fast it was
SUDDEN = (0.5, 3.0)  # largest change of a velocity from one sweep to the next, radians and metres a second
LONG = 0.3  # seconds between sweeps; in more, a vehicle may have slowed down
ROUNDS = 20  # of the registration at most
NEAR = 0.35  # metres from a point of an upright surface to the nearest one of the sweep before
ALIKE = 0.97  # of the most such points: a registration with fewer is not possible
LEVER = 10.0  # metres: a turn of so much counts like a shift
# information of a point along the weakest direction, at least: a point of a plane has 0.5 along the plane, and 500 across
LEAST = 1.0


@dataclass(frozen=True)
class First:
    """A first path of n sweeps."""

    poses: Tensor  # [n, 4, 4] T_first_k of the rig at the middles of the sweeps
    open: Tensor  # [n] bool: the sweep's surfaces leave a direction open


def scan_to_map(
    clouds: Sequence[Cloud],  # n
    times: Tensor,  # [n] seconds, the middles of the sweeps
    twists: Twists | None,  # that say where to look first; None: the last motion goes on
) -> First:
    import small_gicp  # commands that need no poses start without it

    world = small_gicp.GaussianVoxelMap(VOXEL)
    said = None if twists is None else _between(twists, times)
    poses, held = [torch.eye(4, dtype=torch.float64)], [False]
    later = (times > times[0]).nonzero()[:1, 0].tolist() if said is None else []
    velocity = _at_first(clouds[0], clouds[later[0]]) if later else None
    for k, cloud in enumerate(clouds):
        go_on()
        seconds = float(times[k] - times[max(0, k - 1)])
        guesses = _velocities(None if said is None else said[k], velocity, seconds)
        source = _source(_seen(cloud, guesses[0] if said is None else said[k]))
        if k:
            found, guess = _best(world, source, list(poses[-1] @ exp(torch.stack(guesses) * seconds)))
            pose, is_open = _determined(found, guess)
            poses, held = [*poses, pose], [*held, is_open]
            velocity = log(invert(poses[-2]) @ poses[-1]) / seconds if seconds > 0 else velocity
        world.insert(source, poses[-1].numpy())
    return First(torch.stack(poses), torch.tensor(held))


def _determined(fit: "small_gicp.RegistrationResult", guess: Tensor) -> tuple[Tensor, bool]:
    """The pose of a registration, and whether it leaves a direction open: the guess is kept there."""
    units = torch.tensor([1 / LEVER] * 3 + [1.0] * 3, dtype=torch.float64)
    pose, information = (torch.from_numpy(np.array(m)) for m in (fit.T_target_source, fit.H))
    squares, axes = torch.linalg.eigh(information * units[:, None] * units / max(1, fit.num_inliers))
    known = axes[:, squares >= LEAST]
    if known.shape[1] == 6:
        return pose, False
    apart = log(invert(guess) @ pose) / units
    return guess @ exp(known @ (known.T @ apart) * units), True


def _at_first(first: Cloud, second: Cloud) -> Tensor:  # [6]
    """Velocity from one sweep to a later one. It is looked for again once both are undistorted by it."""
    import small_gicp

    seconds = second.time - first.time
    velocity, guesses = _ahead(0.0), torch.stack([_ahead(speed) for speed in SPEEDS])
    for _ in range(2):
        before, source = (_source(_seen(cloud, velocity)) for cloud in (first, second))
        world = small_gicp.GaussianVoxelMap(VOXEL)
        world.insert(before, np.eye(4))
        found, _ = _best(world, source, list(exp(guesses * seconds)), before)
        velocity = log(torch.from_numpy(np.array(found.T_target_source))) / seconds
        guesses = velocity[None]
    return velocity if float(velocity[3:].norm()) > STILL else _among_others(first, second, velocity)


def _among_others(first: Cloud, second: Cloud, velocity: Tensor) -> Tensor:  # [6] -> [6]
    """The velocity, or another one that the world fits at while vehicles of the rig's own speed fit at this one."""
    for _ in range(2):
        before, after = (_source(_seen(cloud, velocity)) for cloud in (first, second))
        speed = speed_of_rest(before, after, second.time - first.time)
        if speed is None:
            return velocity
        velocity = _ahead(speed)
    return velocity


def _between(twists: Twists, times: Tensor) -> Tensor:  # [n] seconds -> [n, 6] from the sweep before to each
    steps = log(integrated(twists, times[:-1], times[1:])) / times.diff()[:, None]
    return torch.cat([twists.at(times[:1]), steps])


def _velocities(said: Tensor | None, last: Tensor | None, seconds: float) -> list[Tensor]:  # [6] each
    """Possible velocities of the rig between two sweeps. The last one is tried, too, where the twists differ from it by
    more than driving does."""
    if said is None:
        last = _ahead(0.0) if last is None else last
        return [last] if seconds < LONG else [last, 0.5 * last, 0 * last]
    if last is None:
        return [said]
    turn, way = (said - last).view(2, 3).norm(dim=1).tolist()
    return [said] if turn < SUDDEN[0] and way < SUDDEN[1] else [last, said]


def _best(
    world: "small_gicp.GaussianVoxelMap",
    source: "small_gicp.PointCloud",
    guesses: Sequence[Tensor],
    before: "small_gicp.PointCloud | None" = None,  # in the world: upright things of the source must lie on it
) -> "tuple[small_gicp.RegistrationResult, Tensor]":
    """Registration from the guess that puts most points onto the map, and puts them there best; and the guess. The street looks alike at
    any speed, and traffic beside the rig fits where the rig stands still: upright things tell these apart."""
    import small_gicp

    found = [(small_gicp.align(world, source, guess.numpy(), REACH, max_iterations=ROUNDS), guess) for guess in guesses]
    if before is not None and len(found) > 1 and len(before.points()):  # the library reads beyond an empty tree
        points = upright(source)
        tree = small_gicp.KdTree(before.points()[:, :3])
        met = [_met(tree, points @ fit.T_target_source.T) for fit, _ in found]
        found = [fit for fit, count in zip(found, met, strict=True) if count >= ALIKE * max(met)]
    return max(found, key=lambda one: one[0].num_inliers / (1 + one[0].error / max(1, one[0].num_inliers)))


def _met(tree: "small_gicp.KdTree", points: NDArray[np.float64]) -> int:  # [n, 4]
    """Number of points near one of the sweep before."""
    if not len(points):
        return 0
    squares = tree.batch_nearest_neighbor_search(np.ascontiguousarray(points[:, :3]))[1]
    return int((np.asarray(squares) < NEAR**2).sum())


def _ahead(speed: float) -> Tensor:  # [6]
    return torch.tensor([0, 0, 0, speed, 0, 0], dtype=torch.float64)


def _seen(cloud: Cloud, velocity: Tensor) -> Tensor:  # [n, 3]
    """Returns thinned points as the rig sees them in the middle of the sweep."""
    some = cloud.select(thinned(cloud.points, CELL))
    return some.moved(lambda times: exp(velocity * (times - cloud.time)[:, None]))


def _source(points: Tensor) -> "small_gicp.PointCloud":
    import small_gicp

    source = small_gicp.PointCloud(points.numpy())
    small_gicp.estimate_covariances(source, num_neighbors=NEIGHBOURS, num_threads=torch.get_num_threads())
    return source
