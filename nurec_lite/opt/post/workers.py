# SPDX-License-Identifier: Apache-2.0
"""workers: images and sweeps are decoded in loader processes, ahead of the step that needs them.

Idea: decoding a PNG and a sweep takes tens of milliseconds on one core and nothing of the GPU, so other processes do it while the
step runs; a thread receives their results, and the step only unpickles them.
Source: PyTorch's DataLoader with workers, as in the PyTorch guide of the NuRec Nsight story; the processes are our own
(nurec_lite/base/processes.py), since a run has to outlive them.
Gain, code before and after, limits: docs/options/workers.md.
One process is not enough with all other options: a frame of 1920x1080 with 230 000 rays takes it 65 ms, a step 7 (H200). Limits: every
process holds its own decoder state and one batch per prefetch slot; where the step itself keeps all cores busy (a CPU run on two cores)
there is little to gain. Class exact: batches depend on (seed, step) alone, so results are bitwise the same.
"""

from dataclasses import dataclass

from nurec_lite.base.processes import Ahead
from nurec_lite.base.threads import cores
from nurec_lite.training.shots import ShotPlan, Shots
from nurec_lite.training.stages import Stages

CLASS = "exact"
REQUIRES: tuple[str, ...] = ()
MAX_PROCESSES = 12


def unavailable(stages: Stages) -> str | None:
    return None


@dataclass(frozen=True)
class _Decode:
    """The work of the processes."""

    plan: ShotPlan

    def __call__(self, step: int) -> Shots:
        return self.plan.load(step).to_numpy()


class LoaderProcesses:
    """Replaces `next_batch` of the baseline: starts the processes at the first call and hands out their shots in order."""

    def __init__(self, count: int, ahead: int) -> None:
        self.count, self.ahead = count, ahead
        self.batches: Ahead | None = None
        self.plan: ShotPlan | None = None
        self.next_step = -1

    def __call__(self, plan: ShotPlan, step: int) -> Shots:
        if not plan.decodes:
            return plan.load(step)
        if self.batches is None or plan is not self.plan or step != self.next_step:
            self.close()
            self.batches, self.plan = Ahead(_Decode(plan), step, self.count, self.ahead), plan
        self.next_step = step + 1
        shots: Shots = self.batches.result(step)
        return shots.from_numpy(plan.capture)

    def close(self) -> None:
        """Ends the processes."""
        batches, self.batches = self.batches, None
        if batches is not None:
            batches.close()


def apply(stages: Stages, *, count: int, ahead: int) -> Stages:
    """`count` processes, each `ahead` batches ahead; 0: one for each core but two, which the training itself keeps, and 12 at most."""
    return stages.swap("workers", next_batch=LoaderProcesses(count or max(1, min(MAX_PROCESSES, cores() - 2)), ahead))
