# SPDX-License-Identifier: Apache-2.0
"""Single sweeps with far more points, or with other times of rays, than those before and after them."""

from collections.abc import Iterator, Sequence
from statistics import median

from nurec_lite.capture.checks.conventions import MADE
from nurec_lite.capture.checks.glimpses import Glimpse, glimpse_runs, glimpsed
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.types import SweepFrame
from nurec_lite.capture.without import leave_out

FEWEST, BESIDE = 7, 3  # sweeps in a row that tell anything, and those before and after that are compared
MORE = 1.5  # times the points of the sweeps beside
AHEAD, ALIKE = 0.1, 0.03  # turns: times of rays are off by more, and those of the sweeps beside differ by less
RARE = 0.1  # of the sweeps: more are no exception


def odd_sweeps(sample: Sample, frames: Sequence[SweepFrame], check: str) -> Iterator[Verdict]:
    for run in glimpse_runs(sample, frames):
        seen = [glimpsed(sample, frame) for frame in run]
        places = range(len(seen)) if len(seen) >= FEWEST else range(0)
        full = [k for k in places if _full(seen, k)]
        ahead = {k: turns for k in places if (turns := _ahead(seen, k))}
        most = max(1, round(RARE * len(seen)))
        for k in full if len(full) <= most else []:
            yield _doubled(run[k].index, run[k].sensor, seen[k].points / _usual(seen, k), check)
        for k, turns in ahead.items() if len(ahead) <= most else ():
            yield _retimed(run[k].index, run[k].sensor, turns, check)


def _doubled(index: int, sensor: str, times: float, check: str) -> Verdict:
    sentence = f"Sweep {index} of {sensor} holds {times:.1f} times as many points as those before and after it."
    remedy = f"store each point once {MADE}, or {leave_out(sensor, [index])}"
    return Verdict(check, sensor, Level.LIKELY, sentence, remedy, {"times": times})


def _retimed(index: int, sensor: str, turns: float, check: str) -> Verdict:
    side = "later" if turns > 0 else "earlier"
    where = "than those of the same directions before and after it"
    sentence = f"Times of rays of sweep {index} of {sensor} are {abs(turns):.2f} turns {side} {where}."
    remedy = f"give each ray the time when it was measured {MADE}, or {leave_out(sensor, [index])}"
    return Verdict(check, sensor, Level.LIKELY, sentence, remedy, {"turns": turns})


def _beside(seen: Sequence[Glimpse], k: int) -> list[Glimpse]:
    return [*seen[max(0, k - BESIDE) : k], *seen[k + 1 : k + 1 + BESIDE]]


def _usual(seen: Sequence[Glimpse], k: int) -> float:
    return median(other.points for other in _beside(seen, k))


def _full(seen: Sequence[Glimpse], k: int) -> bool:
    usual = _usual(seen, k)
    return 0 < MORE * usual < seen[k].points


def _ahead(seen: Sequence[Glimpse], k: int) -> float | None:
    """Turns from -0.5 to 0.5, if the sweeps beside agree with one another, not with this one."""
    phase, others = seen[k].phase, [other.phase for other in _beside(seen, k)]
    known = [_turns(other - phase) for other in others if other is not None] if phase is not None else []
    if len(known) < len(others):
        return None
    first = known[0]
    apart = [_turns(other - first) for other in known]
    middle = median(apart)
    alike = sum(abs(turns - middle) < ALIKE for turns in apart) > len(apart) / 2
    off = -_turns(first + middle)
    return off if alike and abs(off) > AHEAD else None


def _turns(turns: float) -> float:
    return (turns + 0.5) % 1 - 0.5
