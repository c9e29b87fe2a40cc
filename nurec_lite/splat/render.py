# SPDX-License-Identifier: Apache-2.0
"""Images and lidar returns: features of the Gaussians, blended, with the sky behind."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.base.ranges import span
from nurec_lite.geometry.harmonics import sh_colour
from nurec_lite.geometry.se3 import quat_conjugate, quat_rotate
from nurec_lite.scene.gaussians import AnyGaussians, PartedGaussians
from nurec_lite.scene.sky import over_sky
from nurec_lite.splat.nudge import nudged
from nurec_lite.splat.reference import Blend, blend, compact
from nurec_lite.splat.tiles import PairList
from nurec_lite.splat.views import CameraView, LidarView, Rays, View


@dataclass(frozen=True)
class CameraImage:
    """A rendered exposure, before the camera's gain and offset."""

    colour: Tensor  # [H, W, 3]
    distance: Tensor  # [H, W] expected distance along the unit ray in metres: sum of w t
    opacity: Tensor  # [H, W]


@dataclass(frozen=True)
class LidarReturns:
    """R rendered lidar rays, as blended; properties compute the visible values."""

    distance: Tensor  # [R] metres, expected: sum of w t; of a view with targets, sum of w times what t misses them by
    median: Tensor  # [R] metres, t at which the transmittance crosses 0.5; 0 for rays that never cross
    features: Tensor  # [R, 2] intensity, and probability that what is met returns nothing
    transmittance: Tensor  # [R]

    def values(self) -> tuple[Tensor, Tensor]:  # [R] each
        """Intensity, and probability that nothing returns; what passes through the scene never returns."""
        intensity, drop = self.features.unbind(-1)
        return intensity, drop + self.transmittance

    @property
    def intensity(self) -> Tensor:  # [R]
        return self.values()[0]

    @property
    def drop(self) -> Tensor:  # [R] probability
        return self.values()[1]

    @property
    def opacity(self) -> Tensor:  # [R]
        return 1 - self.transmittance


def local_directions(
    gaussians: AnyGaussians,
    eye: Tensor,  # [3] world
) -> Tensor:  # [N, 3] unit, from the eye to each mean, in the axes of its node
    towards = F.normalize(gaussians.means - eye, dim=-1)
    local = quat_rotate(quat_conjugate(gaussians.frames), towards)
    if isinstance(gaussians, PartedGaussians):  # what stands still is not turned, either
        return torch.cat([F.normalize(gaussians.still_means - eye, dim=-1), local])
    return local


def _colour(gaussians: AnyGaussians, directions: Tensor) -> Tensor:
    return sh_colour(gaussians.sh, directions)


def _blend(gaussians: AnyGaussians, features: Tensor, rays: Rays, pairs: PairList, view: View) -> Blend:
    return blend(gaussians.whole(), features, rays, pairs, view.centre())


def _rays(view: CameraView | LidarView) -> Rays:
    return view.rays()


def _listed(gaussians: AnyGaussians, pairs: PairList) -> tuple[AnyGaussians, PairList]:
    used, members = compact(pairs.gaussians, len(gaussians))
    return gaussians.select(used), replace(pairs, gaussians=members, visible=None)


@dataclass(frozen=True)
class Kernels:
    """Functions of a render that the reference or compiled code provides."""

    towards: Callable[[AnyGaussians, Tensor], Tensor] = local_directions
    colour: Callable[[AnyGaussians, Tensor], Tensor] = _colour  # [N, 3] seen in these directions [N, 3], at least 0
    blend: Callable[[AnyGaussians, Tensor, Rays, PairList, Any], Blend] = (
        _blend  # features [N, C]; the last is the view
    )
    listed: Callable[[AnyGaussians, PairList], tuple[AnyGaussians, PairList]] = (
        _listed  # leaves only the Gaussians that some tile looks at, where that pays
    )
    rays: Callable[[Any], Rays] = _rays  # of the view
    over_sky: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] = over_sky
    seen_colour: Callable[[PartedGaussians, Tensor, Tensor | None], Tensor] | None = (
        None  # colour of towards, of an eye without gradient, and of Gaussians that are seen; all are if that is not known
    )
    nudged: Callable[[AnyGaussians, Tensor | None, Tensor], AnyGaussians] = (
        nudged  # by the view's nudge, about its centre
    )


REFERENCE = Kernels()


def seen_colour(kernels: Kernels, gaussians: AnyGaussians, eye: Tensor, seen: Tensor | None = None) -> Tensor:
    """[N, 3] of all Gaussians, as the eye [3] sees them: in one go where the kernels have that and the Gaussians come in two parts; then
    of Gaussians that are not `seen` [N] it may be 0."""
    whole = kernels.seen_colour
    if whole is None or eye.requires_grad or not isinstance(gaussians, PartedGaussians):
        return kernels.colour(gaussians, kernels.towards(gaussians, eye))
    return whole(gaussians, eye, seen)


def _nudged(kernels: Kernels, gaussians: AnyGaussians, view: CameraView | LidarView) -> AnyGaussians:
    """The centre is worked out only where the view may be nudged."""
    return gaussians if view.nudge is None else kernels.nudged(gaussians, view.nudge, view.centre())


def render_camera(
    gaussians: AnyGaussians,
    view: CameraView,
    pairs: PairList,
    sky: Tensor,  # [3, H, W] logits of the environment map
    kernels: Kernels = REFERENCE,
) -> CameraImage:
    """C = sum w c + T sky(d)."""
    with span("gather"):
        gaussians, pairs = kernels.listed(gaussians, pairs)
    with span("rays"):
        rays = pairs.seen or kernels.rays(view)
    with span("colour"):
        colour = seen_colour(kernels, gaussians, view.eye(), pairs.visible)
    with span("blend"):
        out = kernels.blend(_nudged(kernels, gaussians, view), colour, rays, pairs, view)
    with span("sky"):
        image = kernels.over_sky(out.features, out.transmittance, sky, rays.directions)
    shape = (view.camera.height, view.camera.width)
    return CameraImage(image.view(*shape, 3), out.distance.view(shape), (1 - out.transmittance).view(shape))


def render_lidar(
    gaussians: AnyGaussians,
    view: LidarView,
    pairs: PairList,
    kernels: Kernels = REFERENCE,
) -> LidarReturns:
    """Range, intensity and ray drop of every ray of the view."""
    with span("gather"):
        gaussians, pairs = kernels.listed(gaussians, pairs)
    with span("rays"):
        rays = pairs.seen or kernels.rays(view)
    with span("blend"):
        out = kernels.blend(_nudged(kernels, gaussians, view), gaussians.lidar, rays, pairs, view)
    return LidarReturns(out.distance, out.median, out.features, out.transmittance)
