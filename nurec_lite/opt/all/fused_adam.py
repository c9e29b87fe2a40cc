# SPDX-License-Identifier: Apache-2.0
"""fused_adam: one kernel updates all parameters of the step, each value and its moments read and written once.

Idea: torch's fused Adam is two launches a group, with powers and products in double precision for every value; here a kernel of one
warp counts the steps and takes the powers, and one kernel goes through all values in vectors of four. Rates lie in device memory. On a
drive of many images the update is sparse (nurec_lite/training/unseen.py): a value with a gradient of exactly 0 stays, with its moments,
and none of them is read. `touched_only` does this on any drive.
Source: Adam (Kingma and Ba 2015); torch's `found_inf` for updates that are skipped; updates of seen Gaussians alone are those of Taming
3DGS (Mallick et al. 2024) and of gsplat's SelectiveAdam.
Gain, code before and after, limits: docs/options/fused_adam.md.
Limits: class exact means dense, but for such drives. Every step reads the mean, rotation, size and opacity of all Gaussians to find out
which it sees, so these may not lag behind, and the regularisers give every size and every opacity a gradient in every step. Harmonics can
catch up when they are seen, step by step, to the same numbers; that was built, and with 44 % seen it takes 434 us instead of 336
(benchmarks/LOG.md).
`touched_only` is of class quality: momentum waits for the next sight, and moments of rarely seen Gaussians decay by sights instead of by
steps. 20 parameters at most, single precision.
"""

import logging
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nurec_lite.base.transfer import upload
from nurec_lite.native import ops
from nurec_lite.native.rank1_sh import DeferredShGrad, Rank1ShGrad
from nurec_lite.scene.gaussians import Gaussians
from nurec_lite.training.stages import Stages
from nurec_lite.training.state import TrainState
from nurec_lite.training.unseen import sparse_parameters

CLASS = "exact"
REQUIRES: tuple[str, ...] = ()
log = logging.getLogger("nurec_lite")


def unavailable(stages: Stages) -> str | None:
    return None


@dataclass(frozen=True)
class FusedAdam:
    """Replaces `optimize` of the baseline."""

    touched_only: tuple[str, ...]  # parameters with a sparse update on any drive
    handover: DeferredShGrad | None = None  # that of harmonics may come by it (fused_harmonics)

    def __call__(self, state: TrainState) -> None:
        assert state.lr_and_noise is not None
        self.prepare(state.optimizer)
        outer = None if self.handover is None else self.handover.pop()
        rates, blocks = state.lr_and_noise[:-1], state.visible_blocks
        update(state.optimizer, state.failed, self._sparse(state), rates, outer, blocks)
        state.optimizer.zero_grad(set_to_none=True)

    def early(
        self,
        state: TrainState,
        outer: Rank1ShGrad,
        failed: Tensor | None,  # as `update` takes it
    ) -> None:
        """Updates the harmonics, which get no further gradient, before the other parameters are ready."""
        assert state.lr_and_noise is not None
        self.prepare(state.optimizer)
        groups = enumerate(state.optimizer.param_groups)
        places = [k for k, group in groups if any(group["params"][0] is p for p in outer.harmonics)]
        rates, blocks = state.lr_and_noise[:-1], state.visible_blocks
        _launch(state.optimizer, places, failed, self._sparse(state), rates, outer, blocks)

    def is_sparse(self, state: TrainState) -> bool:
        """Whether all parameters of Gaussians without a gradient stay."""
        return set(self._sparse(state)) >= set(Gaussians.trained())

    def _sparse(self, state: TrainState) -> tuple[str, ...]:
        return self.touched_only or sparse_parameters(state)

    def prepare(self, optimizer: torch.optim.Adam) -> None:
        """Prepares the optimizer's state before an update; a subclass may have work here."""


@torch.no_grad()
def update(
    optimizer: torch.optim.Adam,  # one parameter a group
    failed: Tensor | None = None,  # [] not 0: nothing changes
    touched_only: tuple[str, ...] = (),  # as above
    rates: Tensor | None = None,  # [groups] float32, on the device; None: those of the groups are copied there
    outer: Rank1ShGrad | None = None,  # of two of the parameters
    blocks: Tensor
    | None = None,  # [1 + blocks] int32: others stay, in the parameters of `touched_only`; None: all count
) -> None:
    """optimizer.step(), of the parameters that have a gradient; the state is that of torch."""
    outer = _alone(outer)
    places = [k for k, group in enumerate(optimizer.param_groups) if _has_gradient(group["params"][0], outer)]
    if places:
        _launch(optimizer, places, failed, touched_only, rates, outer, blocks)


@torch.no_grad()
def _launch(
    optimizer: torch.optim.Adam,
    places: list[int],  # of the groups with a changing parameter
    failed: Tensor | None,
    touched_only: tuple[str, ...],
    rates: Tensor | None,
    outer: Rank1ShGrad | None,
    blocks: Tensor | None,
) -> None:
    groups = [optimizer.param_groups[k] for k in places]
    parameters = [group["params"][0] for group in groups]
    if rates is None:
        rates = upload(
            torch.tensor([g["lr"] for g in optimizer.param_groups], dtype=torch.float32), parameters[0].device
        )
    kept = [_moments(optimizer, parameter) for parameter in parameters]
    torch.ops.nurec_lite.adam(
        parameters, [p.grad for p in parameters], *([k[name] for k in kept] for name in ("exp_avg", "exp_avg_sq", "step")),
        rates, failed, [group["name"] in touched_only for group in groups], *groups[0]["betas"], groups[0]["eps"],
        *((None, None) if outer is None else (outer.directions, outer.colours)), places, blocks,
    )  # fmt: skip


def _alone(outer: Rank1ShGrad | None) -> Rank1ShGrad | None:
    """Returns the rank-1 gradient; None if its parameters have another gradient, too: it is then added to that."""
    if outer is None or all(p.grad is None for p in outer.harmonics):
        return outer
    outer.write()
    return None


def _has_gradient(parameter: Tensor, outer: Rank1ShGrad | None) -> bool:
    return parameter.grad is not None or (outer is not None and any(parameter is p for p in outer.harmonics))


def _moments(optimizer: torch.optim.Adam, parameter: Tensor) -> dict[str, Any]:
    """Returns the moments of a parameter; zeros before its first update, as in torch."""
    kept: dict[str, Any] = optimizer.state[parameter]
    if not kept:
        kept["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
        kept["exp_avg"], kept["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
    return kept


def apply(stages: Stages, *, touched_only: bool) -> Stages:
    """`touched_only`: Gaussians that a step does not see keep their colours, places and moments; class quality."""
    ops.load()
    if touched_only:
        log.warning("fused_adam with touched_only is of class quality: training goes another way")
    return stages.swap("fused_adam", optimize=FusedAdam(Gaussians.trained() if touched_only else ()))
