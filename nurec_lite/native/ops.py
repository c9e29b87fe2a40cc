# SPDX-License-Identifier: Apache-2.0
"""The operators torch.ops.nurec_lite.*: loads the compiled kernels, and gives them gradients and fake kernels.

`load()` comes before the first use; nurec_lite/native/stages.py, which calls the operators, does so.

What does not fit raises ValueError or TypeError: shapes, dtypes and devices always; NaN, infinity and numbers out of range on the CPU
always, on CUDA only with NUREC_LITE_CHECK=1 in the environment, since every such check waits for the device.
"""

from functools import lru_cache
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from nurec_lite.base.ranges import BACKWARD, span
from nurec_lite.native.build import library
from nurec_lite.native.groups import (
    ActorArrays,
    Bounds,
    Bundles,
    GaussianArrays,
    Grid,
    Lists,
    MovedGrads,
    Outputs,
    Parts,
    RayArrays,
)
from nurec_lite.native.plan import BackwardPlan

_RAYS = 2  # the argument `rays` of render


@lru_cache(maxsize=1)
def load() -> None:
    """Compiles the kernels if need be and registers them; nurec_lite.native.build.BuildError says what is missing."""
    torch.ops.load_library(str(library(_architecture())))
    torch.library.register_autograd("nurec_lite::render", _render_gradients, setup_context=_keep)
    torch.library.register_autograd("nurec_lite::render_backward", _no_second_gradients)
    torch.library.register_autograd("nurec_lite::render_parts", _parts_gradients, setup_context=_keep_parts)
    torch.library.register_autograd("nurec_lite::render_parts_backward", _no_second_gradients)
    torch.library.register_autograd("nurec_lite::sh_colour", _sh_gradients, setup_context=_keep_inputs)
    torch.library.register_autograd("nurec_lite::sh_colour_backward", _no_second_gradients)
    torch.library.register_autograd("nurec_lite::move_actors", _move_gradients, setup_context=_keep_actors)
    torch.library.register_autograd("nurec_lite::move_actors_backward", _no_second_gradients)
    torch.library.register_autograd("nurec_lite::image_loss", _image_gradients, setup_context=_keep_images)
    torch.library.register_autograd("nurec_lite::image_loss_backward", _no_second_gradients)
    torch.library.register_autograd("nurec_lite::over_sky", _sky_gradients, setup_context=_keep_sky)
    torch.library.register_autograd("nurec_lite::over_sky_backward", _no_second_gradients)
    for name, fake in _FAKES.items():
        torch.library.register_fake(f"nurec_lite::{name}")(fake)


def _architecture() -> str:
    """Compute capability of the present GPU, such as 90; empty without one."""
    return "".join(map(str, torch.cuda.get_device_capability())) if torch.cuda.is_available() else ""


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    gaussians, features, rays, lists, view, ctx.moving, *plan = inputs
    *outputs, median = output
    ctx.mark_non_differentiable(median)
    ctx.set_materialize_grads(False)  # that nothing depends on the distance spares its share of the backward pass
    ctx.save_for_backward(*gaussians, features, *rays, *lists, view, *outputs)
    ctx.plan = BackwardPlan(*plan)


def _render_gradients(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    saved = iter(ctx.saved_tensors)
    gaussians, features, rays, lists, view, outputs = (
        GaussianArrays(*islice(saved, 7)), next(saved), RayArrays(*islice(saved, 4)), Lists(*islice(saved, 3)),
        next(saved), Outputs(*saved),
    )  # fmt: skip
    wants_rays = any(ctx.needs_input_grad[_RAYS])
    given = _given(grads, outputs)
    with span("render", within=BACKWARD):
        d_gaussians, d_features, d_rays = torch.ops.nurec_lite.render_backward(
            gaussians, features, rays, lists, view, ctx.moving, outputs, *given, wants_rays, *ctx.plan
        )
    return d_gaussians, d_features, [*(d_rays or (None, None)), None, None], [None] * 3, *[None] * 5


def _keep_parts(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    gaussians, features, rays, lists, view, ctx.moving, ctx.length = inputs
    outputs, median, kept = output[:3], output[3], output[4:]
    ctx.mark_non_differentiable(median, *kept)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*gaussians, features, *rays, *lists, view, *outputs, *kept)


def _parts_gradients(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    saved = iter(ctx.saved_tensors)
    gaussians, features, rays, lists, view, outputs, kept = (
        GaussianArrays(*islice(saved, 7)), next(saved), RayArrays(*islice(saved, 4)), Lists(*islice(saved, 3)),
        next(saved), Outputs(*islice(saved, 3)), Parts(*saved),
    )  # fmt: skip
    wants_rays = any(ctx.needs_input_grad[_RAYS])
    given = _given(grads, outputs)
    with span("render", within=BACKWARD):
        d_gaussians, d_features, d_rays = torch.ops.nurec_lite.render_parts_backward(
            gaussians, features, rays, lists, view, ctx.moving, ctx.length, kept, outputs, *given, wants_rays
        )
    return d_gaussians, d_features, [*(d_rays or (None, None)), None, None], [None] * 3, *[None] * 3


def _given(grads: tuple[Tensor | None, ...], outputs: Outputs) -> tuple[Tensor, Tensor | None, Tensor]:
    """Of the outputs; None for a distance that nothing depends on."""
    d_out, d_distance, d_transmittance = (None if grad is None else grad.contiguous() for grad in grads[:3])
    return _or_zeros(d_out, outputs.out), d_distance, _or_zeros(d_transmittance, outputs.transmittance)


def _or_zeros(gradient: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if gradient is None else gradient


def _keep_inputs(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs)


def _sh_gradients(ctx: Any, d_colour: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:
    sh, rest, directions = ctx.saved_tensors
    with span("sh_colour", within=BACKWARD):
        d_sh, d_rest, d_directions = torch.ops.nurec_lite.sh_colour_backward(
            sh, rest, directions, d_colour.contiguous()
        )
    return d_sh, None if rest is None else d_rest, d_directions


def _keep_actors(ctx: Any, inputs: tuple[list[Tensor]], output: Any) -> None:
    ctx.save_for_backward(*inputs[0])


def _move_gradients(ctx: Any, *grads: Tensor) -> list[Tensor | None]:
    d_moved = MovedGrads(*(grad.contiguous() for grad in grads))
    with span("move_actors", within=BACKWARD):
        found = torch.ops.nurec_lite.move_actors_backward(ActorArrays(*ctx.saved_tensors), d_moved)
    d_means, d_quats, d_translations, d_quaternions = found
    return [d_means, d_quats, None, None, None, d_translations, d_quaternions, None]


def _keep_images(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: tuple[Tensor, Tensor]) -> None:
    rendered, target, ctx.weight = inputs
    _, slopes = output
    ctx.mark_non_differentiable(slopes)
    ctx.save_for_backward(rendered, target, slopes)


def _image_gradients(ctx: Any, d_loss: Tensor, _: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
    """The loss is symmetric: the gradient of the target is that of the other one, with both exchanged."""
    rendered, target, slopes = ctx.saved_tensors
    d_rendered = d_target = None
    with span("image_loss", within=BACKWARD):
        if ctx.needs_input_grad[0]:
            d_rendered = torch.ops.nurec_lite.image_loss_backward(rendered, target, ctx.weight, slopes, d_loss)
        if ctx.needs_input_grad[1]:
            _, slopes = torch.ops.nurec_lite.image_loss(target, rendered, ctx.weight)
            d_target = torch.ops.nurec_lite.image_loss_backward(target, rendered, ctx.weight, slopes, d_loss)
    return d_rendered, d_target, None


def _keep_sky(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[1:])


def _sky_gradients(ctx: Any, d_image: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
    if ctx.needs_input_grad[3]:
        raise RuntimeError("over_sky gives directions no gradient; nurec_lite.scene.sky.over_sky, in plain torch, does")
    d_image = d_image.contiguous()
    with span("over_sky", within=BACKWARD):
        d_transmittance, d_sky = torch.ops.nurec_lite.over_sky_backward(*ctx.saved_tensors, d_image)
    return d_image, d_transmittance, d_sky, None


def _no_second_gradients(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
    raise RuntimeError("compiled kernels have no second derivatives; nurec_lite.splat.render, in plain torch, has them")


def _fake_rays(view: Tensor, directions: Tensor, fractions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(directions), torch.empty_like(directions), directions.new_empty(directions.shape[0])


def _fake_project(
    gaussians: list[Tensor], view: Tensor, is_camera: bool, grid: list[Tensor], columns: int, all: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    n = GaussianArrays(*gaussians).scales.shape[0] if all else torch.library.get_ctx().new_dynamic_size()
    return view.new_empty(n, dtype=torch.int64), view.new_empty(n, 2), view.new_empty(n, 2)


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
    gaussians: list[Tensor], view: Tensor, projection: list[Tensor], rays: list[Tensor], bundles: list[Tensor],
    grid: list[Tensor], size: list[int], exact: bool, room: int = -1,
) -> tuple[Tensor, ...]:  # fmt: skip
    table = Bundles(*bundles).rays
    return table.new_empty(table.shape[0] + 1), *_fake_entries(table, room)


def _fake_render_parts(
    gaussians: list[Tensor], features: Tensor, rays: list[Tensor], lists: list[Tensor], view: Tensor, moving: bool,
    length: int,
) -> tuple[Tensor, ...]:  # fmt: skip
    table, _, entries = Lists(*lists)
    bundles, parts = table.shape[0], entries.shape[0] // length + table.shape[0]
    kept = (
        table.new_empty(bundles + 1), table.new_empty(parts, dtype=torch.int32),
        features.new_empty(parts, 4 + features.shape[1], 32), features.new_empty(features.shape[0], 20),
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


def _fake_move_actors(actors: list[Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    g = ActorArrays(*actors)
    means, a, k, q = g.means, g.means.shape[0], g.starts.shape[0] - 1, g.times.shape[0]
    return (
        means.new_empty(q, a, 3), means.new_empty(q, a, 4), means.new_empty(q, a, 3), means.new_empty(q, k, 4)
    )  # fmt: skip


def _fake_move_actors_backward(actors: list[Tensor], d_moved: list[Tensor]) -> tuple[Tensor, ...]:
    g = ActorArrays(*actors)
    return tuple(torch.empty_like(t) for t in (g.means, g.quats, g.translations, g.quaternions))


def _fake_image_loss(rendered: Tensor, target: Tensor, ssim_weight: float) -> tuple[Tensor, Tensor]:
    return rendered.new_empty(()), rendered.new_empty(3, *rendered.shape)


def _fake_image_loss_backward(
    rendered: Tensor, target: Tensor, ssim_weight: float, slopes: Tensor, d_loss: Tensor
) -> Tensor:
    return torch.empty_like(rendered)


def _fake_over_sky(features: Tensor, transmittance: Tensor, sky: Tensor, directions: Tensor) -> Tensor:
    return torch.empty_like(features)


def _fake_over_sky_backward(
    transmittance: Tensor, sky: Tensor, directions: Tensor, d_image: Tensor
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(transmittance), torch.empty_like(sky)


def _fake_adam(parameters: list[Tensor], *rest: Any) -> None:
    """Changes what it is given."""


_FAKES = {
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
    "count_pairs": _fake_count_pairs,
    "sh_colour": _fake_sh_colour,
    "sh_colour_backward": _fake_sh_colour_backward,
    "move_actors": _fake_move_actors,
    "move_actors_backward": _fake_move_actors_backward,
    "image_loss": _fake_image_loss,
    "image_loss_backward": _fake_image_loss_backward,
    "over_sky": _fake_over_sky,
    "over_sky_backward": _fake_over_sky_backward,
    "adam": _fake_adam,
}
