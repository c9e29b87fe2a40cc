# SPDX-License-Identifier: Apache-2.0
"""Motions of the lidars over about half a second, as their sweeps show them and as the poses say."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from nurec_lite.base.pool import in_threads
from nurec_lite.capture.checks.motion import Motion, Motions
from nurec_lite.capture.checks.register import Cloud, Fit, Pair, Surface, cloud_of, exp, log, velocity_of
from nurec_lite.capture.checks.sample import SPAN, Sample, frames_in
from nurec_lite.capture.deskew import middle_poses
from nurec_lite.capture.types import POSITIONED, SweepFrame
from nurec_lite.geometry.lidar import Lidar
from nurec_lite.geometry.se3 import invert

Told = TypeVar("Told")
WAY = 10.0  # metres between the sweeps of a motion, at most, about
PARTS = 0.7, 1.2  # of these, where such a sweep is decoded in any case
FAR = 0.6  # metres between where the poses put points at the end and where the first motion makes one expect them, at most, where one
# step is enough
STEP = 0.5  # metres between motions that are tried where the poses may be wrong
CLOSE_BY = 1.2  # times the error of the best motion: another one may become better
FASTEST, LONGEST = 40.0, 8.0  # metres a second and metres, of those
BESIDE = 0.15  # seconds about a jump of the poses; motions there tell it again
DIRECTIONS = 8  # horizontal ones, of those


def known_motions(sample: Sample, lidar: Lidar) -> list[Motion]:
    """A few motions, spread over the drive, that its sweeps show; none where its rays are wrong."""
    if sample.blamed("rays", subject=lidar.name):
        return []
    return sample.kept(("motions", lidar.name), lambda: [m for m in _motions_of(sample, lidar) if m.known])


def more_motions(sample: Sample, lidar: Lidar) -> list[Motion]:
    """Returns twice as many motions, for doubtful poses."""
    twice = Sample(sample.capture, sample.images, None if sample.sweeps is None else 2 * sample.sweeps, sample.found)
    return sample.kept(("more motions", lidar.name), lambda: undisturbed(twice, lidar))


def confirmed(sample: Sample, lidar: Lidar, motions: Motions, tells: Callable[[Motions], Told | None]) -> Told | None:
    """The result for twice as many motions; None where these or the given ones tell nothing, and for poses of satellites, which drift."""
    if sample.capture.poses_from == POSITIONED or tells(motions) is None:
        return None
    more = more_motions(sample, lidar)
    return tells(Motions(more)) if more else None


def undisturbed(sample: Sample, lidar: Lidar) -> list[Motion]:
    """Motions of known_motions without a jump of the poses, so that a jump is reported once."""
    jumps = sample.jumps()
    if not jumps:
        return known_motions(sample, lidar)
    middles = [f.time_mid for f in sample.capture.sweeps if f.sensor == lidar.name]
    known, beside = known_motions(sample, lidar), BESIDE
    spans = [(middles[m.frames[0]] - beside, middles[m.frames[1]] + beside) for m in known]
    return [
        m for m, (a, b) in zip(known, spans, strict=True) if not any(a <= last and first <= b for first, last in jumps)
    ]


def _motions_of(sample: Sample, lidar: Lidar) -> list[Motion]:
    frames = [frame for frame in sample.capture.sweeps if frame.sensor == lidar.name]
    if len(frames) < 2:
        return []
    return [
        m for m in in_threads(partial(motion_from, sample, lidar), sample.motion_starts(lidar.name)) if m is not None
    ]


def motion_from(sample: Sample, lidar: Lidar, k: int) -> Motion | None:
    """Motion that begins at sweep k of a lidar; None: there are too few points."""
    frames = sample.of_lidar(lidar.name)
    poses = sample.kept(("poses", lidar.name), lambda: middle_poses(frames) @ lidar.T_rig_lidar.double())
    return sample.kept(("motion", lidar.name, k), lambda: _motion(sample, lidar, frames, poses, k))


def motion_to_the_next(sample: Sample, lidar: Lidar, k: int) -> Motion | None:
    """Motion from sweep k of a lidar to the next; None: there are too few points."""
    frames = [frame for frame in sample.capture.sweeps if frame.sensor == lidar.name]
    poses = middle_poses(frames[: k + 2]) @ lidar.T_rig_lidar.double()
    return _near(_Clouds(sample, frames), lidar, invert(poses[k]) @ poses, k)


def motion_between(
    sample: Sample,
    lidar: Lidar,
    i: int,
    j: int,
    steady: Callable[[Tensor], Tensor],  # the posed T_a_b -> the motion that the points are rid of
) -> Motion | None:
    """Motion from sweep i of a lidar to sweep j, near that of the poses; None: there are too few points."""
    clouds = _Clouds(sample, sample.of_lidar(lidar.name))
    poses = middle_poses([clouds.frames[i], clouds.frames[j]]) @ lidar.T_rig_lidar.double()
    posed, seconds = invert(poses[0]) @ poses[1], clouds.seconds(i, j)
    pair = _pair(clouds, i, j, velocity_of(steady(posed), seconds))
    return (
        Motion(lidar, (i, j), clouds.numbers(i, j), seconds, pair, pair.aligned(posed), posed) if pair.enough else None
    )


def _last(sample: Sample, lidar: Lidar, k: int, gap: int) -> int:
    """The last sweep of a motion: about `gap` later than k, one that is decoded in any case if there is one."""
    decoded = {frame.index for frame in sample.decoded(lidar.name)}
    frames = sample.of_lidar(lidar.name)
    near = [
        j for j in range(k + 1, len(frames)) if PARTS[0] * gap <= j - k <= PARTS[1] * gap and frames[j].index in decoded
    ]
    return min(near, key=lambda j: abs(j - k - gap), default=min(k + gap, len(frames) - 1))


def _motion(
    sample: Sample,
    lidar: Lidar,
    frames: Sequence[SweepFrame],
    poses: Tensor,  # [n, 4, 4] T_world_lidar
    k: int,
) -> Motion | None:
    """Motion from sweep k to one about SPAN or WAY later. The motion to the next sweep, found without poses, says where
    to look for it; where the poses disagree, the way is doubled again and again."""
    posed = invert(poses[k]) @ poses
    clouds = _Clouds(sample, frames)
    near = _near(clouds, lidar, posed, k)
    if near is None:
        return None
    gap = max(1, min(frames_in(frames, SPAN), round(WAY / max(float(near.fit.T_a_b[:3, 3].norm()), 1e-3))))
    last = _last(sample, lidar, k, gap)
    off = log(near.fit.T_a_b) - log(posed[k + 1])
    expected = exp(log(posed[last]) + off * clouds.seconds(k, last) / near.seconds)  # however its speed changes
    right, step = near.pair.moved_apart(expected, posed[last]) < FAR, 1
    while near.frames[1] < last:
        step = last - k if right else min(2 * step, last - k)
        near = _farther(clouds, near, posed, k + step, right)
    return near


@dataclass(frozen=True)
class _Clouds:
    sample: Sample
    frames: Sequence[SweepFrame]
    known: dict[int, Cloud] = field(default_factory=dict)

    def __call__(self, i: int) -> Cloud:
        if i not in self.known:
            self.known[i] = cloud_of(self.frames[i], self.sample.sweep(self.frames[i]))
        return self.known[i]

    def seconds(self, i: int, j: int) -> float:
        return self.frames[j].time_mid - self.frames[i].time_mid

    def numbers(self, i: int, j: int) -> tuple[int, int]:
        return self.frames[i].index, self.frames[j].index


def _near(clouds: _Clouds, lidar: Lidar, posed: Tensor, k: int) -> Motion | None:
    """Motion to the next sweep; None: there are too few points."""
    seconds, T = clouds.seconds(k, k + 1), posed[k + 1]
    pair = _pair(clouds, k, k + 1, velocity_of(T, seconds))
    if not pair.enough:
        return None
    fit = _found(pair, pair.aligned(T), lidar, seconds)
    motion = Motion(lidar, (k, k + 1), clouds.numbers(k, k + 1), seconds, pair, fit, T)
    if Motions([motion]).excess(T[None]) > 0.5:  # the sweeps were not rid of the right motion
        pair = _pair(clouds, k, k + 1, velocity_of(fit.T_a_b, seconds))
        motion = replace(motion, pair=pair, fit=_found(pair, pair.aligned(fit.T_a_b), lidar, seconds))
    return None if _beyond(motion) else motion


def _beyond(motion: Motion) -> bool:
    """Whether the poses drive farther than motions are tried, and no faster than vehicles do: sweeps that fit elsewhere refute nothing."""
    far = LONGEST < float(motion.posed[:3, 3].norm()) < FASTEST * motion.seconds
    return far and motion.pair.moved_apart(motion.fit.T_a_b, motion.posed) > FAR


def _farther(clouds: _Clouds, near: Motion, posed: Tensor, j: int, right: bool) -> Motion:
    """Motion from the first sweep of a motion to a later one than its second."""
    i, seconds = near.frames[0], clouds.seconds(near.frames[0], j)
    velocity = velocity_of(near.posed if right else near.fit.T_a_b, near.seconds)
    pair = near.pair.to(clouds(j).still(velocity)) if right else _pair(clouds, i, j, velocity)
    fit = pair.aligned(posed[j] if right else exp(velocity * seconds))
    return Motion(near.lidar, (i, j), clouds.numbers(i, j), seconds, pair, fit, posed[j])


def _pair(clouds: _Clouds, i: int, j: int, velocity: Tensor) -> Pair:
    return Pair(Surface(clouds(i).still(velocity), clouds(i).rings), clouds(j).still(velocity))


def _found(pair: Pair, fit: Fit, lidar: Lidar, seconds: float) -> Fit:
    """The fit, or another one far from it that lays the sweeps on each other better."""
    tried = _tried(lidar, seconds)
    own, *scores = pair.scores(torch.cat([fit.T_a_b[None], tried])).tolist()
    best = sorted(range(len(tried)), key=lambda i: scores[i])[:2]
    other = [i for i in best if scores[i] < CLOSE_BY * own and pair.moved_apart(tried[i], fit.T_a_b) > 0.6 * STEP]
    fits = [fit, *(pair.aligned(tried[i], reach=1.5 * STEP) for i in other)]
    return min(fits, key=lambda found: float(pair.scores(found.T_a_b[None])))


def _tried(lidar: Lidar, seconds: float) -> Tensor:  # [t, 4, 4] T_a_b without turns
    lengths = torch.arange(STEP, min(LONGEST, FASTEST * seconds), STEP, dtype=torch.float64)
    angles = torch.arange(DIRECTIONS, dtype=torch.float64) * (2 * torch.pi / DIRECTIONS)
    ways = torch.stack([angles.cos(), angles.sin(), torch.zeros_like(angles)], dim=1)
    ways = ways @ lidar.T_rig_lidar[:3, :3].double()  # of the rig's axes, in the lidar's
    ways = torch.cat([torch.zeros(1, 3, dtype=torch.float64), (lengths[:, None, None] * ways).flatten(0, 1)])
    tried = torch.eye(4, dtype=torch.float64).repeat(len(ways), 1, 1)
    tried[:, :3, 3] = ways
    return tried
