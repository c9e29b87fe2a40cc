# SPDX-License-Identifier: Apache-2.0
"""resident: the capture is decoded once and stays in the memory of the device, so that a step's feed only looks up its shots.

Idea: images are kept as uint8 with their views, sweeps with all their rays, and in the warp tiles of warp_cull if steps take all of
them. Threads, or processes for many pixels, decode them from the start in the order of the steps, and training begins with the first.
Processes stay AHEAD frames before the first steps: all cores at once slow their recording down (benchmarks/LOG.md). If a
step takes all rays of a sweep, nothing is copied any more; if it draws some, sweeps are stored sector by sector, so that the drawn rays
are a few slices, and one launch joins these.
Source: the first 3D Gaussian splatting trainer (`--data_device cuda`) and nerfstudio (`cache_images gpu`).
Gain, code before and after, limits: docs/options/resident.md.
With jpeg=gpu whole baseline JPEG files of three components are decoded on the device, by nvImageCodec or else torchvision, whichever
can be imported; files that the threads have read by then go there in one call. The host decodes all other images, such as PNG.
Limits: an image of KITTI takes 1.4 MB, a ray 50 bytes. The option may take a share of the memory that is free at the first step. If the
sensors' own figures say that the capture needs more, the device keeps a window: threads decode frames ahead of their steps, and the frame
that is needed last is dropped (nurec_lite/base/window.py). The order of the frames stays that of the seed. The host holds one frame a
thread. If the share does not hold the frames of the steps in flight, the option is off: workers, pinned and prefetch then feed as without
it. Otherwise they have nothing to do, and no loader process is started. Without a window several ranks pair images
(nurec_lite/training/partners.py). Name it after pinned and prefetch; before it, prefetch would fetch frames that are there already. A frame
that cannot be decoded ends the run at the step that needs it. Class exact: shots are bitwise the same. With jpeg=gpu close: decoders
round and interpolate chroma each in its own way, so levels of images differ a little (tests: less than one in the mean), and a run
differs from that of the host's decoder; the library's own memory is not counted in the share.
"""

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from nurec_lite.base.environment import free_memory
from nurec_lite.base.errors import OptionError
from nurec_lite.base.pool import Begun
from nurec_lite.base.shared_results import shared_results
from nurec_lite.base.transfer import SideStream, tensors_of
from nurec_lite.base.window import Budget, Schedule, Window
from nurec_lite.capture.decoders import decode_apart, decoded_sizes, decoders
from nurec_lite.capture.gpu_jpeg import GpuJpeg, libraries
from nurec_lite.capture.types import ImageFrame
from nurec_lite.capture.without import naming
from nurec_lite.geometry.lidar import Sweep
from nurec_lite.native.operators.multi_tensor_copy import multi_tensor_copy
from nurec_lite.opt.post.no_sync import MAX_STEPS_IN_FLIGHT
from nurec_lite.training.resident_frames import (
    Frame,
    KeptSweep,
    capture_bytes,
    device_bytes,
    frame_bytes,
    frames_from,
    frames_of,
    smallest_window,
    sorted_by_sector,
    steps_an_epoch,
)  # fmt: skip
from nurec_lite.training.shots import ImageShot, ShotPlan, Shots, SweepShot, drawn_sectors
from nurec_lite.training.stage_protocols import GroupRays
from nurec_lite.training.stages import Fetch, MoveShots, Stages
from nurec_lite.training.state import TrainState

CLASS = "exact"
REQUIRES: tuple[str, ...] = ()
JPEG = ("host", "gpu")
AHEAD = 256  # frames that processes decode before steps ask for them, until steps have asked for as many
IN_USE = {"cpu": 1, "cuda": MAX_STEPS_IN_FLIGHT + 1}  # further steps that may still read a frame after its own
log = logging.getLogger("nurec_lite")
Decode = Callable[[ImageFrame], Tensor]
Ends = tuple[int, ...] | None  # of the sectors of a sweep
Join = Callable[[Sequence[Sequence[Tensor]]], list[Tensor]]


def unavailable(stages: Stages) -> str | None:
    return None


@dataclass(frozen=True)
class _Decoder:
    """Decodes the frames of a plan, here or in another process."""

    plan: ShotPlan
    decode: Decode

    def __call__(self, frame: Frame) -> tuple[Shots, Ends]:
        """An image, or a sweep and where its sectors end if steps take some of its rays."""
        kind, index = frame
        if kind == "image":
            one = self.plan.capture.images[index]
            with naming(one.sensor, one.index):
                image = self.plan.decoded(index, self.decode(one))
            return Shots(0, (image,), ()), None
        shot = self.plan.sweep(index)
        if len(shot.sweep) <= self.plan.lidar_rays:
            return Shots(0, (), (shot,)), None
        kept = sorted_by_sector(shot, self.plan.columns(shot.view.lidar, len(shot.sweep)))
        return Shots(0, (), (kept.shot,)), kept.ends

    def sent(self, frame: Frame) -> tuple[Shots, Ends]:
        """The same for another process."""
        shots, ends = self(frame)
        return shots.to_numpy(), ends


class Store:
    """The training frames of a plan on a device, those that steps need first before the others."""

    def __init__(
        self,
        plan: ShotPlan,
        device: torch.device,
        group_rays: GroupRays,
        decode: Decode,
        first: int,  # step
        most: int | None,  # bytes of a window; None: all frames fit
    ) -> None:
        self.device, self._plan, self._side, self._group_rays = device, plan, SideStream(device), group_rays
        self._decoder = _Decoder(plan, decode)
        self._arriving: Generator[tuple[Shots, Ends], None, None] = shared_results([], 0, 0)  # from processes
        self.window = None if most is None else self._window(most)
        self._frames: Begun[Frame, Any] | Window[Frame, Any] = self.window or self._begun(frames_from(plan, first))

    def _begun(self, frames: list[Frame]) -> Begun[Frame, Any]:
        """Begins all frames in their order: processes decode where a GPU needs many pixels, else threads."""
        capture, sizes = self._plan.capture, decoded_sizes(self._plan.capture)
        needed = [sizes[(capture.images if kind == "image" else capture.sweeps)[i].sensor] for kind, i in frames]
        if self._decoder.decode is not by_host or not decode_apart(self.device, needed):
            return Begun(self._load, frames)
        jobs = [partial(self._decoder.sent, frame) for frame in frames]
        self._arriving = shared_results(jobs, decoders(), max(needed), for_gpu=True)
        return Begun(self._arrived, frames, self._one_by_one, ahead=AHEAD)

    def _one_by_one(self, function: Callable[[Frame], Any], frames: list[Frame]) -> Iterator[Any]:
        """Results for the frames; then the processes are free for other frames."""
        yield from map(function, frames)
        self._arriving.close()

    def _window(self, most: int) -> Window[Frame, Any]:
        plan = self._plan
        schedule = Schedule(partial(frames_of, plan), 2 * steps_an_epoch(plan))
        budget = Budget(most, partial(frame_bytes, plan), IN_USE[self.device.type])
        return Window(self._load, schedule, budget, device_bytes, lambda kept: self._side.release(tensors_of(kept)))

    def begin(self, step: int) -> None:
        """Makes sure that the frames of a step are on their way."""
        if self.window is not None:
            self.window.at(step)

    def image(self, index: int) -> ImageShot:
        image: ImageShot = self._frames.of(("image", index))
        return image

    def sweep(self, index: int) -> KeptSweep:
        sweep: KeptSweep = self._frames.of(("sweep", index))
        return sweep

    def close(self) -> None:
        self._frames.close()
        self._arriving.close()

    def _load(self, frame: Frame) -> ImageShot | KeptSweep:
        return self._kept(*self._decoder(frame))

    def _arrived(self, _: Frame) -> ImageShot | KeptSweep:
        """Puts the next frame on the device, before its memory is reused."""
        shots, ends = next(self._arriving)
        return self._kept(shots.from_numpy(self._plan.capture), ends)

    def _kept(self, shots: Shots, ends: Ends) -> ImageShot | KeptSweep:
        """Puts decoded shots on the device."""
        placed = self._placed(shots, grouped=ends is None)
        return placed.images[0] if placed.images else KeptSweep(placed.sweeps[0], ends)

    def _placed(self, shots: Shots, grouped: bool = False) -> Shots:
        """Copies shots to the device, done on return: any stream may read them, and the step's stream does not wait. The host waits once
        for all tensors, since each wait lasts until the GPU gets to the copy."""
        with self._side.inside():
            placed = shots.copied(lambda tensor: tensor.to(self.device, copy=True, non_blocking=True))
            if grouped:
                placed = replace(placed, sweeps=tuple(replace(s, view=self._group_rays(s.view)) for s in placed.sweeps))
        self._side.finish()
        return placed


@dataclass(frozen=True)
class KeptPlan(ShotPlan):
    """The plan of the training with its frames and rays from the store."""

    store: Store
    join: Join  # pieces of each of several tensors

    @property
    def decodes(self) -> bool:
        return False

    def load(self, step: int) -> Shots:
        if self.store.window is None:  # nobody looks ahead in the order
            self.partners.plan(step, self.images, self.ranks, self.capture)
        self.store.begin(step)
        return super().load(step)

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
        return shot_of_slices(kept.shot, kept.ray_slices(drawn), self.join)


def shot_of_slices(shot: SweepShot, slices: Sequence[slice], join: Join) -> SweepShot:
    """Returns the shot with the rays of the slices alone; a single slice is not copied."""
    names = [f.name for f in fields(Sweep)]
    values = [*(getattr(shot.sweep, name) for name in names), shot.view.fractions]
    pieces = [[t[piece] for piece in slices] for t in values]
    *found, fractions = [piece for (piece,) in pieces] if len(slices) == 1 else join(pieces)
    rays = Sweep(**dict(zip(names, found, strict=True)))
    return replace(shot, sweep=rays, view=replace(shot.view, directions=rays.directions, fractions=fractions))


def one_by_one(pieces: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    return [torch.cat(list(of_one)) for of_one in pieces]


def at_once(pieces: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """Joins the pieces [n, ...] of each tensor, all in one launch; `nurec_lite.native.ops.load` comes before."""
    lengths = [len(t) for t in pieces[0]]
    joined = [of_one[0].new_empty(sum(lengths), *of_one[0].shape[1:]) for of_one in pieces]
    multi_tensor_copy(
        pair for t, of_one in zip(joined, pieces, strict=True) for pair in zip(t.split(lengths), of_one, strict=True)
    )
    return joined


class Resident:
    """Wraps `fetch`, and gives it a plan that keeps the capture, or a window of it, on the device."""

    def __init__(self, share: float, jpeg: str) -> None:
        self.share, self.jpeg = share, jpeg
        self.store: Store | None = None
        self._plans: tuple[ShotPlan, ShotPlan] | None = None  # the plan of the run, and the one that feeds it
        self._inner: Fetch | None = None

    def around(self, inner: Fetch) -> "Resident":
        self._inner = inner
        return self

    def begin(self, stages: Stages, plan: ShotPlan, device: torch.device, step: int = 0) -> None:
        """Lets the frames come that steps from this one on need."""
        self.close()
        self._plans = plan, self._plan(stages, plan, device, step)

    def __call__(self, stages: Stages, state: TrainState) -> Shots:
        assert self._inner is not None
        if self._plans is None or self._plans[0] is not state.plan:
            self.begin(stages, state.plan, state.device, state.step)
        assert self._plans is not None
        return self._inner(stages, replace(state, plan=self._plans[1]))

    def _plan(self, stages: Stages, plan: ShotPlan, device: torch.device, step: int) -> ShotPlan:
        size, free = capture_bytes(plan), free_memory(device)
        said = f"the training frames take about {size / 1e9:.2f} GB, of {free / 1e9:.2f} GB free on {device}"
        most = int(self.share * free)
        if size > most and smallest_window(plan, IN_USE[device.type]) > most:
            log.warning(
                "resident is off: %s, but it may take a share of %g; raise opt.resident.share, or reduce images "
                "by data.downscale", said, self.share,
            )  # fmt: skip
            return plan
        window = f"; a window of {most / 1e9:.2f} GB holds those that steps need soonest" if size > most else ""
        log.info("resident: %s%s", said, window)
        decode = GpuJpeg(device, libraries()[0]) if self.jpeg == "gpu" else by_host
        self.store = Store(plan, device, stages.feed.group_rays, decode, step, most if size > most else None)
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
    """Wraps `place`: frames of such a plan are on the device."""

    def place(stages: Stages, state: TrainState, shots: Shots) -> Shots:
        return inner(stages, state, shots) if state.plan.decodes else shots

    return place


def apply(stages: Stages, *, share: float, jpeg: str) -> Stages:
    """`share`: largest part of the memory that is free at the first step; `jpeg`: decoder of files of that kind, host or gpu."""
    if not 0 < share <= 1:
        raise OptionError(f"option 'resident': share is {share}, but must be more than 0 and at most 1")
    flaw = flaw_of(jpeg, stages.device)
    if flaw is not None:
        raise OptionError(f"option 'resident': jpeg is {jpeg}, but {flaw}")
    own = Resident(share, jpeg)
    return stages.swap("resident", begin_frames=own.begin).wrap(fetch=own.around, place=already_there)


def flaw_of(jpeg: str, device: str) -> str | None:
    """Returns the reason why JPEG files cannot be decoded there, or None."""
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
