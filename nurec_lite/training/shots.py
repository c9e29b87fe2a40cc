# SPDX-License-Identifier: Apache-2.0
"""The images and lidar rays that each step trains on, and their decoding. Everything depends on (seed, step) alone, so that a
resumed run and loader processes get the same shots; but for images that several ranks pair by the lengths of their lists
(nurec_lite/training/partners.py)."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nurec_lite.capture.types import Capture, Split
from nurec_lite.capture.without import loaded
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lidar import Lidar, Sweep
from nurec_lite.splat.views import CameraView, LidarView, RayGroups, camera_view, lidar_view
from nurec_lite.training.order import Order, generator
from nurec_lite.training.partners import Partners
from nurec_lite.training.staging_buffer import BufferSlot

FACTOR = 2  # of reduction, of the images that a run may begin with (train.coarse)
Copy = Callable[[Any], Any]  # of a tensor


@dataclass(frozen=True)
class ImageShot:
    """An image, and where it was taken from."""

    index: int  # into Capture.images
    camera: int  # into Capture.cameras
    image: Tensor  # [H, W, 3] uint8
    view: CameraView
    reduced: CameraView | None = None  # of the image reduced by FACTOR, if the run begins with these


@dataclass(frozen=True)
class SweepShot:
    """R rays of a sweep, and where they were shot from."""

    index: int  # into Capture.sweeps
    sweep: Sweep
    view: LidarView  # of the same rays
    # [R] bool; None: all rays count. The others fill up: they are copies of rays, and no loss counts them
    counted: Tensor | None = None


@dataclass(frozen=True)
class Shots:
    """Images and sweeps that a step learns from, each with its view, made where it was decoded."""

    step: int
    images: tuple[ImageShot, ...]
    sweeps: tuple[SweepShot, ...]

    @property
    def views(self) -> tuple[CameraView | LidarView, ...]:
        """The views of the images, then those of the sweeps."""
        return *(shot.view for shot in self.images), *(shot.view for shot in self.sweeps)

    def to_numpy(self) -> "Shots":
        """Shots for another process: tensors as NumPy arrays, which travel by value (a tensor takes a file of shared memory, half a
        millisecond of the receiver, and the sender's help), sensors by their names. `from_numpy` turns them back."""
        shots: Any = self.copied(lambda t: t.numpy())
        images = [_with_camera(shot, shot.view.camera.name) for shot in shots.images]
        sweeps = [replace(s, view=replace(s.view, lidar=s.view.lidar.name)) for s in shots.sweeps]
        return replace(self, images=tuple(images), sweeps=tuple(sweeps))

    def from_numpy(self, capture: Capture) -> "Shots":
        """Shots from the result of `to_numpy`, with tensors, and with the capture's own cameras and lidars, so that cached
        results for a sensor are found again."""
        shots: Any = self.copied(torch.as_tensor)
        images = [_with_camera(shot, capture.camera(shot.view.camera)) for shot in shots.images]
        sweeps = [replace(s, view=replace(s.view, lidar=capture.lidar(s.view.lidar))) for s in shots.sweeps]
        return replace(self, images=tuple(images), sweeps=tuple(sweeps))

    def copied(self, copy: Copy) -> "Shots":
        """Returns the shots with a copy of every tensor; those that several records share are copied once."""
        once: dict[int, Tensor] = {}

        def of(tensor: Tensor) -> Tensor:
            if id(tensor) not in once:
                once[id(tensor)] = copy(tensor)
            return once[id(tensor)]

        images, sweeps = (tuple(_each(shot, of) for shot in shots) for shots in (self.images, self.sweeps))
        return replace(self, images=images, sweeps=sweeps)


def _with_camera(shot: Any, camera: Any) -> Any:
    """The image with this camera, or its name, in its views."""
    reduced = shot.reduced
    if reduced is not None:
        smaller = camera.downscaled(FACTOR) if isinstance(camera, Camera) else camera
        reduced = replace(reduced, camera=smaller)
    return replace(shot, view=replace(shot.view, camera=camera), reduced=reduced)


def _each(value: Any, copy: Copy) -> Any:
    """Replaces each tensor of the shots' own records; cameras and lidars stay."""
    if isinstance(value, Tensor | BufferSlot | np.ndarray):
        return copy(value)
    if isinstance(value, ImageShot | SweepShot | Sweep | CameraView | LidarView | RayGroups):
        return replace(value, **{f.name: _each(getattr(value, f.name), copy) for f in fields(value)})
    return value


@dataclass(frozen=True)
class ShotPlan:
    """Order of the training frames, how many of them a step gets, and number of rays."""

    capture: Capture
    seed: int
    lidar_rays: int  # of each sweep, about; a multiple of a sector's rays
    images_a_step: int = field(default=1, kw_only=True)  # if there are as many; those of one moment first
    sweeps_a_step: int = field(default=1, kw_only=True)  # sweeps, if there are any
    sweeps_every: int = field(default=1, kw_only=True)  # steps from one with sweeps to the next
    sector: int | None = field(default=None, kw_only=True)  # columns of cells in a sector; None: as `columns` says
    rank: int = field(default=0, kw_only=True)  # of the process
    ranks: int = field(default=1, kw_only=True)  # that share a step's images and sweeps equally
    coarse: bool = field(default=False, kw_only=True)  # the run begins with reduced images
    partners: Partners = field(default_factory=Partners, kw_only=True)  # of images, that may change the order

    @property
    def decodes(self) -> bool:
        """Whether loading takes long enough to be done elsewhere, or ahead."""
        return True

    def load(self, step: int) -> Shots:
        """Decodes a step's images and rays of its sweeps; on the host."""
        images, sweeps = self.chosen(step)
        first = self.sweeps_a_step * step + self.rank * len(sweeps)
        rays = tuple(self.sweep(index, first + k) for k, index in enumerate(sweeps))
        return Shots(step, tuple(self.image(index) for index in images), rays)

    def chosen(self, step: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Indices into Capture.images and Capture.sweeps that `load` decodes: the share of this rank."""
        turn, between = divmod(step, self.sweeps_every)
        sweeps = self.sweeps.of(turn) if self.has_sweeps and not between else ()
        return self._share(self.images_of(step)), self._share(sweeps)

    def images_of(self, step: int) -> tuple[int, ...]:
        """Indices into Capture.images of a step's images, those of all ranks."""
        return self.partners.of(step) or self.images.of(step)

    def _share(self, frames: tuple[int, ...]) -> tuple[int, ...]:
        n = len(frames) // self.ranks
        return frames[self.rank * n : (self.rank + 1) * n]

    @cached_property
    def images(self) -> Order:
        """Order of the images over all steps."""
        frames = self.split.train_images
        moments = tuple(self.capture.moments.images[i] for i in frames)
        return Order(frames, moments, self.seed, self.images_a_step)

    @property
    def has_sweeps(self) -> bool:
        return bool(self.split.train_sweeps) and self.lidar_rays > 0

    @cached_property
    def sweeps(self) -> Order:
        """Order of the sweeps over all steps."""
        frames = self.split.train_sweeps
        moments = tuple(self.capture.moments.sweeps[i] for i in frames)
        return Order(frames, moments, self.seed + 1, self.sweeps_a_step)

    def draw(self, number: int) -> torch.Generator:
        """The generator that draws the rays of a sweep; sweeps are counted over all steps."""
        return generator(self.seed + 2, number)

    @property
    def split(self) -> Split:
        assert self.capture.split is not None, "choose a split before training"
        return self.capture.split

    def image(self, index: int) -> ImageShot:
        """Decodes an image."""
        return self.decoded(index, loaded(self.capture.images[index]))

    def decoded(
        self,
        index: int,
        image: Tensor,  # [H, W, 3] uint8, on any device
    ) -> ImageShot:
        """The target of an image, and its views on the host."""
        frame = self.capture.images[index]
        view = camera_view(self.capture, frame, "cpu")
        reduced = camera_view(self.capture, frame, "cpu", FACTOR) if self.coarse else None
        return ImageShot(index, self.capture.camera_index(frame.sensor), image, view, reduced)

    def sweep(
        self,
        index: int,
        number: int | None = None,  # of the random rays; None: all rays
    ) -> SweepShot:
        """Decodes rays of a sweep."""
        frame = self.capture.sweeps[index]
        sweep = frame.load()
        if number is not None:
            lidar = self.capture.lidar(frame.sensor)
            columns = self.columns(lidar, len(sweep))
            sweep = draw_sectors(sweep, lidar, self.lidar_rays, self.draw(number), columns)
        return SweepShot(index, sweep, lidar_view(self.capture, frame, sweep, "cpu"))

    def columns(self, lidar: Lidar, rays: int) -> int:
        """Columns of cells in a sector of a sweep of so many rays. Neighbours share Gaussians, so wide sectors are cheap: where none is
        given, two hold about the drawn rays. Then a power of two, so that sweeps of nearly the same number of rays have equal ones."""
        if self.sector is not None:
            return self.sector
        wanted = self.lidar_rays / max(rays, 1) * lidar.cells().columns / 2
        return 1 << max(0, round(math.log2(wanted)))


def as_planned(plan: ShotPlan) -> ShotPlan:
    """Returns the plan as it is: each step gets an image and a sweep."""
    return plan


def as_it_is(view: LidarView) -> LidarView:
    """Returns the view without ray groups: its rays are in none that could be known beforehand."""
    return view


def draw_sectors(
    sweep: Sweep,
    lidar: Lidar,
    n_rays: int,
    generator: torch.Generator,
    columns: int,  # of cells in a sector
) -> Sweep:
    """All rays of random sectors of azimuth, sector by sector, as many sectors as hold about n_rays (at least one)."""
    if len(sweep) <= n_rays:
        return sweep
    sectors = sectors_of(sweep, lidar, columns)
    drawn = torch.tensor(drawn_sectors(len(sweep), lidar, n_rays, generator, columns))
    rays = torch.nonzero(torch.isin(sectors, drawn)).squeeze(-1)
    return sweep.select(rays[sectors[rays].argsort(stable=True)])


def sectors_of(sweep: Sweep, lidar: Lidar, columns: int) -> Tensor:  # [R] int64
    return torch.div(lidar.cells().of(sweep.directions) % lidar.cells().columns, columns, rounding_mode="floor")


def count_sectors(lidar: Lidar, columns: int) -> int:
    return -(-lidar.cells().columns // columns)


def drawn_sectors(
    rays: int,  # of a sweep
    lidar: Lidar,
    n_rays: int,  # less than these
    generator: torch.Generator,
    columns: int,  # of a sector
) -> list[int]:  # ascending
    n = count_sectors(lidar, columns)
    return sorted(torch.randperm(n, generator=generator)[: max(1, round(n_rays / rays * n))].tolist())
