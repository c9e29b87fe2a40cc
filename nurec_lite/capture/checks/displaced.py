# SPDX-License-Identifier: Apache-2.0
"""Stamps that leave a steady rate: one frame whose stamp is off, or all frames from one on."""

from collections.abc import Iterator

from torch import Tensor

from nurec_lite.capture.checks.conventions import MADE
from nurec_lite.capture.checks.missing import BACK, FEWEST, GAP, NAME, TWICE, Stamps, made_good
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.without import leave_out

ODD, STEADY = 0.2, 8.0  # periods, and times the median difference: a step may be so far from the median step
LATE = "late_s"  # figure of these verdicts alone
RARE = 0.1  # of the steps: if more are odd, the sensor has no steady rate


def displaced(stamps: Stamps) -> Iterator[Verdict]:
    """Yields at most one verdict: about the largest odd step that is no gap."""
    off = stamps.steps - stamps.period
    odd = _odd(stamps, off)
    if len(stamps.frames) < FEWEST or not odd or len(odd) > 2 * max(1, round(RARE * len(off))):
        return
    k = max(odd, key=lambda i: abs(float(off[i])))
    if any(abs(float(off[i])) > abs(float(off[k])) for i in (k - 1, k + 1) if 0 <= i < len(off)):
        return  # beside a gap
    one, late = _of_one(stamps, off, k)
    way = f"{1000 * abs(late):.0f} ms {'late' if late > 0 else 'early'}"
    if one is None:
        sentence = f"From frame {stamps.frames[k + 1].index} on, stamps of {stamps.sensor} are {way}"
    else:
        sentence = f"The stamp of frame {stamps.frames[one].index} of {stamps.sensor} is {way}"
    more = f" ({len(odd)} steps are odd)" if len(odd) > 2 else ""
    sentence += f": its frames are {1000 * stamps.period:.0f} ms apart otherwise{more}."
    others = (
        "choose frames without them by data.frames"
        if one is None
        else leave_out(stamps.sensor, [stamps.frames[one].index])
    )
    remedy = f"correct its time stamps {MADE}, or {others}"
    yield Verdict(NAME, stamps.sensor, Level.LIKELY, sentence, remedy, {"odd": float(len(odd)), LATE: late})


def _odd(stamps: Stamps, off: Tensor) -> list[int]:
    """Places of steps that are odd, but no gaps and no repeated stamps."""
    if not len(off):
        return []
    size, usual = off.abs(), stamps.period
    far = size > max(ODD * usual, STEADY * float(size.median()))
    plain = (stamps.steps < GAP * usual) | made_good(stamps)
    plain &= stamps.steps > TWICE * usual  # else the stamp is there twice
    return (far & plain).nonzero()[:, 0].tolist()


def _of_one(stamps: Stamps, off: Tensor, k: int) -> tuple[int | None, float]:
    """The place of the one frame that is off, or None, and by how many seconds it is late."""
    late, last = float(off[k]), len(off) - 1
    for beside, frame, sign in ((k + 1, k + 1, 1.0), (k - 1, k, -1.0)):
        if 0 <= beside <= last and abs(float(off[beside]) + late) < BACK * abs(late):
            return frame, sign * late
    if k in (0, last):
        return (0, -late) if k == 0 else (last + 1, late)
    return None, late
