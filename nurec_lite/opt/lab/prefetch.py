# SPDX-License-Identifier: Apache-2.0
"""prefetch: while a step runs, a thread takes the next one's shots and starts their copies on a stream of their own.

Idea: `next_batch` and `place` of the next step need nothing of this one. The thread decodes, or takes from the loader processes
of `workers`; the GPU's copy engine works during its kernels. A step's stream waits for the event after its shots, mostly long past.
Source: the prefetchers of NVIDIA's reference trainers (apex's ImageNet example), and the thread of PyTorch's DataLoader that pins memory.
Gain, code before and after, limits: docs/options/prefetch.md.
Limits: on a GPU alone, and one step ahead. Memory that the side stream's copies fill is used on the step's: each tensor is recorded there
(Tensor.record_stream), so the allocator gives it back to the side stream only after the queued work of the step. Without page-locked
memory (pinned or no_sync) the thread, not the step, waits for the copies. Python runs one thread at a time, so the step loses the time that
the thread spends in Python itself. Class exact: shots depend on (seed, step) alone.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from nurec_lite.base.ranges import STEP, span
from nurec_lite.base.transfer import SideStream
from nurec_lite.training.shots import ShotPlan, Shots
from nurec_lite.training.stages import Fetch, Stages
from nurec_lite.training.state import TrainState

CLASS = "exact"
REQUIRES: tuple[str, ...] = ()
Fetched = tuple[Shots, torch.cuda.Event | None]  # the event is passed when they are there


class Coming(NamedTuple):
    """Shots that the thread is fetching."""

    plan: ShotPlan
    step: int
    fetched: Future[Fetched]


def unavailable(stages: Stages) -> str | None:
    return None if stages.device == "cuda" else "it is about copies to a GPU; use device=cuda"


class Prefetch:
    """Wraps `fetch`. Only one thread at a time is within: the step's own where nothing was fetched ahead, such as at the first
    step, when loader processes start."""

    def __init__(self) -> None:
        self._inner: Fetch | None = None
        self._side: SideStream | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._coming: Coming | None = None

    def around(self, inner: Fetch) -> "Prefetch":
        self._inner = inner
        return self

    def __call__(self, stages: Stages, state: TrainState) -> Shots:
        assert self._inner is not None
        if not state.plan.decodes:
            return self._inner(stages, state)
        fetched = self._taken(state)
        shots = self._inner(stages, state) if fetched is None else self._handed_over(*fetched)
        self._start(stages, replace(state, step=state.step + 1))
        return shots

    def _taken(self, state: TrainState) -> Fetched | None:
        """The batch that the thread has fetched, if this step needs it."""
        coming, self._coming = self._coming, None
        if coming is None:
            return None
        if coming.plan is state.plan and coming.step == state.step:
            with span("next_batch"):
                return coming.fetched.result()
        coming.fetched.exception()  # waits; the result is not needed
        return None

    def _handed_over(self, shots: Shots, made: torch.cuda.Event | None) -> Shots:
        assert self._side is not None
        tensors: list[Tensor] = []
        shots.copied(lambda tensor: tensors.append(tensor) or tensor)  # type: ignore[func-returns-value]
        self._side.hand_over(tensors, made)
        return shots

    def _start(self, stages: Stages, following: TrainState) -> None:
        if self._thread is None or self._side is None:
            self._thread, self._side = ThreadPoolExecutor(1, "prefetch"), SideStream(following.device)
        fetched = self._thread.submit(self._fetch, self._side, stages, following)
        self._coming = Coming(following.plan, following.step, fetched)

    def _fetch(self, side: SideStream, stages: Stages, state: TrainState) -> Fetched:
        assert self._inner is not None
        with side.inside(), span("prefetch", within=STEP):
            shots = self._inner(stages, state)
            return shots, side.mark()

    def close(self) -> None:
        """Ends the thread, and the frames that it is fetching."""
        thread, self._thread, self._coming = self._thread, None, None
        if thread is not None:
            thread.shutdown(cancel_futures=True)


def apply(stages: Stages) -> Stages:
    return stages.wrap(fetch=Prefetch().around)
