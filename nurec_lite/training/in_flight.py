# SPDX-License-Identifier: Apache-2.0
"""Steps that the host has started and that are not known to have ended well; and the way back to before one of them.

A step that failed has changed nothing on the device, and neither have those after it. What the host has replaced meanwhile, such as
the tensors of a relocation that adds Gaussians, is kept by reference: tensors are only written into by the optimizer, by noise and by
other relocations, all of which leave them alone where a step has failed.
"""

from dataclasses import dataclass, fields
from typing import Any

from torch import Tensor

from nurec_lite.base.transfer import Arrival
from nurec_lite.scene.gaussians import Gaussians
from nurec_lite.training.shots import Shots
from nurec_lite.training.state import Listed, TrainState


@dataclass(frozen=True)
class Moment:
    """Tensors that a step may replace."""

    gaussians: dict[str, Tensor]  # every field
    parameters: list[Tensor]  # one a group of the optimizer
    moments: dict[Tensor, dict[str, Any]]  # of the optimizer
    generator: Tensor  # its state

    @staticmethod
    def of(state: TrainState) -> "Moment":
        """Without copying anything that is on the device."""
        g, optimizer = state.scene.gaussians, state.optimizer
        return Moment(
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
class Flight:
    """One step under way."""

    step: int
    progress: float
    shots: Shots  # on the device
    before: Moment
    lists: tuple[Listed, ...]
    report: Arrival  # that of the step's result

    def kinds(self) -> list[str]:
        """Kinds of the views whose entries the report counts, in its order."""
        return [listed.kind for listed in self.lists if listed.needed is not None]
