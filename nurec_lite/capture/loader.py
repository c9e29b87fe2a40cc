# SPDX-License-Identifier: Apache-2.0
"""Which image and which lidar rays each step trains on, and their decoding. Everything depends on (seed, step) alone, so that a
resumed run and loader processes get the same batches."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nurec_lite.capture.types import Capture
from nurec_lite.geometry.lidar import Lidar, Sweep

SECTOR_COLUMNS = (
    8  # columns of cells that are drawn together: neighbouring rays share Gaussians, which makes a step cheaper
)


@dataclass(frozen=True)
class Batch:
    """One image and the rays of some sectors of one sweep; loaded on the host."""

    step: int
    image_index: int  # into Capture.images
    image: Tensor  # [H, W, 3] uint8
    sweep_index: int | None  # into Capture.sweeps; None for a capture without lidar
    sweep: Sweep | None

    def to(self, device: torch.device | str) -> "Batch":
        sweep = None if self.sweep is None else self.sweep.to(device)
        return replace(self, image=self.image.to(device), sweep=sweep)


@dataclass(frozen=True)
class BatchPlan:
    """Order of the training frames and number of rays."""

    capture: Capture
    seed: int
    lidar_rays: int  # about; a multiple of what a sector holds

    def load(self, step: int) -> Batch:
        """Decodes what a step needs."""
        split = self.capture.split
        assert split is not None, "choose a split before training"
        image_index = _pick(split.train_images, self.seed, step)
        image = self.capture.images[image_index].load()
        if not split.train_sweeps or self.lidar_rays == 0:
            return Batch(step, image_index, image, None, None)
        sweep_index = _pick(split.train_sweeps, self.seed + 1, step)
        frame = self.capture.sweeps[sweep_index]
        sweep = draw_sectors(
            frame.load(), self.capture.lidar(frame.sensor), self.lidar_rays, _generator(self.seed + 2, step)
        )
        return Batch(step, image_index, image, sweep_index, sweep)


def _generator(seed: int, number: int) -> torch.Generator:
    return torch.Generator().manual_seed((seed * 1_000_003 + number) % (1 << 62))


def _pick(frames: tuple[int, ...], seed: int, step: int) -> int:
    """Every frame once an epoch, in an order of the epoch's own."""
    epoch, place = divmod(step, len(frames))
    return frames[int(torch.randperm(len(frames), generator=_generator(seed, epoch))[place])]


def draw_sectors(
    sweep: Sweep,
    lidar: Lidar,
    n_rays: int,
    generator: torch.Generator,
) -> Sweep:
    """All rays of random sectors of azimuth, as many sectors as hold about n_rays (at least one)."""
    if len(sweep) <= n_rays:
        return sweep
    columns = lidar.cells().columns
    sector = torch.div(lidar.cells().of(sweep.directions) % columns, SECTOR_COLUMNS, rounding_mode="floor")
    n_sectors = -(-columns // SECTOR_COLUMNS)
    chosen = torch.zeros(n_sectors, dtype=torch.bool)
    chosen[torch.randperm(n_sectors, generator=generator)[: max(1, round(n_rays / len(sweep) * n_sectors))]] = True
    return sweep.select(torch.nonzero(chosen[sector]).squeeze(-1))
