# SPDX-License-Identifier: Apache-2.0
"""Poses and sweeps: two sweeps of a lidar lie on each other in the world, or the poses are wrong. Which convention would fit is said."""

import math
from collections.abc import Iterator, Sequence
from statistics import median

from nurec_lite.capture.checks.conventions import MADE, Blamed, Convention, fitting
from nurec_lite.capture.checks.delayed import delayed, turning
from nurec_lite.capture.checks.exchanged import exchanged
from nurec_lite.capture.checks.lidar_pairs import elsewhere
from nurec_lite.capture.checks.motion import Motion, Motions
from nurec_lite.capture.checks.motions import more_motions, undisturbed
from nurec_lite.capture.checks.range_offset import lengthened
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.sloped import sloped
from nurec_lite.capture.checks.stretched import stretched
from nurec_lite.capture.checks.turns import against
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.deskew import middle_poses
from nurec_lite.geometry.lidar import Lidar

NAME = "poses and sweeps"
LIKELY, CERTAIN = 1.3, 2.0  # excess of the motions, in the mean
NAMED, SUSPECT = 1.0, 0.5  # the same where a convention fits: certainly wrong, and likely
# shares of points that lie on the other sweep under poses likely and certainly wrong, at most
FEWER, FEWEST = 0.85, 0.6
STILL = 0.05  # part of the way that poses of a standing vehicle go at most
# motions, part of their excess that is left, and standard errors: a convention is certain
FEWEST_SURE, PART, SIGMAS = 6, 0.4, 4.0
MOST = 0.75  # of the motions disagree with poses that are certainly wrong


def check_poses(sample: Sample) -> Iterator[Verdict]:
    """A verdict for each lidar."""
    found = {lidar.name: undisturbed(sample, lidar) for lidar in sample.capture.lidars}
    known = {name: Motions(motions) for name, motions in found.items() if motions}
    off = {name: v for name, motions in known.items() if (v := lengthened(sample, motions.lidar, motions, NAME))}
    yield from off.values()
    found = {name: motions for name, motions in found.items() if name not in off}
    known = {name: motions for name, motions in known.items() if name not in off}
    right = {name for name, motions in known.items() if motions.excess(motions.posed) <= SUSPECT}
    convention = _convention(sample, [m for name in known.keys() - right for m in known[name].all], bool(right))
    swapped = [] if convention else exchanged(known, [name for name in known if name not in right], NAME)
    if swapped:
        yield from swapped
        return
    for name in found:
        if name in known:
            level = Level.RIGHT if name in right else _level(known[name], convention)
            verdict, lidar = _verdict(name, known[name], level, convention, bool(right)), known[name].lidar
            small = _off_a_little(sample, known[name]) if level is Level.RIGHT else None
            yield small or _surely(sample, verdict, lidar, bool(right))
        else:
            sentence = f"Sweeps of {name} show too little static structure, or are too few, to show its motion."
            yield Verdict(NAME, name, Level.UNKNOWN, sentence)
    yield from elsewhere(sample, [motions.lidar for name, motions in known.items() if name in right], NAME)


def _off_a_little(sample: Sample, motions: Motions) -> Verdict | None:
    found = (check(sample, motions.lidar, motions, NAME) for check in (delayed, stretched, sloped, turning))
    return next((verdict for verdict in found if verdict), None)


def alternatives(sample: Sample) -> list[Convention]:
    """Conventions that fit about alike, where one lidar's sweeps contradict the poses."""
    (lidar,) = sample.capture.lidars
    best = _convention(sample, undisturbed(sample, lidar), others=False)
    return [] if best is None else [best, *best.others]


def _surely(sample: Sample, verdict: Verdict, lidar: Lidar, others: bool) -> Verdict:
    """The verdict after twice as many motions decided whether a likely convention is certain."""
    more = more_motions(sample, lidar) if verdict.level is Level.LIKELY and verdict.corrected is not None else []
    convention = _convention(sample, more, others) if len(more) >= FEWEST_SURE else None
    if convention is None or _level(Motions(more), convention) is not Level.CERTAIN:
        return verdict
    return _verdict(lidar.name, Motions(more), Level.CERTAIN, convention, others)


def _consistent(motions: Motions, convention: Convention) -> bool:
    """Whether motion after motion the convention fits better."""
    posed, fitting = motions.excesses(motions.posed), motions.excesses(convention.posed)
    better, n = posed - fitting, len(posed)
    if n < FEWEST_SURE or float(fitting.mean()) > PART * float(posed.mean()):
        return False
    return float(better.mean()) > SIGMAS * float(better.std()) / math.sqrt(n)


def _convention(sample: Sample, wrong: Sequence[Motion], others: bool) -> Convention | None:
    """Returns the convention that fits the wrong motions, if any; `others`: another lidar agrees with the poses."""
    lidars = {m.lidar.name: m.lidar for m in wrong}
    if not wrong or (others and len(lidars) > 1):
        return None
    frames = {name: [f for f in sample.capture.sweeps if f.sensor == name] for name in lidars}
    mirrored = [name for name, sweeps in frames.items() if against(sample, lidars[name], sweeps)]
    poses = {name: middle_poses(sweeps) for name, sweeps in frames.items()}
    blamed = Blamed.LIDAR if others else Blamed.EITHER if len(lidars) == 1 else Blamed.POSES
    return fitting(sample.capture, Motions(wrong), poses, blamed, mirrored)


def _level(motions: Motions, convention: Convention | None) -> Level:
    excesses = motions.excesses(motions.posed)
    most = float((excesses > 1).double().mean()) >= MOST and len(excesses) > 1
    excess, shares = motions.excess(motions.posed), motions.shares
    if convention is not None and (excess <= NAMED or len(excesses) == 1):  # one motion proves nothing
        return Level.CERTAIN if _consistent(motions, convention) else Level.LIKELY
    if convention is not None or (excess > CERTAIN and shares < FEWEST and most):
        return Level.CERTAIN
    return Level.LIKELY if excess > LIKELY and shares < FEWER else Level.RIGHT


def _verdict(name: str, motions: Motions, level: Level, convention: Convention | None, others: bool) -> Verdict:
    found = _figures(motions)
    fit, where = ("fit", "") if level is Level.RIGHT else ("do not fit", f" (point to plane {found['error_m']:.2f} m)")
    sentence = (
        f"The poses {fit} the sweeps of {name}: after {found['seconds']:.1f} s and {found['way_m']:.1f} m, they put points "
        f"{found['apart_m']:.2f} m from where the sweeps lie on each other{where}"
    )
    if level is Level.RIGHT:
        return Verdict(NAME, name, level, f"{sentence}.", figures=found)
    if convention is None:
        return Verdict(NAME, name, level, f"{sentence}.", _blamed(name, motions, others), found)
    found["fitting_m"] = convention.within
    alike = (convention, *convention.others)
    sentence += f"; they fit within {found['fitting_m']:.2f} m if {', or if '.join(c.meaning for c in alike)}."
    return Verdict(
        NAME, name, level, sentence, ", or ".join(dict.fromkeys(c.remedy for c in alike)), found, convention.corrected
    )


def _blamed(name: str, motions: Motions, others: bool) -> str:
    if others:
        return f"correct the mounting and the rays of {name} {MADE}: another lidar agrees with the poses"
    ways = [T[:, :3, 3].norm(dim=1) for T in (motions.posed, motions.measured)]
    still = bool((ways[0] < STILL * ways[1]).all())
    if still:
        return f"the poses stand still: give those of the drive {MADE}, or estimate them from the sweeps by data.poses.source=lidar"
    return f"correct the poses {MADE}"


def _figures(motions: Motions) -> dict[str, float]:
    return {
        "way_m": float(motions.measured[:, :3, 3].norm(dim=1).median()),
        "seconds": median(m.seconds for m in motions.all),
        "apart_m": motions.apart(motions.posed),
        "error_m": median(m.fit.error for m in motions.all),
        "shares": motions.shares,
    }
