# SPDX-License-Identifier: Apache-2.0
"""Steps that turn the poses by more than driving explains."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from nurec_lite.capture.checks.paths import NAME, REMEDY, Path, seen_step
from nurec_lite.capture.checks.sample import JUMP_AT, Sample
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.geometry.se3 import invert, matrix_to_quat, quat_to_rotvec

SEEN, ALONE = 0.5, 5.0  # degrees from the neighbours' turns, where sweeps show the motion and where they do not
FASTER, NOISE = 40.0, 6.0  # degrees a second squared of turning, and times the median difference, that explain them
CLOSER = 0.5  # of the difference from the poses: the sweeps turn as the neighbouring steps do
MOST = 4  # steps that are looked at


def turn_jumps(sample: Sample, path: Path) -> Iterator[Verdict]:
    """The step of a path that turns too far, if there is one; sweeps decide."""
    steps = _turns(invert(path.poses[:-1]) @ path.poses[1:])
    seconds = path.times.diff()[:, None]
    off = steps - of_neighbours(steps / seconds) * seconds
    apart = off.norm(dim=1)
    bound = SEEN + FASTER * seconds[:, 0].square() + NOISE * apart.median()
    far = (apart > bound).nonzero()[:, 0].tolist()
    for i in sorted(far, key=lambda i: -float(apart[i]))[:MOST]:
        if _turned_otherwise(sample, path, i, steps[i] - off[i], float(apart[i]) > float(bound[i]) + ALONE):
            yield _verdict(path, i, float(off[max(0, i - 1) : i + 2].sum(0).norm()))  # poses between turn in parts
            return


def _turned_otherwise(sample: Sample, path: Path, i: int, expected: Tensor, large: bool) -> bool:
    seen = seen_step(sample, path, i)
    if seen is None:
        return large
    posed, measured = (_turns(seen.of_rig(T))[0] for T in (seen.posed, seen.measured))
    rate = expected * seen.all[0].seconds / float(path.times[i + 1] - path.times[i])
    return seen.excess(seen.posed) > 1 and float((measured - rate).norm()) < CLOSER * float((posed - rate).norm())


def _verdict(path: Path, i: int, degrees: float) -> Verdict:
    time, frame = float(path.times[i + 1]), path.frames[i + 1]
    sentence = f"The poses turn by {degrees:.1f}° at once before frame {frame.index} of {path.sensor}."
    return Verdict(NAME, path.sensor, Level.LIKELY, sentence, REMEDY, {"turn_deg": degrees, JUMP_AT: time})


def _turns(T: Tensor) -> Tensor:  # [n, 4, 4] -> [n, 3] degrees
    return quat_to_rotvec(matrix_to_quat(T[:, :3, :3])) * (180 / math.pi)


def of_neighbours(rates: Tensor) -> Tensor:  # [n, 3] -> [n, 3] the median of up to three before and after each
    n = len(rates)
    near = torch.tensor([[i + k for k in (-3, -2, -1, 1, 2, 3)] for i in range(n)])
    there = (near >= 0) & (near < n)
    return torch.where(there[..., None], rates[near.clamp(0, n - 1)], torch.nan).nanmedian(dim=1).values
