# SPDX-License-Identifier: Apache-2.0
"""Fake kernels of the operators torch.ops.nurec_lite.*, by name: shapes, dtypes and devices of what they give, for torch's compiler."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from nurec_lite.native.groups import ActorArrays, KnownArrays, SeenArrays
from nurec_lite.native.render_fakes import RENDER_FAKES
from nurec_lite.scene.gaussians import LIDAR_VALUES


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
    **RENDER_FAKES,
    "sh_colour": _fake_sh_colour,
    "sh_colour_backward": _fake_sh_colour_backward,
    "view_colour": _fake_view_colour,
    "view_colour_backward": _fake_view_colour_backward,
    "view_colour_rank1": _fake_view_colour_outer,
    "move_actors": _fake_move_actors,
    "move_actors_backward": _fake_move_actors_backward,
    "mask_absent_actors": _fake_present_opacities,
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
    "pose_gradient": _fake_nudge_gradient,
    "footprints": _fake_footprints,
    "activate": _fake_activate,
    "activate_backward": _fake_activate_backward,
    "regularisers": _fake_regularisers,
    "regularisers_backward": _fake_regularisers_backward,
    "sgld_noise": _fake_in_place,
    "mcmc_split": _fake_part,
    "adam": _fake_in_place,
    "multi_tensor_copy": _fake_in_place,
}
