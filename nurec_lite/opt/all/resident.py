# SPDX-License-Identifier: Apache-2.0
"""resident: the capture is decoded once and stays in the memory of the device, so that a step's feed only looks up its shots.

Idea: images are kept as uint8 with their views, sweeps with all their rays, and in the warp tiles of warp_cull if steps take all of
them. Threads decode and copy them at the start, in the order in which steps will need them, so training begins with the first one. If a
step takes all rays of a sweep, nothing is copied any more; if it draws some, sweeps are stored sector by sector, so that the drawn rays
are a few stretches, and one launch joins these.
Source: the first 3D Gaussian splatting trainer (`--data_device cuda`) and nerfstudio (`cache_images gpu`).
Gain, code before and after, limits: docs/options/resident.md.
With jpeg=gpu whole baseline JPEG files of three components are decoded on the device, by nvImageCodec or else torchvision, whichever
can be imported; files that the threads have read by then go there in one call. The host decodes all other images, such as PNG.
Limits: needs memory for the whole capture: 1.4 MB an image of KITTI, 50 bytes a ray; it may take a share of the free memory at the
first step. If the sensors' own figures say that the capture does not fit, a message says so and the option is off: workers, pinned and
prefetch then feed as without it. Otherwise they have nothing to do, and no loader process is started. Name it after pinned and
prefetch; before it, prefetch would fetch frames that are there already. A frame that cannot be decoded ends the run at the step that
needs it. Class exact: shots are bitwise the same. With jpeg=gpu close: decoders round and interpolate chroma each in its own way, so
levels of images differ a little (tests: less than one in the mean), and a run differs from that of the host's decoder; the library's
own memory is not counted in the share.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from nurec_lite.base.environment import free_memory
from nurec_lite.base.errors import OptionError
from nurec_lite.base.pool import Begun
from nurec_lite.base.transfer import SideStream
from nurec_lite.capture.gpu_jpeg import GpuJpeg, libraries
from nurec_lite.capture.types import ImageFrame
from nurec_lite.geometry.lidar import Sweep
from nurec_lite.native.operators.multi_tensor_copy import multi_tensor_copy
from nurec_lite.training.shots import ImageShot, ShotPlan, Shots, SweepShot, count_sectors, drawn_sectors, sectors_of
from nurec_lite.training.stage_protocols import GroupRays
from nurec_lite.training.stages import Fetch, MoveShots, Stages
from nurec_lite.training.state import TrainState

CLASS = "exact"
REQUIRES: tuple[str, ...] = ()
JPEG = ("host", "gpu")
RAY_BYTES = 41  # of all tensors of a sweep and of its view,
GROUP_BYTES = 12  # and of the bundles of its rays, about
log = logging.getLogger("nurec_lite")
Decode = Callable[[ImageFrame], Tensor]
Join = Callable[[Sequence[Sequence[Tensor]]], list[Tensor]]
Frame = tuple[str, int]  # image or sweep, index into Capture.images or Capture.sweeps


def unavailable(stages: Stages) -> str | None:
    return None


@dataclass(frozen=True)
class KeptSweep:
    """A sweep on the device."""

    shot: SweepShot  # all rays, sector by sector if steps take some
    ends: tuple[int, ...] | None  # ends of the sectors, in rays, after a 0; None: steps take all rays

    def stretches(
        self,
        sectors: Sequence[int],  # ascending
    ) -> list[slice]:
        """Their rays; neighbours are one."""
        assert self.ends is not None
        found: list[slice] = []
        for begin, end in ((self.ends[k], self.ends[k + 1]) for k in sectors):
            if found and found[-1].stop == begin:
                found[-1] = slice(found[-1].start, end)
            elif begin < end:
                found.append(slice(begin, end))
        return found or [slice(0, 0)]


class Store:
    """The training frames of a plan on a device, those that steps need first before the others."""

    def __init__(self, plan: ShotPlan, device: torch.device, first: int, group_rays: GroupRays, decode: Decode) -> None:
        self.device, self._plan, self._side, self._group_rays = device, plan, SideStream(device), group_rays
        self._decode = decode
        self._frames: Begun[Frame, Any] = Begun(self._load, frames_from(plan, first))

    def image(self, index: int) -> ImageShot:
        image: ImageShot = self._frames.of(("image", index))
        return image

    def sweep(self, index: int) -> KeptSweep:
        sweep: KeptSweep = self._frames.of(("sweep", index))
        return sweep

    def close(self) -> None:
        self._frames.close()

    def _load(self, frame: Frame) -> ImageShot | KeptSweep:
        kind, index = frame
        if kind == "image":
            image = self._plan.decoded(index, self._decode(self._plan.capture.images[index]))
            return self._placed(Shots(0, (image,), ())).images[0]
        shot = self._plan.sweep(index)
        some = len(shot.sweep) > self._plan.lidar_rays
        kept = by_sector(shot, self._plan.columns(shot.view.lidar, len(shot.sweep))) if some else KeptSweep(shot, None)
        return replace(kept, shot=self._placed(Shots(0, (), (kept.shot,)), grouped=not some).sweeps[0])

    def _placed(self, shots: Shots, grouped: bool = False) -> Shots:
        """On the device when it returns, so that any stream may read it; the training step's does not wait for it."""
        with self._side.inside():
            placed = shots.copied(lambda tensor: tensor.to(self.device))
            if grouped:
                placed = replace(placed, sweeps=tuple(replace(s, view=self._group_rays(s.view)) for s in placed.sweeps))
        self._side.finish()
        return placed


@dataclass(frozen=True)
class KeptPlan(ShotPlan):
    """The same frames and rays, from the store."""

    store: Store
    join: Join  # pieces of each of several tensors

    @property
    def decodes(self) -> bool:
        return False

    def image(self, index: int) -> ImageShot:
        return self.store.image(index)

    def sweep(self, index: int, number: int | None = None) -> SweepShot:
        """Sweep as by `draw_sectors` and `lidar_view`: values of a ray do not depend on the other drawn rays."""
        kept = self.store.sweep(index)
        if number is None or kept.ends is None:
            return kept.shot
        lidar, rays = kept.shot.view.lidar, kept.ends[-1]
        columns = self.columns(lidar, rays)
        drawn = drawn_sectors(rays, lidar, self.lidar_rays, self.draw(number), columns)
        return stretches_of(kept.shot, kept.stretches(drawn), self.join)


def by_sector(
    shot: SweepShot,
    columns: int,  # of a sector
) -> KeptSweep:
    lidar = shot.view.lidar
    sectors = sectors_of(shot.sweep, lidar, columns)
    counts = torch.bincount(sectors, minlength=count_sectors(lidar, columns))
    order = sectors.argsort(stable=True)
    rays = shot.sweep.select(order)
    view = replace(shot.view, directions=rays.directions, fractions=shot.view.fractions[order])
    return KeptSweep(replace(shot, sweep=rays, view=view), (0, *counts.cumsum(0).tolist()))


def stretches_of(shot: SweepShot, stretches: Sequence[slice], join: Join) -> SweepShot:
    """Their rays alone; of one stretch nothing is copied."""
    names = [f.name for f in fields(Sweep)]
    values = [*(getattr(shot.sweep, name) for name in names), shot.view.fractions]
    pieces = [[t[stretch] for stretch in stretches] for t in values]
    *found, fractions = [piece for (piece,) in pieces] if len(stretches) == 1 else join(pieces)
    rays = Sweep(**dict(zip(names, found, strict=True)))
    return replace(shot, sweep=rays, view=replace(shot.view, directions=rays.directions, fractions=fractions))


def one_by_one(pieces: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    return [torch.cat(list(of_one)) for of_one in pieces]


def at_once(pieces: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """The same in one launch; `nurec_lite.native.ops.load` comes before."""
    lengths = [len(t) for t in pieces[0]]
    joined = [of_one[0].new_empty(sum(lengths), *of_one[0].shape[1:]) for of_one in pieces]
    multi_tensor_copy(
        pair for t, of_one in zip(joined, pieces, strict=True) for pair in zip(t.split(lengths), of_one, strict=True)
    )
    return joined


def frames_from(plan: ShotPlan, first: int) -> list[Frame]:
    """All that steps from the first on need, in their order."""
    found: dict[Frame, None] = {}
    most = max(len(plan.split.train_images), len(plan.split.train_sweeps) * plan.sweeps_every)
    for step in range(first, first + 2 * most):  # an epoch may be half over
        images, sweeps = plan.chosen(step)
        found |= dict.fromkeys([*(("image", i) for i in images), *(("sweep", i) for i in sweeps)])
    return list(found)


def size_of(plan: ShotPlan) -> int:
    """Bytes that the training frames take on the device, about: sweeps as their lidars state them."""
    capture, split = plan.capture, plan.split
    cameras = [capture.camera(capture.images[i].sensor) for i in split.train_images]
    lidars = [capture.lidar(capture.sweeps[i].sensor) for i in split.train_sweeps if plan.lidar_rays]
    rays = sum(len(lidar.elevations) * lidar.azimuth_steps for lidar in lidars)
    return sum(3 * c.width * c.height for c in cameras) + (RAY_BYTES + GROUP_BYTES) * rays


class Resident:
    """Wraps `fetch`, and gives what is within a plan that decodes nothing, if the capture fits."""

    def __init__(self, share: float, jpeg: str) -> None:
        self.share, self.jpeg = share, jpeg
        self.store: Store | None = None
        self._plans: tuple[ShotPlan, ShotPlan] | None = None  # the plan of the run, and the one that feeds it
        self._inner: Fetch | None = None

    def around(self, inner: Fetch) -> "Resident":
        self._inner = inner
        return self

    def __call__(self, stages: Stages, state: TrainState) -> Shots:
        assert self._inner is not None
        if self._plans is None or self._plans[0] is not state.plan:
            self.close()
            self._plans = state.plan, self._plan(stages, state)
        return self._inner(stages, replace(state, plan=self._plans[1]))

    def _plan(self, stages: Stages, state: TrainState) -> ShotPlan:
        plan, size, free = state.plan, size_of(state.plan), free_memory(state.device)
        said = f"the training frames take about {size / 1e9:.2f} GB, of {free / 1e9:.2f} GB free on {state.device}"
        if size > self.share * free:
            log.warning(
                "resident is off: %s, but it may take a share of %g; raise opt.resident.share, or reduce images "
                "by data.downscale", said, self.share,
            )  # fmt: skip
            return plan
        log.info("resident: %s", said)
        decode = GpuJpeg(state.device, libraries()[0]) if self.jpeg == "gpu" else by_host
        self.store = Store(plan, state.device, state.step, stages.feed.group_rays, decode)
        join = one_by_one if stages.plan is None else at_once
        return KeptPlan(**{f.name: getattr(plan, f.name) for f in fields(ShotPlan)}, store=self.store, join=join)

    def close(self) -> None:
        """Ends the threads and gives the memory back."""
        store, self.store, self._plans = self.store, None, None
        if store is not None:
            store.close()


def by_host(frame: ImageFrame) -> Tensor:  # [H, W, 3] uint8
    return frame.load()


def already_there(inner: MoveShots) -> MoveShots:
    """Stands around `place`: what such a plan gives is on the device."""

    def place(stages: Stages, state: TrainState, shots: Shots) -> Shots:
        return inner(stages, state, shots) if state.plan.decodes else shots

    return place


def apply(stages: Stages, *, share: float, jpeg: str) -> Stages:
    """`share`: of the memory that is free at the first step; `jpeg`: decoder of files of that kind, host or gpu."""
    if not 0 < share <= 1:
        raise OptionError(f"option 'resident': share is {share}, but must be more than 0 and at most 1")
    flaw = flaw_of(jpeg, stages.device)
    if flaw is not None:
        raise OptionError(f"option 'resident': jpeg is {jpeg}, but {flaw}")
    return stages.wrap(fetch=Resident(share, jpeg).around, place=already_there)


def flaw_of(jpeg: str, device: str) -> str | None:
    """Why these files cannot be decoded there, or None."""
    if jpeg not in JPEG:
        return f"must be one of {', '.join(JPEG)}"
    if jpeg == "host":
        return None
    if device != "cuda":
        return "this is no run on a GPU; use device=cuda, or opt.resident.jpeg=host"
    missing = (
        "neither nvImageCodec nor torchvision can be imported; pip install torchvision, or use opt.resident.jpeg=host"
    )
    return None if libraries() else missing
