# SPDX-License-Identifier: Apache-2.0
"""Time that each of several ranks takes until the first message of a step: the slowest keeps the others waiting.

The device measures it, since the host is ahead and steps are recorded. The time is the last number of the message with the factors of
harmonics, so that every rank knows those of all, and reports of steps have them. A budget of steps needs no times: its order of images is
that of the seed. Steps with sweeps take longer, and say little about their images.
"""

from dataclasses import replace

import torch
from torch import Tensor

from nurec_lite.native.operators.clock import begin_clock, end_clock
from nurec_lite.training.shots import Shots
from nurec_lite.training.stages import Learn, Stages
from nurec_lite.training.state import StepResult, TrainState


class StepClock:
    """Wraps `learn`: reports have the times of all ranks. All else does nothing in a step that is not measured."""

    def __init__(self) -> None:
        self._begun: Tensor | None = None  # [1] int64 nanoseconds
        self._times: Tensor | None = None  # [R] int64 microseconds

    def around(self, inner: Learn) -> Learn:
        def learn(stages: Stages, state: TrainState, shots: Shots) -> StepResult:
            if not is_measured(stages, state, shots):
                return inner(stages, state, shots)
            self._begun = torch.empty(1, dtype=torch.int64, device=state.device)
            try:
                self.begin()
                return with_times(inner(stages, state, shots), self._times)
            finally:
                self._begun = self._times = None

        return learn

    def begin(self) -> None:
        """Begins to count, also anew once this rank has waited for others."""
        if self._begun is not None:
            begin_clock(self._begun)

    def end(
        self,
        message: Tensor,  # contiguous, with a free number at its end
    ) -> None:
        """Writes the time of this rank into its message."""
        if self._begun is not None:
            end_clock(self._begun, message.view(-1)[-1:])

    def read(
        self,
        messages: Tensor,  # [R, ...] of all ranks
    ) -> None:
        """Takes the times out of the messages."""
        if self._begun is not None:
            self._times = messages.flatten(1)[:, -1].long()


def is_measured(stages: Stages, state: TrainState, shots: Shots) -> bool:
    """Whether a step on a GPU may send a message with its time, and somebody needs it."""
    sends = stages.device == "cuda" and stages.plan is not None and stages.plan.rank1_sh is not None
    return sends and state.config.train.steps is None and not shots.sweeps


def with_times(result: StepResult, times: Tensor | None) -> StepResult:
    """The result with the times in its report, if there are both."""
    if times is None or result.report is None:
        return result
    assert isinstance(result.report, Tensor)
    needed, failed = result.report.split([len(result.report) - 1, 1])
    return replace(result, report=torch.cat([needed, times, failed]))
