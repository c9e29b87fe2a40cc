# SPDX-License-Identifier: Apache-2.0
"""lazy_harmonics: the colours' harmonics take Adam's steps when an image next sees their Gaussian, all that they have missed at once.

Idea: of the update's bytes four fifths are harmonics with their two moments, 1 152 bytes a Gaussian, read and written in every step, while
an image sees less than half of the Gaussians, and nobody else asks for colours. What a Gaussian that is not seen would do has no gradient:
moments decay and the value follows. So a step leaves the two factors of its gradient (fused_harmonics) with the Gaussians that it saw, and
the forward pass of the next image that sees one takes all missed steps, one after another, in registers, on the way to its colour: values
are read once for both. Factors of the last 128 steps are kept; each Gaussian catches up every 64 steps at least.
Source: catching up of rows that no batch has touched is that of lazy regularisation (Carpenter, Lazy Sparse Stochastic Gradient Descent,
2008); for Adam with momentum and the renderer's own forward pass none that we know of.
Gain: see docs/options.md.
Limits: on a GPU alone, for steps of one image, with float32 moments (without amp). In other steps, where poses ask the eye for a gradient,
before relocation and before anybody looks at the scene all Gaussians catch up first. Behind an option that adds up gradients over
processes, or that renders several views in one launch, it stands aside. Class exact: the same steps, up to rounding.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from nurec_lite.base.errors import OptionError
from nurec_lite.native.groups import LazyArrays
from nurec_lite.native.lazy import Betas, Lag
from nurec_lite.opt.fused_adam import FusedAdam, moments_of
from nurec_lite.training.optim import MOMENTS
from nurec_lite.training.shots import Shots
from nurec_lite.training.stages import Stages, without_gpu
from nurec_lite.training.state import StepResult, TrainState

CLASS = "exact"
REQUIRES: tuple[str, ...] = ("fused_harmonics",)
NAMES = ("sh0", "sh_rest")
log = logging.getLogger("nurec_lite")
Learn = Callable[[Stages, TrainState, Shots], StepResult]
Work = Callable[[Stages, TrainState], None]


def unavailable(stages: Stages) -> str | None:
    return without_gpu(stages)


@dataclass(frozen=True)
class LazyAdam:
    """Stands around the update of all others."""

    update: FusedAdam
    lag: Lag

    def __call__(self, state: TrainState) -> None:
        assert state.pace is not None
        self.update(state)
        sh0, sh_rest = places_of(state.optimizer)
        self.lag.end(state.pace, (sh0, sh_rest), state.failed)


def places_of(optimizer: torch.optim.Adam) -> tuple[int, int]:
    """Of the two groups."""
    names = [group["name"] for group in optimizer.param_groups]
    sh0, sh_rest = map(names.index, NAMES)
    return sh0, sh_rest


def arrays_of(optimizer: torch.optim.Adam) -> tuple[LazyArrays, tuple[Tensor, Tensor], Betas]:
    """The harmonics with their moments, the numbers of their steps, and what Adam forgets."""
    groups = [optimizer.param_groups[k] for k in places_of(optimizer)]
    parameters: list[Tensor] = [group["params"][0] for group in groups]
    kept: list[dict[str, Any]] = [moments_of(optimizer, parameter) for parameter in parameters]
    moments = (of[name] for name in MOMENTS for of in kept)
    return LazyArrays(*parameters, *moments), (kept[0]["step"], kept[1]["step"]), (*groups[0]["betas"], groups[0]["eps"])


def learning(inner: Learn, lag: Lag) -> Learn:
    """Stands around `learn`: a step with one image catches up what that sees, others all."""

    def learn(stages: Stages, state: TrainState, shots: Shots) -> StepResult:
        if len(shots.images) != 1 or "render_all" in stages.claims:
            lag.settle()
            return inner(stages, state, shots)
        with lag.awaiting(*arrays_of(state.optimizer)):
            return inner(stages, state, shots)

    return learn


def density(inner: Work, lag: Lag, stages: Stages, state: TrainState) -> None:
    """Moves Gaussians with their moments."""
    if (state.step + 1) % state.config.density.every == 0:
        lag.settle()
    inner(stages, state)


def settle(inner: Work, lag: Lag, stages: Stages, state: TrainState) -> None:
    """May do steps again."""
    inner(stages, state)
    lag.settle()


def apply(stages: Stages) -> Stages:
    update, lag = stages.optimize, Lag()
    if type(update) is not FusedAdam or update.touched_only:
        raise OptionError(
            "option 'lazy_harmonics' needs the update of 'fused_adam' without touched_only and without 'amp'; leave one of them out"
        )
    if update.handover is None:
        log.warning("lazy_harmonics stands aside: fused_harmonics does")
        return stages
    return stages.planned("lazy_harmonics", lag=lag).wrap(
        learn=lambda inner: learning(inner, lag),
        optimize=lambda _: LazyAdam(update, lag),
        density=lambda inner: partial(density, inner, lag),
        settle=lambda inner: partial(settle, inner, lag),
    )
