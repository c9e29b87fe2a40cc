# SPDX-License-Identifier: Apache-2.0
"""The operators torch.ops.nurec_lite.*: loads the compiled kernels, and gives them gradients and fake kernels.

`load()` comes before the first use; nurec_lite/native/stages.py, which calls the operators, does so.

What does not fit raises ValueError or TypeError: shapes, dtypes and devices always; NaN, infinity and numbers out of range on the CPU
always, on CUDA only with NUREC_LITE_CHECK=1 in the environment, since every such check waits for the device.
"""

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from nurec_lite.base.ranges import BACKWARD, span
from nurec_lite.native.build import library


@lru_cache(maxsize=1)
def load() -> None:
    """Compiles the kernels if need be and registers them; nurec_lite.native.build.BuildError says what is missing."""
    torch.ops.load_library(str(library(_architecture())))
    torch.library.register_autograd("nurec_lite::render", _render_gradients, setup_context=_keep)
    torch.library.register_autograd("nurec_lite::render_backward", _no_second_gradients)
    torch.library.register_autograd("nurec_lite::sh_colour", _sh_gradients, setup_context=_keep_inputs)
    torch.library.register_autograd("nurec_lite::sh_colour_backward", _no_second_gradients)
    torch.library.register_autograd("nurec_lite::move_actors", _move_gradients, setup_context=_keep_inputs)
    torch.library.register_autograd("nurec_lite::move_actors_backward", _no_second_gradients)
    for name, fake in _FAKES.items():
        torch.library.register_fake(f"nurec_lite::{name}")(fake)


def _architecture() -> str:
    """Compute capability of the present GPU, such as 90; empty without one."""
    return "".join(map(str, torch.cuda.get_device_capability())) if torch.cuda.is_available() else ""


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.mark_non_differentiable(output[3])  # the median range
    ctx.set_materialize_grads(False)  # that nothing depends on the distance spares its share of the backward pass
    ctx.save_for_backward(*inputs[:14], *output[:3])
    ctx.moving, ctx.backward_kernels, ctx.centre = inputs[14:]


def _render_gradients(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    saved, wants_rays = ctx.saved_tensors, ctx.needs_input_grad[8] or ctx.needs_input_grad[9]
    d_out, d_distance, d_transmittance = (None if grad is None else grad.contiguous() for grad in grads[:3])
    given = (_or_zeros(d_out, saved[14]), d_distance, _or_zeros(d_transmittance, saved[16]))
    with span("render", within=BACKWARD):
        found = torch.ops.nurec_lite.render_backward(
            *saved[:14], ctx.moving, *saved[14:], *given, wants_rays, ctx.backward_kernels, ctx.centre
        )
    rays = found[8:] if wants_rays else (None, None)
    return (*found[:8], *rays, *[None] * 7)


def _or_zeros(gradient: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if gradient is None else gradient


def _keep_inputs(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs)


def _sh_gradients(ctx: Any, d_colour: Tensor) -> tuple[Tensor, Tensor]:
    with span("sh_colour", within=BACKWARD):
        d_sh, d_directions = torch.ops.nurec_lite.sh_colour_backward(*ctx.saved_tensors, d_colour.contiguous())
    return d_sh, d_directions


def _move_gradients(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
    d_moved = [grad.contiguous() for grad in grads]
    with span("move_actors", within=BACKWARD):
        found = torch.ops.nurec_lite.move_actors_backward(*ctx.saved_tensors, *d_moved)
    d_means, d_quats, d_translations, d_quaternions = found
    return d_means, d_quats, None, None, None, d_translations, d_quaternions, None


def _no_second_gradients(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
    raise RuntimeError("compiled kernels have no second derivatives; nurec_lite.splat.render, in plain torch, has them")


def _fake_rays(trajectory: Tensor, directions: Tensor, fractions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(directions), torch.empty_like(directions), directions.new_empty(directions.shape[0])


def _fake_project(means: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    n = torch.library.get_ctx().new_dynamic_size()
    return means.new_empty(n, dtype=torch.int64), means.new_empty(n, 2), means.new_empty(n, 2)


def _fake_tile_camera(
    low: Tensor, high: Tensor, index: Tensor, width: int, height: int, tile: int
) -> tuple[Tensor, Tensor]:
    entries = torch.library.get_ctx().new_dynamic_size()
    return index.new_empty(-(-width // tile) * -(-height // tile) + 1), index.new_empty(entries)


def _fake_tile_lidar(low: Tensor, high: Tensor, index: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    tiles, rays, entries = (torch.library.get_ctx().new_dynamic_size() for _ in range(3))
    return index.new_empty(tiles, rays), index.new_empty(tiles + 1), index.new_empty(entries)


def _fake_project_all(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    scales = inputs[5]
    n = scales.shape[0]
    return scales.new_empty(n, dtype=torch.int64), scales.new_empty(n, 2), scales.new_empty(n, 2)


def _fake_tile_camera_within(
    low: Tensor, high: Tensor, index: Tensor, width: int, height: int, tile: int, room: int
) -> tuple[Tensor, Tensor, Tensor]:
    tiles = -(-width // tile) * -(-height // tile)
    return index.new_empty(tiles + 1), index.new_empty(room), index.new_empty(1)


def _fake_tile_lidar_within(low: Tensor, high: Tensor, index: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    tiles, rays = (torch.library.get_ctx().new_dynamic_size() for _ in range(2))
    return index.new_empty(tiles, rays), index.new_empty(tiles + 1), index.new_empty(rest[-1]), index.new_empty(1)


def _fake_render(*inputs: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    features, directions = inputs[7], inputs[9]
    r = directions.shape[0]
    return (features.new_empty(r, features.shape[1]), *(features.new_empty(r) for _ in range(3)))


def _fake_render_backward(*inputs: Any) -> tuple[Tensor, ...]:
    rays = [torch.empty_like(t) if inputs[21] else t.new_empty(0) for t in inputs[8:10]]  # 21: ray_gradients
    return (*(torch.empty_like(t) for t in inputs[:8]), *rays)


def _fake_count_pairs(*inputs: Any) -> Tensor:
    tiles, rays = inputs[11].shape
    return inputs[11].new_empty(tiles, (rays + 31) // 32, 4)


def _fake_sh_colour(sh: Tensor, directions: Tensor) -> Tensor:
    return torch.empty_like(directions)


def _fake_sh_colour_backward(sh: Tensor, directions: Tensor, d_colour: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(sh), torch.empty_like(directions)


def _fake_move_actors(*inputs: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    means, starts, times = inputs[0], inputs[2], inputs[7]
    a, k, q = means.shape[0], starts.shape[0] - 1, times.shape[0]
    return (
        means.new_empty(q, a, 3), means.new_empty(q, a, 4), means.new_empty(q, a, 3), means.new_empty(q, k, 4)
    )  # fmt: skip


def _fake_move_actors_backward(*inputs: Tensor) -> tuple[Tensor, ...]:
    return tuple(torch.empty_like(inputs[i]) for i in (0, 1, 5, 6))


_FAKES = {
    "rays": _fake_rays,
    "project": _fake_project,
    "project_all": _fake_project_all,
    "tile_camera": _fake_tile_camera,
    "tile_camera_within": _fake_tile_camera_within,
    "tile_lidar": _fake_tile_lidar,
    "tile_lidar_within": _fake_tile_lidar_within,
    "render": _fake_render,
    "render_backward": _fake_render_backward,
    "count_pairs": _fake_count_pairs,
    "sh_colour": _fake_sh_colour,
    "sh_colour_backward": _fake_sh_colour_backward,
    "move_actors": _fake_move_actors,
    "move_actors_backward": _fake_move_actors_backward,
}
