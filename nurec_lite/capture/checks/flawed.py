# SPDX-License-Identifier: Apache-2.0
"""Single sweeps with arrays that contradict one another or their lidar's beams, while those of other sweeps do not."""

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from statistics import median

import torch

from nurec_lite.base.errors import UserError
from nurec_lite.capture.checks.conventions import MADE
from nurec_lite.capture.checks.glimpses import RAYS
from nurec_lite.capture.checks.ray_values import Flaw, value_flaws
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.decoders import stated_rays
from nurec_lite.capture.types import SweepFrame
from nurec_lite.capture.without import FEW, leave_out
from nurec_lite.geometry.lidar import Lidar, azimuth_elevation

MOST = 5000  # rays of a sweep that are looked at, about
OFF, OF_A_BEAM, OTHERS = 0.5, 0.6, 3.0  # degrees, steps between beams, and times the usual: rays lie off their beams
LISTED = 3  # numbers in a sentence
Look = tuple[Flaw | None, float]  # a flaw of values, and the median distance of rays from their beams, in degrees


def flawed(sample: Sample, lidar: Lidar, check: str) -> Iterator[Verdict]:
    """Looks at sweeps that are decoded in any case, and at all where they have few rays."""
    frames = sample.of_lidar(lidar.name)
    few = sample.sweeps is None or len(frames) * stated_rays(lidar) <= RAYS
    looks = {f.index: look for f in (frames if few else sample.decoded(lidar.name)) if (look := look_at(sample, f))}
    usual = median(off for _, off in looks.values()) if looks else 0.0
    found: dict[str, tuple[Flaw, list[int]]] = {}  # the first flaw of each remedy, and its sweeps
    for index, (flaw, off) in looks.items():
        flaw = flaw or _of_beams(lidar, off, usual)
        if flaw is not None:
            found.setdefault(flaw[1], (flaw, []))[1].append(index)
    yield from (_verdict(lidar, check, flaw, numbers, len(looks)) for flaw, numbers in found.values())


def look_at(sample: Sample, frame: SweepFrame) -> Look | None:
    with suppress(UserError):  # another check reports it
        return sample.kept(("look", frame.sensor, frame.index), partial(_looked, sample, frame))
    return None


def _looked(sample: Sample, frame: SweepFrame) -> Look:
    lidar, sweep = sample.capture.lidar(frame.sensor), sample.sweep(frame)
    some = sweep.select(torch.arange(0, len(sweep), max(1, len(sweep) // MOST)))
    flaw = next(value_flaws(some, len(lidar.elevations)), None)
    if flaw is not None or not lidar.spins or not len(some):
        return flaw, 0.0
    said = lidar.elevations.double()[some.rings]
    return None, math.degrees(float((azimuth_elevation(some.directions)[:, 1].double() - said).abs().median()))


def _of_beams(lidar: Lidar, off: float, usual: float) -> Flaw | None:
    steps = torch.rad2deg(lidar.elevations.double()).sort().values.diff()
    step = float(steps.median()) if len(steps) else 0.0
    if off <= max(OFF, OF_A_BEAM * step, OTHERS * usual):
        return None
    return "Rays lie far from the beams of their rings", "store rings and directions in one order"


def _verdict(lidar: Lidar, check: str, flaw: Flaw, numbers: Sequence[int], looked: int) -> Verdict:
    more = f" and {len(numbers) - LISTED} more" if len(numbers) > LISTED else ""
    where = f"in sweep{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers[:LISTED]))}{more} of {lidar.name}"
    others = f", or {leave_out(lidar.name, numbers)}" if len(numbers) <= FEW * looked else ""
    remedy = f"{flaw[1]} {MADE}{others}"
    return Verdict(check, lidar.name, Level.CERTAIN, f"{flaw[0]} {where}.", remedy, {"sweeps": float(len(numbers))})
