# SPDX-License-Identifier: Apache-2.0
"""Steps in flight: the host has started them and does not know their result yet. A snapshot leads back to the state before a step.

A failed step changes nothing on the device, nor do the steps after it. Tensors that the host replaces meanwhile, such as those of a
relocation that adds Gaussians, are kept by reference: the optimizer, noise and other relocations alone write into them, and these do
nothing after a failed step.
"""

from dataclasses import dataclass, fields
from typing import Any

from torch import Tensor

from nurec_lite.base.transfer import HostFuture
from nurec_lite.scene.gaussians import Gaussians
from nurec_lite.training.shots import Shots
from nurec_lite.training.state import ListUse, TrainState


@dataclass(frozen=True)
class Snapshot:
    """Tensors that a step may replace."""

    gaussians: dict[str, Tensor]  # every field
    parameters: list[Tensor]  # one a group of the optimizer
    moments: dict[Tensor, dict[str, Any]]  # of the optimizer
    generator: Tensor  # its state

    @staticmethod
    def of(state: TrainState) -> "Snapshot":
        """Takes a snapshot without copying anything that is on the device."""
        g, optimizer = state.scene.gaussians, state.optimizer
        return Snapshot(
            {f.name: getattr(g, f.name) for f in fields(Gaussians)},
            [group["params"][0] for group in optimizer.param_groups],
            {parameter: dict(moments) for parameter, moments in optimizer.state.items()},
            state.generator.get_state(),
        )

    def restore(self, state: TrainState) -> None:
        for name, value in self.gaussians.items():
            setattr(state.scene.gaussians, name, value)
        for group, parameter in zip(state.optimizer.param_groups, self.parameters, strict=True):
            group["params"][0] = parameter
        state.optimizer.zero_grad(set_to_none=True)
        state.optimizer.state.clear()
        state.optimizer.state.update({parameter: dict(moments) for parameter, moments in self.moments.items()})
        state.generator.set_state(self.generator)


@dataclass(frozen=True)
class InFlightStep:
    """A step in flight."""

    step: int
    progress: float
    shots: Shots  # on the device
    before: Snapshot
    lists: tuple[ListUse, ...]
    report: HostFuture  # that of the step's result

    def kinds(self) -> list[str]:
        """Returns the kinds of the views in the report, in its order."""
        return [listed.kind for listed in self.lists if listed.needed is not None]
