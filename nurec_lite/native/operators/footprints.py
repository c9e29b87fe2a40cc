# SPDX-License-Identifier: Apache-2.0
"""The operator footprints: pixels a metre of Gaussians in the images that see them.

Letters: N Gaussians, F images, K tracks.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from nurec_lite.base.transfer import upload
from nurec_lite.capture.types import Capture
from nurec_lite.scene import footprint
from nurec_lite.scene.scene import Scene
from nurec_lite.splat.view_row import CAMERA_FIELDS, camera_numbers


class FootprintArgs(NamedTuple):
    """N Gaussians, F images, K tracks."""

    means: Tensor  # [N, 3] in the frames of their nodes
    node: Tensor  # [N] int64, 0: the world, k + 1: track k
    lookouts: Tensor  # [F, 24] camera from world, rotation and translation, and the camera as a view's row has it
    valid: Tensor  # [F, K] bool
    quaternions: Tensor  # [F, K, 4] unit
    translations: Tensor  # [F, K, 3]


def footprints(scene: Scene, capture: Capture, images: Sequence[int]) -> Tensor:
    """Finds footprints, as nurec_lite.scene.footprint.footprints does, with all images in one kernel."""
    return footprint.footprints(scene, capture, images, _pixels_a_metre)


def _pixels_a_metre(scene: Scene, sights: footprint.Sights) -> Tensor:
    if not all(camera.is_plain for camera in sights.lookouts.cameras):
        return footprint.most_pixels_a_metre(scene, sights)  # the kernel knows no other lenses
    g, poses = scene.gaussians, sights.poses
    of_tracks = poses.valid.contiguous(), poses.quaternions.contiguous(), poses.translations.contiguous()
    seen = FootprintArgs(g.means, g.node, _rows_of(sights.lookouts), *of_tracks)
    return torch.ops.nurec_lite.footprints(seen, footprint.NEAREST, footprint.MARGIN)


@lru_cache(maxsize=4)
def _rows_of(lookouts: footprint.Lookouts) -> Tensor:
    """View rows as the operator takes them."""
    T, numbers = lookouts.to_camera, [camera_numbers(c) for c in lookouts.cameras]
    models = torch.tensor(numbers, dtype=torch.float32).view(-1, len(CAMERA_FIELDS))
    return torch.cat([T[:, :3, :3].flatten(1), T[:, :3, 3], upload(models, T.device)], dim=1)
