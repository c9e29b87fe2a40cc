# SPDX-License-Identifier: Apache-2.0
"""Fake kernels of the operators torch.ops.nurec_lite.*, by name: shapes, dtypes and devices of what they give, for torch's compiler."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from nurec_lite.native.groups import (
    ActorArrays,
    Bounds,
    Bundles,
    GaussianArrays,
    Grid,
    KnownArrays,
    Lists,
    RayArrays,
    SceneArrays,
    SeenArrays,
    SensorRays,
    ToldArrays,
)
from nurec_lite.scene.gaussians import LIDAR_VALUES


def _fake_rays(view: Tensor, directions: Tensor, fractions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(directions), torch.empty_like(directions), directions.new_empty(directions.shape[0])


def _fake_project(
    gaussians: list[Tensor], view: Tensor, is_camera: bool, grid: list[Tensor], columns: int, all: bool = False,
    depth_bits: int = 32, shapes: bool = False,
) -> tuple[Tensor, ...]:  # fmt: skip
    known = GaussianArrays(*gaussians).scales.shape[0]
    n = known if all else torch.library.get_ctx().new_dynamic_size()
    seen = view.new_empty(known, dtype=torch.uint8)
    kept = view.new_empty(known if shapes else 0, 8 if is_camera else 16)
    return view.new_empty(n, dtype=torch.int64), view.new_empty(n, 2), view.new_empty(n, 2), seen, kept


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


def _fake_bundle_rays(grid: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    directions, edges = Grid(*grid)
    n, bands = directions.shape[0], edges.shape[0] + 1
    bundles = n // 32 + min(n, bands)
    first = edges.new_empty(bands + 1, dtype=torch.int32)
    return first.new_empty(bundles, 32, dtype=torch.int64), first, edges.new_empty(bundles, 2)


def _fake_list_bundles(
    gaussians: list[Tensor], view: Tensor, projection: list[Tensor], shapes: Tensor, rays: list[Tensor],
    bundles: list[Tensor], grid: list[Tensor], size: list[int], exact: bool, room: int = -1,
) -> tuple[Tensor, ...]:  # fmt: skip
    table = Bundles(*bundles).rays
    return table.new_empty(table.shape[0] * (1 if size else 2) + 1), *_fake_entries(table, room)


def _fake_render_parts(
    gaussians: list[Tensor], features: Tensor, rays: list[Tensor], lists: list[Tensor], view: Tensor, moving: bool,
    length: int,
) -> tuple[Tensor, ...]:  # fmt: skip
    table, _, entries, _ = Lists(*lists)
    bundles, parts = table.shape[0], entries.shape[0] // length + table.shape[0]
    width = 20 if moving and features.shape[1] == 3 else 16
    kept = (
        table.new_empty(bundles + 1), table.new_empty(parts, dtype=torch.int32),
        features.new_empty(parts, 4 + features.shape[1], table.shape[1]), features.new_empty(features.shape[0], width),
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
    bundles = v * -(-size[0] // size[2]) * -(-size[1] // size[3]) if size else _bundles_of_sweeps(rays, v)
    entries, h = (room, v * n) if room >= 0 else (torch.library.get_ctx().new_dynamic_size() for _ in range(2))
    whole = views.new_empty(0, dtype=torch.int64)
    blended = (views.new_empty(r, c), *(views.new_empty(r) for _ in range(3)), whole.new_empty(v))
    made = views.new_empty(r, 3), views.new_empty(r, 3), views.new_empty(r)
    bundles, each = (bundles, 32) if size else (2 * bundles, 16)  # those of a list
    lists = whole.new_empty(bundles, each), whole.new_empty(bundles + 1), whole.new_empty(entries)
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


def _fake_sh_colour(sh: Tensor, rest: Tensor | None, directions: Tensor) -> Tensor:
    return torch.empty_like(directions)


def _fake_sh_colour_backward(
    sh: Tensor, rest: Tensor | None, directions: Tensor, d_colour: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.empty_like(sh),
        sh.new_empty(0) if rest is None else torch.empty_like(rest),
        torch.empty_like(directions),
    )


def _fake_view_colour(
    placements: list[Tensor], sh: Tensor, rest: Tensor | None, eye: Tensor, seen: Tensor | None
) -> Tensor:
    return sh.new_empty(sh.shape[0], 3)


def _fake_view_colour_backward(
    placements: list[Tensor], sh: Tensor, rest: Tensor | None, eye: Tensor, d_colour: Tensor
) -> tuple[Tensor, ...]:
    placed = [torch.empty_like(t) for t in placements[:3]]
    return *placed, torch.empty_like(sh), sh.new_empty(0) if rest is None else torch.empty_like(rest)


def _fake_view_colour_outer(
    placements: list[Tensor], sh: Tensor, rest: Tensor | None, eye: Tensor, d_colour: Tensor
) -> tuple[Tensor, ...]:
    return *(torch.empty_like(t) for t in placements[:3]), torch.empty_like(d_colour), torch.empty_like(d_colour)


def _fake_move_actors(actors: list[Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    g = ActorArrays(*actors)
    means, a, k, q = g.means, g.means.shape[0], g.starts.shape[0] - 1, g.times.shape[0]
    return (
        means.new_empty(q, a, 3), means.new_empty(q, a, 4), means.new_empty(q, a, 3), means.new_empty(q, k, 4)
    )  # fmt: skip


def _fake_move_actors_backward(actors: list[Tensor], d_moved: list[Tensor]) -> tuple[Tensor, ...]:
    g = ActorArrays(*actors)
    return tuple(torch.empty_like(t) for t in (g.means, g.quats, g.translations, g.quaternions))


def _fake_present_opacities(opacities: list[Tensor], *rest: Any) -> list[Tensor]:
    return [torch.empty_like(t) for t in opacities]


def _fake_image_loss(rendered: Tensor, target: Tensor, ssim_weight: float) -> tuple[Tensor, Tensor]:
    return rendered.new_empty(()), rendered.new_empty(3, *rendered.shape)


def _fake_lidar_loss(distance: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    return *(distance.new_empty(()) for _ in range(3)), distance.new_empty(2)


def _fake_lidar_loss_backward(
    distance: Tensor, features: Tensor, transmittance: Tensor, *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(distance), torch.empty_like(features), torch.empty_like(transmittance)


def _fake_over_sky_backward(
    transmittance: Tensor, sky: Tensor, directions: Tensor, d_image: Tensor
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(transmittance), torch.empty_like(sky)


def _fake_expose_backward(
    image: Tensor, log_gain: Tensor, vignetting: Tensor | None, d_exposed: Tensor
) -> tuple[Tensor, ...]:
    of_three = (torch.empty_like(log_gain) for _ in range(2))
    return torch.empty_like(image), *of_three, image.new_empty(0 if vignetting is None else 3)


def _fake_slice_grid(grid: Tensor, image: Tensor) -> Tensor:
    return torch.empty_like(image)


def _fake_slice_grid_backward(grid: Tensor, image: Tensor, d_sliced: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(grid), torch.empty_like(image)


def _fake_correct_view(
    view: Tensor, start: Tensor, end: Tensor, known: list[Tensor], camera: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    moment = torch.empty_like(KnownArrays(*known).moment)
    return torch.empty_like(view), start.new_empty(2, 4, 4), view.new_empty(6), view.new_empty(2, 3), moment


def _fake_correct_view_backward(
    view: Tensor, known: list[Tensor], camera: int, d_nudge: Tensor, d_drift: Tensor
) -> list[Tensor]:
    return [torch.empty_like(t) for t in KnownArrays(*known)[4:]]


def _fake_nudge_gradient(centre: Tensor, placed: list[Tensor], grads: list[Tensor]) -> Tensor:
    return centre.new_empty(6)


def _fake_footprints(seen: list[Tensor], nearest: float, margin: float) -> Tensor:
    means = SeenArrays(*seen).means
    return means.new_empty(means.shape[0])


def _fake_activate(
    quats: Tensor, log_scales: Tensor, opacity_logits: Tensor, lidar_logits: Tensor
) -> tuple[Tensor, ...]:
    n, columns = lidar_logits.shape
    values = [torch.empty_like(t) for t in (quats, log_scales, opacity_logits)]
    return *values, quats.new_empty(n, LIDAR_VALUES), quats.new_empty(n if columns > LIDAR_VALUES else 0)


def _fake_activate_backward(
    quats: Tensor, scales: Tensor, opacities: Tensor, lidar: Tensor, lidar_opacities: Tensor, columns: int,
    d_unit: Tensor | None, d_scales: Tensor | None, d_opacities: Tensor | None, *d_lidar: Tensor | None,
) -> tuple[Tensor, ...]:  # fmt: skip
    def made(asked: bool, *shape: int) -> Tensor:
        return quats.new_empty(shape if asked else 0)

    n, told = quats.shape[0], any(d is not None for d in d_lidar)
    turned, sized, faded = (d is not None for d in (d_unit, d_scales, d_opacities))
    return made(turned, n, 4), made(sized, n, 3), made(faded, n), made(told, n, columns)


def _fake_regularisers(opacities: Tensor, lidar_opacities: Tensor | None, scales: Tensor) -> tuple[Tensor, ...]:
    return opacities.new_empty(()), opacities.new_empty(()), opacities.new_empty(())


def _fake_regularisers_backward(
    opacities: Tensor, lidar_opacities: Tensor | None, scales: Tensor, *d_terms: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    n, own = opacities.shape[0], lidar_opacities is not None
    return opacities.new_empty(n if own else 1), opacities.new_empty(n if own else 0), scales.new_empty(1)


def _fake_like_the_first(first: Tensor, *rest: Any) -> Tensor:
    return torch.empty_like(first)


def _fake_part(logits: Tensor, copies: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(logits), logits.new_empty(logits.shape[0])


def _fake_in_place(changed: Any, *rest: Any) -> None:
    """Changes what it is given."""


FAKES: dict[str, Callable] = {
    "rays": _fake_rays,
    "project": _fake_project,
    "tile_camera": _fake_tile_camera,
    "tile_lidar": _fake_tile_lidar,
    "render": _fake_render,
    "render_backward": _fake_render_backward,
    "bundle_rays": _fake_bundle_rays,
    "list_bundles": _fake_list_bundles,
    "render_parts": _fake_render_parts,
    "render_parts_backward": _fake_render_parts_backward,
    "tell_parts": _fake_tell_parts,
    "finish_scene": _fake_finish_scene,
    "render_views": _fake_render_views,
    "learn_views": _fake_learn_views,
    "learn_views_backward": _fake_learn_views_backward,
    "count_pairs": _fake_count_pairs,
    "sh_colour": _fake_sh_colour,
    "sh_colour_backward": _fake_sh_colour_backward,
    "view_colour": _fake_view_colour,
    "view_colour_backward": _fake_view_colour_backward,
    "view_colour_outer": _fake_view_colour_outer,
    "move_actors": _fake_move_actors,
    "move_actors_backward": _fake_move_actors_backward,
    "present_opacities": _fake_present_opacities,
    "image_loss": _fake_image_loss,
    "image_loss_backward": _fake_like_the_first,
    "lidar_loss": _fake_lidar_loss,
    "lidar_loss_backward": _fake_lidar_loss_backward,
    "over_sky": _fake_like_the_first,
    "over_sky_backward": _fake_over_sky_backward,
    "expose": _fake_like_the_first,
    "expose_backward": _fake_expose_backward,
    "slice_grid": _fake_slice_grid,
    "slice_grid_backward": _fake_slice_grid_backward,
    "correct_view": _fake_correct_view,
    "correct_view_backward": _fake_correct_view_backward,
    "nudge_gradient": _fake_nudge_gradient,
    "footprints": _fake_footprints,
    "activate": _fake_activate,
    "activate_backward": _fake_activate_backward,
    "regularisers": _fake_regularisers,
    "regularisers_backward": _fake_regularisers_backward,
    "explore": _fake_in_place,
    "part": _fake_part,
    "adam": _fake_in_place,
    "copy_all": _fake_in_place,
}
