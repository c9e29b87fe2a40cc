# SPDX-License-Identifier: Apache-2.0
"""no_sync: the host never waits for the GPU inside a step, so that it can queue work ahead.

Idea: the baseline reads back how many Gaussians a view sees and how long its lists are, copies batches, poses and times from pageable
memory, and lets relocation count the dead. Here lists get room from what their view needed before, the hidden Gaussians are sorted
behind the others, copies go through page-locked memory, and relocation works with masks. A list without enough room sets a flag on the
device: the optimizer and the noise of that step and of all after it then change nothing. The flag and the numbers of entries come back
when they come; if a step failed, the host goes back to before it, gives the view the room that it needs, and does these steps again.
Source: NVIDIA's Nsight post on Omniverse NuRec, which removed synchronisation points until the CPU queued ahead of the GPU; skipping an
update by `found_inf` is PyTorch's way for gradients that overflow.
Gain: 25.5 waits a step become 0; a step with workers, fused_interp and collect_once takes 38.5 -> 36.1 ms (H200, KITTI drive 0009, 1 M
Gaussians); on a CPU 6 % longer. More in docs/story-1-timeline.md.
Limits: lists take `slack` times the memory; a relocation keeps the tensors before it until its step is known to be good. The first image
and the first sweep of a run wait. Outside of training nothing changes. Needs fused_interp, since the baseline's `collect` counts actors.
Class exact: the same numbers, but for relocation, which draws others from the same distribution.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from nurec_lite.base.errors import OptionError
from nurec_lite.base.transfer import upload
from nurec_lite.capture.loader import Batch
from nurec_lite.native import stages as native
from nurec_lite.native.plan import RenderPlan
from nurec_lite.native.rooms import Rooms, key_of
from nurec_lite.scene.gaussians import AnyGaussians
from nurec_lite.splat.project import Projection
from nurec_lite.splat.tiles import PairList
from nurec_lite.splat.views import CameraView, LidarView
from nurec_lite.training.baseline import Moved, density, views
from nurec_lite.training.density import relocate_masked
from nurec_lite.training.in_flight import Flight, Moment, report_of
from nurec_lite.training.stages import Stages, uncompiled
from nurec_lite.training.state import StepResult, TrainState

CLASS = "exact"
REQUIRES: tuple[str, ...] = ("fused_interp",)
AHEAD = 16  # steps under way at most; the GPU's own queue is full before
log = logging.getLogger("nurec_lite")
Record = TypeVar("Record")
Step = Callable[[Stages, TrainState, Batch], StepResult]


def unavailable(stages: Stages) -> str | None:
    return uncompiled(stages)


class NoSync:
    """The stages that it swaps, what they share, and what is around the step."""

    def __init__(self, base: Stages, plan: RenderPlan, slack: float) -> None:
        self.rooms = Rooms(slack)
        self.redone = 0  # steps
        self._base, self._plan = base, plan
        self._step: Step = base.step
        self._flights: deque[Flight] = deque()  # under way, the oldest first
        self._failed: Tensor | None = None  # [] not 0 since a list had not enough room
        # views of the present step, with the entries [1] that each needs; None: outside of a step
        self._needed: list[tuple[Any, Tensor]] | None = None

    # ---- stages

    def project(self, gaussians: AnyGaussians, view: CameraView | LidarView) -> Projection:
        if self._needed is None or self.rooms.of(view) is None:
            return self._base.project(gaussians, view)
        return native.project(gaussians, view, room=self.rooms.of(view))

    def tile(self, projection: Projection, view: CameraView | LidarView) -> PairList:
        if self._needed is None:
            return self._base.tile(projection, view)
        room = self.rooms.of(view)
        if room is None:
            pairs = self._base.tile(projection, view)
            self.rooms.learn(key_of(view), len(pairs.gaussians))
            return pairs
        pairs = native.tile(projection, view, room, self._plan)
        needed = pairs.needed
        assert needed is not None
        self._failed = torch.maximum(self._flag(needed.device), (needed[0] > room).float())
        self._needed.append((key_of(view), needed))
        return pairs

    def optimize(self, state: TrainState) -> None:
        state.optimizer.found_inf = self._flag(state.device)  # type: ignore[attr-defined]
        self._base.optimize(state)
        del state.optimizer.found_inf  # type: ignore[attr-defined]

    def density(self, state: TrainState) -> None:
        density(state, relocate_masked, lasting=1 - self._flag(state.device))

    def _flag(self, device: torch.device) -> Tensor:
        return torch.zeros((), device=device) if self._failed is None else self._failed

    # ---- around the step

    def around(self, step: Step) -> Step:
        self._step = step
        return self._land_and_start

    def settle(self, stages: Stages, state: TrainState) -> None:
        """Waits until all steps have ended well."""
        self._land(stages, state, wait=True)

    def _land_and_start(self, stages: Stages, state: TrainState, batch: Batch) -> StepResult:
        self._land(stages, state, wait=False)
        return self._start(stages, state, batch)

    def _start(self, stages: Stages, state: TrainState, batch: Batch) -> StepResult:
        before, self._needed, self._plan = Moment.of(state), [], stages.plan or self._plan
        try:
            result = self._step(stages, state, batch)
        finally:
            rendered, self._needed = self._needed, None
        failed = self._flag(state.device)
        report = report_of([needed for _, needed in rendered], failed)
        keys = tuple(key for key, _ in rendered)
        self._flights.append(Flight(state.step, state.progress, batch, before, keys, report))
        return replace(result, failed=failed)

    def _land(self, stages: Stages, state: TrainState, wait: bool) -> None:
        """Takes in what has come back from the oldest steps."""
        while self._flights and (wait or len(self._flights) > AHEAD or self._flights[0].report.there()):
            flight = self._flights.popleft()
            *needed, failed = map(int, flight.report.numbers())
            for key, entries in zip(flight.views, needed, strict=True):
                self.rooms.learn(key, entries)
            if failed:
                self._again(stages, state, [flight, *self._flights])

    def _again(self, stages: Stages, state: TrainState, flights: list[Flight]) -> None:
        """Goes back to before the first of these, and does them all again."""
        log.info("step %d: its lists had not enough room; %d steps again", flights[0].step, len(flights))
        now = state.step, state.progress
        flights[0].before.restore(state)
        self._flights.clear()
        self._failed = None
        self.redone += len(flights)
        for flight in flights:
            state.step, state.progress = flight.step, flight.progress
            self._start(stages, state, flight.batch)
        state.step, state.progress = now


def to_device(state: TrainState, batch: Batch) -> Moved:
    """Batch and views are made on the host, then copied without waiting; what they share, once."""
    camera, lidar = views(state.plan.capture, batch, "cpu")
    copied: dict[int, Tensor] = {}

    def push(t: Tensor) -> Tensor:
        if id(t) not in copied:
            copied[id(t)] = upload(t, state.device)
        return copied[id(t)]

    batch = replace(_each(batch, push), sweep=None if batch.sweep is None else _each(batch.sweep, push))
    return batch, _each(camera, push), None if lidar is None else _each(lidar, push)


def _each(record: Record, function: Callable[[Tensor], Tensor]) -> Record:
    """A dataclass with a function applied to each of its tensors."""
    tensors = {f.name: getattr(record, f.name) for f in fields(record)}  # type: ignore[arg-type]
    return replace(record, **{k: function(v) for k, v in tensors.items() if isinstance(v, Tensor)})  # type: ignore[type-var]


def apply(stages: Stages, *, slack: float) -> Stages:
    """`slack`: room of a view's lists, as a multiple of what they needed last time."""
    assert stages.plan is not None
    if slack < 1:
        raise OptionError(f"option 'no_sync': slack is {slack}, but must be at least 1")
    own = NoSync(stages, stages.plan, slack)
    swapped = stages.swap(
        "no_sync", project=own.project, tile=own.tile, optimize=own.optimize, density=own.density,
        to_device=to_device, settle=own.settle,
    )  # fmt: skip
    return swapped.wrap(step=own.around)
