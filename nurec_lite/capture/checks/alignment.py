# SPDX-License-Identifier: Apache-2.0
"""Agreement of edges of sweeps with edges of a camera's images, as the capture says and by other guesses.

A guess fits where ranks at the points are higher than at points that are turned to the side by a few degrees. Their difference is the
contrast of the guess. It is 0.1 to 0.2 for sensors that agree, and within 0.05 of zero for those that do not.
Letters: V views, P points, T turns.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from nurec_lite.capture.checks.edges import (
    View,
    edge_rays,
    image_edges,
    pixel_degrees,
    places_of,
    ranks,
    thinned,
    turned,
    within,
)
from nurec_lite.capture.checks.guesses import Guess, looking
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.deskew import project_world_points, world_points
from nurec_lite.capture.evenly import spread
from nurec_lite.capture.trajectory import Trajectory, nearest
from nurec_lite.capture.types import ImageFrame, SweepFrame
from nurec_lite.geometry.camera import Camera, project_points, shutter_fraction
from nurec_lite.geometry.lidar import Sweep
from nurec_lite.geometry.masks import at_pixels
from nurec_lite.geometry.se3 import interpolate_between, interpolate_trajectory, invert, pose_matrix, transform

VIEWS = 60  # of a camera at most, also where all frames are looked at
APART = 0.06  # seconds between an image and a sweep of one moment
FEWEST = 10  # points of an image that tell anything
MOST, QUICK = 400, 120  # points of an image that are looked at, and in a quick look
ALL = 2500  # points of a view that are looked at where a guess is fitted
NEAR = 0.8  # degrees, and as much again as a pixel has: turns that belong to the guess
FAR = 12.0  # degrees: rotations so large that edges agree by chance alone
AROUND = 20  # degrees of one step all around
TRIED = 4  # turns of those, the highest
FINEST = 0.3  # degrees between turns all around
BETWEEN = 2.0  # times the near rotations: those between belong to neither


@dataclass(frozen=True)
class Fit:
    """Quality of a guess."""

    guess: Guess
    contrasts: Tensor  # [V] NaN where too few points fall into the image
    degrees: float  # that the camera looks farther left than the guess says
    points: int  # in all images

    @property
    def contrast(self) -> float:
        known = self.contrasts[~self.contrasts.isnan()]
        return float(known.mean()) if len(known) else 0.0

    @property
    def images(self) -> int:
        """Number of images with enough points."""
        return int((~self.contrasts.isnan()).sum())

    @property
    def error(self) -> float:
        """Standard error of the contrast."""
        return _error(self.contrasts[~self.contrasts.isnan()])

    @property
    def least(self) -> float:
        """A safe lower bound of the contrast."""
        return max(0.0, self.contrast - 2 * self.error)

    def above(self, other: "Fit") -> float:
        """Gain of the contrast over another one, in standard errors; zero where few points tell it."""
        result = 2 * other.images > len(other.contrasts)
        apart = self.contrasts - other.contrasts.nan_to_num() if result else self.contrasts
        apart = apart[~apart.isnan()]
        return float(apart.mean()) / max(_error(apart), 1e-3) if len(apart) > 1 else 0.0


def _error(values: Tensor) -> float:
    return float(values.std()) / math.sqrt(len(values)) if len(values) > 1 else math.inf


def views_of(sample: Sample, camera: Camera) -> list[View]:
    """Images of a camera with the edges of all sweeps of their moments."""
    frames = spread(sample.images_of(camera.name), VIEWS)
    return [view for frame in frames for view in view_of(sample, camera, frame)]


def view_of(sample: Sample, camera: Camera, frame: ImageFrame) -> list[View]:
    """Returns the view of an image; no view where no sweep is of its moment."""
    return sample.kept(("view", camera.name, frame.index), lambda: _view(sample, camera, frame))


def _view(sample: Sample, camera: Camera, frame: ImageFrame) -> list[View]:
    points, lidars = [], sample.capture.lidars
    for lidar in [one for one in lidars if one.spins] or lidars:  # neighbours on a beam show edges best
        sweeps = [sweep for sweep in sample.capture.sweeps if sweep.sensor == lidar.name]
        sweep = nearest(sweeps, frame.time_mid) if sweeps else None
        if sweep is not None and abs(sweep.time_mid - frame.time_mid) <= APART:
            points.append(world_points(sweep, rays_at_edges(sample, sweep), lidar))
    if not points:
        return []
    strengths = image_edges(sample.image(frame), camera)
    return [View(frame, unmasked(camera, frame, torch.cat(points)), strengths, ranks(strengths))]


def unmasked(camera: Camera, frame: ImageFrame, world: Tensor) -> Tensor:  # [p, 3]
    """The points that the camera's mask does not hide."""
    if camera.mask is None:
        return world
    pixels, depth = project_world_points(camera, frame, world)
    return world[~(at_pixels(camera.mask, pixels) & (depth > 0))]


def rays_at_edges(sample: Sample, frame: SweepFrame) -> Sweep:
    lidar = sample.capture.lidar(frame.sensor)
    return sample.kept(("edges", frame.sensor, frame.index), lambda: edge_rays(sample.ordered(frame), lidar))


def near(camera: Camera) -> float:  # degrees
    return NEAR + pixel_degrees(camera)


@dataclass(frozen=True)
class Views:
    """Views of one camera, in one tensor each."""

    frames: tuple[ImageFrame, ...]
    points: Tensor  # [V, P, 3] metres, world, float64; NaN after the last of a view
    ranks: Tensor  # [V, h, w]

    def __len__(self) -> int:
        return len(self.frames)


def together(views: list[View]) -> Views:
    """Views, at least one, with as many points as the fit of a guess reads."""
    points = pad_sequence([thinned(view.points, ALL) for view in views], batch_first=True, padding_value=math.nan)
    return Views(tuple(view.frame for view in views), points, torch.stack([view.ranks for view in views]))


def fit(
    views: Views,
    guess: Guess,
    path: Trajectory,
    quick: bool = False,  # fewer points and turns: to choose among many guesses
) -> Fit:
    bound, far = near(guess.camera), 6 if quick else 12
    inner, outer = torch.linspace(-bound, bound, 7), torch.linspace(BETWEEN * bound, BETWEEN * bound + FAR, far)
    profiles, points = _profiles(views, guess, path, torch.cat([inner, outer, -outer]), QUICK if quick else MOST)
    known = profiles[~profiles.isnan().any(1)]
    best = int(known[:, : len(inner)].mean(0).argmax()) if len(known) else 0
    contrasts = profiles[:, best] - profiles[:, len(inner) :].mean(1)
    return Fit(guess, contrasts, float(inner[best]), points)


def _profiles(
    views: Views, guess: Guess, path: Trajectory, degrees: Tensor, most: int = MOST
) -> tuple[
    Tensor, int
]:  # mean ranks [V, T] at the edges of a camera that is turned, NaN where there are too few; number of edges
    camera = replace(guess.camera, shutter="global")
    points, inside = seen_at(views, guess, path)
    some, known = _thinned(points.float(), inside, most)
    ranks = views.ranks.flip(2) if guess.mirrored else views.ranks
    places, seen = places_of(camera, turned(some, degrees))
    found = F.grid_sample(ranks[:, None], places.transpose(0, 1), padding_mode="border", align_corners=False)[:, 0]
    seen = (seen & known).transpose(0, 1)  # [V, T, p]
    means = torch.where(seen, found, 0).sum(2) / seen.sum(2).clamp(min=1)
    counts = inside.sum(1)
    return means.masked_fill(counts[:, None] < FEWEST, math.nan), int(counts.sum())


def seen_at(
    views: Views, guess: Guess, path: Trajectory
) -> tuple[Tensor, Tensor]:  # points as `_seen` has them, and [V, P] whether they fall into the image
    points = _seen(views, guess, path)
    return points, within(guess.camera, *project_points(replace(guess.camera, shutter="global"), points))


def _seen(
    views: Views, guess: Guess, path: Trajectory
) -> Tensor:  # [V, P, 3] metres, in the camera's axes at the time when each point is read, about
    T = guess.camera.T_rig_cam
    if guess.camera.shutter == "global":
        return transform(invert(_poses(views.frames, guess.seconds, path, 0.5) @ T), views.points)
    first, last = (
        transform(invert(_poses(views.frames, guess.seconds, path, k) @ T), views.points) for k in (0.0, 1.0)
    )
    pixels, _ = project_points(replace(guess.camera, shutter="global"), 0.5 * (first + last))
    read = shutter_fraction(guess.camera, pixels).clamp(0, 1)[..., None]
    return first + read * (last - first)


def _thinned(
    points: Tensor,  # [V, P, 3]
    chosen: Tensor,  # [V, P]
    most: int,
) -> tuple[
    Tensor, Tensor
]:  # [V, p, 3] at most so many chosen points of each view, evenly, and [V, p] whether there are so many
    numbers, steps = chosen.cumsum(1) - 1, chosen.sum(1, keepdim=True).add(most - 1).floor_divide(most).clamp(min=1)
    rows, columns = (chosen & (numbers % steps == 0)).nonzero(as_tuple=True)
    at = (numbers // steps)[rows, columns]
    some = points.new_zeros(len(points), most, 3).index_put((rows, at), points[rows, columns])
    known = torch.zeros(len(points), most, dtype=torch.bool).index_put((rows, at), torch.tensor(True))
    return some, known


def _poses(
    frames: Sequence[ImageFrame], seconds: float, path: Trajectory, part: float
) -> Tensor:  # [V, 4, 4] T_world_rig at that part of the images' exposures
    if seconds:
        times = [f.time_start + part * (f.time_end - f.time_start) + seconds for f in frames]
        return interpolate_trajectory(path.times, path.poses, torch.tensor(times, dtype=torch.float64))
    start, end = (torch.stack([getattr(frame, f"T_world_rig_{at}") for frame in frames]) for at in ("start", "end"))
    return pose_matrix(*interpolate_between(start, end, torch.full((len(frames),), part, dtype=torch.float64)))


def look_aside(
    views: Views,
    camera: Camera,
    path: Trajectory,
) -> Guess:
    """The camera as it would have to look for edges to agree best, a few degrees to the side."""
    degrees = torch.arange(-FAR, FAR, FINEST)
    profiles, _ = _profiles(views, Guess("", camera), path, degrees)
    return looking(camera, float(degrees[profiles.nanmean(0).nan_to_num().argmax()]))


def look_around(
    views: Views,
    camera: Camera,
    path: Trajectory,
) -> list[Guess]:
    """The camera from its place, as it would have to look for edges to agree best, all around: a few turns."""
    degrees, found = torch.arange(-0.5 * AROUND, 0.5 * AROUND, FINEST), []
    for about in range(0, 360, AROUND):
        profiles, _ = _profiles(views, looking(camera, about), path, degrees, QUICK)
        known = profiles[~profiles.isnan().any(1)]
        if 2 * len(known) > len(views):
            mean = known.mean(0)
            found.append((float(mean.max() - mean.median()), about + float(degrees[mean.argmax()])))
    return [looking(camera, (turn + 180) % 360 - 180) for _, turn in sorted(found)[-TRIED:]]
