# SPDX-License-Identifier: Apache-2.0
"""Harmonics that take Adam's steps when their Gaussian is next seen, all that it has missed one after another: numbers are those of
Gaussians that take each step when it is made. Until then the gradient of the last step that saw a Gaussian waits as two factors
(nurec_lite/native/outer.py). On CUDA alone; kernels/lazy_colour.

Letters: N Gaussians.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nurec_lite.base.ranges import BACKWARD, span
from nurec_lite.native.groups import LazyArrays, LazySteps, PlacementArrays
from nurec_lite.scene.gaussians import PartedGaussians

RING = 128  # steps of which factors are kept, as kernels/lazy_colour/params.h has it
Betas = tuple[float, float, float]  # and Adam's epsilon


class Lag:
    """What harmonics of a store have still to take, and whether the step that is learning adds to it."""

    def __init__(self) -> None:
        self._arrays: LazyArrays | None = None  # those of the store
        self._steps: LazySteps | None = None
        self._betas: Betas = 0.0, 0.0, 0.0
        self._awaiting = False
        self.used = False  # by the step that is learning

    @contextmanager
    def awaiting(self, arrays: LazyArrays, steps: tuple[Tensor, Tensor], betas: Betas) -> Iterator[None]:
        """While a step learns these parameters, of which so many steps [] of sh0 and sh_rest are made."""
        self._follow(arrays, steps)
        self._betas, self._awaiting, self.used = betas, True, False
        try:
            yield
        finally:
            self._awaiting = False

    def _follow(self, arrays: LazyArrays, steps: tuple[Tensor, Tensor]) -> None:
        """Others than before have missed nothing: who put them there has settled these."""
        now = (*arrays, *steps)
        if self._arrays is not None and self._steps is not None:
            known = (*self._arrays, self._steps.of_sh0, self._steps.of_sh_rest)
            if all(a is b for a, b in zip(now, known, strict=True)):
                return
        sh0 = arrays.sh0.detach()
        taken = steps[0].to(torch.int32).expand(len(sh0)).contiguous()
        directions, colours = (torch.zeros(len(sh0), 3, device=sh0.device) for _ in range(2))
        self._arrays = arrays
        self._steps = LazySteps(taken, directions, colours, torch.zeros(RING, 4, device=sh0.device), *steps)

    def awaits(self, sh0: Tensor, sh_rest: Tensor) -> bool:
        """Whether these are the parameters, and nobody has looked at them in this step: two gradients are no product."""
        if not self._awaiting or self.used or self._arrays is None:
            return False
        return sh0 is self._arrays.sh0 and sh_rest is self._arrays.sh_rest and sh0.requires_grad

    def colour(self, placements: PlacementArrays, eye: Tensor, seen: Tensor | None) -> Tensor:
        """Of Gaussians that have taken all steps by now."""
        assert self._arrays is not None and self._steps is not None
        self.used = True
        found: Tensor = torch.ops.nurec_lite.lazy_colour(
            placements, eye, seen, self._arrays, self._steps, *self._betas
        )
        return found

    def left(self) -> tuple[Tensor, Tensor]:
        """Where the step leaves the two factors of its gradient."""
        assert self._steps is not None
        return self._steps.directions, self._steps.colours

    def end(self, rates: Tensor, places: tuple[int, int], failed: Tensor | None) -> None:
        """Of a step: what it left is the next one of those that it saw. A step that went another way has changed all."""
        if self._steps is None:
            return
        if self.used:
            torch.ops.nurec_lite.end_lazy_step(self._steps, rates, *places, failed, *self._betas[:2])
        else:
            self._steps.taken.copy_(self._steps.of_sh0)
        self.used = False

    @torch.no_grad()
    def settle(self) -> None:
        """All Gaussians take all steps."""
        if self._arrays is not None and self._steps is not None:
            torch.ops.nurec_lite.settle_harmonics(self._arrays, self._steps, *self._betas)


class _LazyColour(torch.autograd.Function):
    """The colours, whose gradient goes to what the next step takes."""

    @staticmethod
    def forward(ctx: Any, lag: Lag, seen: Tensor | None, *tensors: Tensor) -> Tensor:
        *placements, eye, sh0, sh_rest = tensors
        found = lag.colour(PlacementArrays(*placements), eye, seen)
        ctx.lag, ctx.seen = lag, seen
        ctx.save_for_backward(*tensors)
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_colour: Tensor) -> tuple[Tensor | None, ...]:
        *placements, eye, sh0, sh_rest = ctx.saved_tensors
        with span("view_colour", within=BACKWARD):
            d_placed = torch.ops.nurec_lite.lazy_colour_outer(
                placements, sh0, sh_rest, eye, ctx.seen, d_colour.contiguous(), *ctx.lag.left()
            )
        return None, None, *d_placed, None, None, None, None


def seen_colour(
    gaussians: PartedGaussians,
    eye: Tensor,  # [3] world, which gets no gradient
    seen: Tensor | None = None,  # [N] uint8
    *,
    lag: Lag,
    otherwise: Callable[..., Tensor],  # of other Gaussians than the parameters of the step
) -> Tensor:  # [N, 3] at least 0
    """As nurec_lite.native.stages.seen_colour."""
    g = gaussians
    if not lag.awaits(g.sh0, g.sh_rest):
        return otherwise(g, eye, seen)
    if eye.requires_grad:
        lag.settle()
        return otherwise(g, eye, seen)
    placements = PlacementArrays(g.still_means, g.means, g.rotations, g.nodes)
    found: Tensor = _LazyColour.apply(lag, seen, *placements, eye, g.sh0, g.sh_rest)
    return found
