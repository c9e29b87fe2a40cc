# SPDX-License-Identifier: Apache-2.0
"""Rendering in plain torch: the specification that every kernel is tested against. Gradients are autograd's.

Response of Gaussian (mu, R, S = diag s, o) on the ray r + t d (3DGUT, Wu et al. 2025): with M = S^-1 R^T, g = M (r - mu) and e = M d,

    D2 = |g x e|^2 / |e|^2,   alpha = min(0.99, o exp(-D2 / 2)),   t = -(g . e) / (e . e).

A Gaussian that moves with velocity v stands at mu + v dt for a ray that is dt away from the Gaussians' time. The cross product is
linear in the ray's Pluecker coordinates: g x e = cof(M) ((r - mu - v dt) x d) with cof(M) = det(M) M^-T. So c = g x e and e are
matrix products of a per-Gaussian matrix with a per-ray vector, and |g|^2 - (g.e)^2 / |e|^2, which cancels, never appears. M and
cof(M) are both taken times the smallest scale, which cancels in D2 and in t.

Rays with targets do not sum t but the range residual, min(|t - target|, most).

Blending goes front to back in slabs of 32 Gaussians for all tiles of a chunk at once; tiles without open rays are dropped.
Transmittances inside a slab are exp(L log(1 - alpha)) with L strictly lower triangular, one matrix product.
Letters: A tiles, K = 32 Gaussians of a slab, P rays of a tile, C features.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from nurec_lite.geometry.se3 import quat_to_matrix
from nurec_lite.scene.gaussians import WorldGaussians
from nurec_lite.splat.project import ALPHA_MIN, NEAR
from nurec_lite.splat.tiles import PairList
from nurec_lite.splat.views import Rays

ALPHA_MAX = 0.99
T_MIN = 1e-4  # a Gaussian that would take the transmittance below this is not blended and ends the ray
SLAB = 32
CHUNK_TILES = 2048  # tiles that are blended together: they bound the temporaries, and fewer cost more in calls
SAVED_PAIRS = 1 << 25  # above so many (ray, Gaussian) pairs chunks are recomputed in the backward pass instead of kept


@dataclass(frozen=True)
class Blend:
    """Results of blending for R rays."""

    features: Tensor  # [R, C] sum of w times feature
    distance: Tensor  # [R] sum of w t, metres along the unit ray; with targets, of w times the range residual
    transmittance: Tensor  # [R] share of light that passes through
    median: Tensor  # [R] metres: t of the Gaussian where T crosses 0.5, 0 where none does


def blend(
    gaussians: WorldGaussians,
    features: Tensor,  # [N, C]
    rays: Rays,
    pairs: PairList,
    centre: Tensor,  # [3] world; origins of the rays are relative to it
) -> Blend:
    """Blends the Gaussians of each tile's list over the tile's rays."""
    table, layout = _gaussian_table(gaussians, features, rays, centre)
    vectors = _ray_vectors(rays, layout)
    saved = int((pairs.offsets[1:] - pairs.offsets[:-1]).sum()) * pairs.rays.shape[1]
    chunks = []
    for start in range(0, len(pairs.rays), CHUNK_TILES):
        args = (table, vectors, layout, pairs.part(start, start + CHUNK_TILES))
        keep = saved <= SAVED_PAIRS or not torch.is_grad_enabled()
        chunks.append(_blend_chunk(*args) if keep else checkpoint(_blend_chunk, *args, use_reentrant=False))
    per_tile = torch.cat(chunks) if chunks else table.new_zeros(0, pairs.rays.shape[1], features.shape[1] + 3)
    present = pairs.rays >= 0
    start_values = table.new_zeros(len(rays.delays), features.shape[1] + 3)
    start_values[:, -2] = 1  # rays outside all tiles see through
    out = start_values.index_copy(0, pairs.rays[present], per_tile[present])
    return Blend(out[:, :-3], out[:, -3], out[:, -2], out[:, -1])


def compact(
    numbers: Tensor,  # [L] int64, each below n
    n: int,
) -> tuple[Tensor, Tensor]:  # the numbers that occur, ascending [U], and each number's place among them [L]
    """Renumbers a pair list into the Gaussians that it uses, so that work and gradients are as small as the list."""
    used = torch.zeros(n, dtype=torch.bool, device=numbers.device)
    used[numbers] = True
    return torch.nonzero(used).squeeze(-1), (used.cumsum(0) - 1)[numbers]


@dataclass(frozen=True)
class _Layout:
    """Columns of the table: c [3, B] and e [3, 3] matrices, h [H] and M for t, opacity, features; B and H depend on motion."""

    moving: bool  # rays have origins or delays of their own
    features: int
    targets: bool  # rays have them

    @property
    def blocks(self) -> int:  # width of c's matrix: d, and r x d and dt d when moving
        return 9 if self.moving else 3

    @property
    def widths(self) -> tuple[int, ...]:
        return (3 * self.blocks, 9, 6 if self.moving else 3, 1, self.features)


def _gaussian_table(g: WorldGaussians, features: Tensor, rays: Rays, centre: Tensor) -> tuple[Tensor, _Layout]:
    """One row a Gaussian: all that its responses need, so that a slab gathers once."""
    moving = bool((rays.origins != 0).any() | (rays.delays != 0).any()) or rays.origins.requires_grad
    layout = _Layout(moving, features.shape[1], rays.targets is not None)
    Rt = quat_to_matrix(g.quats).transpose(-1, -2)
    mu, v, s = g.means - centre, g.velocities, g.scales
    unit = s.detach().amin(-1, keepdim=True)  # in it float32 holds tiny and huge scales; it cancels in D2 and t
    M = Rt * (unit / s)[:, :, None]
    cofactor = Rt * (unit / (s.roll(1, -1) * s.roll(2, -1)))[:, :, None]
    towards = -(M.transpose(-1, -2) @ (M @ mu[:, :, None])).squeeze(-1)  # -M^T M mu
    c, h = -cofactor @ _cross_matrix(mu), towards
    if moving:
        drift = -(M.transpose(-1, -2) @ (M @ v[:, :, None])).squeeze(-1)
        c = torch.cat([c, cofactor, -cofactor @ _cross_matrix(v)], dim=-1)
        h = torch.cat([h, drift], dim=-1)
    return torch.cat([c.flatten(1), M.flatten(1), h, g.opacities[:, None], features], dim=1), layout


def _cross_matrix(
    a: Tensor,  # [..., 3]
) -> Tensor:  # [..., 3, 3], times b = a x b
    x, y, z = a.unbind(-1)
    zero = torch.zeros_like(x)
    return torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], dim=-1).unflatten(-1, (3, 3))


def _ray_vectors(rays: Rays, layout: _Layout) -> Tensor:
    """[R, 3] directions, or [R, 12] d, r x d, dt d, r when something moves; then two columns of targets, if there are any."""
    d, r = rays.directions, rays.origins
    columns = [d, torch.linalg.cross(r, d), rays.delays[:, None] * d, r] if layout.moving else [d]
    return torch.cat(columns if rays.targets is None else [*columns, rays.targets], dim=-1)


def _blend_chunk(table: Tensor, vectors: Tensor, layout: _Layout, pairs: PairList) -> Tensor:
    """[A, P, C + 3]: features, distance, transmittance and median of a chunk's tiles."""
    used, members = compact(pairs.gaussians, len(table))
    table = table.index_select(0, used)
    rays = vectors[pairs.rays.clamp(min=0)].transpose(1, 2)  # [A, 3, 5, 12 or 14, P]
    length = pairs.offsets[1:] - pairs.offsets[:-1]
    T = table.new_ones(rays.shape[0], rays.shape[2])
    open_ = pairs.rays >= 0
    active = torch.arange(len(T), device=T.device)
    tiles, sums, T_last = [], [], T
    for first in range(0, int(length.max()) if len(length) else 0, SLAB):
        alive = (length[active] > first) & open_.any(-1)
        if not alive.all():
            keep = torch.nonzero(alive).squeeze(-1)
            active, T, open_, rays = active[keep], T[keep], open_[keep], rays[keep]
        if len(active) == 0:
            break
        place = pairs.offsets[active][:, None] + first + torch.arange(SLAB, device=T.device)
        exists = place < pairs.offsets[active + 1][:, None]
        rows = table.index_select(0, members[place.clamp(max=len(members) - 1)].flatten()).view(len(active), SLAB, -1)
        total, T, open_ = _blend_slab(rows, exists, rays, layout, T, open_)
        tiles.append(active)
        sums.append(total)
        T_last = T_last.index_copy(0, active, T)
    out = table.new_zeros(len(length), rays.shape[2] if len(length) else 0, layout.features + 2)
    if sums:
        out = out.index_add(0, torch.cat(tiles), torch.cat(sums))
    return torch.cat([out[..., :-1], T_last[..., None], out[..., -1:]], dim=-1)


def _blend_slab(
    rows: Tensor, exists: Tensor, rays: Tensor, layout: _Layout, T: Tensor, open_: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Sums [A, P, C + 2] of a slab (features, distance, median), transmittance [A, P] behind it and the rays still open."""
    alpha, t, features = _response(rows, rays, layout)
    alpha = alpha.masked_fill(~_blended(alpha, t, exists, open_), 0)
    log_pass = torch.log1p(-alpha)
    lower = torch.ones(SLAB, SLAB, dtype=T.dtype, device=T.device).tril(-1)
    T_before = T[:, None] * torch.exp(lower @ log_pass)
    T_after = (T_before * (1 - alpha)).detach()
    kept = T_after >= T_MIN  # monotone along the slab: behind the Gaussian that ends a ray nothing is kept
    weight = alpha * T_before * kept
    median = (t * (kept & (T_before.detach() > 0.5) & (T_after <= 0.5))).sum(1)
    distance = (weight * _missed(t, rays, layout)).sum(1)
    total = torch.cat([weight.transpose(1, 2) @ features, distance[..., None], median[..., None]], dim=-1)
    return total, T * torch.exp((log_pass * kept).sum(1)), open_ & kept[:, -1]


def _missed(t: Tensor, rays: Tensor, layout: _Layout) -> Tensor:
    """[A, K, P] the term of a distance in the sum along its ray."""
    if not layout.targets:
        return t
    target, most = rays[:, -2:].unbind(1)
    return torch.minimum((t - target[:, None]).abs(), most[:, None])


@torch.no_grad()
def _blended(alpha: Tensor, t: Tensor, exists: Tensor, open_: Tensor) -> Tensor:
    return (alpha >= ALPHA_MIN) & (t >= NEAR) & exists[:, :, None] & open_[:, None, :]


def _response(rows: Tensor, rays: Tensor, layout: _Layout) -> tuple[Tensor, Tensor, Tensor]:
    """alpha and t [A, K, P] of a slab, and its features [A, K, C]."""
    c_rows, e_rows, h_rows, opacity, features = rows.split(layout.widths, dim=-1)
    c = _product(c_rows, rays[:, : layout.blocks])
    e = _product(e_rows, rays[:, :3])
    inverse = e.square().sum(2).reciprocal()
    g_dot_e = h_rows[..., :3] @ rays[:, :3]
    if layout.moving:
        g_dot_e = g_dot_e + h_rows[..., 3:] @ rays[:, 6:9] + (_product(e_rows, rays[:, 9:12]) * e).sum(2)
    alpha = (opacity * torch.exp(-0.5 * (c.square().sum(2) * inverse))).clamp(max=ALPHA_MAX)
    return alpha, -g_dot_e * inverse, features


def _product(
    rows: Tensor,  # [A, K, 3 B]
    vectors: Tensor,  # [A, B, P]
) -> Tensor:  # [A, K, 3, P]
    a, k, _ = rows.shape
    return (rows.reshape(a, 3 * k, -1) @ vectors).view(a, k, 3, -1)
