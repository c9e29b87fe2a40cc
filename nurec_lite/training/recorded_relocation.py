# SPDX-License-Identifier: Apache-2.0
"""Relocations that are recorded: hundreds of small kernels, which only read the store, as one launch."""

import logging
from collections.abc import Callable

import torch
from torch import Tensor

from nurec_lite.base.graphs import Recorder, Recording
from nurec_lite.base.recordable import Looks, looked_at
from nurec_lite.scene.gaussians import Gaussians
from nurec_lite.training.density import Order, Relocation

Relocate = Callable[..., Relocation | None]
Given = dict[str, Tensor]  # weights and lost, where they are given
RELOCATION = "relocation"  # the one kind of work that is looked at here
log = logging.getLogger("nurec_lite")


class RecordedRelocation:
    """Stands around `relocate`. While a store stays where it is and keeps its number, the first runs as it is and is looked at, or two are
    (Looks). The next is recorded, and it and all that follow are launched. What they leave holds until the next is launched. The recorder
    is their own: work of one that a step is recorded with as well would be launched between that and the copy of its report, and write
    where this lies."""

    def __init__(
        self,
        inner: Relocate,
        wanted: Callable[[], bool],  # whether work is recorded, and not too early or no longer
    ) -> None:
        self._inner, self._wanted = inner, wanted
        self.launched = 0
        self._recorder: Recorder | None = None
        self._off = False  # something cannot be recorded
        self._looks = Looks()  # at those of the store
        self._store: tuple[object, ...] = ()  # what the recording reads, and what it has of the host
        self._given: Given = {}  # where the recording reads these
        self._recording: Recording[Relocation | None] | None = None

    def __call__(
        self,
        g: Gaussians,
        n_new: int,
        generator: torch.Generator,
        weights: Tensor | None,
        jitter: float,
        lost: Tensor | None,
        order: Order | None,
    ) -> Relocation | None:
        given = {name: value for name, value in (("weights", weights), ("lost", lost)) if value is not None}

        def work(given: Given) -> Relocation | None:
            return self._inner(g, n_new, generator, given.get("weights"), jitter, given.get("lost"), order)

        if n_new:
            self._forget()  # the store will be another
        if n_new or self._off or not self._wanted():
            return work(given)
        self._follow((*(getattr(g, name) for name in Gaussians.trained()), g.node, order, jitter, *given))
        if not self._looks.clean(RELOCATION):
            return self._looked_at(work, given, g.means.device)
        for name, value in given.items():
            self._given[name].copy_(value)
        if self._recording is None and not self._record(work, generator):
            return work(given)
        assert self._recording is not None
        self.launched += 1
        return self._recording.launch()

    def close(self) -> None:
        """Gives the recording's memory back."""
        self._forget()
        self._recorder = None

    def _forget(self) -> None:
        self._store, self._given, self._recording, self._looks = (), {}, None, Looks()

    def _follow(self, store: tuple[object, ...]) -> None:
        """Of a store that is not the last one nothing is known."""
        known = len(store) == len(self._store) and all(
            a is b or (not isinstance(a, Tensor) and a == b) for a, b in zip(store, self._store, strict=True)
        )
        if not known:
            self._forget()
            self._store = store

    def _looked_at(
        self, work: Callable[[Given], Relocation | None], given: Given, device: torch.device
    ) -> Relocation | None:
        with looked_at(device) as unsafe:
            moved = work(given)
        why = self._looks.judge(RELOCATION, unsafe)
        if why is not None:
            self._stand_aside(why)
        self._given = {name: torch.empty_like(value) for name, value in given.items()}
        return moved

    def _record(self, work: Callable[[Given], Relocation | None], generator: torch.Generator) -> bool:
        """Whether it could be done. Nothing is computed yet."""
        try:
            self._recorder = self._recorder or Recorder(generator.device)
            self._recording = self._recorder.record(lambda: work(self._given), (generator,))
        except RuntimeError as error:
            self._stand_aside(str(error).splitlines()[0])
        return self._recording is not None

    def _stand_aside(self, why: str) -> None:
        self._off = True
        log.warning("relocations run without a graph, since they cannot be recorded: %s", why)
