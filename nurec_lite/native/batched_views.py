# SPDX-License-Identifier: Apache-2.0
"""Several views of a step in one launch a stage, with gradients (kernels/raster_warps/views/train.h): views of cameras with images of
one size, or of one lidar. Gaussian i as view v sees it is instance N v + i, so one sort by depth and one by warp tile serve all views.
Gradients are deferred: the backward epilogue of the step differentiates the Gaussians of these views with those of all others. On CUDA
alone.

Letters: V views, N Gaussians, S static and A moving; R rays of all views.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from nurec_lite.base.rows import rows_of
from nurec_lite.native.batched_backward import Blended, Launch, render_views
from nurec_lite.native.deferred_backward import grad_slot_of
from nurec_lite.native.operators.rays import pixels
from nurec_lite.native.operators.render_views import NodeRotations, SceneArrays, SensorRays
from nurec_lite.native.operators.shared import has_lens, has_per_ray_origins, packed_view, wants_pose_grad
from nurec_lite.native.plan import RenderPlan
from nurec_lite.native.rank1_sh import stacked
from nurec_lite.native.stages import composite
from nurec_lite.native.warps import BEAMS, HEIGHT, LISTS, MAX_LISTS, WARP, WIDTH, balanced_entries, lists_of
from nurec_lite.scene.gaussians import AnyGaussians, SplitGaussians
from nurec_lite.splat.render import CameraImage, LidarReturns
from nurec_lite.splat.views import CameraView, LidarView

AnyView = CameraView | LidarView
# by views of one collection of Gaussians
SHARED = "still_means", "still_quats", "scales", "sh0", "sh_rest", "lidar"
MAX_BANDS = 1 << 12  # of all sweeps, as the operator takes it


class BatchedViews(NamedTuple):
    """Renders of the views, in their order."""

    seen: list[CameraImage] | list[LidarReturns]
    needed: Tensor  # [V] int64 entries that the lists of each view need


def batch_key(view: AnyView) -> tuple[object, ...]:
    """Key of a view: views with equal keys may go into one launch."""
    if isinstance(view, CameraView):
        return view.camera.width, view.camera.height, has_per_ray_origins(view), wants_pose_grad(view)
    return id(view.lidar), view.targets is None, wants_pose_grad(view)


def unsupported_reason(
    views: Sequence[AnyView],  # of one sort
    gaussians: Sequence[AnyGaussians],
) -> str | None:
    """Returns the reason against one launch of these views; None: they can share one."""
    if any(wants_pose_grad(view) for view in views):
        return "poses ask for gradients of rays"
    first = gaussians[0]
    if not isinstance(first, SplitGaussians) or not all(
        getattr(g, name, None) is getattr(first, name) for g in gaussians for name in SHARED
    ):
        return "it needs the options fused_interp and collect_once, so that views share static Gaussians"
    if sum(map(lists_of, views)) > MAX_LISTS:
        return f"their rays make more than {MAX_LISTS} lists"
    if isinstance(views[0], LidarView):
        bands = len(views) * (len(views[0].lidar.cells(BEAMS, device=first.scales.device).edges) + 1)
        if bands > MAX_BANDS:
            return f"its sweeps have {bands} bands of elevation, more than {MAX_BANDS}"
    return None


def render_batch(
    gaussians: Sequence[SplitGaussians],  # of each view, as `unsupported_reason` allows
    views: Sequence[AnyView],
    sky: Tensor,  # [3, H, W] logits of the environment map
    capacity: int
    | None,  # entries that the lists of all views may have; None: as many as they need; the host waits for the number
    plan: RenderPlan,
) -> BatchedViews:
    """Images and returns as by render_camera and render_lidar of nurec_lite.native.warps, with the lists of
    tile_cull."""
    if isinstance(views[0], CameraView):
        return _images(gaussians, views, sky, capacity, plan)  # type: ignore[arg-type]
    return _sweeps(gaussians, views, capacity, plan)  # type: ignore[arg-type]


def _images(
    gaussians: Sequence[SplitGaussians],
    views: Sequence[CameraView],
    sky: Tensor,
    capacity: int | None,
    plan: RenderPlan,
) -> BatchedViews:
    camera, moving = views[0].camera, has_per_ray_origins(views[0])
    directions, fractions = zip(*map(pixels, views), strict=True)
    alike = all(v.camera == camera for v in views)
    none = sky.new_empty(0)
    rays = SensorRays(
        directions[0] if alike else torch.cat(directions),
        fractions[0] if alike or not moving else torch.cat(fractions),
        none,
        none.long(),
    )
    size = [camera.width, camera.height, WIDTH, HEIGHT]
    out = _blended(gaussians, views, rays, none.view(0, 2), size, 1, capacity, plan)
    image = composite(out.features, out.transmittance, sky, out.directions, plan)
    shape = len(views), camera.height, camera.width
    of_views = image.view(*shape, 3), out.distance.view(shape), (1 - out.transmittance).view(shape)
    return BatchedViews([CameraImage(*one) for one in zip(*(t.unbind(0) for t in of_views), strict=True)], out.needed)


def _sweeps(
    gaussians: Sequence[SplitGaussians], views: Sequence[LidarView], capacity: int | None, plan: RenderPlan
) -> BatchedViews:
    sizes = [len(view.directions) for view in views]
    directions, fractions = (joined([getattr(view, f) for view in views]) for f in ("directions", "fractions"))
    cells = views[0].lidar.cells(BEAMS, device=directions.device)
    rays = SensorRays(directions, fractions, cells.edges, begins_of(sizes, directions.device))
    aims = [view.targets for view in views if view.targets is not None]
    targets = joined(aims) if aims else directions.new_empty(0, 2)
    out = _blended(gaussians, views, rays, targets, [], cells.columns, capacity, plan)
    returns = (t.split(sizes) for t in (out.distance, out.median, out.features, out.transmittance))
    return BatchedViews([LidarReturns(*one) for one in zip(*returns, strict=True)], out.needed)


def _blended(
    gaussians: Sequence[SplitGaussians],
    views: Sequence[AnyView],
    rays: SensorRays,
    targets: Tensor,  # [R, 2] of sweeps, or [0, 2]
    size: list[int],
    columns: int,
    capacity: int | None,
    plan: RenderPlan,
) -> Blended:
    moving = not size or has_per_ray_origins(views[0])
    limits = _limits(capacity, plan, WIDTH * HEIGHT if size else WARP // LISTS, targets.device)
    launch = Launch(
        stacked([packed_view(view) for view in views]), rays, targets, size, columns, moving, any(map(has_lens, views)),
        *limits, plan.depth_bits, plan.rank1_sh,
        tuple(view.eye().detach() for view in views if isinstance(view, CameraView)),
    )  # fmt: skip
    slots = [grad_slot_of(g, view) for g, view in zip(gaussians, views, strict=True)]
    return render_views(*_scene(gaussians), launch, slots)


def _limits(capacity: int | None, plan: RenderPlan, rays_a_list: int, device: torch.device) -> tuple[int, int]:
    """The largest number of entries of a segment, and of all lists. Without a capacity the number of entries is unknown."""
    return (
        (plan.segment_entries, -1)
        if capacity is None
        else (balanced_entries(capacity, plan.segment_entries, rays_a_list, device), capacity)
    )


def begins_of(sizes: Sequence[int], device: torch.device) -> Tensor:  # [V + 1] int64
    """Returns the first index of each part, and the end; filled on the device, since a copy from the host could not be recorded."""
    begins = torch.zeros(len(sizes) + 1, dtype=torch.int64, device=device)
    for k, size in enumerate(sizes):
        begins[k + 1 :] += size
    return begins


def joined(tensors: Sequence[Tensor]) -> Tensor:
    """Concatenates tensors [n, ...]; one alone is not copied."""
    return tensors[0].contiguous() if len(tensors) == 1 else torch.cat(list(tensors))


def _scene(gaussians: Sequence[SplitGaussians]) -> tuple[SceneArrays, NodeRotations]:
    """Returns the first arguments of the operator. Only colours differentiate values that are not detached. Static Gaussians have
    the same opacity at all times."""
    g, s = gaussians[0], len(gaussians[0].still_means)
    means, quats, velocities, rotations = (
        stacked([getattr(one, name) for one in gaussians]) for name in ("means", "quats", "velocities", "rotations")
    )
    opacities = stacked([one.opacities[s:] for one in gaussians])
    frames = rows_of(rotations.detach(), g.nodes, dim=1)
    scene = SceneArrays(
        g.still_means, g.still_quats.detach(), means, quats.detach(), velocities.detach(), g.scales.detach(),
        g.opacities[:s].detach(), opacities.detach(), frames, g.sh0, g.sh_rest, g.lidar.detach(),
    )  # fmt: skip
    return scene, NodeRotations(rotations, g.nodes)
