# SPDX-License-Identifier: Apache-2.0
"""Density control of 3DGS-MCMC (Kheradmand et al. 2024): dead Gaussians move to live ones, the number grows up to a cap, and noise
lets transparent ones explore.

Where the lidar has its own opacity, the greater of both counts: a Gaussian is dead where neither sensor sees it, and the sensor that sees
it best keeps it from noise. The camera's opacity decides copying, since more Gaussians sharpen images; copies share both opacities.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.base.rows import rows_of
from nurec_lite.base.transfer import upload
from nurec_lite.geometry.se3 import quat_normalize, quat_rotate
from nurec_lite.scene.gaussians import LIDAR_VALUES, Gaussians

DEAD_OPACITY = 0.005
INVISIBLE = 1e-6  # opacity that no ray responds to, with a finite logarithm
MAX_COPIES = 51  # of one Gaussian in one relocation; the sums below stay exact in double precision


@dataclass(frozen=True)
class Relocation:
    """The store after a relocation: M Gaussians."""

    changed: dict[str, Tensor]  # M rows each: means, and other parameters that are no copies of old rows
    node: Tensor  # [M] int64
    source: Tensor  # [M] int64 row of the old store that a Gaussian continues, or is a copy of
    anew: Tensor  # [M] bool: it begins anew, without moments

    def in_order(
        self,
        order: Tensor,  # [M] int64
    ) -> "Relocation":
        """Returns the same Gaussians in another order."""
        changed = {name: value[order] for name, value in self.changed.items()}
        return Relocation(changed, self.node[order], self.source[order], self.anew[order])

    def value(
        self,
        name: str,
        old: Tensor,  # of that name, in the old store
    ) -> Tensor:  # M rows
        return self.changed[name] if name in self.changed else rows_of(old, self.source)


Order = Callable[[Relocation], Tensor]  # [M] wanted order of Gaussians
McmcSplit = Callable[[Tensor, Tensor, int | None], tuple[Tensor, Tensor]]  # as `mcmc_split`
Noise = Callable[[Tensor, Tensor, Tensor, float | Tensor, Tensor], Tensor]  # as `sgld_noise`


@torch.no_grad()
def relocate(
    g: Gaussians,
    n_new: int,  # Gaussians to add
    generator: torch.Generator,
    weights: Tensor | None = None,  # [N] positive; None: all equal
    jitter: float = 0.0,  # standard deviations that copies move apart
    lost: Tensor | None = None,  # [N] which count as dead at any opacity; None: none does
    order: Order | None = None,  # None: the old ones stay, new ones follow
    split: McmcSplit | None = None,  # None: mcmc_split
) -> Relocation | None:  # None when all are dead
    """Dead Gaussians, and the new ones, become copies of live ones drawn by opacity (section 4 of the paper) times weights."""
    dead = _dead(g, lost)
    if bool(dead.all()):
        return None
    rows = torch.cat([torch.nonzero(dead).squeeze(-1), torch.arange(len(g), len(g) + n_new, device=dead.device)])
    source = torch.arange(len(g) + n_new, device=dead.device)
    source[rows] = _draw(_likely(g, dead, weights), len(rows), generator)
    copies = torch.bincount(source, minlength=len(g))[source].clamp(max=MAX_COPIES)
    return _ordered(_continued(g, source, copies, None, jitter, generator, split or mcmc_split), order)


@torch.no_grad()
def relocate_masked(
    g: Gaussians,
    n_new: int,  # Gaussians to add
    generator: torch.Generator,
    weights: Tensor | None = None,  # [N] positive; None: all equal
    jitter: float = 0.0,  # standard deviations that copies move apart
    lost: Tensor | None = None,  # [N] which count as dead at any opacity; None: none does
    order: Order | None = None,  # None: the old ones stay, new ones follow
    split: McmcSplit | None = None,  # None: mcmc_split
) -> Relocation:
    """`relocate` without a number that only the device knows: all draw, and living ones stay as they are. Takes more random numbers,
    so that with the same generator other Gaussians are drawn. When all are dead, they stay, and the new ones copy the last."""
    dead = _dead(g, lost)
    empty = F.pad(dead & ~dead.all(), (0, n_new), value=True)
    drawn = _draw(_likely(g, dead, weights), len(empty), generator)
    source = torch.where(empty, drawn, torch.arange(len(empty), device=dead.device))
    counts = torch.zeros_like(source[: len(g)]).scatter_add_(0, source, torch.ones_like(source))
    copies = counts[source].clamp(max=MAX_COPIES)
    return _ordered(_continued(g, source, copies, MAX_COPIES, jitter, generator, split or mcmc_split), order)


def _dead(g: Gaussians, lost: Tensor | None) -> Tensor:
    faded = (g.greatest_opacity() > DEAD_OPACITY).logical_not_()  # NaN counts, too
    return faded if lost is None else faded | lost


def _likely(g: Gaussians, dead: Tensor, weights: Tensor | None) -> Tensor:
    """[N] how likely each is drawn."""
    opacity = torch.sigmoid(g.opacity_logits).clamp(min=INVISIBLE)  # of those that the lidar alone sees, too
    return torch.where(dead, torch.zeros_like(opacity), opacity if weights is None else opacity * weights)


def _continued(
    g: Gaussians,
    source: Tensor,  # [M] int64, the Gaussian that each of the new store's is a copy of
    copies: Tensor,  # [M] int64, how many share that source
    most: int | None,  # of these, or more; as split_opacity takes it
    jitter: float,  # standard deviations
    generator: torch.Generator,
    split: McmcSplit,
) -> Relocation:
    """The new store: a Gaussian with several copies is split among them."""
    several = copies > 1
    logits, shrink = split(g.all_opacity_logits()[source], copies, most)
    log_scales, lidar = g.log_scales.detach()[source], rows_of(g.lidar_logits.detach(), source)
    own = lidar[:, LIDAR_VALUES:]
    own.copy_(torch.where(several[:, None], logits[:, 1:], own))
    changed = {
        "means": g.means.detach()[source],
        "log_scales": log_scales + torch.where(several, shrink.log(), torch.zeros_like(shrink))[:, None],
        "opacity_logits": torch.where(several, logits[:, 0], g.opacity_logits.detach()[source]),
        "lidar_logits": lidar,
    }
    if jitter > 0:
        changed["means"] += offsets(rows_of(g.quats.detach(), source), log_scales, jitter * several, generator)
    return Relocation(changed, g.node[source], source, several)


def _ordered(moved: Relocation, order: Order | None) -> Relocation:
    return moved if order is None else moved.in_order(order(moved))


def by_node(moved: Relocation) -> Tensor:  # [M] int64
    """The background first, then the Gaussians of one track after another; within each as they were."""
    return torch.argsort(moved.node, stable=True)


def _draw(weights: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """[n] indices drawn with replacement in proportion to the weights (by inversion, which has no limit on their number)."""
    cumulative = weights.double().cumsum(0)
    u = torch.rand(n, dtype=torch.float64, generator=generator, device=weights.device) * cumulative[-1]
    return torch.searchsorted(cumulative, u, right=True).clamp(max=len(weights) - 1)


def split_opacity(
    opacity: Tensor,  # [...] of the Gaussian that is copied
    copies: Tensor,  # [...] int64, how many stand in its place, 1 to MAX_COPIES
    most: int | None = None,  # of them, or more; None: as many as there are, which waits for the device
) -> tuple[Tensor, Tensor]:  # opacity of each copy [...], factor of its scales [...]
    """Equation 9 of 3DGS-MCMC: n copies that together look as one did. o' = 1 - (1 - o)^(1/n); the scales shrink by
    o / sum_{k=0}^{n-1} C(n, k + 1) (-1)^k o'^(k+1) / sqrt(k + 1), the paper's double sum added up over i."""
    o = opacity.double().clamp(max=1 - 1e-7)
    shared = 1 - (1 - o) ** (1 / copies.double())
    if most is None:
        most = int(copies.max()) if len(copies) else 0
    factors, total = _alternating(opacity.device), torch.zeros_like(o)
    for k in reversed(range(most)):  # Horner's rule; index_select would start a block of the GPU for every Gaussian
        total = torch.addcmul(factors[k].take(copies), total, shared)
    return shared.to(opacity.dtype), (o / (total * shared)).to(opacity.dtype)


def mcmc_split(
    logits: Tensor,  # [N, S] opacities that S sensors see, of the Gaussian that is copied
    copies: Tensor,  # [N] int64, how many stand in its place, 1 to MAX_COPIES
    most: int | None = None,  # as split_opacity takes it
) -> tuple[Tensor, Tensor]:  # opacities of each copy before the sigmoid [N, S], factor of its scales [N]
    """Copies that together look as one did, as far as one factor of the scales allows.

    A ray through the mean passes as much as before, for every sensor. The integral across the Gaussian, which equation 9 keeps by the
    factor, is kept for the sensor that sees it as most opaque: that one has most to lose, and its factor is the least, so that to others
    the copies look narrower than the one did, never wider. Copies are not dead at once: the greatest opacity stays above.
    """
    opacities = torch.sigmoid(logits)
    shared, factors = split_opacity(opacities, copies[:, None], most)
    greatest = opacities == opacities.amax(1, keepdim=True)
    shared = torch.where(greatest, shared.clamp(min=DEAD_OPACITY), shared.clamp(min=INVISIBLE))
    return torch.logit(shared.clamp(max=1 - 1e-6)), factors.amin(1)


@lru_cache(maxsize=8)
def _alternating(device: torch.device) -> Tensor:
    """[k, n] C(n, k + 1) (-1)^k / sqrt(k + 1); 0 where k >= n."""
    rows = range(MAX_COPIES), range(MAX_COPIES + 1)
    values = [[math.comb(n, k + 1) * (-1) ** k / math.sqrt(k + 1) for n in rows[1]] for k in rows[0]]
    return upload(torch.tensor(values, dtype=torch.float64), device)


def sgld_noise(
    quats: Tensor,  # [N, 4]
    log_scales: Tensor,  # [N, 3]
    opacity: Tensor,  # [N]
    amount: float | Tensor,  # [] standard deviations at opacity 0
    eta: Tensor,  # [N, 3] normal
) -> Tensor:  # [N, 3] metres
    """Returns the steps of `add_noise` for the means."""
    transparent = torch.sigmoid(100 * (DEAD_OPACITY - opacity))
    return along(quats, log_scales, amount * transparent, eta)


@torch.no_grad()
def add_noise(
    g: Gaussians,
    amount: float | Tensor,  # [] standard deviations at opacity 0
    generator: torch.Generator,
    shift: Noise = sgld_noise,
) -> None:
    """means += amount sigmoid(100 (0.005 - o)) Sigma^(1/2) eta, after equation 10 of 3DGS-MCMC.

    The paper multiplies eta by Sigma and by a factor chosen for scenes of unit size; in metres that would move a Gaussian of 1 m a
    thousand times its size and one of 1 cm a tenth of it. With the square root the amount counts standard deviations.
    """
    g.means += shift(g.quats, g.log_scales, g.greatest_opacity(), amount, normal_like(g.log_scales, generator))


def offsets(
    quats: Tensor,  # [N, 4]
    log_scales: Tensor,  # [N, 3]
    amount: Tensor,  # [N] standard deviations
    generator: torch.Generator,
) -> Tensor:  # [N, 3] metres
    """Draws offsets from the Gaussians themselves, about their means: amount R S eta with normal eta."""
    return along(quats, log_scales, amount, normal_like(log_scales, generator))


def normal_like(like: Tensor, generator: torch.Generator) -> Tensor:
    """Draws normal numbers on the device of `like`, in its shape."""
    return torch.randn(like.shape, generator=generator, device=like.device, dtype=like.dtype)


def along(
    quats: Tensor,  # [N, 4]
    log_scales: Tensor,  # [N, 3]
    amount: Tensor,  # [N] standard deviations
    eta: Tensor,  # [N, 3] normal
) -> Tensor:  # [N, 3] metres
    return quat_rotate(quat_normalize(quats), amount[:, None] * log_scales.exp() * eta)
