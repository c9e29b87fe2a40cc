# SPDX-License-Identifier: Apache-2.0
"""Poses that climb, sink or drift to a side against the motions that sweeps show, or a lidar that is turned by as much."""

import math

from torch import Tensor

from nurec_lite.capture.checks.conventions import MADE
from nurec_lite.capture.checks.motion import Motions
from nurec_lite.capture.checks.motions import confirmed
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.stretched import LEAST, LONG, MANY, WAY
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.geometry.lidar import Lidar

# of the way: the median is off by more, and so are most motions; right poses are within 0.002
PART, EACH = 0.009, 0.005
WORDS = {
    1: (("left", "drift to the right", "right"), ("right", "drift to the left", "left")),
    2: (("up", "sink", "down"), ("down", "climb", "up")),
}  # by axes of the rig: of the sweeps, of the poses, and of the lidar that looks elsewhere


def sloped(sample: Sample, lidar: Lidar, motions: Motions, check: str) -> Verdict | None:
    """A finding about poses that seem right otherwise."""
    found = confirmed(sample, lidar, motions, _aside)
    if found is None:
        return None
    axis, part = found
    way, drift, side = WORDS[axis][int(part < 0)]
    sentence = (
        f"By the sweeps {lidar.name} moves farther {way} than the poses say, by {100 * abs(part):.1f} % of its way: the poses {drift}, or "
        f"{lidar.name} looks {math.degrees(abs(part)):.1f}° farther {side} than T_rig_lidar says."
    )
    remedy = f"correct the poses, or T_rig_lidar of {lidar.name}, {MADE}"
    return Verdict(check, lidar.name, Level.LIKELY, sentence, remedy, {"aside": part})


def _aside(motions: Motions) -> tuple[int, float] | None:
    """The axis of the rig and the part of the way that the sweeps go farther along it; None: neither, or too little to tell."""
    posed, measured = (motions.of_rig(T)[:, :3, 3] for T in (motions.posed, motions.measured))
    ways = posed.norm(dim=1)
    long = ways > LONG
    if int(long.sum()) < LEAST or float(ways[long].sum()) < WAY:
        return None
    off = ((measured - posed) / ways[:, None])[long]
    found = [(axis, median) for axis in WORDS if (median := _median(off[:, axis])) is not None]
    return max(found, key=lambda pair: abs(pair[1]), default=None)


def _median(off: Tensor) -> float | None:
    median = float(off.quantile(0.5))
    sided = float((math.copysign(1.0, median) * off > EACH).double().mean())
    return median if abs(median) > PART and sided >= MANY else None
