# SPDX-License-Identifier: Apache-2.0
"""workers: images and sweeps are decoded in loader processes, ahead of the step that needs them.

Idea: decoding a PNG and a sweep takes tens of milliseconds on one core and nothing of the GPU, so other processes do it while the
step runs; the step then only unpickles a batch from shared memory.
Source: PyTorch's DataLoader with workers, as in the PyTorch guide of the NuRec Nsight story.
Gain: the time of `next_batch` as long as idle cores exist and nothing hides it: on an H200 with KITTI drive 0009 and 1 M Gaussians the GPU
is busy for 73.2 % of a step instead of 56.8 % (nsys). More in the README's table of options and in docs/story-1-timeline.md.
Limits: every process holds its own decoder state and one batch per prefetch slot; where the step itself keeps all cores busy (a CPU
run on two cores) there is little to gain. Class exact: batches depend on (seed, step) alone, so results are bitwise the same.
"""

import signal
from collections.abc import Iterator

from torch.utils.data import DataLoader, Dataset

from nurec_lite.training.shots import ShotPlan, Shots
from nurec_lite.training.stages import Stages

CLASS = "exact"
REQUIRES: tuple[str, ...] = ()


def unavailable(stages: Stages) -> str | None:
    return None


class _Steps(Dataset[Shots]):
    """Batches by step, from the first one on."""

    def __init__(self, plan: ShotPlan, first: int) -> None:
        self.plan, self.first = plan, first

    def __getitem__(self, n: int) -> Shots:
        return self.plan.load(self.first + n).light()

    def __len__(self) -> int:
        return 1 << 40


def _leave_interrupts_to_the_parent(worker: int) -> None:
    """Ctrl-C reaches the whole group of processes; the parent finishes its step and then ends the workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


class LoaderProcesses:
    """Stands in for `next_batch` of the baseline: starts the processes at the first call and hands out their shots in order."""

    def __init__(self, count: int, ahead: int) -> None:
        self.count, self.ahead = count, ahead
        self.batches: Iterator[Shots] | None = None
        self.plan: ShotPlan | None = None
        self.next_step = -1

    def __call__(self, plan: ShotPlan, step: int) -> Shots:
        if self.batches is None or plan is not self.plan or step != self.next_step:
            self.close()
            self.batches, self.plan = iter(self._loader(plan, step)), plan
        self.next_step = step + 1
        return next(self.batches).of(plan.capture)

    def _loader(self, plan: ShotPlan, step: int) -> DataLoader[Shots]:
        return DataLoader(
            _Steps(plan, step), batch_size=None, num_workers=self.count, prefetch_factor=self.ahead,
            worker_init_fn=_leave_interrupts_to_the_parent,
        )  # fmt: skip

    def close(self) -> None:
        """Ends the processes."""
        batches, self.batches = self.batches, None
        shutdown = getattr(batches, "_shutdown_workers", None)
        if shutdown is not None:
            shutdown()


def apply(stages: Stages, *, count: int, ahead: int) -> Stages:
    """`count` processes, each `ahead` batches ahead."""
    return stages.swap("workers", next_batch=LoaderProcesses(count, ahead))
