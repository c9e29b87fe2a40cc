# SPDX-License-Identifier: Apache-2.0
"""Whether parameters and Adam's moments are still numbers, and Gaussians still where the capture is; asked without a wait for the GPU.

A Gaussian whose mean is not finite meets no ray, so that no loss tells of it. The largest magnitudes tell: NaN and infinity are larger
than anything.
"""

import math
from collections import deque
from dataclasses import dataclass, field

import torch
from torch import Tensor

from nurec_lite.base.transfer import Arrival

EVERY = 16  # steps between two looks: one reads every parameter once, 1 ms of a CPU for 34 000 Gaussians whose step takes 99 ms
FAR = (10.0, 1000.0)  # factor and metres: means beyond those of the first look have left the capture


@dataclass(frozen=True)
class Extremes:
    """Largest magnitude of each parameter, and of the second moment of its gradient, after a step."""

    step: int
    values: dict[str, float]  # by names such as `means` and `means (Adam)`

    def broken(self) -> str | None:
        """What is not finite, in words."""
        wrong = [f"{name} is {value}" for name, value in self.values.items() if not math.isfinite(value)]
        return ", ".join(wrong) or None


@dataclass
class Watch:
    """Looks now and then; what it saw comes back some steps later."""

    reach: float | None = None  # metres: largest coordinate of a mean at the first look
    _coming: deque[tuple[int, tuple[str, ...], Arrival]] = field(default_factory=deque)

    def look(self, step: int, optimizer: torch.optim.Adam) -> None:
        """Before the first step, and after every one."""
        if step % EVERY == 0 or (self.reach is None and not self._coming):
            self._send(step, optimizer)

    def trouble(self) -> tuple[int, str] | None:
        """The first step known to be wrong, and what is wrong in words; of the looks that have come back."""
        while self._coming and self._coming[0][2].there():
            if (found := self._judged(self._received())) is not None:
                return found
        return None

    def trouble_now(self, step: int, optimizer: torch.optim.Adam) -> tuple[int, str] | None:
        """Likewise, of the present state; waits."""
        self._send(step, optimizer)
        while self._coming:
            if (found := self._judged(self._received())) is not None:
                return found
        return None

    def _send(self, step: int, optimizer: torch.optim.Adam) -> None:
        tensors = {name: tensor for name, tensor in _tensors(optimizer).items() if tensor.numel()}
        self._coming.append((step, tuple(tensors), Arrival(_largest(list(tensors.values())))))

    def _received(self) -> Extremes:
        step, names, arrival = self._coming.popleft()
        return Extremes(step, dict(zip(names, arrival.numbers(), strict=True)))

    def _judged(self, seen: Extremes) -> tuple[int, str] | None:
        if (wrong := seen.broken()) is not None:
            return seen.step, wrong
        farthest = seen.values["means"]
        self.reach = farthest if self.reach is None else self.reach
        if farthest > FAR[0] * self.reach + FAR[1]:
            return seen.step, f"Gaussians fly {farthest:.0f} m away"
        return None


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
            found[f"{group['name']} (Adam)"] = optimizer.state[parameter]["exp_avg_sq"]
    return found
