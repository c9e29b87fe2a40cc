# SPDX-License-Identifier: Apache-2.0
"""The gradient of harmonics as rank-1 products: from each view, a Gaussian's coefficients [S, 3] get the basis in the direction of view,
times the gradient of its colour. The backward pass stores both factors, and Adam multiplies them where it reads the gradient.

Letters: N Gaussians, S coefficients, V views.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nurec_lite.base.ranges import BACKWARD, span
from nurec_lite.geometry.harmonics import sh_basis
from nurec_lite.native.operators.view_colour import placement_args, view_colour
from nurec_lite.scene.gaussians import SplitGaussians


@dataclass(frozen=True)
class Rank1ShGrad:
    """The gradient of all coefficients of N Gaussians: the sum over the views."""

    harmonics: tuple[Tensor, Tensor]  # [N, 1, 3] and [N, S - 1, 3]: the parameters themselves
    directions: Tensor  # [V, N, 3] unit, in the axes of the node
    colours: Tensor  # [V, N, 3] dL/d(colour), 0 where that was clamped
    eyes: Tensor | None = None  # [V, 3] metres, world; None: of views of other ranks

    def write(self) -> None:
        """Multiplies the factors and adds the products to the gradients of the parameters."""
        n_coefficients = sum(p.shape[1] for p in self.harmonics)
        product = (sh_basis(self.directions, n_coefficients)[..., None] * self.colours[:, :, None]).sum(0)
        for p, gradient in zip(self.harmonics, product.tensor_split([1], dim=1), strict=True):
            p.grad = gradient.contiguous() if p.grad is None else p.grad + gradient


Update = Callable[[Rank1ShGrad], Rank1ShGrad | None]  # returns the rest for the caller of `pop`


class DeferredShGrad:
    """Carries rank-1 gradients from the backward pass to the update, or updates at once. Outside of a step, and for tensors that are not
    its parameters, gradients are written as usual."""

    def __init__(self) -> None:
        self._harmonics: tuple[Tensor, Tensor] | None = None  # parameters of the step that is learning
        self._views, self._all_or_none = 1, False
        self._update: Update | None = None
        self._uses = 0  # of the parameters; each leaves a gradient
        self._updated = False
        self._factors: list[tuple[Tensor, ...]] = []  # directions, colours and eyes of the views so far
        self._left: Rank1ShGrad | None = None

    @contextmanager
    def expect(
        self,
        *harmonics: Tensor,
        update: Update | None = None,  # at once, if this is the whole gradient; None: the caller of `pop` updates
        views: int = 1,
        all_or_none: bool = False,  # without the products of all these views, or with other gradients besides, all are written
    ) -> Iterator[None]:
        """Expects the gradient of these two parameters during a step."""
        sh0, sh_rest = harmonics
        self._harmonics, self._update, self._uses, self._updated = (sh0, sh_rest), update, 0, False
        self._views, self._all_or_none = views, all_or_none
        try:
            yield
            assert self._left is None and not self._factors, "the gradient of harmonics was not taken"
        finally:
            self._harmonics = self._update = self._left = None
            self._factors = []

    def use(self, *harmonics: Tensor) -> None:
        """Counts a use of these harmonics; each use leaves a gradient."""
        self._uses += self._are_those(*harmonics) and torch.is_grad_enabled()

    def expects(self, *harmonics: Tensor) -> bool:
        """Returns whether these are the parameters and products of views are missing."""
        return self._left is None and len(self._factors) < self._views and self._are_those(*harmonics)

    def takes(self, *harmonics: Tensor, views: int = 1) -> bool:
        """Returns whether products of so many views are to be put, once all uses are counted."""
        fits = len(self._factors) + views <= self._views and (self._uses == self._views or not self._all_or_none)
        return fits and self.expects(*harmonics)

    def _are_those(self, *harmonics: Tensor) -> bool:
        if self._harmonics is None:
            return False
        return all(a is b and a.requires_grad for a, b in zip(self._harmonics, harmonics, strict=True))

    def put(
        self,
        directions: Tensor,  # [N, 3] of a view
        colours: Tensor,  # [N, 3]
        eye: Tensor,  # [3] world
    ) -> None:
        assert self._harmonics is not None and self._left is None
        self._factors.append((directions, colours, eye))
        if len(self._factors) < self._views:
            return
        left = Rank1ShGrad(self._harmonics, *(stacked(part) for part in zip(*self._factors, strict=True)))
        self._factors = []
        if self._update is not None and self._uses == self._views:
            self._left = self._update(left)
            self._updated = True
        else:
            self._left = left

    def pop(self) -> Rank1ShGrad | None:
        left, self._left = self._left, None
        written = self._updated and any(p.grad is not None for p in self._harmonics or ())
        assert not written, "harmonics were updated before all of their gradient was there"
        return left


def stacked(tensors: Sequence[Tensor]) -> Tensor:
    """Stacks V tensors [...] to [V, ...]; one alone is not copied."""
    return tensors[0][None] if len(tensors) == 1 else torch.stack(list(tensors))


class _ViewColourRank1(torch.autograd.Function):
    """The operator view_colour; its backward pass puts the factors if they are expected."""

    @staticmethod
    def forward(
        ctx: Any, deferred: DeferredShGrad, seen: Tensor | None, blocks: Tensor | None, *tensors: Tensor
    ) -> Tensor:
        *placements, sh0, sh_rest, eye = tensors
        ctx.deferred, ctx.blocks = deferred, blocks
        ctx.harmonics = sh0, sh_rest  # the parameters themselves: saved tensors may come back as other objects
        ctx.save_for_backward(*tensors)
        found: Tensor = torch.ops.nurec_lite.view_colour(placements, sh0, sh_rest, eye, seen, blocks)
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_colour: Tensor) -> tuple[Tensor | None, ...]:
        *placements, sh0, sh_rest, eye = ctx.saved_tensors
        arguments = placements, sh0, sh_rest, eye, d_colour.contiguous()
        with span("view_colour", within=BACKWARD):
            if not ctx.deferred.takes(*ctx.harmonics):
                *d_placed, d_sh, d_rest = torch.ops.nurec_lite.view_colour_backward(*arguments)
                return None, None, None, *d_placed, None, d_sh, d_rest, None
            *d_placed, directions, colours = torch.ops.nurec_lite.view_colour_rank1(*arguments, ctx.blocks)
        ctx.deferred.put(directions, colours, eye)
        return None, None, None, *d_placed, None, None, None, None


def view_colour_rank1(
    gaussians: SplitGaussians,
    eye: Tensor,  # [3] world; it gets no gradient
    seen: Tensor | None,  # [N] uint8
    deferred: DeferredShGrad,
    blocks: Tensor | None = None,  # [1 + blocks] int32 as by visible_blocks: others get no colours; None: all do
) -> Tensor:  # [N, 3] at least 0
    """Returns colours like the operator view_colour, with a rank-1 gradient of harmonics if they are the step's parameters."""
    g = gaussians
    deferred.use(g.sh0, g.sh_rest)
    if not deferred.expects(g.sh0, g.sh_rest):
        return view_colour(g, eye, seen)
    tensors = *placement_args(g), g.sh0, g.sh_rest, eye
    found: Tensor = _ViewColourRank1.apply(deferred, seen, blocks, *tensors)
    return found
