# SPDX-License-Identifier: Apache-2.0
"""Rotation of a sweep's rays with time, by their directions."""

import math
from collections.abc import Sequence

import torch

from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.evenly import spread
from nurec_lite.capture.types import SweepFrame
from nurec_lite.geometry.lidar import Lidar, Sweep, azimuth_elevation

FEWEST = 32  # rays of a beam that show a turn
STEPS = 256  # about as many of a beam show whether it turns steadily
TOGETHER = 0.05  # of the sweep's duration: rays of all beams within it are of one moment


def turns(sweep: Sweep) -> float | None:
    """Revolutions about the vertical axis, positive counter-clockwise from above, of the beam with the most rays; None: it does not turn
    steadily, or all its rays have one time."""
    if len(sweep) < FEWEST:
        return None
    beam = sweep.rings == sweep.rings.mode().values
    times, order = sweep.times[beam].sort(stable=True)
    if len(times) < FEWEST or float(times[-1] - times[0]) <= 0:
        return None
    apart = max(1, len(times) // STEPS)  # rays that follow each other lie closer than poses and stamps are exact
    times, order = times[::apart], order[::apart]
    azimuth = azimuth_elevation(sweep.directions[beam][order])[:, 0].double()
    steps = torch.remainder(azimuth.diff() + math.pi, 2 * math.pi) - math.pi
    steps = steps[times.diff() > 0]
    way = float(steps.sum()) / (2 * math.pi)
    steady = max(float((steps > 0).double().mean()), float((steps < 0).double().mean())) if len(steps) else 0.0
    return way if steady > 0.9 and abs(way) > 0.3 else None


def against(sample: Sample, lidar: Lidar, frames: Sequence[SweepFrame]) -> bool:
    """Whether the rays of most sweeps turn the other way than the lidar says."""
    if not lidar.spins:
        return False
    found = [turns(sample.sweep(frame)) for frame in spread(frames, 3)]
    known = [way for way in found if way is not None]
    return bool(known) and sum((way > 0) == lidar.clockwise for way in known) > len(known) / 2
