# SPDX-License-Identifier: Apache-2.0
"""The stages project, tile, render_camera and render_lidar by compiled kernels, in the order of a render; nurec_lite.splat has them in
plain torch, as their specification. The plan alone chooses between kernels. Where a kernel lacks a gradient that is needed, its operator
(nurec_lite/native/operators) calls plain torch.

Letters: N Gaussians, R rays.
"""

from torch import Tensor

from nurec_lite.base.ranges import span
from nurec_lite.native import deferred_backward, rank1_sh, warps
from nurec_lite.native.operators.correct_view import pose_vjp
from nurec_lite.native.operators.over_sky import over_sky
from nurec_lite.native.operators.project import project_to_tiles, project_to_warp_tiles
from nurec_lite.native.operators.rays import rays
from nurec_lite.native.operators.render import render
from nurec_lite.native.operators.sh_colour import sh_colour
from nurec_lite.native.operators.tile import list_block_tiles
from nurec_lite.native.operators.view_colour import view_colour
from nurec_lite.native.plan import CPU_PLAN, RenderPlan
from nurec_lite.native.torch_fallbacks import torch_fallbacks
from nurec_lite.scene.gaussians import AnyGaussians, SplitGaussians
from nurec_lite.splat.pose_delta import with_pose_grad
from nurec_lite.splat.project import Projection
from nurec_lite.splat.reference import Blend
from nurec_lite.splat.render import CameraImage, LidarReturns, camera_image, compacted
from nurec_lite.splat.tiles import PairList
from nurec_lite.splat.views import CameraView, LidarView, Rays


def project(
    gaussians: AnyGaussians,
    view: CameraView | LidarView,
    capacity: int
    | None = None,  # entries of the view's lists; None: as many as they need, which the host waits to know
    plan: RenderPlan = CPU_PLAN,
) -> Projection:
    """Returns the bounds of all Gaussians that may reach a ray of the view."""
    if plan.warp_tiles:
        blocks = deferred_backward.blocks_of(gaussians)
        return project_to_warp_tiles(gaussians, view, capacity, plan.depth_bits, plan.tight_lists, blocks)
    return project_to_tiles(gaussians, view, capacity, plan.depth_bits)


def tile(
    projection: Projection,
    view: CameraView | LidarView,
    capacity: int | None = None,
    plan: RenderPlan = CPU_PLAN,
) -> PairList:
    """Returns the Gaussians of each tile, near to far."""
    if plan.warp_tiles:
        return warps.list_warp_tiles(projection, view, capacity, plan.tight_lists)
    return list_block_tiles(projection, view, capacity, plan.tile, plan.cells)


def render_camera(
    gaussians: AnyGaussians,
    view: CameraView,
    pairs: PairList,
    sky: Tensor,  # [3, H, W] logits of the environment map
    plan: RenderPlan = CPU_PLAN,
) -> CameraImage:
    """Returns C = sum w c + T sky(d)."""
    with span("gather"):
        gaussians, pairs = used(gaussians, pairs, plan)
    with span("rays"):
        seen = pairs.seen or rays(view)
    with span("colour"):
        colours = colours_of(gaussians, view.eye(), pairs.visible, plan)
    with span("blend"):
        out = blend(gaussians, colours, seen, pairs, view, plan)
    with span("sky"):
        image = composite(out.features, out.transmittance, sky, seen.directions, plan)
    return camera_image(view, out, image)


def render_lidar(
    gaussians: AnyGaussians,
    view: LidarView,
    pairs: PairList,
    plan: RenderPlan = CPU_PLAN,
) -> LidarReturns:
    """Returns range, intensity and ray drop of every ray of the view."""
    with span("gather"):
        gaussians, pairs = used(gaussians, pairs, plan)
    with span("rays"):
        seen = pairs.seen or rays(view)
    with span("blend"):
        out = blend(gaussians, gaussians.lidar, seen, pairs, view, plan)
    return LidarReturns(out.distance, out.median, out.features, out.transmittance)


def used(gaussians: AnyGaussians, pairs: PairList, plan: RenderPlan) -> tuple[AnyGaussians, PairList]:
    """Returns the Gaussians of the lists alone where that saves time. A GPU spends more on gathering them than on the colours of all; the
    update of rank-1 gradients needs the store's own tensors."""
    whole = plan.warp_tiles or plan.rank1_sh is not None or on_gpu(gaussians)
    return (gaussians, pairs) if whole else compacted(gaussians, pairs)


def on_gpu(gaussians: AnyGaussians) -> bool:
    return gaussians.means.is_cuda


def colours_of(
    gaussians: AnyGaussians,
    eye: Tensor,  # [3] world
    seen: Tensor | None = None,  # [N] uint8; None: all are seen. The others may have colour 0
    plan: RenderPlan = CPU_PLAN,
) -> Tensor:  # [N, 3] at least 0
    fused = plan.fused_colour or plan.rank1_sh is not None
    if fused and isinstance(gaussians, SplitGaussians) and not eye.requires_grad:
        if plan.rank1_sh is not None:
            blocks = deferred_backward.blocks_of(gaussians)
            return rank1_sh.view_colour_rank1(gaussians, eye, seen, plan.rank1_sh, blocks)
        return view_colour(gaussians, eye, seen)
    return sh_colour(gaussians, torch_fallbacks(plan.compile_rest).local_directions(gaussians, eye))


def blend(
    gaussians: AnyGaussians,
    features: Tensor,  # [N, C]
    seen: Rays,
    pairs: PairList,
    view: CameraView | LidarView,
    plan: RenderPlan = CPU_PLAN,
) -> Blend:
    """Blends the Gaussians of each tile's list over the tile's rays."""
    if plan.deferred_backward and deferred_backward.has_unused_slot(gaussians):
        return deferred_backward.blend(gaussians, features, seen, pairs, view, plan.segment_entries)
    if view.pose_delta is not None:  # else the centre is not needed
        gaussians = with_pose_grad(gaussians, view.pose_delta, view.centre(), pose_vjp)
    if plan.warp_tiles:
        return warps.blend(gaussians, features, seen, pairs, view, plan.segment_entries)
    return render(gaussians, features, seen, pairs, view, plan.backward)


def composite(
    features: Tensor,  # [R, 3]
    transmittance: Tensor,  # [R]
    sky: Tensor,  # [3, H, W] logits
    directions: Tensor,  # [R, 3]
    plan: RenderPlan,
) -> Tensor:  # [R, 3]
    """Blends features over the sky."""
    fallback = torch_fallbacks(plan.compile_rest).over_sky
    if plan.fused_sky:
        return over_sky(features, transmittance, sky, directions, fallback)
    return fallback(features, transmittance, sky, directions)
