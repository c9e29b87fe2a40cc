# SPDX-License-Identifier: Apache-2.0
"""Gates on the difference of two profiles: passed, failed, or inconclusive, which is never counted as passed.

Counts are exact, so their gates are; a time passes or fails only if the 95 % interval of the ratio of medians (bootstrap over the
steps, or over the launches of each kernel) lies wholly on one side of the threshold.
"""

from dataclasses import dataclass

import numpy as np

from nurec_lite.profiling.compare.sides import Known, Side
from nurec_lite.profiling.errors import ProfileError

PASSED, FAILED, INCONCLUSIVE = "passed", "failed", "inconclusive"
TOTALS = ("launches", "syncs", "copies", "bytes", "allocations", "memory")
RESOURCES = ("registers", "shared")
NAMES = (*TOTALS, *RESOURCES, "time")
_FEWEST = 5  # samples of a time
_RESAMPLES = 4000
_ROUNDING = 1e-9  # of figures that were divided by the number of steps


@dataclass(frozen=True)
class Gate:
    """Bound on the rise of a figure from A to B."""

    name: str
    limit: float  # of the figure, or a share of it
    relative: bool

    def allowed(self, a: float) -> float:
        return a * (1 + self.limit) if self.relative else a + self.limit


@dataclass(frozen=True)
class Verdict:
    gate: Gate
    outcome: str
    reason: str


def parse_gates(
    text: str,  # such as launches=0,registers=0,time=3%
) -> list[Gate]:
    return [_gate(part.strip()) for part in text.split(",")]


def _gate(part: str) -> Gate:
    name, _, limit = part.partition("=")
    relative = limit.endswith("%")
    try:
        value = float(limit.removesuffix("%")) / (100 if relative else 1)
    except ValueError:
        value = -1
    if name not in NAMES or not 0 <= value < float("inf"):
        raise ProfileError(
            f"'{part}' is no gate; write NAME=RISE, as in launches=0,bytes=1%,time=3%, with names of {', '.join(NAMES)}"
        )
    if name == "time" and not relative:
        raise ProfileError(f"'{part}' is no gate: a time may rise by a share, as in time=3%")
    return Gate(name, value, relative)


def judge(gate: Gate, a: Side, b: Side) -> Verdict:
    if gate.name == "time":
        outcome, reason = _time(gate, a, b)
    elif gate.name in RESOURCES:
        outcome, reason = _kernels(gate, a, b)
    else:
        outcome, reason = _total(gate, a.totals.get(gate.name), b.totals.get(gate.name))
    return Verdict(gate, outcome, reason)


def worst(verdicts: list[Verdict]) -> str:
    outcomes = {verdict.outcome for verdict in verdicts}
    return next((outcome for outcome in (FAILED, INCONCLUSIVE) if outcome in outcomes), PASSED)


def _total(gate: Gate, a: Known, b: Known) -> tuple[str, str]:
    if a is None or b is None:
        return INCONCLUSIVE, f"{_who(a, b)} not tell"
    return FAILED if b > gate.allowed(a) + _ROUNDING else PASSED, f"{a:,.10g} -> {b:,.10g}"


def _who(a: object, b: object) -> str:
    return "both sides do" if a is None and b is None else f"{'A' if a is None else 'B'} does"


def _kernels(gate: Gate, a: Side, b: Side) -> tuple[str, str]:
    """Result of a gate over kernels: none may rise. A kernel that only B has, or that a side does not list, leaves the gate open."""
    if not b.kernels or not a.kernels:
        return INCONCLUSIVE, f"{_who(a.kernels or None, b.kernels or None)} not list kernels"
    pairs = {
        name: (getattr(a.kernels.get(name), gate.name, None), getattr(own, gate.name))
        for name, own in b.kernels.items()
    }
    known = {name: (x, y) for name, (x, y) in pairs.items() if x is not None and y is not None}
    risen = [f"{name} {x:g} -> {y:g}" for name, (x, y) in known.items() if y > gate.allowed(x)]
    if risen:
        return FAILED, _listed(risen)
    open_ = [name for name in pairs if name not in known]
    if open_:
        return INCONCLUSIVE, f"nothing to compare with for {_listed(open_)}"
    return PASSED, f"{len(known)} kernels compared"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return "; ".join(names[:3]) + more


def _time(gate: Gate, a: Side, b: Side) -> tuple[str, str]:
    names = [name for name in a.samples if name in b.samples]
    counts = [len(side.samples[name]) for side in (a, b) for name in names]
    if not names or min(counts) < _FEWEST:
        return INCONCLUSIVE, f"{_FEWEST} timed steps (ncu: launches of each kernel) are needed on both sides"
    low, middle, high = ratio_interval([a.samples[n] for n in names], [b.samples[n] for n in names])
    interval = f"ratio of medians {middle:.4f}, 95 % within [{low:.4f}, {high:.4f}]"
    if low > 1 + gate.limit:
        return FAILED, interval
    alone = sorted(a.samples.keys() ^ b.samples.keys())
    if high > 1 + gate.limit or alone:
        return INCONCLUSIVE, interval + (f"; only one side has {_listed(alone)}" if alone else "")
    return PASSED, interval


def ratio_interval(
    a: list[tuple[float, ...]],  # samples of each part; their medians add up to the time
    b: list[tuple[float, ...]],  # the same parts
) -> tuple[float, float, float]:  # 2.5 % quantile, estimate and 97.5 % quantile of b over a
    """An interval by bootstrap, seeded, so that a gate says the same again."""
    random = np.random.default_rng(0)
    totals = [sum(_medians(np.array(part), random) for part in parts) for parts in (a, b)]
    low, high = np.quantile(totals[1] / totals[0], [0.025, 0.975])
    estimate = sum(np.median(part) for part in b) / sum(np.median(part) for part in a)
    return float(low), float(estimate), float(high)


def _medians(
    values: np.ndarray,  # [n]
    random: np.random.Generator,
) -> np.ndarray:  # [_RESAMPLES] medians of n values drawn with replacement
    return np.median(values[random.integers(0, len(values), (_RESAMPLES, len(values)))], axis=1)
