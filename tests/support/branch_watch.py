# SPDX-License-Identifier: Apache-2.0
"""Checks that branches of a step keep to the rules of `Streams`: on a CPU, where all is done in one row, every operation on
tensors is checked for the owners of the tensors that it reads. A tensor of another branch that is not among its inputs is a race on a
GPU."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from nurec_lite.base.transfer import tensors_of
from nurec_lite.training.stages import Stages

STEP = "step"  # tensors in no branch


class Watch(TorchDispatchMode):
    """Reads and writes of one step's branches. Autograd orders its own nodes, but not works that begin in a backward pass. Tensors from
    before belong to all."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, None] = {}  # sentences, each once
        self.begun: list[str] = []  # branches, at each of their works
        self._branch = STEP
        self._homes: dict[int, str] = {}  # by memory: the branch that made it
        self._handed_over: dict[str, set[int]] = defaultdict(set)  # memory of others that a branch may read
        self._made: dict[str, set[int]] = defaultdict(set)  # memory by branch, since the last join
        self._kept: list[Any] = []  # so that no memory is used twice

    def around(self, stages: Stages) -> Stages:
        return stages.swap("watch", streams=self)

    @contextmanager
    def fork(self, device: torch.device) -> Iterator[None]:
        yield
        self.join()

    def run(self, branch: str, work: Callable[..., Any], *given: Any) -> Any:
        self._handed_over[branch] |= memory_of(given)
        self._branch, before = branch, self._branch
        self.begun.append(branch)
        try:
            made = work(*given)
        finally:
            self._branch = before
        self._made[branch] |= memory_of(made)
        return made

    def join(self, *branches: str) -> None:
        for branch in branches or tuple(self._made):
            self._handed_over[STEP] |= self._made[branch]

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if self._branch == STEP and torch._C._current_autograd_node() is not None:
            return out
        read = memory_of((args, kwargs))
        for place in read:
            home = self._homes.get(place, self._branch)
            if home != self._branch and place not in self._handed_over[self._branch]:
                self.found.setdefault(f"{func}: {self._branch} reads what {home} made")
        for place in memory_of(out) - read:
            self._homes.setdefault(place, self._branch)
        self._kept.append(out)
        return out


def memory_of(value: Any) -> set[int]:
    return {tensor.untyped_storage().data_ptr() for tensor in tensors_of(value)} - {0}
