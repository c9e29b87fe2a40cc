# SPDX-License-Identifier: Apache-2.0
"""Two lidars of a rig: their sweeps of one moment lie on each other, or a mounting is wrong. Motions do not tell where a lidar sits."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from nurec_lite.capture.checks.conventions import MADE
from nurec_lite.capture.checks.register import Cloud, Fit, Pair, Surface, cloud_of, log, velocity_of
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.deskew import middle_poses
from nurec_lite.capture.trajectory import nearest
from nurec_lite.capture.types import SweepFrame
from nurec_lite.geometry.lidar import Lidar
from nurec_lite.geometry.se3 import invert

MOMENTS, FEWEST = 3, 2  # that are looked at, and that must agree
APART = 0.06  # seconds between the two sweeps
UPRIGHT, SHARE = 60, 0.6  # points across every direction, and part of them that lie on the other sweep, at least
OFF, DEGREES = 0.35, 3.0  # metres, or degrees, that a mounting is off, at least
ALIKE = 0.15, 1.0  # metres and degrees between moments, at most
GAIN = 0.03  # metres that the mean error of points becomes less by, at least: right mountings gain 0.005
STEPS = (-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0)  # metres ahead and to the left that are tried, and those of them up
REACH = 1.2  # metres to the nearest point in the first round, from those
TRIED, SAID = 3, 0.15  # of them that are looked at closely, and metres that are said
WAYS = (("farther ahead", "farther back"), ("farther left", "farther right"), ("farther up", "farther down"))


@dataclass(frozen=True)
class Shift:
    """A motion on the rig that lays the sweeps of the second lidar on those of the first."""

    turn: Tensor  # [3] radians
    way: Tensor  # [3] metres, of the second lidar

    @property
    def off(self) -> bool:
        return float(self.way.norm()) > OFF or float(torch.rad2deg(self.turn.norm())) > DEGREES

    def like(self, other: "Shift") -> bool:
        apart = float((self.way - other.way).norm()), float(torch.rad2deg((self.turn - other.turn).norm()))
        return apart[0] < ALIKE[0] and apart[1] < ALIKE[1]


def elsewhere(sample: Sample, lidars: Sequence[Lidar], check: str) -> Iterator[Verdict]:
    """Verdicts about pairs of lidars, whose motions all agree with the poses."""
    for a, b in combinations(lidars, 2):
        found = [shift for moment in _moments(sample, a, b) if (shift := _shift(sample, a, b, *moment)) is not None]
        off = [shift for shift in found if shift.off]
        if len(off) >= max(FEWEST, len(found) - 1) and all(shift.like(off[0]) for shift in off):
            yield _verdict(a, b, off[len(off) // 2], check)


def _moments(sample: Sample, a: Lidar, b: Lidar) -> list[tuple[SweepFrame, SweepFrame]]:
    others = sample.of_lidar(b.name)
    pairs = (
        [(frame, nearest(others, frame.time_mid)) for frame in sample.some_sweeps(a.name, MOMENTS)] if others else []
    )
    return [(one, other) for one, other in pairs if abs(one.time_mid - other.time_mid) < APART]


def _shift(sample: Sample, a: Lidar, b: Lidar, one: SweepFrame, other: SweepFrame) -> Shift | None:
    """The shift at a moment; None: the sweeps share too little structure."""
    first, second = cloud_of(one, sample.sweep(one)), cloud_of(other, sample.sweep(other))
    pair = Pair(Surface(_still(first, one, a), first.rings), _still(second, other, b))
    if not pair.enough:
        return None
    T_a, T_b = a.T_rig_lidar.double(), b.T_rig_lidar.double()
    T_world_rig = middle_poses([one, other])
    said = invert(T_world_rig[0] @ T_a) @ T_world_rig[1] @ T_b
    fit = _best(pair, said, T_a)
    if fit.upright < UPRIGHT or fit.shares < SHARE:
        return None
    before, then = pair.scores(torch.stack([said, fit.T_a_b])).tolist()
    X = T_a @ fit.T_a_b @ invert(said) @ invert(T_a) if then < before - GAIN else torch.eye(4, dtype=torch.float64)
    return Shift(log(X)[:3], (X @ T_b - T_b)[:3, 3])


def _still(
    cloud: Cloud, frame: SweepFrame, lidar: Lidar
) -> Tensor:  # [n, 3] in the lidar's axes at the middle of the sweep
    start, end = (T.double() @ lidar.T_rig_lidar.double() for T in (frame.T_world_rig_start, frame.T_world_rig_end))
    seconds = frame.time_end - frame.time_start
    return cloud.still(velocity_of(invert(start) @ end, seconds)) if seconds > 0 else cloud.points


def _best(pair: Pair, said: Tensor, T_rig_lidar: Tensor) -> Fit:
    """The best motion near the capture's and near those some metres beside it."""
    ways = torch.tensor([(x, y, z) for x in STEPS for y in STEPS for z in STEPS[2:-2]], dtype=torch.float64)
    tried = said.repeat(len(ways), 1, 1)
    tried[:, :3, 3] += ways @ T_rig_lidar[:3, :3]  # of the rig's axes, in the lidar's
    best = pair.scores(tried).argsort()[:TRIED]
    fits = [pair.aligned(said), *(pair.aligned(T, REACH) for T in tried[best])]
    return min(fits, key=lambda fit: float(pair.scores(fit.T_a_b[None])))


def _verdict(a: Lidar, b: Lidar, shift: Shift, check: str) -> Verdict:
    words = [
        f"{abs(metres):.1f} m {sides[int(metres < 0)]}"
        for metres, sides in zip(shift.way.tolist(), WAYS, strict=True)
        if abs(metres) > SAID
    ]
    degrees = float(torch.rad2deg(shift.turn.norm()))
    words += [f"turned by {degrees:.0f}°"] if degrees > DEGREES else []
    sentence = (
        f"Sweeps of {b.name} lie on those of {a.name} if {b.name} sits {' and '.join(words)}, not as the capture says."
    )
    remedy = f"correct T_rig_lidar of {b.name}, or of {a.name}, {MADE}"
    figures = {"metres": float(shift.way.norm()), "degrees": degrees}
    return Verdict(check, b.name, Level.LIKELY, sentence, remedy, figures)
