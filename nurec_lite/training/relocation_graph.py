# SPDX-License-Identifier: Apache-2.0
"""Relocations that are recorded: hundreds of small kernels, which only read the store and write into it, as one launch."""

import logging
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from nurec_lite.base.capture_safety import CaptureSafety, unsafe_operations
from nurec_lite.base.graphs import CapturedGraph, Recorder
from nurec_lite.training.optim import stored
from nurec_lite.training.stages import Rearrange, Stages
from nurec_lite.training.state import TrainState

RELOCATION = "relocation"  # the one kind of work that is looked at here
log = logging.getLogger("nurec_lite")


class CapturedRelocation:
    """Wraps `rearrange`. While the store keeps its place and its number of Gaussians, the first relocation runs plainly and is inspected,
    or the first two (Looks). The next one is recorded; it and all later ones are launched. Relocations have their own recorder, so that
    they never overwrite memory that a step's recording left."""

    def __init__(
        self,
        inner: Rearrange,
        wanted: Callable[[], bool],  # whether work is recorded, and not too early or no longer
    ) -> None:
        self._inner, self._wanted = inner, wanted
        self.launched = 0
        self._recorder: Recorder | None = None
        self._off = False  # something cannot be recorded
        self._safety = CaptureSafety()  # at those of the store
        self._store: tuple[object, ...] = ()  # tensors that the graph reads, and values of the host in it
        self._failed: Tensor | None = None  # where the recording reads whether the step failed
        self._graph: CapturedGraph[None] | None = None

    def __call__(self, stages: Stages, state: TrainState, n_new: int) -> None:
        known = tuple(stage.graph_key(state.scene) for stage in stages.changes.capturable)
        if n_new:
            self._forget()  # the store will be another
        if n_new or self._off or None in known or not self._wanted():
            return self._inner(stages, state, n_new)
        self._follow((*stored(state.scene, state.optimizer), state.config.density, state.failed is None, *known))
        if not self._safety.is_safe(RELOCATION):
            return self._looked_at(stages, state)
        if self._failed is not None and state.failed is not None:
            self._failed.copy_(state.failed)
        if self._graph is None and not self._record(stages, state):
            return self._inner(stages, state, 0)
        return self._launch(state)

    def close(self) -> None:
        """Gives the recording's memory back."""
        self._forget()
        self._recorder = None

    def _forget(self) -> None:
        self._store, self._failed, self._graph, self._safety = (), None, None, CaptureSafety()

    def _follow(self, store: tuple[object, ...]) -> None:
        """Forgets all recordings where the store is not the last one."""
        known = len(store) == len(self._store) and all(
            a is b or (not isinstance(a, Tensor) and a == b) for a, b in zip(store, self._store, strict=True)
        )
        if not known:
            self._forget()
            self._store = store

    def _looked_at(self, stages: Stages, state: TrainState) -> None:
        with unsafe_operations(state.device) as unsafe:
            self._inner(stages, state, 0)
        why = self._safety.judge((RELOCATION,), unsafe)
        if why is not None:
            self._stand_aside(why)
        self._failed = None if state.failed is None else torch.empty_like(state.failed)

    def _record(self, stages: Stages, state: TrainState) -> bool:
        """Records a graph without computing anything; returns whether it could."""
        inside = replace(state, failed=self._failed)
        try:
            self._recorder = self._recorder or Recorder(state.device)
            self._graph = self._recorder.record(lambda: self._inner(stages, inside, 0), (state.generator,))
        except RuntimeError as error:
            self._stand_aside(str(error).splitlines()[0])
        return self._graph is not None

    def _launch(self, state: TrainState) -> None:
        assert self._graph is not None
        self.launched += 1
        self._graph.launch()
        increment_version(state.scene.gaussians.node)  # caches of the nodes' first rows compare the version

    def _stand_aside(self, why: str) -> None:
        self._off = True
        log.warning("relocations run without a graph, since they cannot be recorded: %s", why)
