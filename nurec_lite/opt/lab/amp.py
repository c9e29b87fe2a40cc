# SPDX-License-Identifier: Apache-2.0
"""amp: Adam's moments of the colours' harmonics are kept as bfloat16; parameters, gradients and all arithmetic stay float32.

Idea: with fused_harmonics an update moves 24 bytes for each of a Gaussian's 48 harmonics: value, first and second moment, read and
written. With moments of two bytes it moves 16. A second moment changes by a thousandth of itself a step, less than half a unit in the last
place of bfloat16, and would never change if it were rounded to the nearest; so both moments are rounded by chance, up or down, in the mean
to the number itself. The chance is a hash of the value's place and of the number of the step, which lies on the device: runs can be
repeated, and a recorded step draws anew each time.
Source: mixed precision training (Micikevicius et al. 2018); stochastic rounding (Gupta et al. 2015).
Gain, code before and after, limits: docs/options/amp.md.
Limits: class quality: the noise of rounding adds up over the thousand steps that a second moment remembers, to some percent of it.
Parameters stay float32, since steps of a late run are smaller than half a unit in the last place of 16-bit formats. Nothing else is
reduced yet. Checkpoints keep such moments; a run without the option goes on from them in float32, and the other way round.
"""

from typing import Any

import torch

from nurec_lite.base.errors import OptionError
from nurec_lite.opt.all.fused_adam import FusedAdam
from nurec_lite.training.optim import MOMENTS
from nurec_lite.training.stages import Stages, uncompiled

CLASS = "quality"
REQUIRES: tuple[str, ...] = ("fused_harmonics",)
SHORT = ("sh0", "sh_rest")  # parameters with such moments


def unavailable(stages: Stages) -> str | None:
    return uncompiled(stages)


class ShortMoments(FusedAdam):
    """The update; its kernels take moments of either type."""

    def prepare(self, optimizer: torch.optim.Adam) -> None:
        shorten(optimizer)


def shorten(optimizer: torch.optim.Adam) -> None:
    """Makes moments bfloat16: zeros before the first step, or those of a checkpoint."""
    for group in optimizer.param_groups:
        (parameter,) = group["params"]
        if group["name"] not in SHORT:
            continue
        kept: dict[str, Any] = optimizer.state[parameter]
        if not kept:
            kept["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
            kept |= {name: torch.zeros_like(parameter, dtype=torch.bfloat16) for name in MOMENTS}
        for name in MOMENTS:
            kept[name] = kept[name].to(torch.bfloat16)  # the same tensor, where it is that already


def apply(stages: Stages) -> Stages:
    update = stages.update.optimize
    if not isinstance(update, FusedAdam):
        raise OptionError("option 'amp' changes the update of 'fused_adam'; name 'fused_adam' first")
    return stages.wrap(optimize=lambda _: ShortMoments(**vars(update)))
