# SPDX-License-Identifier: Apache-2.0
"""The operators torch.ops.nurec_lite.*: loads the compiled kernels and registers their gradients.

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
from nurec_lite.native.build import is_built, library
from nurec_lite.native.groups import (
    ActorArrays,
    GaussianArrays,
    KeptViews,
    Lists,
    MovedGrads,
    Outputs,
    Parts,
    RayArrays,
    SceneArrays,
    Turned,
)
from nurec_lite.native.plan import BackwardPlan

_RAYS = 2  # the argument `rays` of render


@lru_cache(maxsize=1)
def load() -> None:
    """Compiles the kernels if need be and registers them; nurec_lite.native.build.BuildError says what is missing."""
    torch.ops.load_library(str(library(_architecture())))
    torch.library.register_autograd("nurec_lite::render", _render_gradients, setup_context=_keep)
    torch.library.register_autograd("nurec_lite::render_backward", _no_second_gradients)
    torch.library.register_autograd("nurec_lite::render_segments", _parts_gradients, setup_context=_keep_parts)
    torch.library.register_autograd("nurec_lite::render_segments_backward", _no_second_gradients)
    torch.library.register_autograd("nurec_lite::render_backward_accumulate", _no_second_gradients)
    torch.library.register_autograd("nurec_lite::gaussian_backward", _no_second_gradients)
    torch.library.register_autograd("nurec_lite::sh_colour", _sh_gradients, setup_context=_keep_inputs)
    torch.library.register_autograd("nurec_lite::sh_colour_backward", _no_second_gradients)
    torch.library.register_autograd("nurec_lite::view_colour", _colour_gradients, setup_context=_keep_seen)
    torch.library.register_autograd("nurec_lite::view_colour_backward", _no_second_gradients)
    torch.library.register_autograd("nurec_lite::view_colour_rank1", _no_second_gradients)
    torch.library.register_autograd("nurec_lite::move_actors", _move_gradients, setup_context=_keep_actors)
    torch.library.register_autograd("nurec_lite::move_actors_backward", _no_second_gradients)
    torch.library.register_autograd("nurec_lite::mask_absent_actors", _present_gradients, setup_context=_keep_present)
    torch.library.register_autograd("nurec_lite::image_loss", _image_gradients, setup_context=_keep_images)
    torch.library.register_autograd("nurec_lite::image_loss_backward", _no_second_gradients)
    torch.library.register_autograd("nurec_lite::lidar_loss", _lidar_gradients, setup_context=_keep_lidar)
    torch.library.register_autograd("nurec_lite::lidar_loss_backward", _no_second_gradients)
    torch.library.register_autograd("nurec_lite::over_sky", _sky_gradients, setup_context=_keep_sky)
    torch.library.register_autograd("nurec_lite::over_sky_backward", _no_second_gradients)
    torch.library.register_autograd("nurec_lite::expose", _exposure_gradients, setup_context=_keep_exposed)
    torch.library.register_autograd("nurec_lite::expose_backward", _no_second_gradients)
    torch.library.register_autograd("nurec_lite::slice_grid", _grid_gradients, setup_context=_keep_inputs)
    torch.library.register_autograd("nurec_lite::slice_grid_backward", _no_second_gradients)
    torch.library.register_autograd("nurec_lite::correct_view", _correct_gradients, setup_context=_keep_known)
    torch.library.register_autograd("nurec_lite::correct_view_backward", _no_second_gradients)
    torch.library.register_autograd("nurec_lite::activate", _activate_gradients, setup_context=_keep_activated)
    torch.library.register_autograd("nurec_lite::activate_backward", _no_second_gradients)
    torch.library.register_autograd("nurec_lite::regularisers", _regulariser_gradients, setup_context=_keep_regularised)
    torch.library.register_autograd("nurec_lite::regularisers_backward", _no_second_gradients)
    torch.library.register_autograd("nurec_lite::pose_gradient", _no_second_gradients)
    torch.library.register_autograd("nurec_lite::render_views", _no_gradients)
    torch.library.register_autograd("nurec_lite::render_views_train", _view_gradients, setup_context=_keep_views)
    torch.library.register_autograd("nurec_lite::render_views_train_backward", _no_second_gradients)


def load_built() -> None:
    """Does the same where nothing has to be compiled."""
    if is_built(_architecture()):
        load()


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
        GaussianArrays(*islice(saved, 7)), next(saved), RayArrays(*islice(saved, 4)), Lists(*islice(saved, 4)),
        next(saved), Outputs(*saved),
    )  # fmt: skip
    wants_rays = any(ctx.needs_input_grad[_RAYS])
    given = given_of(grads, outputs)
    with span("render", within=BACKWARD):
        d_gaussians, d_features, d_rays = torch.ops.nurec_lite.render_backward(
            gaussians, features, rays, lists, view, ctx.moving, outputs, *given, wants_rays, *ctx.plan
        )
    return d_gaussians, d_features, [*(d_rays or (None, None)), None, None], [None] * 4, *[None] * 5


def _keep_parts(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    gaussians, features, rays, lists, view, ctx.moving, ctx.length, rows = inputs
    outputs, median, kept = output[:3], output[3], output[4:]
    ctx.mark_non_differentiable(median, *kept)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*gaussians, features, *rays, *lists, view, *outputs, *kept_of(kept, rows))


def _parts_gradients(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    saved = iter(ctx.saved_tensors)
    gaussians, features, rays, lists, view, outputs, kept = (
        GaussianArrays(*islice(saved, 7)), next(saved), RayArrays(*islice(saved, 4)), Lists(*islice(saved, 4)),
        next(saved), Outputs(*islice(saved, 3)), Parts(*saved),
    )  # fmt: skip
    wants_rays = any(ctx.needs_input_grad[_RAYS])
    given = given_of(grads, outputs)
    with span("render", within=BACKWARD):
        d_gaussians, d_features, d_rays = torch.ops.nurec_lite.render_segments_backward(
            gaussians, features, rays, lists, view, ctx.moving, ctx.length, kept, outputs, *given, wants_rays
        )
    others = [None] * (len(ctx.needs_input_grad) - 4)  # rows are among them only where they are given
    return d_gaussians, d_features, [*(d_rays or (None, None)), None, None], [None] * 4, *others


def kept_of(
    kept: tuple[Tensor, ...],  # by render_segments
    rows: Tensor | None,  # that it was given
) -> Parts:
    first, bundle, left, own = kept
    return Parts(first, bundle, left, own if rows is None else rows)


def _keep_views(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    scene, turned, views, _, _, targets, size, _, moving, ctx.length, *_ = inputs
    outputs, others, kept = output[:3], output[3:5], output[5:]
    ctx.moving, ctx.size = moving, size
    ctx.mark_non_differentiable(*others, *kept)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*scene, *turned, views, targets, *outputs, *kept)


def _view_gradients(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    saved = iter(ctx.saved_tensors)
    scene, turned, views, targets, outputs, kept = (
        SceneArrays(*islice(saved, 12)), Turned(*islice(saved, 2)), next(saved), next(saved),
        Outputs(*islice(saved, 3)), KeptViews(*saved),
    )  # fmt: skip
    nudged, given = ctx.needs_input_grad[3], given_of(grads, outputs)
    with span("render", within=BACKWARD):
        d_scene, d_rotations, d_nudges = torch.ops.nurec_lite.render_views_train_backward(
            scene, turned, views, targets, ctx.moving, ctx.length, kept, outputs, *given, nudged
        )
    unasked = {"frames", "lidar"} if ctx.size else {"frames", "sh0", "sh_rest"}
    d_each = [None if name in unasked else d for name, d in zip(SceneArrays._fields, d_scene, strict=True)]
    turns = [d_rotations if ctx.size else None, None]
    no_size: list[None] | None = None if ctx.size else []  # torch takes an empty list for one of tensors
    return d_each, turns, None, d_nudges if nudged else None, [None] * 4, None, no_size, *[None] * 5


def given_of(grads: tuple[Tensor | None, ...], outputs: Outputs) -> tuple[Tensor, Tensor | None, Tensor]:
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


def _keep_seen(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    placements, *others, _ = inputs  # the gradient of a colour that nobody sees is 0
    ctx.save_for_backward(*placements, *others)


def _colour_gradients(ctx: Any, d_colour: Tensor) -> tuple[Any, ...]:
    *placements, sh, rest, eye = ctx.saved_tensors
    if ctx.needs_input_grad[3]:
        raise RuntimeError("view_colour gives the eye no gradient; nurec_lite.splat.render.local_directions does")
    with span("view_colour", within=BACKWARD):
        *d_placed, d_sh, d_rest = torch.ops.nurec_lite.view_colour_backward(
            placements, sh, rest, eye, d_colour.contiguous()
        )
    return [*d_placed, None], d_sh, None if rest is None else d_rest, None, None


def _keep_actors(ctx: Any, inputs: tuple[list[Tensor]], output: Any) -> None:
    ctx.save_for_backward(*inputs[0])


def _move_gradients(ctx: Any, *grads: Tensor) -> list[Tensor | None]:
    d_moved = MovedGrads(*(grad.contiguous() for grad in grads))
    with span("move_actors", within=BACKWARD):
        found = torch.ops.nurec_lite.move_actors_backward(ActorArrays(*ctx.saved_tensors), d_moved)
    d_means, d_quats, d_translations, d_quaternions = found
    return [d_means, d_quats, None, None, None, d_translations, d_quaternions, None]


def _keep_present(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    _, times, node, ctx.still, first, last = inputs
    ctx.set_materialize_grads(False)  # of what is told (nurec_lite/native/told.py) none comes
    ctx.save_for_backward(*times, node, first, last)


def _present_gradients(ctx: Any, d_present: list[Tensor | None]) -> tuple[Any, ...]:
    """The operator is linear, and each value depends on its own alone: gradients go the same way."""
    *times, node, first, last = ctx.saved_tensors
    asked = [q for q, d in enumerate(d_present) if d is not None]
    given = [d.contiguous() for d in d_present if d is not None]
    with span("mask_absent_actors", within=BACKWARD):
        own = torch.ops.nurec_lite.mask_absent_actors(given, [times[q] for q in asked], node, ctx.still, first, last)
    found = dict(zip(asked, own, strict=True))
    return [found.get(q) for q in range(len(times))], [None] * len(times), None, None, None, None


def _keep_images(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: tuple[Tensor, Tensor]) -> None:
    rendered, target, ctx.weight = inputs
    _, slopes = output
    ctx.mark_non_differentiable(slopes)
    ctx.set_materialize_grads(False)  # slopes have none: zeros for three maps would be a launch
    ctx.save_for_backward(rendered, target, slopes)


def _image_gradients(ctx: Any, d_loss: Tensor, _: None) -> tuple[Tensor | None, Tensor | None, None]:
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


def _keep_lidar(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.aimed = inputs
    *_, counts = output
    ctx.mark_non_differentiable(counts)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors, counts)


def _lidar_gradients(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    *tensors, counts = ctx.saved_tensors
    d_range, d_intensity, d_drop, _ = grads
    with span("lidar_loss", within=BACKWARD):
        d_distance, d_features, d_transmittance = torch.ops.nurec_lite.lidar_loss_backward(
            *tensors, ctx.aimed, counts, d_range, d_intensity, d_drop
        )
    asked = (d_range is not None, d_intensity is not None or d_drop is not None, d_drop is not None)
    found = zip((d_distance, d_features, d_transmittance), asked, strict=True)
    return *(d if wanted else None for d, wanted in found), *[None] * 5


def _keep_sky(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[1:])


def _sky_gradients(ctx: Any, d_image: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
    if ctx.needs_input_grad[3]:
        raise RuntimeError("over_sky gives directions no gradient; nurec_lite.scene.sky.over_sky, in plain torch, does")
    d_image = d_image.contiguous()
    with span("over_sky", within=BACKWARD):
        d_transmittance, d_sky = torch.ops.nurec_lite.over_sky_backward(*ctx.saved_tensors, d_image)
    return d_image, d_transmittance, d_sky, None


def _keep_exposed(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, Tensor | None], output: Tensor) -> None:
    image, log_gain, _, vignetting = inputs
    ctx.save_for_backward(image, log_gain, vignetting)


def _exposure_gradients(ctx: Any, d_exposed: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    image, log_gain, vignetting = ctx.saved_tensors
    d_image, d_log_gain, d_offset, d_vignetting = torch.ops.nurec_lite.expose_backward(
        image, log_gain, vignetting, d_exposed.contiguous()
    )
    return d_image, d_log_gain, d_offset, None if vignetting is None else d_vignetting


def _grid_gradients(ctx: Any, d_sliced: Tensor) -> tuple[Tensor, Tensor]:
    with span("slice_grid", within=BACKWARD):
        found: tuple[Tensor, Tensor] = torch.ops.nurec_lite.slice_grid_backward(
            *ctx.saved_tensors, d_sliced.contiguous()
        )
    return found


def _keep_known(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    view, _, _, known, ctx.camera = inputs
    row, ends, _, _, moment = output
    ctx.mark_non_differentiable(row, ends, moment)
    ctx.set_materialize_grads(False)  # these have none: zeros for each would be a launch
    ctx.save_for_backward(view, *known)


def _correct_gradients(
    ctx: Any, _row: None, _ends: None, d_nudge: Tensor | None, d_drift: Tensor | None, _moment: None
) -> tuple[Any, ...]:
    view, *known = ctx.saved_tensors
    d_nudge = view.new_zeros(6) if d_nudge is None else d_nudge
    d_drift = view.new_zeros(2, 3) if d_drift is None else d_drift
    with span("correct_view", within=BACKWARD):
        found = torch.ops.nurec_lite.correct_view_backward(
            view, known, ctx.camera, d_nudge.contiguous(), d_drift.contiguous()
        )
    return None, None, None, [None, None, None, None, *found], None


def _keep_activated(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
    quats, _, _, lidar_logits = inputs
    _, *values = output
    ctx.columns = lidar_logits.shape[1]
    ctx.set_materialize_grads(False)  # what nothing depends on gets no gradient, as in plain torch
    ctx.save_for_backward(quats, *values)


def _activate_gradients(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    given = [None if grad is None else grad.contiguous() for grad in grads]
    with span("activate", within=BACKWARD):
        found = torch.ops.nurec_lite.activate_backward(*ctx.saved_tensors, ctx.columns, *given)
    d_unit, d_scales, d_opacities, *d_lidar = given
    asked = (d_unit is not None, d_scales is not None, d_opacities is not None, any(d is not None for d in d_lidar))
    return tuple(d if wanted else None for d, wanted in zip(found, asked, strict=True))


def _keep_regularised(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs)


def _regulariser_gradients(ctx: Any, *d_terms: Tensor | None) -> tuple[Tensor | None, ...]:
    """Of a mean, one number that stands for all: whoever adds it to other gradients reads that alone."""
    opacities, lidar_opacities, scales = ctx.saved_tensors
    with span("regularisers", within=BACKWARD):
        d_opacities, d_lidar, d_scales = torch.ops.nurec_lite.regularisers_backward(*ctx.saved_tensors, *d_terms)
    d_opacity, d_scale, d_tie = d_terms
    sizes = None if d_scale is None else d_scales.expand_as(scales)
    if d_opacity is None and d_tie is None:
        return None, None, sizes
    return d_opacities.expand_as(opacities), None if lidar_opacities is None else d_lidar, sizes


def _no_gradients(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
    raise RuntimeError("render_views keeps nothing for gradients; the stages render_camera and render_lidar have them")


def _no_second_gradients(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
    raise RuntimeError("compiled kernels have no second derivatives; nurec_lite.splat.render, in plain torch, has them")
