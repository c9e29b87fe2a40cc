# SPDX-License-Identifier: Apache-2.0
"""Work of the GPU that is recorded once, as a CUDA graph, and then launched as one."""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Generic, TypeVar

import torch

from nurec_lite.base.ranges import switch

T = TypeVar("T")


class Recorder:
    """Records on a device, always into the same memory: recordings are launched one after another, never at the same time."""

    def __init__(self, device: torch.device) -> None:
        # A recording needs a stream of its own. torch has 32 of a priority and gives them out again: one that copies go through, too,
        # would record these.
        self._device, self._stream = device, torch.cuda.Stream(device, priority=-1)
        self._pool: Any = torch.cuda.graph_pool_handle()
        self._holder = self.record(lambda: torch.zeros(1, device=device), ())  # of the memory, between other recordings

    def record(
        self,
        work: Callable[[], T],  # queues it; nothing of it is done yet
        generators: Sequence[torch.Generator],  # of the device, for random numbers; they advance at every launch
    ) -> "CapturedGraph[T]":
        """The tensors that the work reads must stay where they are for as long as the recording is launched. RuntimeError where work
        waits for the device or cannot be recorded for another reason."""
        graph, before = torch.cuda.CUDAGraph(), [generator.clone_state() for generator in generators]
        for generator in generators:
            graph.register_generator_state(generator)
        try:
            return CapturedGraph(graph, self._recorded(graph, work))
        except RuntimeError:
            for generator, state in zip(generators, before, strict=True):
                generator.graphsafe_set_state(state)  # it would take itself for one that is being recorded
            raise

    def _recorded(self, graph: torch.cuda.CUDAGraph, work: Callable[[], T]) -> T:
        with _undisturbed(), self._in_turn(), torch.cuda.stream(self._stream):
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                made = work()
            except BaseException:
                with suppress(RuntimeError):  # which would only say that there was an error before
                    graph.capture_end()
                raise
            graph.capture_end()
            return made

    @contextmanager
    def _in_turn(self) -> Iterator[None]:
        """Block on the recorder's stream, ordered with the present stream: at the begin of a recording torch writes the generators' seeds
        and offsets into memory that queued work of the present stream may use, and each launch writes there anew."""
        present = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(present)
        try:
            yield
        finally:
            present.wait_stream(self._stream)


class CapturedGraph(Generic[T]):
    """A recording, and its result."""

    def __init__(self, graph: Any, made: T) -> None:
        self._graph, self._made = graph, made

    def launch(self) -> T:
        """The result of the recorded work; its tensors hold the figures of the last launch."""
        self._graph.replay()
        return self._made


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Block without the garbage collector, which may free graphs, and without ranges: their events would become part of the recording."""
    collects = gc.isenabled()
    gc.disable()
    try:
        with switch():
            yield
    finally:
        if collects:
            gc.enable()
