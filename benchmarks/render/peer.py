# SPDX-License-Identifier: Apache-2.0
"""gsplat's kernels (Ye et al. 2025, version 1.5.3) on the Gaussians of one of our images, called as its rasterization calls them.

conic     ellipses in the image plane (Kerbl et al. 2023): its default
eval3d    with_ut=True, with_eval3d=True: bounds by the unscented transform, the response along the ray (3DGUT, Wu et al. 2025)

Arguments are those of nurec_lite/peer/rasterize.py: colour and depth (eval3d: colour alone, it refuses a fourth channel), not packed,
tiles of 16 pixels, a rolling shutter stands still in the middle of its exposure. Backward gives the gradients of the inputs of its
forward pass: projected Gaussians (conic), or Gaussians (eval3d). Pairs are counted by each response on gsplat's own lists: the conic one
below; for eval3d by our operator. Its response is the same but for the bound of alpha (0.99, gsplat: 0.999), which hardly matters.
"""

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType

import torch
from torch import Tensor

from benchmarks.render.contenders import FORWARD, upstream_of
from benchmarks.render.pair_counts import WARP, PairCounts, count_pairs, summed
from nurec_lite.base.ranges import BACKWARD, span
from nurec_lite.peer.rasterize import Peer, colour, intrinsics, mid_exposure
from nurec_lite.scene.gaussians import WorldGaussians
from nurec_lite.splat.project import NEAR
from nurec_lite.splat.tiles import PairList, camera_rays
from nurec_lite.splat.views import CameraView

VARIANTS = ("conic", "eval3d")
TILE, EPS2D = 16, 0.3
ALPHA_MIN, ALPHA_MAX, T_MIN = 1 / 255, 0.999, 1e-4  # gsplat's
SLAB, CHUNK = 32, 1024  # Gaussians and tiles that are counted together


class Gsplat:
    """One of the variants on one view."""

    def __init__(self, gsplat: ModuleType, variant: str, gaussians: WorldGaussians, view: CameraView) -> None:
        self.gsplat, self.exact, self.gaussians = gsplat, variant == "eval3d", gaussians
        T_cam_world = mid_exposure(view)
        self.view = standing(view, T_cam_world)
        with torch.no_grad():
            self.means = (gaussians.means - view.centre()).contiguous()
            self.colour = colour(gaussians, view, Peer(gsplat.rasterization, gsplat.spherical_harmonics))
        self.viewmats, self.Ks = T_cam_world[None], intrinsics(view.camera, T_cam_world.device).to(T_cam_world)[None]
        self.size = view.camera.width, view.camera.height
        self.tiles = tuple(-(-n // TILE) for n in self.size)
        self._upstream: list[Tensor] | None = None

    def sample(self, fill: Callable[[], None]) -> None:
        projected, lists = self.listed()
        leaves = self.inputs(projected)
        fill()
        with span(FORWARD):
            drawn = self.blend(leaves, lists)
        if self._upstream is None:
            self._upstream = [upstream_of(x) for x in drawn]
            self._upstream[0][..., 3:] = 0  # nothing asks for the depth, as in our own image
        fill()
        with span("render", within=BACKWARD):
            torch.autograd.grad(drawn, list(leaves.values()), self._upstream)

    @torch.no_grad()
    def listed(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Results of projection and tiling."""
        with span("project"):
            projected = self.project()
        with span("tile"):
            _, ids, flat = self.gsplat.isect_tiles(
                projected["means2d"],
                projected["radii"],
                projected["depths"],
                TILE,
                *self.tiles,
                packed=False,
                n_images=1,
            )
            offsets = self.gsplat.isect_offset_encode(ids, 1, *self.tiles)
        return projected, {"isect_offsets": offsets.reshape(1, *reversed(self.tiles)), "flatten_ids": flat}

    def project(self) -> dict[str, Tensor]:
        g, rest = self.gaussians, {"eps2d": EPS2D, "near_plane": NEAR}
        if self.exact:
            found = self.gsplat.fully_fused_projection_with_ut(
                self.means, g.quats, g.scales, g.opacities, self.viewmats, self.Ks, *self.size, **rest
            )
        else:
            found = self.gsplat.fully_fused_projection(
                self.means, None, g.quats, g.scales, self.viewmats, self.Ks, *self.size, packed=False,
                opacities=g.opacities, **rest,
            )  # fmt: skip
        return dict(zip(("radii", "means2d", "depths", "conics"), found, strict=False))

    def inputs(self, projected: dict[str, Tensor]) -> dict[str, Tensor]:
        """Inputs of blending that have gradients, by the names of gsplat's arguments."""
        g = self.gaussians
        if self.exact:
            own: dict[str, Tensor] = {"means": self.means, "quats": g.quats, "scales": g.scales}
            own["colors"] = self.colour[None]
        else:
            colours = torch.cat([self.colour, projected["depths"][0, :, None]], dim=1)
            own = {"means2d": projected["means2d"], "conics": projected["conics"], "colors": colours[None]}
        own["opacities"] = g.opacities[None]
        return {name: t.detach().contiguous().requires_grad_() for name, t in own.items()}

    def blend(self, leaves: dict[str, Tensor], lists: dict[str, Tensor]) -> list[Tensor]:
        """[1, H, W, 4] colour and depth (eval3d: [1, H, W, 3] colour), and [1, H, W, 1] opacity."""
        shape = {"image_width": self.size[0], "image_height": self.size[1], "tile_size": TILE}
        if self.exact:
            views = {"viewmats": self.viewmats, "Ks": self.Ks}
            return list(self.gsplat.rasterize_to_pixels_eval3d(**leaves, **views, **shape, **lists))
        return list(self.gsplat.rasterize_to_pixels(**leaves, **shape, **lists))

    @torch.no_grad()
    def image(self) -> Tensor:  # [H, W, 3] before a black sky
        projected, lists = self.listed()
        return self.blend(self.inputs(projected), lists)[0][0, ..., :3]

    @torch.no_grad()
    def counts(self) -> PairCounts:
        projected, lists = self.listed()
        pairs = pair_list(lists, *self.size)
        if self.exact:
            return count_pairs(self.gaussians, self.view, pairs)
        means2d, conics, opacities = projected["means2d"][0], projected["conics"][0], self.gaussians.opacities
        counts = conic_counts(means2d, conics, opacities, pairs, self.size[0])
        return summed(counts, pairs, self.size[0] * self.size[1])


def standing(
    view: CameraView,
    T_cam_world: Tensor,  # [4, 4] in the middle of its exposure, from the world's axes about its centre
) -> CameraView:
    """The same view without motion."""
    pose = view.T_world_sensor_start.clone()
    pose[:3, :3], pose[:3, 3] = T_cam_world[:3, :3].T, view.eye()
    camera = replace(view.camera, shutter="global")
    return CameraView(pose, pose, view.time_mid, view.time_mid, camera)


def pair_list(lists: dict[str, Tensor], width: int, height: int) -> PairList:
    """Its lists as ours."""
    members = lists["flatten_ids"].long()
    offsets = torch.cat([lists["isect_offsets"].flatten().long(), members.new_tensor([len(members)])])
    return PairList(camera_rays(width, height, TILE, members.device), offsets, members)


def conic_counts(
    means2d: Tensor,  # [N, 2] pixels
    conics: Tensor,  # [N, 3] inverse of the ellipses' covariances: xx, xy, yy
    opacities: Tensor,  # [N]
    pairs: PairList,  # of tiles of 16 pixels
    width: int,  # pixels
) -> Tensor:  # [A, W, 4] as the operator count_pairs has them
    rows = torch.cat([means2d, conics, opacities[:, None]], dim=1)
    warps = pairs.rays.shape[1] // WARP
    found = pairs.offsets.new_zeros(len(pairs.rays), warps, 4)
    for tiles in torch.arange(len(pairs.rays), device=rows.device).split(CHUNK):
        _count_chunk(found, rows, pairs, tiles, width)
    return found


def _count_chunk(found: Tensor, rows: Tensor, pairs: PairList, tiles: Tensor, width: int) -> None:
    """Adds up slab by slab, for the tiles that have more and an open ray."""
    first, T = 0, rows.new_ones(len(tiles), pairs.rays.shape[1])
    while len(tiles):
        T, counts = _count_slab(rows, pairs, tiles, first, T, width)
        found[tiles] += counts
        first += SLAB
        left = (pairs.offsets[tiles + 1] - pairs.offsets[tiles] > first) & (T > T_MIN).any(1)
        tiles, T = tiles[left], T[left]


def _count_slab(
    rows: Tensor, pairs: PairList, tiles: Tensor, first: int, T: Tensor, width: int
) -> tuple[Tensor, Tensor]:  # T [a, P] after the slab, counts [a, W, 4]
    place = pairs.offsets[tiles][:, None] + first + torch.arange(SLAB, device=rows.device)
    exists = (place < pairs.offsets[tiles + 1][:, None])[:, :, None]
    ids = pairs.gaussians[place.clamp(max=max(len(pairs.gaussians) - 1, 0))] if len(pairs.gaussians) else place * 0
    x, y, a, b, c, opacity = rows[ids][..., None].unbind(2)  # [a, K, 1] each
    rays = pairs.rays[tiles][:, None]
    dx, dy = x - (rays % width + 0.5), y - (torch.div(rays, width, rounding_mode="floor") + 0.5)
    sigma = 0.5 * (a * dx * dx + c * dy * dy) + b * dx * dy
    alpha = (opacity * torch.exp(-sigma)).clamp(max=ALPHA_MAX)
    there = exists & (rays >= 0)
    seen = there & (sigma >= 0) & (alpha >= ALPHA_MIN)
    after = T[:, None] * torch.where(seen, 1 - alpha, 1.0).cumprod(1)  # goes on where a ray has closed: it stays closed
    is_open = there & (torch.cat([T[:, None], after[:, :-1]], dim=1) > T_MIN)
    used = seen & is_open & (after > T_MIN)
    lanes, using = (t.unflatten(2, (-1, WARP)) for t in (is_open, used))
    counts = [lanes.any(-1).sum(1), lanes.sum((1, 3)), using.sum((1, 3)), using.any(-1).sum(1)]
    return after[:, -1], torch.stack(counts, dim=-1)
