# SPDX-License-Identifier: Apache-2.0
"""Branches of a step: work on images and on sweeps, which an option may run concurrently."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol, TypeVar, TypeVarTuple, Unpack

import torch

# branches of a step
IMAGES, SWEEPS, LISTS, FIGURES = "images", "sweeps", "lists", "figures"
EXPOSURES, HARMONICS = "exposures", "harmonics"
T = TypeVar("T")
Inputs = TypeVarTuple("Inputs")


class Streams(Protocol):
    """Runs the work of branches. Work of one branch runs in the order of the calls, after the work of other branches that made its
    inputs. There is no other order between branches, nor between a branch and the step itself."""

    def fork(self, device: torch.device) -> AbstractContextManager[None]:
        """Surrounds all work of a step that has branches; joins them at the end."""

    def run(self, branch: str, work: Callable[[Unpack[Inputs]], T], *inputs: *Inputs) -> T:
        """Returns the result of the work. The inputs are all tensors that it reads and other work made: the order of streams and the
        lifetime of memory follow from them. The step itself may read the result only after `join` or at the end of `fork`."""

    def join(self, *branches: str) -> None:
        """Makes the results of these branches readable for the step; of all branches, if none is named."""


@dataclass(frozen=True)
class InOrder:
    """The streams of the baseline: all work runs at once, in the order of the calls."""

    def fork(self, device: torch.device) -> AbstractContextManager[None]:
        return nullcontext()

    def run(self, branch: str, work: Callable[[Unpack[Inputs]], T], *inputs: *Inputs) -> T:
        return work(*inputs)

    def join(self, *branches: str) -> None:
        """Returns at once: each result was complete when `run` returned."""
