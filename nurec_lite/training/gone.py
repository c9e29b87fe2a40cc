# SPDX-License-Identifier: Apache-2.0
"""Gaussians that are of no use: those that left the scene, and those that hold a value no checkpoint may hold.

They become dead: as small and transparent as can be, without moments. The next relocation moves them to live ones, as it does all dead
Gaussians; after the last relocation they stay, and no ray meets them.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from nurec_lite.scene.gaussians import THINNEST, Gaussians
from nurec_lite.training.density import INVISIBLE
from nurec_lite.training.schema import FARTHEST, FINITE, largest_value

FAR = (10.0, 1000.0)  # factor and metres: beyond the farthest coordinate at the start, so far out is no scene
# Of all Gaussians: if more are gone at once, learning diverges. A right run loses ten of a million in 700 steps; of the tiny drive in the
# tests 77 % are gone after 16 steps with a rate of 1 km.
SHARE = 0.05
KEPT = 0.95  # of all Gaussians: those of a checkpoint without an edge that are surely within it
UNTURNED = (1.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Gone:
    """Masks of the N Gaussians that left the scene, on the device; counts on the host."""

    rows: Tensor  # [N] bool
    count: int
    not_finite: int  # of these


def edge_of_scene(
    means: Tensor,  # [N, 3] metres, before the first step
) -> float:  # metres: a Gaussian with a coordinate beyond it has left the scene
    return _edge(float(means.abs().max()))


def edge_of_stored_scene(
    means: Tensor,  # [N, 3] metres, of a checkpoint that does not tell its edge
) -> float:
    """A few may have left it already."""
    farthest = means.abs().amax(1).sort().values
    return _edge(float(farthest[math.ceil(KEPT * len(farthest)) - 1]))


def _edge(reach: float) -> float:
    return min(FARTHEST, FAR[0] * reach + FAR[1])


@torch.no_grad()
def find_gone(
    optimizer: torch.optim.Adam,
    n: int,  # Gaussians
    edge: float,  # metres
) -> Gone:
    """Waits for the device."""
    rows = [_unlike(value, largest).view(n, -1).any(1) for value, largest in _of_gaussians(optimizer, edge)]
    broken = [(~value.isfinite()).view(n, -1).any(1) for value, _ in _of_gaussians(optimizer, edge)]
    gone, not_finite = torch.stack(rows).any(0), torch.stack(broken).any(0)
    count, wrong = torch.stack([gone.sum(), not_finite.sum()]).tolist()
    return Gone(gone, count, wrong)


def _of_gaussians(optimizer: torch.optim.Adam, edge: float) -> list[tuple[Tensor, float]]:
    """Parameters and moments of Gaussians, each with the largest magnitude that it may have."""
    found = []
    for name, parameter, moments in _groups(optimizer):
        found.append((parameter.detach(), edge if name == "means" else largest_value(name)))
        found += [(moment, FINITE) for moment in moments]
    return [(value, largest) for value, largest in found if value.numel()]


def _unlike(value: Tensor, largest: float) -> Tensor:
    """Mask of larger magnitudes, and of values that are no number."""
    return ~(value.abs() <= largest)


@torch.no_grad()
def bury(
    optimizer: torch.optim.Adam,
    rows: Tensor,  # [N] bool
) -> None:
    """Makes Gaussians dead in place, so that recorded steps go on. Dead Gaussians lie at the origin of their node."""
    dead = {
        "quats": torch.tensor(UNTURNED),
        "log_scales": torch.tensor(math.log(THINNEST)),
        "opacity_logits": torch.logit(torch.tensor(INVISIBLE)),
    }
    for name, parameter, moments in _groups(optimizer):
        value = dead.get(name, torch.zeros(())).to(parameter)
        where = rows.view(-1, *[1] * (parameter.dim() - 1))
        parameter.copy_(torch.where(where, value, parameter))
        if name == "lidar_logits":
            parameter[:, 2:].copy_(torch.where(where, dead["opacity_logits"].to(parameter), parameter[:, 2:]))
        for moment in moments:
            moment.masked_fill_(where, 0)


def _groups(optimizer: torch.optim.Adam) -> list[tuple[str, Tensor, list[Tensor]]]:
    """Name, tensor and moments of each parameter of Gaussians."""
    found = []
    for group in optimizer.param_groups:
        (parameter,) = group["params"]
        kept = optimizer.state.get(parameter, {})
        if group["name"] in Gaussians.trained():
            found.append((group["name"], parameter, [kept[k] for k in ("exp_avg", "exp_avg_sq") if k in kept]))
    return found
