# SPDX-License-Identifier: Apache-2.0
"""Bundles of neighbouring rays, and the solids that each may meet: a cone or a beam holds the rays, a sphere the solid.

Letters: S bundles of r rays, n spheres.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

_TOGETHER = 16  # bundles that are compared with the solids at once, before each of them is


@dataclass(frozen=True)
class Spheres:
    """Bounding spheres of n solids, or of whole owners."""

    centres: Tensor  # [n, 3]
    reach: Tensor  # [n] radii


@dataclass(frozen=True)
class Cone:
    """The cones of S bundles: each holds all rays of its bundle."""

    apex: Tensor  # [S, 3]
    axis: Tensor  # [S, 3]
    opening: Tensor  # [S] radians
    slack: Tensor  # [S] metres by which rays may start beside the apex

    @staticmethod
    def around(origins: Tensor, directions: Tensor) -> "Cone":  # [S, r, 3] each
        apex, axis = origins.mean(1), F.normalize(directions.mean(1), dim=-1)
        opening = torch.acos((directions @ axis[:, :, None])[..., 0].amin(1).clamp(-1, 1))
        return Cone(apex, axis, opening, (origins - apex[:, None]).norm(dim=-1).amax(1))

    def meet(self, spheres: Spheres, s: Tensor, n: Tensor) -> Tensor:  # numbers of bundles and of spheres -> bool
        to_centre = spheres.centres[n] - self.apex[s]
        distance = to_centre.norm(dim=-1).clamp(min=1e-6)
        angle = torch.acos(((to_centre * self.axis[s]).sum(-1) / distance).clamp(-1, 1))
        width = torch.asin(((spheres.reach[n] + self.slack[s]) / distance).clamp(max=1))
        return angle <= self.opening[s] + width + 1e-3


@dataclass(frozen=True)
class Beam:
    """The beams of S bundles of (nearly) parallel rays that may start far apart: boxes along their axes, open at the far end."""

    basis: Tensor  # [S, 3, 3] columns: two sides and the axis
    low: Tensor  # [S, 3] metres along them
    high: Tensor  # [S, 3]

    @staticmethod
    def around(origins: Tensor, directions: Tensor) -> "Beam":
        axis = F.normalize(directions.mean(1), dim=-1)
        side = F.normalize(torch.linalg.cross(axis, axis.roll(1, dims=-1)), dim=-1)
        basis = torch.stack([side, torch.linalg.cross(axis, side), axis], dim=-1)
        starts = origins @ basis
        return Beam(basis, starts.amin(1), starts.amax(1))

    def meet(self, spheres: Spheres, s: Tensor, n: Tensor) -> Tensor:
        centres = (spheres.centres[n][..., None, :] @ self.basis[s])[..., 0, :]
        reach = (1.05 * spheres.reach[n] + 0.05)[..., None]
        above, below = centres + reach > self.low[s], centres - reach < self.high[s]
        return above.all(-1) & below[..., :2].all(-1)


@dataclass(frozen=True)
class Bundles:
    """S bundles of rays, and groups of them: those that follow one another are held against solids together first."""

    each: Cone | Beam
    groups: Cone | Beam
    count: int  # S

    @staticmethod
    def of(origins: Tensor, directions: Tensor, parallel: bool) -> "Bundles":  # [S, r, 3] each
        kind, count = Beam if parallel else Cone, len(origins)
        numbers = torch.arange(-(-count // _TOGETHER) * _TOGETHER, device=origins.device)
        of = numbers.clamp(max=count - 1).view(-1, _TOGETHER)
        whole = kind.around(*(x[of].flatten(1, 2) for x in (origins, directions)))
        return Bundles(kind.around(origins, directions), whole, count)

    def pairs(self, spheres: Spheres) -> tuple[Tensor, Tensor]:
        """Bundle and sphere of each pair that may meet, by bundle and then by sphere."""
        n, device = len(spheres.reach), spheres.reach.device
        group = torch.arange(-(-self.count // _TOGETHER), device=device)
        some, which = (
            self.groups.meet(spheres, group[:, None], torch.arange(n, device=device)[None]).nonzero().unbind(1)
        )
        bundle = some[:, None] * _TOGETHER + torch.arange(_TOGETHER, device=device)
        there = bundle < self.count
        bundle = bundle.clamp(max=self.count - 1)
        there &= self.each.meet(spheres, bundle, which[:, None].expand_as(bundle))
        key = (bundle * n + which[:, None])[there].sort().values
        return torch.div(key, n, rounding_mode="floor"), key % n
