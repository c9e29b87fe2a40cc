# SPDX-License-Identifier: Apache-2.0
"""Time stamps of all sensors against one another: units, spans, rates, gaps, repeated stamps, and frames that last too long."""

from collections.abc import Iterator, Sequence

import torch

from nurec_lite.capture.checks.conventions import MADE
from nurec_lite.capture.checks.displaced import LATE, displaced
from nurec_lite.capture.checks.missing import FEWEST, NAME, TWICE, Stamps, missing, stamps_of
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.types import Capture
from nurec_lite.capture.units import divided, seconds_in
from nurec_lite.capture.without import leave_out

USUAL = (0.005, 2.0)  # seconds from a frame to the next
ODD, SHORT = 5.0, 0.002  # seconds from a frame to the next that no recording has, above and below
SLOW, FASTEST = 0.3, 100.0  # metres a second: a vehicle seems slower, or faster, if its stamps are in another unit
WAY = 1.0  # metres that show a speed
ALONE = (
    0.5  # seconds that are taken for the period of a sensor with one frame: two key frames of nuScenes lie so far apart
)
FEW = 0.2  # of the shorter span that two sensors share at least
LONG = 1.5  # periods that a frame lasts at most
STUCK = 1e-6  # seconds: nothing records so fast, so that stamps are repeated
DRIFT, APART, SIGMAS = 0.002, 0.05, 5.0  # part of the time, seconds in all, and scatters: a clock runs faster
OTHER_NUMBERS = 0.1  # part of the time: beyond, numbers of two sensors do not mean the same moments


def check_stamps(sample: Sample) -> Iterator[Verdict]:
    every = stamps_of(sample.capture)
    repeated = [verdict for stamps in every if (verdict := _repeated(stamps))]
    stuck = {verdict.subject for verdict in repeated}
    every = [stamps for stamps in every if stamps.sensor not in stuck]
    able = [stamps for stamps in every if len(stamps.frames) >= FEWEST]
    units = [verdict for stamps in able if (verdict := _unit(stamps))]
    odd = {verdict.subject for verdict in units}
    sane = [stamps for stamps in every if stamps.sensor not in odd]
    found = [*repeated, *units, *_apart(sane)]
    found += [verdict for stamps in sane for verdict in missing(stamps, sane)]
    for stamps in able:
        if stamps.sensor not in odd:
            found += [*_twice(stamps), *_long(stamps)]
    named = {verdict.subject for verdict in found}
    found += [verdict for stamps in able if stamps.sensor not in named for verdict in displaced(stamps)]
    moved = {verdict.subject for verdict in found if LATE in verdict.figures}
    found += _drifts([stamps for stamps in able if stamps.sensor not in odd | moved])
    yield from found or [_right(sample.capture, able)]


def _right(capture: Capture, able: Sequence[Stamps]) -> Verdict:
    if not able:
        return Verdict(NAME, capture.name, Level.UNKNOWN, f"No sensor has {FEWEST} frames, which show a rate.")
    rates = {stamps.sensor: 1 / stamps.period for stamps in able}
    listed = ", ".join(f"{name} {rate:.1f} Hz" for name, rate in rates.items())
    figures = {f"{name}_hz": rate for name, rate in rates.items()}
    return Verdict(NAME, capture.name, Level.RIGHT, f"Time stamps are regular and overlap: {listed}.", figures=figures)


def _repeated(stamps: Stamps) -> Verdict | None:
    """A verdict where half of the stamps or more are those of the frame before, so that no rate can be computed."""
    count, frames = int((stamps.steps < STUCK).sum()), len(stamps.frames)
    if frames < 2 or stamps.period >= STUCK:
        return None
    sentence = f"{count} of {frames} frames of {stamps.sensor} have the stamp of the frame before: stamps are rounded or were lost."
    remedy = f"give each frame its own time in seconds, with at least three decimals, {MADE}"
    return Verdict(NAME, stamps.sensor, Level.CERTAIN, sentence, remedy, {"repeated": float(count)})


def _unit(stamps: Stamps) -> Verdict | None:
    period, way = stamps.period, stamps.way
    speed, figures = way / max(stamps.span[1] - stamps.span[0], 1e-12), {"period_s": period, "way_m": way}
    unit = seconds_in(period, *USUAL) if period > ODD and speed < SLOW else None
    sentence = f"Frames of {stamps.sensor} are {period:.3g} s apart, and the rig moves at {speed:.2g} m/s"
    if unit is not None:
        level = Level.CERTAIN if way > WAY else Level.LIKELY
        return Verdict(NAME, stamps.sensor, level, f"{sentence}.", f"{divided(unit, 'its times')} {MADE}", figures)
    if period < SHORT and speed > FASTEST:
        remedy = f"its times are not in seconds: multiply them, for example by 1000, {MADE}"
        return Verdict(NAME, stamps.sensor, Level.CERTAIN, f"{sentence}.", remedy, figures)
    return None


def _apart(every: Sequence[Stamps]) -> Iterator[Verdict]:
    """Sensors with a time span that shares little or nothing with that of the first sensor."""
    for stamps in every[1:]:
        first = every[0]
        (a, b), (c, d) = first.span, stamps.span
        shared, shorter = min(b, d) - max(a, c), min(b - a, d - c)
        period = max(s.period if len(s.frames) > 1 else ALONE for s in (first, stamps))
        spans = f"those of {stamps.sensor} last from {c:z.6g} to {d:z.6g} s, those of {first.sensor} from {a:z.6g} to {b:z.6g} s"
        remedy = f"give all sensors times of one clock, in seconds, {MADE}"
        if shared < -2 * period:
            sentence = f"The frames of {stamps.sensor} and {first.sensor} share no time: {spans}."
            yield Verdict(NAME, stamps.sensor, Level.CERTAIN, sentence, remedy, {"shared_s": shared})
        elif min(len(first.frames), len(stamps.frames)) >= FEWEST and shared < FEW * shorter:
            sentence = f"The frames of {stamps.sensor} and {first.sensor} share only {max(0.0, shared):.2f} s: {spans}."
            yield Verdict(NAME, stamps.sensor, Level.LIKELY, sentence, remedy, {"shared_s": shared})


def _twice(stamps: Stamps) -> Iterator[Verdict]:
    same = (stamps.steps < TWICE * stamps.period).nonzero()[:, 0].tolist()
    if same:
        a, b = stamps.frames[same[0]], stamps.frames[same[0] + 1]
        sentence = (
            f"{len(same)} of {len(stamps.frames)} frames of {stamps.sensor} have nearly the stamp of the frame before: frame {b.index} is "
            f"{1000 * (b.time_mid - a.time_mid):.1f} ms later than frame {a.index}, others are {1000 * stamps.period:.0f} ms apart."
        )
        yield Verdict(
            NAME,
            stamps.sensor,
            Level.LIKELY,
            sentence,
            f"correct its stamps, or {leave_out(stamps.sensor, [stamps.frames[k + 1].index for k in same])}",
        )


def _long(stamps: Stamps) -> Iterator[Verdict]:
    """Frames that last longer than the time to the next one."""
    lasting = float(torch.tensor([f.time_end - f.time_start for f in stamps.frames], dtype=torch.float64).median())
    if lasting > LONG * stamps.period:
        sentence = (
            f"Frames of {stamps.sensor} last {lasting:.3g} s, but the next one comes after {stamps.period:.3g} s."
        )
        remedy = f"correct time_start and time_end, and store one exposure or turn a frame, {MADE}"
        yield Verdict(NAME, stamps.sensor, Level.LIKELY, sentence, remedy, {"lasting_s": lasting})


def _drifts(able: Sequence[Stamps]) -> Iterator[Verdict]:
    """Clocks that run faster or slower than that of the first sensor, by the times of frames of one number."""
    for stamps in able[1:]:
        first, own = ({f.index: f.time_mid for f in s.frames} for s in (able[0], stamps))
        both = sorted(first.keys() & own.keys())
        if len(both) < 2 * FEWEST:
            continue
        t, late = (torch.tensor([v[n] for n in both], dtype=torch.float64) for v in (first, own))
        late, t = late - t, t - t.mean()
        rate = float((t * (late - late.mean())).sum() / t.square().sum())
        scatter = float((late - late.mean() - rate * t).std())
        total = abs(rate) * float(t[-1] - t[0])
        if DRIFT < abs(rate) < OTHER_NUMBERS and total > max(APART, SIGMAS * scatter):
            way = "slow" if rate < 0 else "fast"
            sentence = (
                f"The clock of {stamps.sensor} runs {100 * abs(rate):.1f} % {way} against that of {able[0].sensor}: "
                f"frames of one number are {1000 * float(late[0]):.0f} ms apart at first and {1000 * float(late[-1]):.0f} ms at the end."
            )
            yield Verdict(
                NAME, stamps.sensor, Level.LIKELY, sentence, f"correct its time stamps {MADE}", {"rate": rate}
            )
