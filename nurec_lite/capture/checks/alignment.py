# SPDX-License-Identifier: Apache-2.0
"""By how much edges of sweeps agree with edges of a camera's images, as the capture says and by other guesses.

A guess fits where ranks at the points are higher than at points that are turned to the side by a few degrees. Their difference is the
contrast of the guess. It is 0.1 to 0.2 for sensors that agree, and within 0.05 of zero for those that do not.
Letters: V views, T turns.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nurec_lite.capture.checks.edges import (
    View,
    edge_points,
    edges_at,
    image_edges,
    pixel_degrees,
    ranks,
    seen_from,
    thinned,
    turned,
)
from nurec_lite.capture.checks.guesses import Guess, looking
from nurec_lite.capture.checks.sample import Sample, spread
from nurec_lite.capture.trajectory import Trajectory, nearest
from nurec_lite.capture.types import ImageFrame, SweepFrame
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.se3 import interpolate_between, interpolate_trajectory, pose_matrix

VIEWS = 60  # of a camera at most, also where all frames are looked at
APART = 0.06  # seconds between an image and a sweep of one moment
FEWEST = 10  # points of an image that tell anything
MOST = 400  # points of an image that are looked at
ALL = 2500  # points of a view that are looked at where a guess is fitted
NEAR = 0.8  # degrees, and as much again as a pixel has: turns that belong to the guess
FAR = 12.0  # degrees: turns that say what chance gives
AROUND = 20  # degrees of one step all around
TRIED = 4  # turns of those, the highest
FINEST = 0.3  # degrees between turns all around
BETWEEN = 2.0  # times the near turns: what lies between belongs to neither


@dataclass(frozen=True)
class Fit:
    """How well a guess fits."""

    guess: Guess
    contrasts: Tensor  # [V] NaN where too few points fall into the image
    degrees: float  # by which the camera looks farther left than the guess says
    points: int  # in all images

    @property
    def contrast(self) -> float:
        known = self.contrasts[~self.contrasts.isnan()]
        return float(known.mean()) if len(known) else 0.0

    @property
    def images(self) -> int:
        """With enough points to tell."""
        return int((~self.contrasts.isnan()).sum())

    @property
    def error(self) -> float:
        """Standard error of the contrast."""
        return _error(self.contrasts[~self.contrasts.isnan()])

    @property
    def least(self) -> float:
        """What the contrast is at least, surely."""
        return max(0.0, self.contrast - 2 * self.error)

    def above(self, other: "Fit") -> float:
        """Standard errors by which the contrast is higher than another one, which is zero where few points tell it."""
        told = 2 * other.images > len(other.contrasts)
        apart = self.contrasts - other.contrasts.nan_to_num() if told else self.contrasts
        apart = apart[~apart.isnan()]
        return float(apart.mean()) / max(_error(apart), 1e-3) if len(apart) > 1 else 0.0


def _error(values: Tensor) -> float:
    return float(values.std()) / math.sqrt(len(values)) if len(values) > 1 else math.inf


def views_of(sample: Sample, camera: Camera) -> list[View]:
    """Images of a camera with the edges of all sweeps of their moments."""
    frames = spread(sample.images_of(camera.name), VIEWS)
    return [view for frame in frames for view in _view(sample, camera, frame)]


def _view(sample: Sample, camera: Camera, frame: ImageFrame) -> list[View]:
    points = []
    for lidar in sample.capture.lidars:
        sweeps = [sweep for sweep in sample.capture.sweeps if sweep.sensor == lidar.name]
        sweep = nearest(sweeps, frame.time_mid) if sweeps else None
        if sweep is not None and abs(sweep.time_mid - frame.time_mid) <= APART:
            points.append(_edges(sample, sweep))
    if not points:
        return []
    strengths = image_edges(sample.image(frame), camera)
    return [View(frame, torch.cat(points), strengths, ranks(strengths))]


def _edges(sample: Sample, frame: SweepFrame) -> Tensor:  # [P, 3]
    lidar = sample.capture.lidar(frame.sensor)
    return sample.kept(("edges", frame.sensor, frame.index), lambda: edge_points(frame, sample.sweep(frame), lidar))


def near(camera: Camera) -> float:  # degrees
    return NEAR + pixel_degrees(camera)


def fit(views: list[View], guess: Guess, path: Trajectory) -> Fit:
    bound = near(guess.camera)
    inner, outer = torch.linspace(-bound, bound, 7), torch.linspace(BETWEEN * bound, BETWEEN * bound + FAR, 12)
    profiles, points = _profiles(views, guess, path, torch.cat([inner, outer, -outer]))
    known = profiles[~profiles.isnan().any(1)]
    best = int(known[:, : len(inner)].mean(0).argmax()) if len(known) else 0
    contrasts = profiles[:, best] - profiles[:, len(inner) :].mean(1)
    return Fit(guess, contrasts, float(inner[best]), points)


def _profiles(
    views: list[View], guess: Guess, path: Trajectory, degrees: Tensor
) -> tuple[
    Tensor, int
]:  # mean ranks [V, T] at the edges of a camera that is turned, NaN where there are too few; number of edges
    """As if the whole image were exposed at once, which is fast."""
    guess = replace(guess, camera=replace(guess.camera, shutter="global"))
    found = [
        _profile(view, guess, T_world_rig, degrees)
        for view, T_world_rig in zip(views, _poses(views, guess.seconds, path), strict=True)
    ]
    return torch.stack([profile for profile, _ in found]), sum(points for _, points in found)


def _profile(view: View, guess: Guess, T_world_rig: Tensor, degrees: Tensor) -> tuple[Tensor, int]:
    points = seen_from(guess.camera, T_world_rig, thinned(view.points, ALL))
    if len(points) < FEWEST:
        return torch.full_like(degrees, math.nan), len(points)
    some = thinned(points, MOST)
    edges = view.ranks.flip(1) if guess.mirrored else view.ranks
    return edges_at(guess.camera, edges, turned(some, degrees))[0], len(points)


def _poses(
    views: list[View], seconds: float, path: Trajectory
) -> Tensor:  # [V, 4, 4] T_world_rig in the middle of images
    if seconds:
        times = torch.tensor([view.frame.time_mid + seconds for view in views], dtype=torch.float64)
        return interpolate_trajectory(path.times, path.poses, times)
    start, end = (torch.stack([getattr(v.frame, f"T_world_rig_{at}") for v in views]) for at in ("start", "end"))
    return pose_matrix(*interpolate_between(start, end, torch.full((len(views),), 0.5, dtype=torch.float64)))


def look_aside(
    views: list[View],
    camera: Camera,
    path: Trajectory,
) -> Guess:
    """The camera as it would have to look for edges to agree best, a few degrees to the side."""
    degrees = torch.arange(-FAR, FAR, FINEST)
    profiles, _ = _profiles(views, Guess("", camera), path, degrees)
    return looking(camera, float(degrees[profiles.nanmean(0).nan_to_num().argmax()]))


def look_around(
    views: list[View],
    camera: Camera,
    path: Trajectory,
) -> list[Guess]:
    """The camera from its place, as it would have to look for edges to agree best, all around: a few turns."""
    degrees, found = torch.arange(-0.5 * AROUND, 0.5 * AROUND, FINEST), []
    for about in range(0, 360, AROUND):
        profiles, _ = _profiles(views, looking(camera, about), path, degrees)
        known = profiles[~profiles.isnan().any(1)]
        if 2 * len(known) > len(views):
            mean = known.mean(0)
            found.append((float(mean.max() - mean.median()), about + float(degrees[mean.argmax()])))
    return [looking(camera, (turn + 180) % 360 - 180) for _, turn in sorted(found)[-TRIED:]]
