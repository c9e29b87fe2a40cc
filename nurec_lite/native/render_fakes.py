# SPDX-License-Identifier: Apache-2.0
"""Fake kernels (nurec_lite/native/fakes.py) of the operators for rays, lists and blending, and of what goes back from there."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from nurec_lite.native.groups import (
    Bounds,
    Bundles,
    GaussianArrays,
    Grid,
    Lists,
    RayArrays,
    SceneArrays,
    SensorRays,
    ToldArrays,
)
from nurec_lite.scene.gaussians import LIDAR_VALUES


def _fake_rays(
    view: Tensor, directions: Tensor, fractions: Tensor, with_origins: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    n = directions.shape[0]
    return directions.new_empty(n if with_origins else 0, 3), torch.empty_like(directions), directions.new_empty(n)


def _fake_project(
    gaussians: list[Tensor], view: Tensor, is_camera: bool, grid: list[Tensor], columns: int, bands: list[Tensor],
    all: bool = False, depth_bits: int = 32, shapes: bool = False, occupied: Tensor | None = None, in_place: bool = False,
    features: Tensor | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    known = GaussianArrays(*gaussians).scales.shape[0]
    n = known if all else torch.library.get_ctx().new_dynamic_size()
    seen = view.new_empty(known, dtype=torch.uint8)
    kept = view.new_empty(known if shapes else 0, 8 if is_camera else 16)
    index, count = view.new_empty(n, dtype=torch.int64), view.new_empty(int(in_place), dtype=torch.int64)
    bounds, own = (0, known) if bands else (known, 0)
    low, high = view.new_empty(bounds, 4) if in_place else view.new_empty(n, 2), view.new_empty(0 if in_place else n, 2)
    return index, low, high, seen, kept, count, view.new_empty(own, 8), view.new_empty(own, dtype=torch.int32)


def _fake_occupied_cells(grid: list[Tensor], columns: int) -> Tensor:
    edges = Grid(*grid).edges
    return edges.new_empty(edges.shape[0] + 2, 3 * columns + 1, dtype=torch.int32)


def _fake_tile_camera(
    projection: list[Tensor], width: int, height: int, tile: int, room: int = -1
) -> tuple[Tensor, Tensor, Tensor]:
    index = Bounds(*projection).indices
    return index.new_empty(-(-width // tile) * -(-height // tile) + 1), *_fake_entries(index, room)


def _fake_tile_lidar(
    projection: list[Tensor], grid: list[Tensor], columns: int, max_rays: int, room: int = -1
) -> tuple[Tensor, ...]:
    index = Bounds(*projection).indices
    tiles, rays = (torch.library.get_ctx().new_dynamic_size() for _ in range(2))
    return index.new_empty(tiles, rays), index.new_empty(tiles + 1), *_fake_entries(index, room)


def _fake_entries(index: Tensor, room: int) -> tuple[Tensor, Tensor]:
    """The lists, and how many entries they need."""
    if room >= 0:
        return index.new_empty(room), index.new_empty(1)
    return index.new_empty(torch.library.get_ctx().new_dynamic_size()), index.new_empty(0)


def _fake_render(gaussians: list[Tensor], features: Tensor, rays: list[Tensor], *rest: Any) -> tuple[Tensor, ...]:
    r = RayArrays(*rays).directions.shape[0]
    return (features.new_empty(r, features.shape[1]), *(features.new_empty(r) for _ in range(3)))


def _fake_render_backward(
    gaussians: list[Tensor], features: Tensor, rays: list[Tensor], lists: list[Tensor], view: Tensor, moving: bool,
    outputs: list[Tensor], d_out: Tensor, d_distance: Tensor | None, d_transmittance: Tensor, ray_gradients: bool,
    *plan: bool, **named: bool,
) -> tuple[list[Tensor], Tensor, list[Tensor]]:  # fmt: skip
    origins, directions, *_ = rays
    of_rays = [torch.empty_like(t) for t in (origins, directions)] if ray_gradients else []
    return [torch.empty_like(t) for t in gaussians], torch.empty_like(features), of_rays


def _fake_bundle_rays(grid: list[Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    directions, edges = Grid(*grid)
    n, bands = directions.shape[0], edges.shape[0] + 1
    bundles = n // 32 + min(n, bands)
    first = edges.new_empty(bands + 1, dtype=torch.int32)
    rays = first.new_empty(bundles, 32, dtype=torch.int64)
    return rays, first, first.new_empty(bands, 2048, 2), edges.new_empty(bands, 2)


def _fake_list_bundles(
    gaussians: list[Tensor], view: Tensor, projection: list[Tensor], shapes: Tensor, rays: list[Tensor],
    bundles: list[Tensor], grid: list[Tensor], size: list[int], exact: bool, room: int = -1,
) -> tuple[Tensor, ...]:  # fmt: skip
    table = Bundles(*bundles).rays
    listed, needed = _fake_entries(table, room)
    return table.new_empty(table.shape[0] * (1 if size else 2) + 1), listed.int(), needed


def _fake_render_parts(
    gaussians: list[Tensor], features: Tensor, rays: list[Tensor], lists: list[Tensor], view: Tensor, moving: bool,
    length: int, rows: Tensor | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    table, _, entries, _ = Lists(*lists)
    bundles, parts = table.shape[0], entries.shape[0] // length + table.shape[0]
    width = 20 if moving and features.shape[1] == 3 else 16
    kept = (
        table.new_empty(bundles + 1), table.new_empty(parts, dtype=torch.int32),
        features.new_empty(parts, 4 + features.shape[1], table.shape[1]),
        features.new_empty(0 if rows is not None else features.shape[0], width),
    )  # fmt: skip
    return *_fake_render(gaussians, features, rays), *kept


def _fake_render_parts_backward(
    gaussians: list[Tensor], features: Tensor, rays: list[Tensor], lists: list[Tensor], view: Tensor, moving: bool,
    length: int, kept: list[Tensor], outputs: list[Tensor], d_out: Tensor, d_distance: Tensor | None,
    d_transmittance: Tensor, ray_gradients: bool,
) -> tuple[list[Tensor], Tensor, list[Tensor]]:  # fmt: skip
    return _fake_render_backward(
        gaussians, features, rays, lists, view, moving, outputs, d_out, d_distance, d_transmittance, ray_gradients
    )


def _fake_tell_parts(
    gaussians: list[Tensor], features: Tensor, rays: list[Tensor], lists: list[Tensor], view: Tensor, moving: bool,
    length: int, kept: list[Tensor], outputs: list[Tensor], d_out: Tensor, d_distance: Tensor | None,
    d_transmittance: Tensor, of_features: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    n, c = features.shape
    return view.new_empty(16 * n + (n + 3) // 4), view.new_empty(n if of_features else 0, c)


def _fake_finish_scene(
    scene: list[Tensor], moved: list[Tensor], views: list[Tensor], told: list[Tensor | None], by_lidar: list[bool],
    moving: list[bool], nudged: list[bool], given: list[Tensor | None], given_moved: list[Tensor | None],
    asked: list[bool], columns: int,
) -> tuple[list[Tensor], list[Tensor], Tensor]:  # fmt: skip
    means = ToldArrays(*scene).means
    n = means.shape[0]
    shapes = (n, 3), (n, 4), (n, 3), (n,), (n,), (n, columns or LIDAR_VALUES)
    found = [means.new_empty(shape if wanted else 0) for shape, wanted in zip(shapes, asked, strict=True)]
    return found, [torch.empty_like(t) for t in moved], means.new_empty(len(nudged) if any(nudged) else 0, 6)


def _fake_render_views(
    scene: list[Tensor], views: Tensor, rays: list[Tensor], size: list[int], *rest: Any
) -> tuple[Tensor, ...]:
    r, c = _rays_of_views(views, rays, size)
    found = (views.new_empty(r, c), *(views.new_empty(r) for _ in range(3)), views.new_empty(r, 3))
    return *found, views.new_empty(2, dtype=torch.int64)


def _rays_of_views(views: Tensor, rays: list[Tensor], size: list[int]) -> tuple[int, int]:
    """And features."""
    return (views.shape[0] * size[0] * size[1], 3) if size else (SensorRays(*rays).directions.shape[0], 2)


def _fake_learn_views(
    scene: list[Tensor], turned: list[Tensor], views: Tensor, nudges: Tensor, rays: list[Tensor], targets: Tensor,
    size: list[int], columns: int, moving: bool, length: int, room: int, depth_bits: int,
) -> tuple[Tensor, ...]:  # fmt: skip
    (r, c), v, n = _rays_of_views(views, rays, size), views.shape[0], SceneArrays(*scene).scales.shape[0]
    clusters = v * -(-size[0] // (4 * size[2])) * -(-size[1] // (4 * size[3])) if size else 0  # of 4x4 bundles
    bundles = 16 * clusters if size else _bundles_of_sweeps(rays, v)
    entries, h = (room, v * n) if room >= 0 else (torch.library.get_ctx().new_dynamic_size() for _ in range(2))
    whole = views.new_empty(0, dtype=torch.int64)
    blended = (views.new_empty(r, c), *(views.new_empty(r) for _ in range(3)), whole.new_empty(v))
    made = views.new_empty(r, 3), views.new_empty(r)
    bundles, each = (bundles, 32) if size else (2 * bundles, 16)  # those of a list
    lists = whole.new_empty(bundles, each), whole.new_empty(bundles + 1), whole.new_empty(entries).int()
    parts = entries // length + bundles
    kept = (
        views.new_empty(v * n, dtype=torch.int32), whole.new_empty(bundles + 1),
        views.new_empty(parts, dtype=torch.int32), views.new_empty(parts, 4 + c, each),
        views.new_empty(h, 20 if moving and size else 16),
    )  # fmt: skip
    return *blended, *made, *lists, *kept


def _bundles_of_sweeps(rays: list[Tensor], views: int) -> int:
    directions, _, edges, _ = SensorRays(*rays)
    n = directions.shape[0]
    return n // 32 + min(n, views * (edges.shape[0] + 1))


def _fake_learn_views_backward(
    scene: list[Tensor], turned: list[Tensor], views: Tensor, targets: Tensor, moving: bool, length: int,
    kept: list[Tensor], outputs: list[Tensor], d_out: Tensor, d_distance: Tensor | None, d_transmittance: Tensor,
    nudged: bool,
) -> tuple[list[Tensor], Tensor, Tensor]:  # fmt: skip
    camera = d_out.shape[1] == 3
    unasked = {"frames", "lidar"} if camera else {"frames", "sh0", "sh_rest"}
    named = SceneArrays(*scene)._asdict()
    found = [views.new_empty(0) if name in unasked else torch.empty_like(t) for name, t in named.items()]
    rotations = torch.empty_like(turned[0]) if camera else views.new_empty(0)
    return found, rotations, views.new_empty(views.shape[0] if nudged else 0, 6)


def _fake_count_pairs(
    gaussians: list[Tensor], features: Tensor, rays: list[Tensor], lists: list[Tensor], *rest: Any
) -> Tensor:
    slots = Lists(*lists).rays
    tiles, n = slots.shape
    return slots.new_empty(tiles, (n + 31) // 32, 4)


RENDER_FAKES: dict[str, Callable] = {
    "rays": _fake_rays,
    "project": _fake_project,
    "occupied_cells": _fake_occupied_cells,
    "tile_camera": _fake_tile_camera,
    "tile_lidar": _fake_tile_lidar,
    "render": _fake_render,
    "render_backward": _fake_render_backward,
    "group_sweep_rays": _fake_bundle_rays,
    "list_warp_tiles": _fake_list_bundles,
    "render_segments": _fake_render_parts,
    "render_segments_backward": _fake_render_parts_backward,
    "render_backward_accumulate": _fake_tell_parts,
    "gaussian_backward": _fake_finish_scene,
    "render_views": _fake_render_views,
    "render_views_train": _fake_learn_views,
    "render_views_train_backward": _fake_learn_views_backward,
    "count_pairs": _fake_count_pairs,
}
