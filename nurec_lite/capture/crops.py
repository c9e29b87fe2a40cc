# SPDX-License-Identifier: Apache-2.0
"""Parts that were cut away from a drive's sweeps, so that a cut is not taken for rays that did not return.

Programs that train detectors keep a box, a sector, a distance or a part of the points. Such a cut ends the points abruptly: as
many lie within some distance of it as in the next piece of that length, in all sweeps, and none beyond. A lidar's own range ends
otherwise: points grow rare towards the farthest one, which lies elsewhere in every sweep.
"""

import math
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from nurec_lite.geometry.lidar import unit_directions

FARTHEST = 60.0  # metres; where lidars themselves end lies beyond
THIN = 0.07  # share of missing rays on surfaces near by, where lidars lose up to 1.3 %, and 5 % near one dark car
NEAR = 20.0  # metres
SECTOR = 5  # degrees; a narrower one may be a mast
TOLERANCE = 0.1  # metres that a ray may reach into the cut space
_EDGES = (
    (3, 0.02),
    (6, 0.04),
    (12, 0.08),
)  # a cut is looked at within so many points a sweep, and so many metres at least
_FEWEST = 5  # sweeps that these numbers are multiplied by
_WIDEST = 0.5  # metres; where points are rarer, nothing is known
_EVEN = (0.3, 0.7)  # share of the points that lie in the outer half, 0.5 if they are even
# share of the sweeps that must show a cut, by axis; a street need not be as wide as a box
_SWEEPS = 0.5, 0.5, 0.75, 0.75
_DIRECTIONS = 3  # octants that must show a cut of the range, and half degrees of elevation that must show a plane: the highest beam
# alone ends in a plane, too, and a parked car is near on its own side


@dataclass(frozen=True)
class Cut:
    """A bound that all points keep."""

    axis: int  # 0 to 2: x, y, z; 3: range
    sign: int  # 1: all points lie above the bound, -1: below
    bound: float  # metres

    @property
    def is_possible(self) -> bool:
        """Whether it may be a cut: lidars themselves see no farther than some distance."""
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
    octants, found = _directions(points, 3), []
    for axis, sign in product((3, 0, 1, 2), (1, -1)):
        cut = Cut(axis, sign, float(values[axis].min() if sign > 0 else values[axis].max()))
        depths = sign * (values[axis] - cut.bound)
        near = (depths < 2 * _WIDEST).nonzero()[:, 0]
        near = near[depths[near].argsort()]
        wide = min(_DIRECTIONS, octants) if axis == 3 else _DIRECTIONS
        if cut.is_possible and _is_abrupt(depths[near], points[near], sweep[near], n_sweeps, axis, wide):
            found.append(cut)
    ranges = [cut for cut in found if cut.axis == 3]
    return ranges or found  # planes through the last points of a cut range are no cuts of their own


def _is_abrupt(
    depths: Tensor,  # [n] metres inside the bound, rising
    points: Tensor,  # [n, 3 or more]
    sweep: Tensor,  # [n]
    n_sweeps: int,
    axis: int,
    wide: int,  # directions that must show it
) -> bool:
    """Whether it is abrupt at two of three depths, as a wall is a peak at one of them. Roofs of one height are few
    points."""
    right = 0
    for few, least in _EDGES:
        number = few * max(n_sweeps, _FEWEST)
        if number >= len(depths) or float(depths[number]) > (least if axis == 2 else _WIDEST):
            break
        edge = max(float(depths[number]), least)
        half, one, two = torch.searchsorted(depths, depths.new_tensor([edge / 2, edge, 2 * edge])).tolist()
        even = _EVEN[0] * one <= half <= _EVEN[1] * one and _EVEN[0] * two <= one <= _EVEN[1] * two
        often = len(sweep[:one].unique()) >= _SWEEPS[axis] * n_sweeps
        right += even and often and _directions(points[:one], axis) >= wide
    return right >= 2


def _directions(
    points: Tensor,  # [n, 3 or more]
    axis: int,
) -> int:
    x, y, z = points[:, :3].unbind(1)
    if axis == 3:
        return len((4 * (x > 0) + 2 * (y > 0) + (x.abs() > y.abs())).unique())
    return len((2 * torch.rad2deg(torch.atan2(z, torch.hypot(x, y)))).floor().unique())


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
) -> Tensor:  # [B, 360] bool, by degree of azimuth from -180: a ray on its way runs through cut space
    azimuth = torch.deg2rad(torch.arange(360, dtype=torch.float64) - 179.5)
    grid = torch.stack([azimuth.expand(len(elevations), -1), elevations[:, None].expand(-1, 360)], dim=-1)
    ends = reach * unit_directions(grid)
    lost = torch.zeros(len(elevations), 360, dtype=torch.bool)
    for cut in cuts:
        far = torch.full_like(ends[..., 0], reach) if cut.axis == 3 else ends[..., cut.axis]
        lost |= torch.minimum(torch.zeros_like(far), cut.sign * far) < cut.sign * cut.bound - TOLERANCE
    return lost


def cut_sectors(
    seen: Tensor,  # [B, 360] bool, by degree of azimuth from -180: something returned
    step: float,  # radians between two rays
) -> Tensor:  # [B, 360] bool
    """Directions without any return, and the directions next to them where one beam never returns: the edge of an image is
    no straight line of azimuth."""
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
    """Bounds of the rest, in degrees of azimuth."""
    begins = (lost.roll(1) & ~lost).nonzero()[:, 0].tolist()
    ends = (lost & ~lost.roll(1)).nonzero()[:, 0].tolist()
    parts = [f"{begin - 180} to {min((end - begin) % 360 for end in ends) + begin - 180}" for begin in begins]
    return f"azimuth {' and '.join(parts[:3])} degrees"
