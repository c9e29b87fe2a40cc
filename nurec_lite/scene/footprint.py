# SPDX-License-Identifier: Apache-2.0
"""How many pixels a Gaussian covers: where more Gaussians can sharpen the images, and where nothing would show them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from nurec_lite.capture.types import Capture, ImageFrame
from nurec_lite.geometry.camera import Camera, project_points
from nurec_lite.geometry.se3 import invert, quat_rotate, transform
from nurec_lite.geometry.tracks import TrackPoses, interpolate
from nurec_lite.scene.gaussians import BACKGROUND
from nurec_lite.scene.scene import Scene

NEAREST = 0.5  # metres; nearer ones count as not seen
MARGIN = 10.0  # pixels beyond the border that still count as seen


@torch.no_grad()
def footprints(
    scene: Scene,
    capture: Capture,
    images: Sequence[int],  # into Capture.images
) -> Tensor:  # [N] square pixels; 0 for Gaussians that none of the images sees
    """Product of a Gaussian's two largest standard deviations, in pixels of the image that sees it from nearest."""
    frames = [capture.images[i] for i in images]
    times = torch.tensor([0.5 * (f.time_start + f.time_end) for f in frames], dtype=torch.float64)
    poses = interpolate(scene.learned_tracks(), times.to(scene.gaussians.means.device))
    most = torch.zeros_like(scene.gaussians.opacity_logits)
    for q, frame in enumerate(frames):
        means, present = _world_means(scene, poses, q)
        scale = _pixels_a_metre(frame, capture.camera(frame.sensor), means)
        most = torch.maximum(most, torch.where(present, scale, torch.zeros_like(scale)))
    widest = scene.gaussians.log_scales.sort(dim=-1).values[:, 1:].sum(-1).exp()
    return widest * most.square()


def _world_means(scene: Scene, poses: TrackPoses, q: int) -> tuple[Tensor, Tensor]:
    """[N, 3], and [N] whether the Gaussian's node exists at that time."""
    means, node = scene.gaussians.means, scene.gaussians.node
    present = torch.cat([poses.valid.new_ones(1), poses.valid[q]]).index_select(0, node)
    actor = torch.nonzero(node != BACKGROUND).squeeze(-1)
    track = node.index_select(0, actor) - 1
    turn, place = poses.quaternions[q].index_select(0, track), poses.translations[q].index_select(0, track)
    return means.index_copy(0, actor, quat_rotate(turn, means.index_select(0, actor)) + place), present


def _pixels_a_metre(
    frame: ImageFrame,
    camera: Camera,
    means: Tensor,  # [N, 3] world
) -> Tensor:  # [N] at the point's depth; 0 outside of the image
    T_cam_world = invert(frame.T_world_rig_start @ camera.T_rig_cam).to(means)
    pixels, z = project_points(camera, transform(T_cam_world, means))
    size = pixels.new_tensor([camera.width, camera.height])
    seen = (z > NEAREST) & ((pixels > -MARGIN) & (pixels < size + MARGIN)).all(-1)
    return torch.where(seen, camera.fx / z.clamp(min=NEAREST), torch.zeros_like(z))
