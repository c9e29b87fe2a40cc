# SPDX-License-Identifier: Apache-2.0
"""Rays of a lidar against its table of beams: units, ring numbers, and the order of the arrays. Nothing here needs poses."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from nurec_lite.capture.checks.conventions import MADE
from nurec_lite.capture.checks.emptied import emptied, returns_of
from nurec_lite.capture.checks.flawed import flawed, look_at
from nurec_lite.capture.checks.ground import upside_down
from nurec_lite.capture.checks.misplaced import misplaced
from nurec_lite.capture.checks.odd_sweeps import odd_sweeps
from nurec_lite.capture.checks.ordered import Ordered
from nurec_lite.capture.checks.ray_values import Flaw, value_flaws
from nurec_lite.capture.checks.rescaled import rescaled
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.turned_sweeps import turned_sweeps
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.plausible import out_of_time
from nurec_lite.capture.types import SweepFrame
from nurec_lite.geometry.lidar import Lidar

NAME = "rays and beams"
SWEEPS = 3  # of a lidar
MOST = 30_000  # rays of a sweep, about: their elevations are checked
FEWEST = 200  # rays of a sweep, and
BEAMS = 4  # beams with rays, that tell anything
CLOSE, OF_A_BEAM = 0.4, 0.4  # largest error of a beam: degrees, and part of the angle between two beams
FAR = 1.0  # degrees; more is certain
FITS = 0.3  # of the difference as said that another reading leaves at most
WIDE, OF_A_STEP = 1.0, 1.5  # largest spread of a ring's rays: degrees, and angles between two beams
ROUGH = 0.3  # of the difference between any two ranges: neighbours differ by less
PAIRS = 1000  # of neighbours that show it


DEEP = 4.0  # metres below the lidar, where few returns lie
UNDER, RIGHT_WAY = 0.05, 0.2  # share of them that is odd, and part of it that another order leaves at most


@dataclass(frozen=True)
class Rings:
    """Beams as the rays of some sweeps have them."""

    said: Tensor  # [B] degrees of elevation, of the lidar
    seen: Tensor  # [B] degrees: median of the rays of each ring, NaN where there is none
    spread: Tensor  # [B] degrees: half of the span of the middle 80 %

    @property
    def known(self) -> Tensor:  # [B] bool
        return ~self.seen.isnan()

    @property
    def step(self) -> float:
        """Degrees between two beams."""
        return float(self.said.sort().values.diff().median()) if len(self.said) > 1 else 0.0

    def off(self, seen: Tensor, said: Tensor) -> float:  # [B] each
        """Median difference of two tables of elevations, in degrees; rings that are NaN do not count."""
        apart = (seen - said).abs()
        return float(apart[~apart.isnan()].median()) if bool((~apart.isnan()).any()) else 0.0


def check_rays(sample: Sample) -> Iterator[Verdict]:
    for lidar in sample.capture.lidars:
        verdict, sound = _of_some_sweeps(sample, lidar)
        yield verdict
        yield from flawed(sample, lidar, NAME) if sound else []
        yield from emptied(sample, lidar, NAME)
        frames = sample.of_lidar(lidar.name)
        found = list(rescaled(sample, frames, NAME)) or list(misplaced(sample, frames, NAME, "sweeps"))
        yield from found or list(turned_sweeps(sample, frames, NAME)) or odd_sweeps(sample, frames, NAME)


def ray_works(sample: Sample) -> Iterator[Callable[[], object]]:
    """Work on single sweeps, and on a few of each lidar."""
    for lidar in sample.capture.lidars:
        yield partial(_of_some_sweeps, sample, lidar)
        yield from (partial(_seen, sample, frame) for frame in sample.decoded(lidar.name))


def _seen(sample: Sample, frame: SweepFrame) -> None:
    returns_of(sample, frame)
    look_at(sample, frame)


def _of_some_sweeps(sample: Sample, lidar: Lidar) -> tuple[Verdict, bool]:
    """The verdict that a few sweeps of a lidar give, and whether their rays are right, as far as they tell."""

    def look() -> tuple[Verdict, bool]:
        late = next(_out_of_time(sample, lidar), None)
        sweeps = [] if late else swept(sample, lidar)
        flaw = late or next((f for s in sweeps for f in value_flaws(s.sweep, len(lidar.elevations))), None)
        if flaw is not None:
            return _wrong(lidar, Level.CERTAIN, flaw), False
        if not sweeps:
            sentence = f"Sweeps of {lidar.name} hold too few rays to tell."
            return Verdict(NAME, lidar.name, Level.UNKNOWN, sentence), False
        verdict = (_of_rings if lidar.spins else _without_rings)(lidar, sweeps)
        return verdict, verdict.level is not Level.CERTAIN

    return sample.kept(("rays", lidar.name), look)


def swept(sample: Sample, lidar: Lidar) -> list[Ordered]:
    """A few sweeps with enough rays, spread over the drive."""
    return [s for s in map(sample.ordered, sample.some_sweeps(lidar.name, SWEEPS)) if len(s) >= FEWEST]


def _out_of_time(sample: Sample, lidar: Lidar) -> Iterator[Flaw]:
    for frame in sample.some_sweeps(lidar.name, SWEEPS):
        flaw = out_of_time(sample.sweep(frame).times, frame.time_start, frame.time_end)
        if flaw is not None:
            yield f"Sweep {frame.index} {flaw[0]}", flaw[1].removesuffix(f" {MADE}")


def _wrong(lidar: Lidar, level: Level, flaw: Flaw, figures: dict[str, float] | None = None) -> Verdict:
    sentence, remedy = flaw
    return Verdict(NAME, lidar.name, level, f"{sentence} (lidar {lidar.name}).", f"{remedy} {MADE}", figures or {})


def _of_rings(lidar: Lidar, sweeps: Sequence[Ordered]) -> Verdict:
    rings = rings_of(lidar, sweeps)
    if int(rings.known.sum()) < min(BEAMS, len(lidar.elevations)):
        return _few_rings(lidar, sweeps, rings)
    off = rings.off(rings.seen, rings.said)
    figures = {"off_deg": off, "spread_deg": float(rings.spread[rings.known].median())}
    wide = figures["spread_deg"] > max(WIDE, OF_A_STEP * rings.step)
    if wide:
        return _wrong(lidar, Level.CERTAIN, _mixed(rings), figures)
    if off > max(CLOSE, OF_A_BEAM * rings.step):
        level, flaw = _elsewhere(rings, off)
        return _wrong(lidar, level, flaw, figures)
    ordered_otherwise = _shuffled(sweeps) or upside_down(lidar, sweeps) or _reversed(lidar, sweeps)
    if ordered_otherwise is not None:
        return _wrong(lidar, Level.CERTAIN, ordered_otherwise, figures)
    sentence = f"Rays of {lidar.name} lie on its beams, within {off:.2f}°."
    return Verdict(NAME, lidar.name, Level.RIGHT, sentence, figures=figures)


def _without_rings(lidar: Lidar, sweeps: Sequence[Ordered]) -> Verdict:
    """Verdict about a lidar without rows and columns, whose rings only group its rays."""
    flaw = _shuffled(sweeps) or upside_down(lidar, sweeps) or _reversed(lidar, sweeps)
    if flaw is not None:
        return _wrong(lidar, Level.CERTAIN, flaw)
    sentence = f"{lidar.name} has no rows and columns, and ranges of its neighbouring rays are alike."
    return Verdict(NAME, lidar.name, Level.RIGHT, sentence)


def rings_of(lidar: Lidar, sweeps: Sequence[Ordered]) -> Rings:
    some = [slice(None, None, max(1, len(s) // MOST)) for s in sweeps]
    elevation = torch.cat([torch.rad2deg(s.elevation[k]) for s, k in zip(sweeps, some, strict=True)])
    ring = torch.cat([s.sweep.rings[k] for s, k in zip(sweeps, some, strict=True)])
    order = torch.argsort(elevation, stable=True)
    order = order[torch.argsort(ring[order], stable=True)]
    elevation, beams = elevation[order], len(lidar.elevations)
    ends = torch.searchsorted(ring[order], torch.arange(beams + 1))
    first, count = ends[:-1], ends.diff()
    low, middle, high = (
        elevation[(first + (q * (count - 1)).long()).clamp(0, len(elevation) - 1)] for q in (0.1, 0.5, 0.9)
    )
    none = count == 0
    return Rings(
        torch.rad2deg(lidar.elevations.double()),
        middle.masked_fill(none, torch.nan),
        (0.5 * (high - low)).masked_fill(none, torch.nan),
    )


def _few_rings(lidar: Lidar, sweeps: Sequence[Ordered], rings: Rings) -> Verdict:
    """Verdict about rays of nearly one ring that lie at the elevations of many beams."""
    used, beams = int(rings.known.sum()), len(lidar.elevations)
    spread_of = float(rings.spread[rings.known].max()) if used else 0.0
    if spread_of > max(WIDE, OF_A_STEP * rings.step):
        sentence = f"All rays belong to {used} of {beams} beams, but span {2 * spread_of:.1f}° of elevation"
        return _wrong(lidar, Level.CERTAIN, (sentence, "give for each ray the number of its beam"))
    return Verdict(NAME, lidar.name, Level.UNKNOWN, f"Too few beams of {lidar.name} have rays to tell.")


def _mixed(rings: Rings) -> Flaw:
    """Flaw of rays of one ring that lie at many elevations."""
    spread_of = float(rings.spread[rings.known].median())
    return (
        f"Rays of one ring span {2 * spread_of:.1f}° of elevation, although beams are {rings.step:.2f}° apart",
        "rings and directions are in different orders, for example by row and by column, or angles in degrees were taken as radians: "
        "store both in one order, made of radians",
    )


def _elsewhere(rings: Rings, off: float) -> tuple[Level, Flaw]:
    """Flaw of rings that are cones, but not those of their beams in the table."""
    seen, said = rings.seen, rings.said
    where = f"Rays lie {off:.1f}° from the beams of their rings in the median"
    readings = {
        "ring numbers are reversed: number rings, or list elevations, from the other end": rings.off(seen.flip(0), said),
        "directions point down where they must point up: turn the sign of their z": rings.off(-seen, said),
        "angles were taken as radians but are in degrees: make directions of radians": rings.off(
            torch.rad2deg(torch.sin(torch.deg2rad(seen))), torch.rad2deg(torch.sin(said))
        ),
        "elevations are in degrees that were turned into radians twice: give radians": rings.off(seen, torch.rad2deg(said)),
        "rings are numbered from 1: subtract 1": rings.off(seen.roll(-1)[:-1], said[:-1]),
        "elevations are listed in another order than rings are numbered: list them by ring": rings.off(
            seen[rings.known].sort().values, said[rings.known].sort().values
        ) + 0.1 * FITS * off,
    }  # fmt: skip
    remedy, left = min(readings.items(), key=lambda reading: reading[1])
    if left < FITS * off:
        return Level.CERTAIN, (where, remedy)
    shift = float((seen - said)[rings.known].median())
    lie = rings.off(seen - shift, said)
    if lie < FITS * off:
        direction = "higher" if shift > 0 else "lower"
        level = Level.CERTAIN if abs(shift) > FAR else Level.LIKELY
        return level, (
            f"All rays lie {abs(shift):.1f}° {direction} than the beams of their rings",
            "correct elevations, or directions",
        )
    level = Level.CERTAIN if off > FAR else Level.LIKELY
    return level, (where, "give the elevation of each ring's beam in elevations, in radians")


def _shuffled(sweeps: Sequence[Ordered]) -> Flaw | None:
    """Flaw of neighbouring rays whose ranges differ as those of any two rays; None: they differ less."""
    near, any_two = [], []
    for rays in sweeps:
        sweep, order = rays.sweep, rays.order[rays.sweep.returned[rays.order]]
        ranges, rings = sweep.ranges[order], sweep.rings[order]
        same = rings[1:] == rings[:-1]
        near.append((ranges.diff().abs() / torch.minimum(ranges[1:], ranges[:-1]))[same])
        other = ranges[torch.randperm(len(ranges), generator=torch.Generator().manual_seed(0))]
        any_two.append((ranges - other).abs() / torch.minimum(ranges, other))
    beside, apart = torch.cat(near), torch.cat(any_two)
    if len(beside) < PAIRS or float(beside.median()) <= ROUGH * float(apart.median()):
        return None
    return (
        f"Ranges of neighbouring rays differ by {100 * float(beside.median()):.0f} % in the median, those of any two rays by "
        f"{100 * float(apart.median()):.0f} %",
        "ranges and directions are in different orders: store both in one order",
    )


def _reversed(lidar: Lidar, sweeps: Sequence[Ordered]) -> Flaw | None:
    """Flaw of ranges that put many points deep under the ground, unless they are read from the last to the first."""
    up = lidar.T_rig_lidar[2, :3].float()
    heights = [s.sweep.directions @ up for s in sweeps]  # of a metre of each ray
    given = _deep(torch.cat([h * s.sweep.ranges for h, s in zip(heights, sweeps, strict=True)]))
    turned = _deep(torch.cat([h * s.sweep.ranges.flip(0) for h, s in zip(heights, sweeps, strict=True)]))
    if given < UNDER or turned > RIGHT_WAY * given:
        return None
    return (
        f"{100 * given:.0f} % of the rays end more than {DEEP:g} m below the lidar, but {100 * turned:.0f} % if ranges are read from "
        "the last ray to the first",
        "ranges are in reversed order: store ranges, intensities and returns in the order of directions",
    )


def _deep(heights: Tensor) -> float:  # [n] metres above the lidar -> the share of those far below it
    return float((heights < -DEEP).double().mean())
