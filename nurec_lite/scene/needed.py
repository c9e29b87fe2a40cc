# SPDX-License-Identifier: Apache-2.0
"""Numbers of Gaussians that a capture needs: in proportion to the surface that images see, within pixels, memory and the budget."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from nurec_lite.base.environment import free_memory
from nurec_lite.base.ranks import present
from nurec_lite.capture.types import Capture
from nurec_lite.config import ModelConfig, TrainConfig
from nurec_lite.geometry.masks import seen_share
from nurec_lite.scene.points import Points
from nurec_lite.scene.voxels import Voxels

MIN_GAUSSIANS = 1_000_000  # if pixels and memory allow it: KITTI 0009 gains nothing from more (benchmarks/LOG.md)
PATCH_M = 0.3  # metres, side of a patch of surface near the path; it doubles as voxels do
GAUSSIANS_PER_PATCH = 14  # with so many, a drive of six cameras and 71 054 patches reaches 31.6 dB (benchmarks/LOG.md)
PIXELS_PER_GAUSSIAN = 4  # of training images, at least: they do not show a Gaussian smaller than 2 x 2 pixels
BYTES_PER_GAUSSIAN = (
    2048  # with gradient, moments and lists: a million take 2.0 GB with the capture (step_kitti_0009_stages_h100.json)
)
MEMORY_SHARE = 0.4  # share of the free memory that Gaussians may take
GAUSSIANS_PER_SECOND = 80_000  # of the budget: images show more of them too rarely (benchmarks/LOG.md)
FURTHER_RANK = 0.6  # images of a second rank beside those of the first: two H200, a drive of 30 s (benchmarks/LOG.md)
GAUSSIANS_PER_STEP = 1_000  # of a budget in steps, for the same reason
LEAST_PER_SECOND = 200_000  # of a short budget: KITTI 0009 is as good after 2.8 s, and its checkpoint comes earlier (benchmarks/LOG.md)
UNLIMITED = 10**9
MAX_FAR = 100_000  # Gaussians of the far shell
Number = int | str  # or auto


@dataclass(frozen=True)
class Cap:
    """The largest number of Gaussians, and the reason in words."""

    cap: int
    why: str


@dataclass(frozen=True)
class CapLimits:
    """The largest numbers of Gaussians by pixels, by memory and by the budget of the training."""

    by_pixels: int
    by_memory: int
    by_budget: int

    @staticmethod
    def of(capture: Capture, device: torch.device, budget: TrainConfig) -> "CapLimits":
        assert capture.split is not None
        size = {c.name: seen_share(c.mask) * c.width * c.height for c in capture.cameras}
        pixels = round(sum(size[capture.images[i].sensor] for i in capture.split.train_images))
        memory = int(MEMORY_SHARE * free_memory(device) / BYTES_PER_GAUSSIAN)
        return CapLimits(max(1, pixels // PIXELS_PER_GAUSSIAN), max(1, memory), _within(budget))

    def choose(self, patches: int) -> Cap:
        """Returns the cap for images that see so many patches of surface."""
        seen, needed = f"images see {patches:,} patches of surface", GAUSSIANS_PER_PATCH * patches
        wanted = (
            Cap(needed, f"{seen}, {GAUSSIANS_PER_PATCH} each")
            if needed > MIN_GAUSSIANS
            else Cap(MIN_GAUSSIANS, f"the least; {seen}")
        )
        pixels = Cap(self.by_pixels, f"one for each {PIXELS_PER_GAUSSIAN} pixels of the training images")
        memory = Cap(self.by_memory, f"{MEMORY_SHARE:.0%} of the free memory holds no more")
        budget = Cap(self.by_budget, "the budget trains no more")
        return min(wanted, pixels, memory, budget, key=lambda chosen: chosen.cap)


def _within(budget: TrainConfig) -> int:
    """Gaussians that the seconds of all ranks or the steps suffice for; MIN_GAUSSIANS at least, or fewer in a budget of few seconds."""
    seconds = budget.seconds or math.inf  # None: steps alone count; 0: nothing is trained
    by_steps = UNLIMITED if budget.steps is None else GAUSSIANS_PER_STEP * budget.steps
    least = min(MIN_GAUSSIANS, max(MIN_GAUSSIANS // 4, LEAST_PER_SECOND * seconds))
    more = 1 + FURTHER_RANK * (present().size - 1)
    return int(max(least, min(UNLIMITED, GAUSSIANS_PER_SECOND * seconds * more, by_steps)))


def patches_seen(
    points: Points,  # of the background
    level: Tensor,  # [n] how often voxels double there
) -> int:
    """Number of patches of surface that images see."""
    some = torch.nonzero(points.coloured).squeeze(-1)
    return Voxels(points.xyz[some], level[some]).distinct(PATCH_M) if len(some) else 0


@dataclass(frozen=True)
class InitialCounts:
    """Approximate numbers of Gaussians of the first scene."""

    points: int
    raised: int
    far: int

    @staticmethod
    def of(model: ModelConfig, cap: int) -> "InitialCounts":
        """Returns half, a fifth and a tenth of the cap where the configuration says auto."""
        return InitialCounts(
            cap // 2 if isinstance(model.points, str) else model.points,
            cap // 5 if isinstance(model.raised_points, str) else model.raised_points,
            min(cap // 10, MAX_FAR) if isinstance(model.far_points, str) else model.far_points,
        )
