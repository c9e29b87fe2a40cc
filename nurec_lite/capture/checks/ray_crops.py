# SPDX-License-Identifier: Apache-2.0
"""Points that were cut away from sweeps, while their rays count as rays without return: training would learn that the cut space is
empty."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from nurec_lite.capture.checks.conventions import MADE
from nurec_lite.capture.checks.rays import NAME as RAYS
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.crops import TOLERANCE, Cut, cut_sectors, find_cuts, sector_sentence
from nurec_lite.capture.evenly import spread
from nurec_lite.geometry.lidar import Lidar, Sweep

NAME = "rays into cut space"
SWEEPS = 5  # of a lidar
NEAREST = 2.5  # metres: nearer points are the vehicle's own
FEWEST = 100  # rays into the cut space


def check_crops(sample: Sample) -> Iterator[Verdict]:
    for lidar in sample.capture.lidars:
        frames = spread(sample.decoded(lidar.name), SWEEPS)  # the last as well: it lies farthest from the first
        sweeps = [sweep for sweep in map(sample.sweep, frames) if len(sweep) >= FEWEST]
        if len(sweeps) > 1 and not sample.blamed(RAYS, subject=lidar.name):
            yield _of(lidar, sweeps)


def _of(lidar: Lidar, sweeps: Sequence[Sweep]) -> Verdict:
    points = [s.directions[s.returned] * s.ranges[s.returned, None] for s in sweeps]
    points = [p[p.norm(dim=1) > NEAREST] for p in points]
    missing = torch.cat([s.directions[~s.returned] for s in sweeps])
    cuts, into = list[str](), torch.zeros(len(missing), dtype=torch.bool)
    number = torch.arange(len(points)).repeat_interleave(torch.tensor([len(p) for p in points]))
    for cut in find_cuts(torch.cat(points), number) if len(number) else []:
        through = _through(cut, missing, lidar.max_range)
        own = cut.axis == 3 and cut.sign > 0 and cut.bound < 2 * NEAREST  # the points that are left out here
        if int(through.sum()) >= FEWEST and not own:
            cuts.append(cut.sentence)
            into |= through
    lost = _sectors(lidar, torch.cat(points))
    through = lost[_degree(missing)]
    if int(through.sum()) >= FEWEST:
        cuts.append(sector_sentence(lost))
        into |= through
    if not cuts:
        return Verdict(NAME, lidar.name, Level.RIGHT, f"Nothing seems to be cut away from the sweeps of {lidar.name}.")
    sentence = (
        f"Sweeps of {lidar.name} hold only points of {', '.join(cuts)}, but {int(into.sum())} of {len(missing)} rays that did not return "
        "point into cut space, which is learned as empty."
    )
    remedy = f"leave these rays out, or keep all points, {MADE}"
    return Verdict(NAME, lidar.name, Level.LIKELY, sentence, remedy, {"rays": float(into.sum())})


def _through(cut: Cut, directions: Tensor, reach: float) -> Tensor:  # [n, 3] -> [n] bool
    """Whether a ray runs through the cut space."""
    far = torch.full_like(directions[:, 0], reach) if cut.axis == 3 else reach * directions[:, cut.axis]
    return torch.minimum(torch.zeros_like(far), cut.sign * far) < cut.sign * cut.bound - TOLERANCE


def _degree(points: Tensor) -> Tensor:  # [n, 3] -> [n] int64, 0 to 359 from azimuth -180
    return torch.rad2deg(torch.atan2(points[:, 1], points[:, 0]) + torch.pi).long() % 360


def _sectors(lidar: Lidar, points: Tensor) -> Tensor:  # [360] bool: no beam returns from there
    seen = torch.zeros(1, 360, dtype=torch.bool)
    seen[0, _degree(points)] = True
    step = 2 * torch.pi / lidar.azimuth_steps
    return cut_sectors(seen, step)[0] if bool(seen.any()) else ~seen[0]
