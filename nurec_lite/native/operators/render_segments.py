# SPDX-License-Identifier: Apache-2.0
"""The operator render_segments: blends the lists of warp tiles in segments. On CUDA alone.

Letters: A lists of P rays, S segments of all lists; C features, N Gaussians.
"""

from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nurec_lite.base.ranges import BACKWARD, span
from nurec_lite.native.operators.gaussian_backward import view_gradients
from nurec_lite.native.operators.shared import (
    GaussianArrays,
    Lists,
    Outputs,
    RayArrays,
    gaussian_args,
    given_of,
    has_per_ray_origins,
    no_second_gradients,
    packed_view,
    ray_and_list_args,
)
from nurec_lite.scene.gaussians import AnyGaussians
from nurec_lite.splat.reference import Blend
from nurec_lite.splat.tiles import PairList
from nurec_lite.splat.views import CameraView, LidarView, Rays

_RAYS = 2  # the argument `rays`
CHANNELS = 3  # features of a camera


class Segments(NamedTuple):
    """State that the forward pass of segmented blending saves for the backward pass; S segments at most."""

    first: Tensor  # [A + 1] int64 first segment of a list
    list_index: Tensor  # [S] int32 the list of a segment, -1: unused
    fields: Tensor  # [S, 4 + C, P] of each ray: kernels/raster_warps/blend/segments.h
    rows: Tensor  # [N, 20] Gaussians as rays read them; [N, 16] where the lists of a sweep have made them


def render_segments(
    gaussians: AnyGaussians,
    features: Tensor,  # [N, C]
    rays: Rays,
    pairs: PairList,
    view: CameraView | LidarView,
    entries: int,  # of a segment, at most
) -> Blend:
    """Blends the Gaussians of each warp tile's list over its rays. The medians of an image, which nothing reads, are zeros."""
    out, distance, transmittance, median, *_ = torch.ops.nurec_lite.render_segments(
        gaussian_args(gaussians), features, *ray_and_list_args(rays, pairs), packed_view(view),
        has_per_ray_origins(view), entries, pairs.rows_with(features),
    )  # fmt: skip
    return Blend(out, distance, transmittance, median)


def register() -> None:
    torch.library.register_autograd("nurec_lite::render_segments", _gradients, setup_context=_keep)
    torch.library.register_autograd("nurec_lite::render_backward_accumulate", no_second_gradients)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    gaussians, features, rays, lists, view, ctx.moving, ctx.length, rows, *_ = inputs
    outputs, median, kept = output[:3], output[3], output[4:]
    ctx.mark_non_differentiable(median, *kept)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*gaussians, features, *rays, *lists, view, *outputs, *kept_of(kept, rows))


def _gradients(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    saved = iter(ctx.saved_tensors)
    gaussians, features, rays, lists, view, outputs, kept = (
        GaussianArrays(*islice(saved, 7)), next(saved), RayArrays(*islice(saved, 4)), Lists(*islice(saved, 4)),
        next(saved), Outputs(*islice(saved, 3)), Segments(*saved),
    )  # fmt: skip
    is_camera, wants_rays = features.shape[1] == CHANNELS, any(ctx.needs_input_grad[_RAYS])
    given = given_of(grads, outputs)
    with span("render", within=BACKWARD):
        moments, d_features, d_rays = torch.ops.nurec_lite.render_backward_accumulate(
            gaussians, features, rays, lists, view, ctx.moving, ctx.length, kept, outputs, *given, is_camera, wants_rays
        )
    with span("gaussian_backward", within=BACKWARD):
        d_gaussians, d_lidar = view_gradients(gaussians, moments, view, not is_camera, ctx.moving)
    others = [None] * (len(ctx.needs_input_grad) - 4)  # rows are among them only where they are given
    d_features = d_features if is_camera else d_lidar
    return list(d_gaussians), d_features, [*(d_rays or (None, None)), None, None], [None] * 4, *others


def kept_of(
    kept: tuple[Tensor, ...],  # by render_segments
    rows: Tensor | None,  # that it was given
) -> Segments:
    first, list_index, fields, own = kept
    return Segments(first, list_index, fields, own if rows is None else rows)
