# SPDX-License-Identifier: Apache-2.0
"""fused_activate: work of a step and a relocation on all Gaussians alike: from logits to values, regularisers, noise, and opacities and
scales of copies.

Idea: torch makes a kernel of each operation, and each goes through a million rows: unit quaternions are three kernels, and fourteen on
the way back; sigmoids and exp are one each way; noise is twenty, with cross products in memory of their own. Here activation is one
kernel each way, and it writes every value once. Regularisers are two, with sums in a fixed order, and one for their gradients, which
are one number for all scales. Noise and the least thickness of disks are one. It also draws its random numbers, from a counter-based
generator, by the Gaussian's row and by Adam's own count of updates: none are written and read again, and a recorded step draws new ones
by itself. A relocation that does not count the copies adds up 51 terms for every Gaussian in torch, two kernels each; here one kernel
adds up as many terms as a Gaussian has copies, which is one for most.
Source: Kerbl et al. 2023 (activations), Kheradmand et al. 2024 (regularisers, noise, copies), formulas in kernels/math/activate.cuh and
kernels/math/mcmc_split.cuh; Salmon et al. 2011 (random numbers), in kernels/math/random.cuh.
Gain, code before and after, limits: docs/options/fused_activate.md.
Limits: single precision. Without collect_once the collection still activates by itself, in the plain way. The option compile leaves
these stages as they are here. Draws of noise differ from torch's; torch's generator does not advance. Class exact: the same functions,
up to rounding and these draws; sums are those of torch, in another order. Opacities of copies avoid the rounding error of 1 - (1 - o)^(1/n)
for small o.
"""

import math

import torch
from torch import Tensor

from nurec_lite.native import ops
from nurec_lite.native.operators.activate import activate
from nurec_lite.scene.gaussians import THINNEST, Gaussians
from nurec_lite.training.stages import Stages
from nurec_lite.training.state import TrainState

CLASS = "exact"
REQUIRES: tuple[str, ...] = ()


def unavailable(stages: Stages) -> str | None:
    return None


def regularisers(
    opacities: Tensor,  # [N] 0 to 1, the camera's
    lidar_opacities: Tensor,  # [N] the very same tensor where the lidar has none of its own
    scales: Tensor,  # [N, 3] metres
    blocks: Tensor | None = None,  # [1 + blocks] int32 as by visible_blocks: means over their Gaussians; None: over all
) -> dict[str, Tensor]:  # scalars `opacity`, `scale`, and `tie` if there are two opacities
    """Terms as by nurec_lite.training.losses.regularisers."""
    own = None if lidar_opacities is opacities else lidar_opacities
    opacity, scale, tie = torch.ops.nurec_lite.regularisers(opacities, own, scales, blocks)
    terms = {"opacity": opacity, "scale": scale}
    return terms if own is None else terms | {"tie": tie}


@torch.no_grad()
def add_sgld_noise(
    g: Gaussians,  # means and log_scales change
    step: Tensor,  # [] float32, a whole number: another one draws others
    seed: int,  # of 32 bits
    amount: Tensor,  # [] standard deviations at opacity 0
    failed: Tensor | None,  # [] not 0: no mean moves
    blocks: Tensor | None = None,  # as above: others stay as they are
) -> None:
    """clamp_min_scale_ and nurec_lite.training.density.add_noise in one kernel, with draws of its own."""
    stored = g.means, g.log_scales, g.quats, g.opacity_logits, g.lidar_logits
    torch.ops.nurec_lite.sgld_noise(*stored, step, seed, amount, failed, math.log(THINNEST), blocks)


def updates(state: TrainState) -> Tensor:  # [] float32, on the device of the means
    """Number of Adam's changes of the means, as Adam counts it; failed steps do not count, and are repeated with the
    same number."""
    means = state.scene.gaussians.means
    kept = state.optimizer.state.get(means)
    return kept["step"] if kept else torch.zeros((), device=means.device)


def noise(state: TrainState) -> None:
    """Adds noise as nurec_lite.training.baseline.noise does, with its own draws, after the last update."""
    assert state.lr_and_noise is not None
    g = state.scene.gaussians
    if state.config.density.noise > 0:
        add_sgld_noise(g, updates(state), state.config.seed, state.lr_and_noise[-1], state.failed, state.visible_blocks)
    else:
        g.clamp_min_scale_()


def mcmc_split(
    logits: Tensor,  # [N, S] opacities that S sensors see, of the Gaussian that is copied
    copies: Tensor,  # [N] int64, how many stand in its place, 1 to MAX_COPIES
    most: int | None = None,  # of them, not needed here
) -> tuple[Tensor, Tensor]:  # opacities of each copy before the sigmoid [N, S], factor of its scales [N]
    """Logits and scales as by nurec_lite.training.density.mcmc_split."""
    split, factor = torch.ops.nurec_lite.mcmc_split(logits, copies)
    return split, factor


def apply(stages: Stages) -> Stages:
    ops.load()
    return stages.swap(
        "fused_activate", activate=activate, regularisers=regularisers, noise=noise, mcmc_split=mcmc_split
    )
