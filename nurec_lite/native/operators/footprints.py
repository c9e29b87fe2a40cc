# SPDX-License-Identifier: Apache-2.0
"""The operator footprints: pixels a metre of Gaussians in the images that see them.

Letters: N Gaussians, F images, K tracks.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from nurec_lite.base.transfer import upload
from nurec_lite.capture.types import Capture
from nurec_lite.geometry.camera import Camera
from nurec_lite.scene import footprint
from nurec_lite.scene.scene import Scene
from nurec_lite.splat.view_row import CAMERA_FIELDS, LENS_FIELDS, camera_numbers, lens_row


class FootprintArgs(NamedTuple):
    """N Gaussians, F images, K tracks."""

    means: Tensor  # [N, 3] in the frames of their nodes
    node: Tensor  # [N] int64, 0: the world, k + 1: track k
    lookouts: Tensor  # [F, 24] camera from world, rotation and translation, and the camera as a view's row has it
    lenses: Tensor  # [F, 22] as a view's row has them, or [0, 22]: no camera has one
    masked: Tensor  # [M] bool, pixels of all masks
    masks: Tensor  # [F] int64 first of the camera's pixels among them, or -1; [0]: no camera has a mask
    valid: Tensor  # [F, K] bool
    quaternions: Tensor  # [F, K, 4] unit
    translations: Tensor  # [F, K, 3]


def footprints(scene: Scene, capture: Capture, images: Sequence[int]) -> Tensor:  # [N] square pixels
    """Finds footprints, as nurec_lite.scene.footprint.footprints does, with all images in one kernel."""
    return footprint.footprints(scene, capture, images, _pixels_a_metre)


def _pixels_a_metre(scene: Scene, sights: footprint.Sights) -> Tensor:
    g, poses = scene.gaussians, sights.poses
    of_tracks = poses.valid.contiguous(), poses.quaternions.contiguous(), poses.translations.contiguous()
    seen = FootprintArgs(g.means, g.node, *_sensors_of(sights.lookouts), *of_tracks)
    return torch.ops.nurec_lite.footprints(seen, footprint.NEAREST, footprint.MARGIN)


@lru_cache(maxsize=4)
def _sensors_of(lookouts: footprint.Lookouts) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Cameras, their lenses and their masks as the operator takes them."""
    T, cameras = lookouts.to_camera, lookouts.cameras
    models = torch.tensor([camera_numbers(c) for c in cameras], dtype=torch.float32).view(-1, len(CAMERA_FIELDS))
    bent = [] if all(c.is_plain for c in cameras) else [lens_row(c) for c in cameras]
    lenses = torch.tensor(bent, dtype=torch.float32).view(-1, sum(LENS_FIELDS.values()))
    rows = torch.cat([T[:, :3, :3].flatten(1), T[:, :3, 3], upload(models, T.device)], dim=1)
    masked, masks = _masks_of(cameras)
    return rows, upload(lenses, T.device), upload(masked, T.device), upload(masks, T.device)


def _masks_of(cameras: Sequence[Camera]) -> tuple[Tensor, Tensor]:
    """[M] bool pixels of all masks, each once, and [F] int64 where a camera's begins."""
    masks = {id(c.mask): c.mask for c in cameras if c.mask is not None}
    if not masks:
        return torch.zeros(0, dtype=torch.bool), torch.zeros(0, dtype=torch.int64)
    begins = dict(zip(masks, accumulate((m.numel() for m in masks.values()), initial=0), strict=False))
    firsts = [begins.get(id(c.mask), -1) for c in cameras]
    return torch.cat([m.flatten() for m in masks.values()]), torch.tensor(firsts)
