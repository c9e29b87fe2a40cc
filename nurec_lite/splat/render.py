# SPDX-License-Identifier: Apache-2.0
"""Images and lidar returns: features of the Gaussians, blended, with the sky behind."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.base.ranges import span
from nurec_lite.geometry.harmonics import sh_colour
from nurec_lite.geometry.se3 import quat_conjugate, quat_rotate
from nurec_lite.scene.gaussians import AnyGaussians, SplitGaussians
from nurec_lite.scene.sky import over_sky
from nurec_lite.splat.pose_delta import with_pose_grad
from nurec_lite.splat.reference import Blend, blend, compact
from nurec_lite.splat.tiles import PairList
from nurec_lite.splat.views import CameraView, LidarView, Rays


@dataclass(frozen=True)
class CameraImage:
    """A rendered exposure, before the camera's gain and offset."""

    colour: Tensor  # [H, W, 3]
    distance: Tensor  # [H, W] expected distance along the unit ray in metres: sum of w t
    opacity: Tensor  # [H, W]


@dataclass(frozen=True)
class LidarReturns:
    """R rendered lidar rays, as blended; properties compute the visible values."""

    distance: Tensor  # [R] metres, expected: sum of w t; with targets, sum of w times the range residual
    median: Tensor  # [R] metres, t where the transmittance crosses 0.5; 0 for rays that never cross
    features: Tensor  # [R, 2] intensity, and probability that the surface returns nothing
    transmittance: Tensor  # [R]

    def values(self) -> tuple[Tensor, Tensor]:  # [R] each
        """Intensity, and probability that nothing returns; light that passes through the scene never returns."""
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
    if isinstance(gaussians, SplitGaussians):  # static Gaussians are not rotated, either
        return torch.cat([F.normalize(gaussians.still_means - eye, dim=-1), local])
    return local


def compacted(gaussians: AnyGaussians, pairs: PairList) -> tuple[AnyGaussians, PairList]:
    """Returns the Gaussians of the lists alone, and the lists of their new indices."""
    used, members = compact(pairs.gaussians, len(gaussians))
    return gaussians.select(used), replace(pairs, gaussians=members, visible=None)


def view_colour(
    gaussians: AnyGaussians,
    eye: Tensor,  # [3] world
) -> Tensor:  # [N, 3] at least 0
    """Returns the colours of Gaussians as an eye sees them."""
    return sh_colour(gaussians.sh, local_directions(gaussians, eye))


def render_camera(
    gaussians: AnyGaussians,
    view: CameraView,
    pairs: PairList,
    sky: Tensor,  # [3, H, W] logits of the environment map
) -> CameraImage:
    """Returns C = sum w c + T sky(d)."""
    with span("gather"):
        gaussians, pairs = compacted(gaussians, pairs)
    with span("rays"):
        rays = pairs.seen or view.rays()
    with span("colour"):
        colour = view_colour(gaussians, view.eye())
    with span("blend"):
        out = _blend(gaussians, colour, rays, pairs, view)
    with span("sky"):
        image = over_sky(out.features, out.transmittance, sky, rays.directions)
    return camera_image(view, out, image)


def camera_image(
    view: CameraView,
    out: Blend,  # of its pixels
    image: Tensor,  # [H W, 3] over the sky
) -> CameraImage:
    shape = (view.camera.height, view.camera.width)
    return CameraImage(image.view(*shape, 3), out.distance.view(shape), (1 - out.transmittance).view(shape))


def render_lidar(
    gaussians: AnyGaussians,
    view: LidarView,
    pairs: PairList,
) -> LidarReturns:
    """Returns range, intensity and ray drop of every ray of the view."""
    with span("gather"):
        gaussians, pairs = compacted(gaussians, pairs)
    with span("rays"):
        rays = pairs.seen or view.rays()
    with span("blend"):
        out = _blend(gaussians, gaussians.lidar, rays, pairs, view)
    return LidarReturns(out.distance, out.median, out.features, out.transmittance)


def _blend(
    gaussians: AnyGaussians, features: Tensor, rays: Rays, pairs: PairList, view: CameraView | LidarView
) -> Blend:
    if view.pose_delta is not None:  # else the centre is not needed
        gaussians = with_pose_grad(gaussians, view.pose_delta, view.centre())
    return blend(gaussians.whole(), features, rays, pairs, view.centre())
