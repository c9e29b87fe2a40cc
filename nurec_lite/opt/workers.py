# SPDX-License-Identifier: Apache-2.0
"""workers: images and sweeps are decoded in loader processes, ahead of the step that needs them.

Idea: decoding a PNG and a sweep takes tens of milliseconds on one core and nothing of the GPU, so other processes do it while the
step runs; the step then only takes a batch out of shared memory, where its tensors are one.
Source: PyTorch's DataLoader with workers, as in the PyTorch guide of the NuRec Nsight story.
Gain: the time of `next_batch` as long as idle cores exist and nothing hides it: on an H200 with KITTI drive 0009 and 1 M Gaussians the GPU
is busy for 73.2 % of a step instead of 56.8 % (nsys). More in the README's table of options and in docs/story-1-timeline.md.
Limits: every process holds its own decoder state and one batch per prefetch slot; where the step itself keeps all cores busy (a CPU
run on two cores) there is little to gain. Class exact: batches depend on (seed, step) alone, so results are bitwise the same.
"""

import signal
from collections.abc import Iterator

from torch.utils.data import DataLoader, Dataset

from nurec_lite.base.errors import OptionError, UserError
from nurec_lite.training.parcel import Parcel
from nurec_lite.training.shots import ShotPlan, Shots
from nurec_lite.training.stages import Stages

CLASS = "exact"
REQUIRES: tuple[str, ...] = ()


def unavailable(stages: Stages) -> str | None:
    return None


class _Steps(Dataset[Parcel | UserError]):
    """Batches by step, from the first one on. What a user can mend is handed over as it is: the loader would put a traceback into it."""

    def __init__(self, plan: ShotPlan, first: int) -> None:
        self.plan, self.first = plan, first

    def __getitem__(self, n: int) -> Parcel | UserError:
        try:
            return self.plan.load(self.first + n).light()
        except UserError as error:
            return error

    def __len__(self) -> int:
        return 1 << 40


def _leave_interrupts_to_the_parent(worker: int) -> None:
    """Ctrl-C reaches the whole group of processes; the parent finishes its step and then ends the workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _begun(loader: DataLoader[Parcel | UserError]) -> Iterator[Parcel | UserError]:
    """Starts the processes. The loader would have Python raise an error in the middle of a step when one of them dies; it also tells who
    asks for a batch, within seconds."""
    before = signal.getsignal(signal.SIGCHLD)
    batches = iter(loader)
    if before is not None and signal.getsignal(signal.SIGCHLD) is not before:  # in the main thread
        signal.signal(signal.SIGCHLD, before)
    return batches


class LoaderProcesses:
    """Stands in for `next_batch` of the baseline: starts the processes at the first call and hands out their shots in order."""

    def __init__(self, count: int, ahead: int) -> None:
        self.count, self.ahead = count, ahead
        self.batches: Iterator[Parcel | UserError] | None = None
        self.plan: ShotPlan | None = None
        self.next_step = -1

    def __call__(self, plan: ShotPlan, step: int) -> Shots:
        if not plan.decodes:
            return plan.load(step)
        if self.batches is None or plan is not self.plan or step != self.next_step:
            self.close()
            self.batches, self.plan = _begun(self._loader(plan, step)), plan
        self.next_step = step + 1
        return Shots.of(self._taken(self.batches), plan.capture)

    def _taken(self, batches: Iterator[Parcel | UserError]) -> Parcel:
        try:
            found = next(batches)
        except RuntimeError as error:
            if not str(error).startswith("DataLoader worker"):
                raise
            self.close()
            raise OptionError(
                f"option 'workers': a loader process has ended ({str(error).strip().rstrip('.')}); memory may have run out: use "
                "fewer of them (opt.workers.count), or go on without, from the last checkpoint"
            ) from error
        if isinstance(found, UserError):
            raise found
        return found

    def _loader(self, plan: ShotPlan, step: int) -> DataLoader[Parcel | UserError]:
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
