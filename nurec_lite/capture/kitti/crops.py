# SPDX-License-Identifier: Apache-2.0
"""What was cut away from a drive's sweeps, so that a cut is not taken for rays that did not return.

Programs that train detectors keep a box, a sector, a distance or a part of the points. Such a cut ends the points abruptly: as
many lie within 0.1 m of it as in the next 0.1 m, in all sweeps, and none beyond. What a lidar sees ends otherwise: points grow
rare towards the farthest one, a wall or the ground is a peak.
"""

import math
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from nurec_lite.geometry.lidar import unit_directions

EDGES = (0.05, 0.1, 0.2)  # metres: a cut must be seen within two of them
FARTHEST = 60.0  # metres; where lidars themselves end lies beyond
THIN = 0.1  # share of missing rays on surfaces near by, where a lidar loses less than 2 %
NEAR = 20.0  # metres
SECTOR = 5  # degrees; a narrower one may be a mast
_EVEN = (0.35, 0.75)  # share of the points within two edges that lie in the outer one; 0.5 if they are even
_DENSITY = (0.2, 4.0)  # relative to that farther inside
_FEW = 3  # points a sweep
_SOME = 0.7  # share of the sweeps, or of the directions, that must show a cut
_BANDS = 3  # degrees of elevation at which a plane must be seen; the highest beam alone ends in a plane, too


@dataclass(frozen=True)
class Cut:
    """A bound that all points keep."""

    axis: int  # 0 to 2: x, y, z; 3: range
    sign: int  # 1: all points lie above the bound, -1: below
    bound: float  # metres

    @property
    def is_possible(self) -> bool:
        """Lidars themselves see no farther than some distance."""
        return self.axis < 3 or self.sign > 0 or self.bound < FARTHEST

    @property
    def sentence(self) -> str:
        name = ("x", "y", "z", "range")[self.axis]
        return f"{name} {'>' if self.sign > 0 else '<'} {self.bound:.2f} m"


def find_cuts(
    points: Tensor,  # [n, 3 or more] metres, of all sweeps, without the vehicle's own returns
    sweep: Tensor,  # [n] int64, from 0: the sweep of each point
) -> list[Cut]:
    n_sweeps, values = int(sweep.max()) + 1, (*points[:, :3].unbind(1), points[:, :3].norm(dim=1))
    found = []
    for axis, sign in product((3, 0, 1, 2), (1, -1)):
        bound = float(values[axis].min() if sign > 0 else values[axis].max())
        near = (sign * (values[axis] - bound) < 10 * EDGES[-1]).nonzero()[:, 0]
        depths = sign * (values[axis][near] - bound)
        cut = Cut(axis, sign, bound)
        even = [_is_even(depths, sweep[near], n_sweeps, edge) for edge in EDGES]
        if cut.is_possible and sum(even) >= 2 and _is_everywhere(points, near[depths < EDGES[-1]], cut):
            found.append(cut)
    ranges = [cut for cut in found if cut.axis == 3]
    return ranges or found  # planes through the last points of a cut range are no cuts of their own


def _is_even(
    depths: Tensor,  # [n] metres inside the bound
    sweep: Tensor,  # [n]
    n_sweeps: int,
    edge: float,  # metres
) -> bool:
    one, two, ten = (int((depths < width * edge).sum()) for width in (1, 2, 10))
    often = one >= _FEW * n_sweeps and len(sweep[depths < edge].unique()) >= _SOME * n_sweeps
    density = _DENSITY[0] * (ten - one) <= 9 * one <= _DENSITY[1] * (ten - one)
    return often and density and _EVEN[0] <= one / two <= _EVEN[1]


def _is_everywhere(
    points: Tensor,  # [n, 3 or more]
    edge: Tensor,  # [m] indices of those at the bound
    cut: Cut,
) -> bool:
    """A parked car is nearest on its own side; a cut of the range is seen all around."""
    if cut.axis == 3:
        octant = 4 * (points[:, 0] > 0) + 2 * (points[:, 1] > 0) + (points[:, 0].abs() > points[:, 1].abs())
        return len(octant[edge].unique()) >= _SOME * len(octant.unique())
    elevation = torch.rad2deg(torch.atan2(points[edge, 2], points[edge, :2].norm(dim=1)))
    return len(elevation.floor().unique()) >= _BANDS


def is_thinned(
    gaps: Tensor,  # [n] radians of azimuth from each point to the next of its ring
    ranges: Tensor,  # [n, 2] metres of both
    nominal: float,  # radians between two rays
) -> bool:
    """Whether rays are missing at random, also where a lidar loses none: between two points of one surface near by."""
    surface = (
        (ranges < NEAR).all(dim=1) & (ranges.diff(dim=1)[:, 0].abs() < 0.05 * ranges[:, 0]) & (gaps < 20 * nominal)
    )
    return bool((gaps[surface] > 1.5 * nominal).double().mean() > THIN)


def cut_directions(
    cuts: list[Cut],
    elevations: Tensor,  # [B] radians
    reach: float,  # metres
) -> Tensor:  # [B, 360] bool, by degree of azimuth from -180: a ray on its way runs through what was cut away
    azimuth = torch.deg2rad(torch.arange(360, dtype=torch.float64) - 179.5)
    grid = torch.stack([azimuth.expand(len(elevations), -1), elevations[:, None].expand(-1, 360)], dim=-1)
    ends = reach * unit_directions(grid)
    lost = torch.zeros(len(elevations), 360, dtype=torch.bool)
    for cut in cuts:
        far = torch.full_like(ends[..., 0], reach) if cut.axis == 3 else ends[..., cut.axis]
        lost |= torch.minimum(torch.zeros_like(far), cut.sign * far) < cut.sign * cut.bound - EDGES[1]
    return lost


def cut_sectors(
    seen: Tensor,  # [B, 360] bool, by degree of azimuth from -180: something returned
    step: float,  # radians between two rays
) -> Tensor:  # [B, 360] bool
    """Directions in which no beam ever sees anything, and what each beam never sees next to them: the edge of an image is no
    straight line of azimuth."""
    width = max(SECTOR, math.ceil(4 * math.degrees(step)))
    if width > 360:
        return torch.zeros_like(seen)
    empty = ~seen.any(dim=0)
    long = torch.stack([empty.roll(-i) for i in range(width)]).all(dim=0)  # such a sector begins here
    lost = torch.stack([long.roll(i) for i in range(width)]).any(dim=0).expand_as(seen) & ~seen
    for _ in range(360):
        wider = lost | (~seen & (lost.roll(1, dims=1) | lost.roll(-1, dims=1)))
        if torch.equal(wider, lost):
            break
        lost = wider
    return lost


def sector_sentence(
    lost: Tensor,  # [360] bool, of all beams
) -> str:
    """Bounds of what is left, in degrees of azimuth."""
    begins = (lost.roll(1) & ~lost).nonzero()[:, 0].tolist()
    ends = (lost & ~lost.roll(1)).nonzero()[:, 0].tolist()
    parts = [f"{begin - 180} to {min((end - begin) % 360 for end in ends) + begin - 180}" for begin in begins]
    return f"azimuth {' and '.join(parts[:3])} degrees"
