# SPDX-License-Identifier: Apache-2.0
"""Ranges that are all too long or too short by one length. Then two sweeps from different places put a surface at two places.

The length is solved for with the motion between both sweeps, point to plane, so that it needs no pose.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.capture.checks.conventions import MADE
from nurec_lite.capture.checks.corrected import with_ranges
from nurec_lite.capture.checks.motion import Motion, Motions
from nurec_lite.capture.checks.motions import more_motions
from nurec_lite.capture.checks.register import LAST_REACH, Pair, exp, weights
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.stretched import LEAST, LONG, MANY, WAY
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.geometry.lidar import Lidar
from nurec_lite.geometry.se3 import transform

OFFSET = "too_long_m"  # figure of these verdicts alone
METRES, EACH = 0.12, 0.08  # of the median, and of most motions on its side, at least; right sweeps have 0.05 at most
SURE = 0.25  # metres that certainly are wrong
ROUNDS = 10  # of Gauss and Newton
REACH, LEFT = 1.5, 0.6  # metres to the nearest point in the first round, and part of that in the next one
ENOUGH = 100  # points within reach
DONE = 1e-3  # metres, and radians, of a step


def lengthened(sample: Sample, lidar: Lidar, motions: Motions, check: str) -> Verdict | None:
    """A finding about a lidar's ranges; twice as many motions confirm it."""
    more = more_motions(sample, lidar) if _metres(motions) is not None else []
    metres = _metres(Motions(more)) if more else None
    if metres is None:
        return None
    side, change = ("long", "subtract") if metres > 0 else ("short", "add")
    sentence = (
        f"Ranges of {lidar.name} are about {abs(metres):.2f} m too {side}: only so do surfaces that two of its sweeps see from different "
        "places lie on each other."
    )
    remedy = f"{change} {abs(metres):.2f} m {'from' if metres > 0 else 'to'} its ranges {MADE}"
    level = Level.CERTAIN if abs(metres) > SURE else Level.LIKELY
    return Verdict(
        check, lidar.name, level, sentence, remedy, {OFFSET: metres}, with_ranges(lidar.name, metres=-metres)
    )


def _metres(motions: Motions) -> float | None:
    """The median length that ranges are too long; None: they are right, or the motions tell too little."""
    ways = motions.measured[:, :3, 3].norm(dim=1)
    long = [(m, float(way)) for m, way in zip(motions.all, ways, strict=True) if way > LONG]
    if len(long) < LEAST or sum(way for _, way in long) < WAY:
        return None
    found = torch.tensor([metres for m, _ in long if (metres := _offset(m)) is not None], dtype=torch.float64)
    if len(found) < LEAST:
        return None
    median = float(found.quantile(0.5))
    sided = float((math.copysign(1.0, median) * found > EACH).double().mean())
    return median if abs(median) > METRES and sided >= MANY else None


def _offset(motion: Motion) -> float | None:
    """Metres that ranges are too long; None: few points tell it."""
    T, metres = motion.fit.T_a_b, 0.0
    for k in range(ROUNDS):
        step = _step(motion.pair, T, metres, max(LAST_REACH, REACH * LEFT**k))
        if step is None:
            return None
        T, metres = exp(step[:6]) @ T, metres + float(step[6])
        if REACH * LEFT**k < LAST_REACH and bool(step.abs().max() < DONE):
            break
    return metres


def _step(pair: Pair, T: Tensor, metres: float, reach: float) -> Tensor | None:  # [7] of the motion and the length
    points, normals, tree = pair.a.flat
    from_b, from_a = F.normalize(pair.source, dim=1), F.normalize(points, dim=1)
    moved = transform(T, pair.source - metres * from_b)
    distances, indices = tree.query((moved + metres * F.normalize(moved, dim=1)).numpy(), distance_upper_bound=reach)
    near = torch.from_numpy(distances).isfinite()
    if int(near.sum()) < ENOUGH:
        return None
    j = torch.from_numpy(indices)[near]
    p, n, ways = moved[near], normals[j], from_a[j] - from_b[near] @ T[:3, :3].T
    r = ((p - points[j] + metres * from_a[j]) * n).sum(1)
    w, _ = weights(r, n)
    J = torch.cat([torch.linalg.cross(p, n), n, (ways * n).sum(1, keepdim=True)], dim=1)
    H = (J * w[:, None]).T @ J + 1e-6 * torch.eye(7, dtype=torch.float64)
    return -torch.linalg.solve(H, (J * w[:, None]).T @ r)
