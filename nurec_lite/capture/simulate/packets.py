# SPDX-License-Identifier: Apache-2.0
"""Packets of neighbouring rays, and the solids that each may hit: a cone or a beam holds the rays, a sphere holds the solid.

Letters: S packets of r rays, n spheres.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

_GROUP_SIZE = 16  # consecutive packets; a group is tested against the solids before its packets are


@dataclass(frozen=True)
class Spheres:
    """Bounding spheres of n solids, or of whole owners."""

    centres: Tensor  # [n, 3]
    reach: Tensor  # [n] radii


@dataclass(frozen=True)
class Cone:
    """The cones of S packets: each holds all rays of its packet."""

    apex: Tensor  # [S, 3]
    axis: Tensor  # [S, 3]
    opening: Tensor  # [S] radians
    slack: Tensor  # [S] metres from the apex to the farthest origin of a ray

    @staticmethod
    def around(origins: Tensor, directions: Tensor) -> "Cone":  # [S, r, 3] each
        apex, axis = origins.mean(1), F.normalize(directions.mean(1), dim=-1)
        opening = torch.acos((directions @ axis[:, :, None])[..., 0].amin(1).clamp(-1, 1))
        return Cone(apex, axis, opening, (origins - apex[:, None]).norm(dim=-1).amax(1))

    def may_hit(self, spheres: Spheres, s: Tensor, n: Tensor) -> Tensor:  # numbers of packets and of spheres -> bool
        to_centre = spheres.centres[n] - self.apex[s]
        distance = to_centre.norm(dim=-1).clamp(min=1e-6)
        angle = torch.acos(((to_centre * self.axis[s]).sum(-1) / distance).clamp(-1, 1))
        width = torch.asin(((spheres.reach[n] + self.slack[s]) / distance).clamp(max=1))
        return angle <= self.opening[s] + width + 1e-3


@dataclass(frozen=True)
class Beam:
    """The beams of S packets of (nearly) parallel rays that may start far apart: boxes along the axes of the packets, open at
    the far end."""

    basis: Tensor  # [S, 3, 3] columns: two sides and the axis
    low: Tensor  # [S, 3] metres along them
    high: Tensor  # [S, 3]

    @staticmethod
    def around(origins: Tensor, directions: Tensor) -> "Beam":  # [S, r, 3] each
        axis = F.normalize(directions.mean(1), dim=-1)
        side = F.normalize(torch.linalg.cross(axis, axis.roll(1, dims=-1)), dim=-1)
        basis = torch.stack([side, torch.linalg.cross(axis, side), axis], dim=-1)
        starts = origins @ basis
        return Beam(basis, starts.amin(1), starts.amax(1))

    def may_hit(self, spheres: Spheres, s: Tensor, n: Tensor) -> Tensor:
        centres = (spheres.centres[n][..., None, :] @ self.basis[s])[..., 0, :]
        reach = (1.05 * spheres.reach[n] + 0.05)[..., None]
        above, below = centres + reach > self.low[s], centres - reach < self.high[s]
        return above.all(-1) & below[..., :2].all(-1)


@dataclass(frozen=True)
class RayPackets:
    """S packets of rays, and groups of consecutive packets. A group is tested against the solids before its packets are."""

    each: Cone | Beam
    groups: Cone | Beam
    count: int  # S

    @staticmethod
    def of(origins: Tensor, directions: Tensor, parallel: bool) -> "RayPackets":  # [S, r, 3] each
        kind, count = Beam if parallel else Cone, len(origins)
        numbers = torch.arange(-(-count // _GROUP_SIZE) * _GROUP_SIZE, device=origins.device)
        of = numbers.clamp(max=count - 1).view(-1, _GROUP_SIZE)
        whole = kind.around(*(x[of].flatten(1, 2) for x in (origins, directions)))
        return RayPackets(kind.around(origins, directions), whole, count)

    def pairs(self, spheres: Spheres) -> tuple[Tensor, Tensor]:
        """Returns packet [n] and sphere [n] of each pair that may hit, sorted by packet and then by sphere."""
        n, device = len(spheres.reach), spheres.reach.device
        group = torch.arange(-(-self.count // _GROUP_SIZE), device=device)
        some, which = (
            self.groups.may_hit(spheres, group[:, None], torch.arange(n, device=device)[None]).nonzero().unbind(1)
        )
        packet = some[:, None] * _GROUP_SIZE + torch.arange(_GROUP_SIZE, device=device)
        there = packet < self.count
        packet = packet.clamp(max=self.count - 1)
        there &= self.each.may_hit(spheres, packet, which[:, None].expand_as(packet))
        key = (packet * n + which[:, None])[there].sort().values
        return torch.div(key, n, rounding_mode="floor"), key % n
