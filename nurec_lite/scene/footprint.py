# SPDX-License-Identifier: Apache-2.0
"""Pixels that a Gaussian covers: more Gaussians sharpen images where this is large."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.base.transfer import upload
from nurec_lite.capture.types import Capture, ImageFrame
from nurec_lite.geometry.camera import Camera, project_points
from nurec_lite.geometry.masks import at_pixels
from nurec_lite.geometry.se3 import invert, quat_rotate, transform
from nurec_lite.geometry.tracks import TrackPoses, interpolate
from nurec_lite.scene.scene import Scene

NEAREST = 0.5  # metres; nearer ones count as not seen
MARGIN = 10.0  # pixels beyond the border that still count as seen


@dataclass(frozen=True, eq=False)  # compared by identity: results are cached by the object
class Lookouts:
    """Places and times of F images."""

    cameras: tuple[Camera, ...]
    to_camera: Tensor  # [F, 4, 4] camera from world, in the scene's precision, on its device
    times: Tensor  # [F] float64, seconds, there as well


@dataclass(frozen=True)
class Sights:
    """Cameras and poses that see the scene."""

    lookouts: Lookouts
    poses: TrackPoses  # of the tracks when the images were taken


@torch.no_grad()
def footprints(
    scene: Scene,
    capture: Capture,
    images: Sequence[int],  # into Capture.images
    pixels_a_metre: Callable[[Scene, Sights], Tensor]
    | None = None,  # [N] by the image that sees it from nearest; None: as below
) -> Tensor:  # [N] square pixels; 0 for Gaussians that none of the images sees
    """Product of a Gaussian's two largest standard deviations, in pixels of the image that sees it from nearest."""
    most = (pixels_a_metre or most_pixels_a_metre)(scene, sights(scene, capture, images))
    sizes = scene.gaussians.log_scales
    return (sizes.sum(-1) - sizes.amin(-1)).exp() * most.square()


def sights(scene: Scene, capture: Capture, images: Sequence[int]) -> Sights:
    like = scene.gaussians.means
    lookouts = _lookouts(capture, tuple(images), like.dtype, like.device)
    return Sights(lookouts, interpolate(scene.learned_tracks(), lookouts.times))


@lru_cache(maxsize=4)  # the same images again and again
def _lookouts(capture: Capture, images: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Lookouts:
    frames = [capture.images[i] for i in images]
    cameras = tuple(capture.camera(f.sensor) for f in frames)
    times = torch.tensor([f.time_mid for f in frames], dtype=torch.float64)
    return Lookouts(cameras, upload(_cameras_from_world(frames, cameras).to(dtype), device), upload(times, device))


def most_pixels_a_metre(scene: Scene, sights: Sights) -> Tensor:
    """[N] pixels a metre in the image that sees a Gaussian from nearest, or 0."""
    most = torch.zeros_like(scene.gaussians.opacity_logits)
    for q, camera in enumerate(sights.lookouts.cameras):
        means, present = _world_means(scene, sights.poses, q)
        scale = _pixels_a_metre(camera, transform(sights.lookouts.to_camera[q], means))
        most = torch.maximum(most, torch.where(present, scale, torch.zeros_like(scale)))
    return most


def _world_means(scene: Scene, poses: TrackPoses, q: int) -> tuple[Tensor, Tensor]:
    """[N, 3], and [N] whether the Gaussian's node exists at that time."""
    means, node = scene.gaussians.means, scene.gaussians.node
    valid, quaternions, translations = (  # of every node, the background first
        torch.cat([own, values[q]])
        for own, values in (
            (poses.valid.new_ones(1), poses.valid),
            (_unturned(means), poses.quaternions),
            (means.new_zeros(1, 3), poses.translations),
        )
    )
    # by an index: index_select starts a block for every row on a GPU, 0.3 ms for a million
    return quat_rotate(quaternions[node], means) + translations[node], valid[node]


def _unturned(like: Tensor) -> Tensor:  # [1, 4]
    return F.pad(like.new_ones(1, 1), (0, 3))


def _cameras_from_world(frames: Sequence[ImageFrame], cameras: Sequence[Camera]) -> Tensor:
    """[F, 4, 4] float64, on the host."""
    if not frames:
        return torch.zeros(0, 4, 4, dtype=torch.float64)
    rigs, mounts = torch.stack([f.T_world_rig_start for f in frames]), torch.stack([c.T_rig_cam for c in cameras])
    return invert(rigs @ mounts)


def _pixels_a_metre(
    camera: Camera,
    points: Tensor,  # [N, 3] in the camera's frame
) -> Tensor:  # [N] at the point's depth; 0 outside of the image and where it is masked
    pixels, z = project_points(camera, points)
    u, v = pixels.unbind(-1)
    across = (u > -MARGIN) & (u < camera.width + MARGIN) & (v > -MARGIN) & (v < camera.height + MARGIN)
    seen = (z > NEAREST) & across & ~_masked(camera, pixels)
    return torch.where(seen, camera.fx / z.clamp(min=NEAREST), torch.zeros_like(z))


def _masked(
    camera: Camera,
    pixels: Tensor,  # [N, 2]
) -> Tensor:  # [N] bool: at the pixel, or at the nearest one of the image, the camera shows no scene
    u, v = pixels.unbind(-1)
    return at_pixels(camera.mask, torch.stack([u.clamp(0, camera.width - 1), v.clamp(0, camera.height - 1)], dim=-1))
