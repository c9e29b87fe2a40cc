# SPDX-License-Identifier: Apache-2.0
"""Lidars that spin or scan in any pattern: spherical coordinates and the rays of a sweep.

Lidar frame: x forward, y left, z up; azimuth = atan2(y, x) grows counter-clockwise, elevation is positive upwards.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from nurec_lite.base.converted_fields import convert_fields

CELL_BEAMS = 4
CELL_STEPS = 4
_BESIDE = math.radians(0.5)  # that a ray may point beside its beam and lie in the same band


@dataclass(frozen=True, eq=False)
class RayTable:
    """R rays that a lidar sends in every sweep."""

    directions: Tensor  # [R, 3] unit, float32
    fractions: Tensor  # [R] float64, 0 at the start of a sweep, 1 at its end


@dataclass(frozen=True)
class Lidar:
    """Mounting and pattern of one lidar: beams that turn, or rays in any directions at any times (geometry/free_lidar.py)."""

    name: str
    T_rig_lidar: Tensor  # [4, 4] float64
    elevations: Tensor  # [B] radians, of ring 0 to B - 1
    max_range: float = 120.0  # metres
    azimuth_steps: int = 2048  # rays that a beam sends in a revolution, about
    azimuth_start: float = math.pi  # radians, where a revolution begins: behind the vehicle, as in KITTI
    clockwise: bool = True  # seen from above
    spins: bool = True  # False: rings are bands of elevation, and the azimuth of a ray does not give its time
    table: RayTable | None = None  # rays of every sweep; None: those of its beams, or unknown if it does not spin

    def __post_init__(self) -> None:
        convert_fields(self, f"lidar {self.name}")

    @property
    def spin_rate(self) -> float:
        """Revolutions a radian of azimuth: negative when azimuth falls with time; 0: azimuth does not follow time."""
        return (-1 if self.clockwise else 1) / (2 * math.pi) if self.spins else 0.0

    def spin_fraction(
        self,
        azimuth: Tensor,  # [...] radians
    ) -> (
        Tensor
    ):  # [...] in [0, 1): when, as a fraction of the revolution, the lidar looks there; 0.5 if it does not spin
        if not self.spins:
            return torch.full_like(azimuth, 0.5)
        return torch.remainder((azimuth - self.azimuth_start) * self.spin_rate, 1)

    @lru_cache(maxsize=64)  # noqa: B019  lidars are few and live as long as the capture
    def cells(
        self,
        beams: int = CELL_BEAMS,
        steps: int = CELL_STEPS,
        device: torch.device | str = "cpu",
        closed: bool = False,  # with a band below all beams and one above, where rays are rare
    ) -> "Cells":
        """The grid that groups this lidar's rays: of a full sweep, beams x steps in a cell. Made once and kept."""
        elevations = self.elevations.sort().values
        above = elevations[beams::beams]
        below = elevations[beams - 1 :: beams][: len(above)]
        edges = 0.5 * (above + below)
        if closed:
            edges = torch.cat([elevations[:1] - _BESIDE, edges, elevations[-1:] + _BESIDE])
        return Cells(edges.to(device, torch.float32), max(1, self.azimuth_steps // steps))


@dataclass(frozen=True)
class Cells:
    """A grid over the sphere: bands of elevation with edges that follow the beams, each cut into columns of azimuth.

    About CELL_BEAMS x CELL_STEPS neighbouring rays of a full sweep lie in a cell. Rays of any pattern have a cell.
    """

    edges: Tensor  # [bands - 1] radians, ascending
    columns: int  # cells in a band, from azimuth -pi to pi

    def __len__(self) -> int:
        return self.columns * (len(self.edges) + 1)

    def band(
        self,
        elevation: Tensor,  # [...] radians
    ) -> Tensor:  # [...] int64
        return torch.bucketize(elevation.contiguous(), self.edges.to(elevation))

    def column(
        self,
        azimuth: Tensor,  # [...] radians, not necessarily within +-pi
    ) -> Tensor:  # [...] int64, not wrapped
        return torch.floor((azimuth + math.pi) / (2 * math.pi) * self.columns).long()

    def of(
        self,
        directions: Tensor,  # [R, 3]
    ) -> Tensor:  # [R] int64 number of each ray's cell
        azimuth, elevation = azimuth_elevation(directions).unbind(-1)
        return self.band(elevation) * self.columns + torch.remainder(self.column(azimuth), self.columns)


@dataclass(frozen=True)
class Sweep:
    """R rays of one revolution or period. Directions are in the lidar's frame at the ray's own time: nothing is motion compensated."""

    directions: Tensor  # [R, 3] unit, float32
    ranges: Tensor  # [R] metres, 0 where nothing returned
    intensities: Tensor  # [R] 0 to 1, 0 where nothing returned
    times: Tensor  # [R] seconds, float64, on the clock of the capture
    rings: Tensor  # [R] int64, index of the beam
    returned: Tensor  # [R] bool

    def __len__(self) -> int:
        return len(self.ranges)

    def to(self, device: torch.device | str, copy: bool = False) -> "Sweep":
        return Sweep(*(getattr(self, f).to(device, copy=copy) for f in self.__dataclass_fields__))

    def select(
        self,
        index: Tensor | slice,  # [n] indices or [R] mask
    ) -> "Sweep":
        return Sweep(*(getattr(self, f)[index] for f in self.__dataclass_fields__))


def wrap_angle(
    angle: Tensor,  # [...] radians
) -> Tensor:  # [...] the same angle in [-pi, pi)
    return torch.remainder(angle + math.pi, 2 * math.pi) - math.pi


def azimuth_elevation(
    directions: Tensor,  # [..., 3], not necessarily unit
) -> Tensor:  # [..., 2] radians: azimuth in [-pi, pi], elevation
    x, y, z = directions.unbind(-1)
    return torch.stack([torch.atan2(y, x), torch.atan2(z, torch.hypot(x, y))], dim=-1)


def unit_directions(
    angles: Tensor,  # [..., 2] azimuth, elevation in radians
) -> Tensor:  # [..., 3] unit
    azimuth, elevation = angles.unbind(-1)
    c = torch.cos(elevation)
    return torch.stack([c * torch.cos(azimuth), c * torch.sin(azimuth), torch.sin(elevation)], dim=-1)
