# SPDX-License-Identifier: Apache-2.0
"""Numbers of Gaussians that a capture needs: in proportion to the surface that images see, within the limits of pixels and memory."""

from dataclasses import dataclass

import torch
from torch import Tensor

from nurec_lite.base.environment import free_memory
from nurec_lite.capture.types import Capture
from nurec_lite.config import ModelConfig
from nurec_lite.geometry.masks import seen_share
from nurec_lite.scene.points import Points
from nurec_lite.scene.voxels import Voxels

LEAST = 1_000_000  # Gaussians, if pixels and memory allow it: KITTI 0009 with 28 730 patches gains nothing from more (benchmarks/LOG.md)
PATCH = 0.3  # metres, side of a patch of surface near the path; it doubles as voxels do
A_PATCH = (
    14  # Gaussians: with so many a drive of six cameras, 60 m and 71 054 patches reaches 31.6 dB (benchmarks/LOG.md)
)
PIXELS = 4  # of training images for a Gaussian, at least: a smaller one than 2 x 2 pixels is nothing that they can show
BYTES = 2048  # of a Gaussian with gradient, moments and lists: a million take 2.0 GB with the capture (step_kitti_0009_stages_h100.json)
MEMORY = 0.4  # share of the free memory that Gaussians may take
MOST_FAR = 100_000  # Gaussians of the far shell
Number = int | str  # or auto


@dataclass(frozen=True)
class Chosen:
    """The largest number of Gaussians, and the reason in words."""

    cap: int
    why: str


@dataclass(frozen=True)
class Limits:
    """Gaussians at most."""

    by_pixels: int
    by_memory: int

    @staticmethod
    def of(capture: Capture, device: torch.device) -> "Limits":
        assert capture.split is not None
        size = {c.name: seen_share(c.mask) * c.width * c.height for c in capture.cameras}
        pixels = round(sum(size[capture.images[i].sensor] for i in capture.split.train_images))
        return Limits(max(1, pixels // PIXELS), max(1, int(MEMORY * free_memory(device) / BYTES)))

    def choose(self, patches: int) -> Chosen:
        """For images that see so many patches of surface."""
        seen, needed = f"images see {patches:,} patches of surface", A_PATCH * patches
        wanted = Chosen(needed, f"{seen}, {A_PATCH} each") if needed > LEAST else Chosen(LEAST, f"the least; {seen}")
        pixels = Chosen(self.by_pixels, f"one for each {PIXELS} pixels of the training images")
        memory = Chosen(self.by_memory, f"{MEMORY:.0%} of the free memory holds no more")
        return min(wanted, pixels, memory, key=lambda chosen: chosen.cap)


def patches_seen(
    points: Points,  # of the background
    level: Tensor,  # [n] how often voxels double there
) -> int:
    """Number of patches of surface that images see."""
    some = torch.nonzero(points.coloured).squeeze(-1)
    return Voxels(points.xyz[some], level[some]).distinct(PATCH) if len(some) else 0


@dataclass(frozen=True)
class Numbers:
    """Approximate numbers of Gaussians of the first scene."""

    points: int
    raised: int
    far: int

    @staticmethod
    def of(model: ModelConfig, cap: int) -> "Numbers":
        """Half of the cap, a fifth and a tenth, where the configuration leaves them open."""
        return Numbers(
            cap // 2 if isinstance(model.points, str) else model.points,
            cap // 5 if isinstance(model.raised_points, str) else model.raised_points,
            min(cap // 10, MOST_FAR) if isinstance(model.far_points, str) else model.far_points,
        )
