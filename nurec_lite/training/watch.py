# SPDX-License-Identifier: Apache-2.0
"""Checks that parameters and Adam's moments are still numbers, and Gaussians still near the capture, without a wait for the GPU.

A Gaussian with a mean that is not finite meets no ray, so no loss shows it. The largest magnitudes show it: NaN and infinity are larger
than anything.
"""

import math
from collections import deque
from dataclasses import dataclass, field

import torch
from torch import Tensor

from nurec_lite.base.transfer import HostFuture
from nurec_lite.training.schema import FINITE, largest_value

EVERY = 16  # steps between two looks: one reads every parameter once, 1 ms of a CPU for 34 000 Gaussians, with steps of 99 ms
MOMENT = " (Adam)"  # after the name of a parameter: its second moment


@dataclass(frozen=True)
class Extremes:
    """Largest magnitude of each parameter, and of the second moment of its gradient, after a step."""

    step: int
    values: dict[str, float]  # by names such as `means` and `means (Adam)`

    def wrong(
        self,
        edge: float,  # metres, of the scene
    ) -> str | None:
        """Describes values that are not finite, or larger than a checkpoint may hold; None if there are none."""
        limits = {name: _limit(name, edge) for name in self.values}
        wrong = [_words(name, value) for name, value in self.values.items() if not value <= limits[name]]
        return ", ".join(wrong) or None


@dataclass
class Watch:
    """Reads figures now and then; they arrive some steps later."""

    edge: float = math.inf  # metres: a Gaussian with a coordinate beyond it has left the scene
    _coming: deque[tuple[int, tuple[str, ...], HostFuture]] = field(default_factory=deque)

    def look(self, step: int, optimizer: torch.optim.Adam) -> None:
        """Starts a reading now and then; called after every step."""
        if step % EVERY == 0:
            self._send(step, optimizer)

    def trouble(self) -> tuple[int, str] | None:
        """Returns the first step known to be wrong and the fault in words, from the readings that have arrived."""
        while self._coming and self._coming[0][2].done():
            if (found := self._judged(self._received())) is not None:
                return found
        return None

    def trouble_now(self, step: int, optimizer: torch.optim.Adam) -> tuple[int, str] | None:
        """Returns the trouble of the present state; waits for the device."""
        self._send(step, optimizer)
        while self._coming:
            if (found := self._judged(self._received())) is not None:
                return found
        return None

    def forget(self) -> None:
        """Drops the readings so far."""
        self._coming.clear()

    def _send(self, step: int, optimizer: torch.optim.Adam) -> None:
        tensors = {name: tensor for name, tensor in _tensors(optimizer).items() if tensor.numel()}
        self._coming.append((step, tuple(tensors), HostFuture(_largest(list(tensors.values())))))

    def _received(self) -> Extremes:
        step, names, arrival = self._coming.popleft()
        return Extremes(step, dict(zip(names, arrival.result(), strict=True)))

    def _judged(self, seen: Extremes) -> tuple[int, str] | None:
        wrong = seen.wrong(self.edge)
        return None if wrong is None else (seen.step, wrong)


def _words(name: str, value: float) -> str:
    flown = name == "means" and math.isfinite(value)
    return f"Gaussians fly {value:.0f} m away" if flown else f"{name} is {value:.6g}"


def _limit(
    name: str,  # of a value of Extremes
    edge: float,
) -> float:
    if name == "means":
        return min(edge, FINITE)
    return FINITE if name.endswith(MOMENT) else largest_value(name)


def _largest(tensors: list[Tensor]) -> Tensor:  # [tensors]
    """Largest magnitudes; NaN where there is one."""
    if tensors[0].is_cuda:  # one kernel for all; on a CPU it takes five times as long
        return torch.stack(torch._foreach_norm(tensors, ord=math.inf))
    return torch.stack([torch.maximum(found.max, -found.min) for found in (t.aminmax() for t in tensors)])


def _tensors(optimizer: torch.optim.Adam) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for group in optimizer.param_groups:
        (parameter,) = group["params"]
        found[group["name"]] = parameter.detach()
        if "exp_avg_sq" in optimizer.state.get(parameter, {}):
            found[f"{group['name']}{MOMENT}"] = optimizer.state[parameter]["exp_avg_sq"]
    return found
