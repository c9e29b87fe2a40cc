# SPDX-License-Identifier: Apache-2.0
"""Poses and driving: the rig moves the way it looks, does not jump, and has one pose at a time for all sensors."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.capture.checks.conventions import MADE
from nurec_lite.capture.checks.ends import exchanged_ends
from nurec_lite.capture.checks.jitter import jitter
from nurec_lite.capture.checks.motion import Motions
from nurec_lite.capture.checks.motions import known_motions
from nurec_lite.capture.checks.paths import FEWEST, NAME, REMEDY, Path, paths_of, seen_step
from nurec_lite.capture.checks.sample import BY_SWEEPS, JUMP_AT, Sample
from nurec_lite.capture.checks.small_jumps import small_jumps
from nurec_lite.capture.checks.turned_path import of_neighbours, turn_jumps
from nurec_lite.capture.checks.two_places import poses_at_a_time
from nurec_lite.capture.checks.verdict import Level, Verdict

LEAST, ACCELERATION = 0.5, 4.0  # metres, and metres a second squared: a step may be so far from its neighbours'
SEEN = 0.1  # metres: the same where sweeps decide
NOISE = 6.0  # times the median difference: a step may be so far from its neighbours'
IMPOSSIBLE = 100.0  # metres a second squared, which no vehicle reaches
SURE = 1.0  # metres: a smaller jump is likely at most
MOVES, SLOW = 5.0, 1.0  # least metres of the drive, and metres a second, so that the direction of motion tells anything
AHEAD = 0.8  # part of the way that a rig goes along its x axis, at least
ALIKE = 0.1  # largest relative difference of two jumps that belong together
MOST_JUMPS = 4  # that are looked at
_AXES = (("forward", "backward"), ("left", "right"), ("up", "down"))


def check_driving(sample: Sample) -> Iterator[Verdict]:
    """Verdicts about the poses alone; of a jump, sweeps decide. Where sweeps contradict all poses, another check says so."""
    motions = [m for lidar in sample.capture.lidars for m in known_motions(sample, lidar)]
    fit = not motions or Motions(motions).excess(Motions(motions).posed) <= 1
    paths = [path for path in paths_of(sample.capture) if len(path.frames) >= FEWEST]
    if not paths:
        yield Verdict(
            NAME,
            sample.capture.name,
            Level.UNKNOWN,
            f"No sensor has {FEWEST} frames that would show how the rig moves.",
        )
        return
    found = list(_jumps(sample, paths)) or list(turn_jumps(sample, paths[0])) or list(small_jumps(sample, paths[0]))
    found = found or list(jitter(paths[0], motions))
    if fit and not found and not sample.jumps():  # a path that jumps does not show which way the rig looks
        found = [*_direction(paths[0], bool(motions)), *poses_at_a_time(paths), *exchanged_ends(paths)]
    if found or fit:
        yield from found or [_driven(sample, paths[0])]


def _driven(sample: Sample, path: Path) -> Verdict:
    way, seconds = float(path.steps.norm(dim=1).sum()), float(path.times[-1] - path.times[0])
    sentence = f"The rig moves steadily, {way:.1f} m in {seconds:.1f} s."
    return Verdict(NAME, sample.capture.name, Level.RIGHT, sentence, figures={"way_m": way, "seconds": seconds})


# ---- jumps


def _jumps(sample: Sample, paths: Sequence[Path]) -> Iterator[Verdict]:
    """Returns the jumps of the first sensor with any: all have the poses of one rig."""
    for path in paths:
        named = sample.jumps()  # by the positions that poses come from
        large = {i for i, _ in jumps(path)}
        known = [(i, m) for i, m in jumps(path, SEEN) if not any(_in_step(path, i, *span) for span in named)]
        verdicts = {i: v for i, m in known[:MOST_JUMPS] if (v := _jump(sample, path, i, m, large=i in large))}
        if verdicts:
            yield from _there_and_back(path, verdicts)
            return


def _in_step(path: Path, i: int, first: float, last: float) -> bool:
    """Whether times reach into a step or its neighbours."""
    n = len(path.times)
    return float(path.times[max(0, i - 1)]) <= last and first <= float(path.times[min(n - 1, i + 2)])


def _there_and_back(
    path: Path,
    verdicts: Mapping[int, Verdict],  # by the step that jumps
) -> list[Verdict]:
    """Joins two jumps of one size in opposite directions: they are one displaced part of the path."""
    found = list(verdicts.values())
    if len(found) != 2 or abs(found[0].figures["jump_m"] / found[1].figures["jump_m"] - 1) > ALIKE:
        return found
    one, other = _contradicted(path)[list(verdicts)]
    if float(one @ other) > 0:
        return found
    first, last = sorted(found, key=lambda v: v.figures[JUMP_AT])
    back = last.sentence.split(" before ")[1].split(":")[0]
    what, rest = first.sentence.split(":", maxsplit=1)
    return [replace(first, sentence=f"{what}, and back before {back}:{rest}")]


def jumps(path: Path, least: float = LEAST) -> list[tuple[int, float]]:
    """Steps from a frame to the next one that are off by more than driving explains, and by how many metres; the largest first."""
    seconds, apart = path.times.diff(), _contradicted(path)
    off = apart.norm(dim=1)
    far = off > least + ACCELERATION * seconds.square() + NOISE * off.median()
    beside = F.pad(off, (1, 1))
    peak = (off >= beside[:-2]) & (off >= beside[2:])
    found = (far & peak).nonzero()[:, 0].tolist()
    whole = apart + F.pad(apart, (0, 0, 1, 0))[:-1] + F.pad(apart, (0, 0, 0, 1))[1:]  # poses between jump in parts
    sizes = torch.maximum(whole.norm(dim=1), off)  # parts of one frame that is displaced alone cancel each other
    return sorted(((i, float(sizes[i])) for i in found), key=lambda jump: -jump[1])


def _contradicted(path: Path) -> Tensor:  # [n - 1, 3] metres: steps without those that their neighbours expect
    seconds = path.times.diff()[:, None]
    return path.steps - of_neighbours(path.steps / seconds) * seconds


def _jump(sample: Sample, path: Path, i: int, metres: float, large: bool) -> Verdict | None:
    """Returns a verdict on a jump; None: the sweeps show the same motion, or they show nothing and the jump is not `large`."""
    frame, step = path.frames[i + 1], float(path.steps[i].norm())
    seconds = float(path.times[i + 1] - path.times[i])
    sentence = f"The poses jump by {metres:.1f} m before frame {frame.index} of {path.sensor}: they go {step:.1f} m in {seconds:.2f} s"
    figures = {"jump_m": metres, "step_m": step, "seconds": seconds, JUMP_AT: float(path.times[i + 1])}
    seen = seen_step(sample, path, i)
    if seen is not None:
        if seen.excess(seen.posed) <= 1:
            return None
        figures |= {"sweeps_m": (way := float(seen.measured[0, :3, 3].norm())), BY_SWEEPS: 1.0}
        level = Level.CERTAIN if metres > SURE else Level.LIKELY
        return Verdict(NAME, path.sensor, level, f"{sentence}, {way:.1f} m by the sweeps.", REMEDY, figures)
    if not large:
        return None
    sure = metres > SURE and metres > IMPOSSIBLE * seconds**2
    return Verdict(NAME, path.sensor, Level.CERTAIN if sure else Level.LIKELY, f"{sentence}.", REMEDY, figures)


# ---- directions


def _direction(path: Path, agreed: bool) -> Iterator[Verdict]:
    """Yields a verdict unless the rig goes along its own x axis; `agreed`: the sweeps agree with the poses, so that only the rig's axes can
    be others."""
    steps = (path.poses[:-1, :3, :3].transpose(1, 2) @ path.steps[..., None])[..., 0]
    moving = steps.norm(dim=1) > SLOW * path.times.diff()
    ways, total = steps[moving].abs().sum(0), float(steps[moving].norm(dim=1).sum())
    if total < MOVES or float(ways[0]) >= AHEAD * total:
        return
    axis = int(ways.argmax())
    where = _AXES[axis][int(float(steps[moving][:, axis].sum()) < 0)]
    sentence = f"The rig does not move the way it looks: of {total:.0f} m it goes {float(ways[axis]):.0f} m {where} in its own axes"
    level = Level.CERTAIN if axis == 2 and not agreed else Level.LIKELY
    remedy = f"give T_world_rig of a rig with x forward, y left and z up {MADE} (KITTI: data.poses.convention)"
    yield Verdict(NAME, path.sensor, level, f"{sentence}.", remedy, {"way_m": total, "ahead_m": float(ways[0])})
