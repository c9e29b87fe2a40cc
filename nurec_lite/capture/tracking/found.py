# SPDX-License-Identifier: Apache-2.0
"""Tracks of moving objects, found in the sweeps of a capture alone."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch

from nurec_lite.capture.checks.impossible import impossible_tracks
from nurec_lite.capture.tracking.boxes import Path, turned
from nurec_lite.capture.tracking.cloud import Cloud, cloud_of
from nurec_lite.capture.tracking.free_space import find_candidates
from nurec_lite.capture.tracking.ground import Ground, ground_of
from nurec_lite.capture.tracking.jumps import jumps, rejoined
from nurec_lite.capture.tracking.objects import MOMENTS, find_objects
from nurec_lite.capture.tracking.returns import Sweeps, read_sweeps
from nurec_lite.capture.tracking.smooth import Doubles, smooth
from nurec_lite.capture.types import FOUND, Capture, SweepFrame
from nurec_lite.geometry.lidar import Lidar
from nurec_lite.geometry.tracks import Tracks

MARGIN = 0.5  # sweeps that a track exists before its first and after its last moment
BEAMS = 8  # of a lidar at least: with fewer, objects cannot be separated from the ground
OWN, OWN_CHANGE = 6.0, 0.3  # metres around the lidar, and largest change of a distance to a part of the vehicle
OWN_SIDE = 1.2  # metres to the side that the vehicle and its mirrors reach
ERROR = 0.05  # metres: standard deviation of the height of the ground
SIDES = 0.7, 1.2, 1.7  # metres from the sides of an object, where the ground is looked up
CROWN = 0.08  # metres that the middle of a street lies above its sides at most
BUMPS = 0.1  # metres a second squared: standard deviation of how the height changes along a way


def find_tracks(capture: Capture) -> Tracks:
    """Tracks by the lidar with most beams. A drive with few sweeps has none."""
    lidar = max(capture.lidars, key=lambda one: len(one.elevations), default=None)
    frames = [] if lidar is None else [frame for frame in capture.sweeps if frame.sensor == lidar.name]
    if lidar is None or len(frames) < MOMENTS or len(lidar.elevations) < BEAMS:
        return Tracks.empty()
    return _possible(capture, _searched(lidar, frames))


def _searched(lidar: Lidar, frames: list[SweepFrame]) -> Tracks:
    """Tracks in some sweeps. Parts before and after a jump of the poses are searched alone."""
    if len(frames) < MOMENTS:
        return Tracks.empty()
    sweeps = read_sweeps(lidar, frames)
    ground = ground_of(sweeps)
    found = find_candidates(sweeps, ground)
    if ends := jumps(found):
        bounds = pairwise([0, *ends, len(frames)])
        return _named(rejoined([_searched(lidar, frames[a:b]) for a, b in bounds], MARGIN * sweeps.period))
    cloud = cloud_of(sweeps, found, ground)
    return _tracks([path for path in find_objects(cloud) if not is_own(path, cloud)], sweeps, ground)


def _named(tracks: Tracks) -> Tracks:
    return replace(tracks, ids=tuple(f"{FOUND}{i + 1}" for i in range(len(tracks))))


def is_own(path: Path, cloud: Cloud) -> bool:
    """Whether an object is the vehicle itself: it keeps its distance from the lidar. So does traffic beside it, but one lane further."""
    from_lidar = path.places - cloud.sensor(path.times)
    away = np.linalg.norm(from_lidar, axis=1)
    aside = np.abs(turned(from_lidar, path.yaws)[:, 1]) - 0.5 * path.kind.size[1]
    return float(away.max()) < OWN and float(np.ptp(away)) < OWN_CHANGE and float(np.median(aside)) < OWN_SIDE


def _possible(capture: Capture, tracks: Tracks) -> Tracks:
    """Tracks without those that the capture's checks would refuse."""
    wrong = {verdict.subject for verdict in impossible_tracks(replace(capture, tracks=tracks))}
    return tracks.select([k for k, name in enumerate(tracks.ids) if name not in wrong])


def _tracks(paths: list[Path], sweeps: Sweeps, ground: Ground) -> Tracks:
    paths = [path for path in paths if np.isfinite(_ground_under(path, ground)).all()]  # else no height is known
    if not paths:
        return Tracks.empty()
    places = np.concatenate([_centres(path, ground) for path in paths]) + sweeps.origin
    yaws = torch.from_numpy(np.concatenate([path.yaws for path in paths]))
    turn = torch.stack([(yaws / 2).cos(), 0 * yaws, 0 * yaws, (yaws / 2).sin()], dim=1)
    return Tracks(
        ids=tuple(f"{FOUND}{i + 1}" for i in range(len(paths))),
        classes=tuple(path.kind.name for path in paths),
        sizes=torch.tensor([path.kind.size for path in paths], dtype=torch.float64),
        offsets=(0, *np.cumsum([len(path.times) for path in paths]).tolist()),
        times=torch.from_numpy(np.concatenate([path.times for path in paths])),
        translations=torch.from_numpy(places),
        quaternions=turn,
        margin=MARGIN * sweeps.period,
    )


def _centres(path: Path, ground: Ground) -> Doubles:  # [n, 3] metres
    """Centres of boxes above the ground, smoothed, since the map of the ground has steps."""
    height = smooth(path.times, _ground_under(path, ground)[:, None], np.full(len(path.times), ERROR), BUMPS)
    return np.column_stack([path.places, height[:, 0] + 0.5 * path.kind.size[2]])


def _ground_under(path: Path, ground: Ground) -> Doubles:  # [n] metres
    """Ground under an object. Where the object always hides it, its own lowest returns count as ground, and the higher
    side of the street is taken."""
    below = _below(path, ground, 0.0)
    left, right = (np.median([_below(path, ground, sign * away) for away in SIDES], axis=0) for sign in (1, -1))
    sides = np.maximum(left, right)
    return np.where(below < sides + CROWN, below, sides)


def _below(path: Path, ground: Ground, left: float) -> Doubles:  # [n] metres: the ground so far from the way
    across = np.column_stack([-np.sin(path.yaws), np.cos(path.yaws)])
    away = left + np.sign(left) * 0.5 * path.kind.size[1]
    places = np.column_stack([path.places + away * across, np.zeros(len(path.times))])
    for seen in (True, False):
        found = ground.below(places, seen).astype(np.float64)
        known = np.isfinite(found)
        if known.any():
            return np.interp(path.times, path.times[known], found[known])
    return np.full(len(found), np.inf)
