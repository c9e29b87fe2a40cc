# SPDX-License-Identifier: Apache-2.0
"""no_sync: the host never waits for the GPU inside a step, so that it can queue work ahead.

Idea: the baseline reads back how many Gaussians a view sees and how long its lists are, copies batches, poses and times from pageable
memory, and lets relocation count the dead. Here lists get the capacity that their sensor needed lately, rows without bounds follow those of
the visible Gaussians, copies go through page-locked memory, and relocation works with masks. A list that overflows sets a flag on
the device: the optimizer and the noise of that step and of all after it then change nothing. The host reads
the flag and the numbers of entries when they arrive. If a step failed, it restores the state before that step, gives the sensor the
capacity that it needs, and does these steps again.
Source: NVIDIA's Nsight post on Omniverse NuRec, which removed synchronisation points until the CPU queued ahead of the GPU; skipping an
update by `found_inf` is PyTorch's way for gradients that overflow.
Gain, code before and after, limits: docs/options/no_sync.md.
Limits: lists take `slack` times the memory; a relocation keeps the tensors before it until its step is known to be good. The first image
of a camera and the first sweep wait. Outside of training nothing changes. Needs fused_interp, since the baseline's `collect` counts actors.
Class exact: the same numbers, but for relocation, which draws others from the same distribution.
"""

import logging
from collections import deque

import torch
from torch import Tensor

from nurec_lite.base.errors import OptionError
from nurec_lite.base.transfer import HostFuture, upload
from nurec_lite.native.capacity import CapacityTracker, Listed
from nurec_lite.training.density import relocate_masked
from nurec_lite.training.in_flight import InFlightStep, Snapshot
from nurec_lite.training.shots import Shots
from nurec_lite.training.stages import Capacity, Learn, Stages, uncompiled
from nurec_lite.training.state import StepResult, TrainState
from nurec_lite.training.step import try_step

CLASS = "exact"
REQUIRES: tuple[str, ...] = ("fused_interp",)
# the GPU goes on while the host captures a step anew; without graphs its own queue is full earlier
MAX_STEPS_IN_FLIGHT = 24
MAX_STEPS_TOGETHER = (
    8  # of several ranks, which read every report so many steps later: failed steps are done again then
)
log = logging.getLogger("nurec_lite")


def unavailable(stages: Stages) -> str | None:
    return uncompiled(stages)


class NoSync:
    """Wraps `try_step`: a step is in flight until its result is known."""

    def __init__(self, slack: float, alone: bool = True) -> None:
        self.capacities = CapacityTracker(slack)
        # ranks go back together, so none may look at a report earlier than the others
        self._early, self._most = alone, MAX_STEPS_IN_FLIGHT if alone else MAX_STEPS_TOGETHER
        self.redone = 0  # steps
        self._try_step: Learn = try_step  # the baseline's, until `around` sets another
        self._in_flight: deque[InFlightStep] = deque()  # under way, the oldest first
        self._training = False  # within a step: rendering without training has all the capacity that it needs
        self._gaussians = 0  # of the last step

    def capacity(self, view: Listed) -> Capacity:
        return self.capacities.of(view) if self._training else None

    def around(self, inner: Learn) -> Learn:
        self._try_step = inner
        return self._retire_and_start

    def synchronize(self, stages: Stages, state: TrainState) -> None:
        """Waits until all steps have ended well."""
        self._retire(stages, state, wait=True)

    def _retire_and_start(self, stages: Stages, state: TrainState, shots: Shots) -> StepResult:
        self._retire(stages, state, wait=False)
        return self._start(stages, state, shots)

    def _start(self, stages: Stages, state: TrainState, shots: Shots) -> StepResult:
        if state.failed is None:
            state.failed = torch.zeros((), device=state.device)
        self._expect(len(state.scene.gaussians))
        before, self._training = Snapshot.of(state), True
        try:
            result = self._try_step(stages, state, shots)
        finally:
            self._training = False
        self._note(result)
        report = result.report
        assert report is not None
        arrival = HostFuture(report) if isinstance(report, Tensor) else report
        oldest = InFlightStep(state.step, state.progress, shots, before, result.lists, arrival)
        self._in_flight.append(oldest)
        return result

    def _expect(self, gaussians: int) -> None:
        """Enlarges capacities when Gaussians were added."""
        if gaussians > self._gaussians > 0:
            self.capacities.expect(gaussians / self._gaussians)
        self._gaussians = gaussians

    def _note(self, result: StepResult) -> None:
        """Learns the lengths of lists without a capacity, which are known at once."""
        for listed in result.lists:
            if listed.needed is None:
                self.capacities.learn(listed.kind, listed.capacity)

    def _retire(self, stages: Stages, state: TrainState, wait: bool) -> None:
        """Reads the reports of the oldest steps that have ended."""
        while self._in_flight and (
            wait or len(self._in_flight) > self._most or (self._early and self._in_flight[0].report.done())
        ):
            oldest = self._in_flight.popleft()
            *numbers, failed = map(int, oldest.report.result())
            kinds = oldest.kinds()
            needed, of_images = numbers[: len(kinds)], numbers[len(kinds) :]
            for kind, entries in zip(kinds, needed, strict=True):
                self.capacities.learn(kind, entries)
            if failed:
                self._again(stages, state, [oldest, *self._in_flight])
            elif of_images:
                state.plan.partners.learn(state.plan.images_of(oldest.step), of_images)

    def _again(self, stages: Stages, state: TrainState, steps: list[InFlightStep]) -> None:
        """Restores the state before the first of these steps, and runs them all again."""
        log.info("step %d: its lists overflowed; %d steps are repeated", steps[0].step, len(steps))
        now = state.step, state.progress
        steps[0].before.restore(state)
        self._in_flight.clear()
        state.failed = None
        self.redone += len(steps)
        for oldest in steps:
            state.step, state.progress = oldest.step, oldest.progress
            self._start(stages, state, oldest.shots)
        state.step, state.progress = now


def apply(stages: Stages, *, slack: float) -> Stages:
    """`slack`: capacity of a sensor's lists, as a multiple of their recent need."""
    if slack < 1:
        raise OptionError(f"option 'no_sync': slack is {slack}, but must be at least 1")
    own = NoSync(slack, stages.ranks == 1)
    swapped = stages.swap(
        "no_sync", capacity=own.capacity, upload=upload, relocate=relocate_masked, synchronize=own.synchronize
    )
    return swapped.wrap(try_step=own.around)
