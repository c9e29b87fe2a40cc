# SPDX-License-Identifier: Apache-2.0
"""Adam over the scene's parameters, its schedules, and the surgery that density control needs."""

from dataclasses import fields, replace
from inspect import unwrap
from typing import Any

import torch
from torch import Tensor

from nurec_lite.base.rows import rows_of
from nurec_lite.config import LearningRates
from nurec_lite.scene.gaussians import Gaussians
from nurec_lite.scene.scene import Scene
from nurec_lite.training.density import Relocation

MOMENTS = ("exp_avg", "exp_avg_sq")


class Adam(torch.optim.Adam):
    """torch's Adam without the decorators of torch's compiler on its methods: they import the compiler, 800 modules and a second or
    more, for steps that are not compiled."""

    add_param_group = unwrap(torch.optim.Adam.add_param_group)
    zero_grad = unwrap(torch.optim.Adam.zero_grad)
    state_dict = unwrap(torch.optim.Adam.state_dict)
    load_state_dict = unwrap(torch.optim.Adam.load_state_dict)
    step = torch.no_grad()(unwrap(torch.optim.Adam.step))


def make_optimizer(scene: Scene, lr: LearningRates) -> torch.optim.Adam:
    """One group a parameter, by its name; epsilon 1e-15 as in 3DGS (Kerbl et al. 2023)."""
    groups = [
        {"params": [p.requires_grad_()], "name": name, "lr": getattr(lr, name)}
        for name, p in scene.parameters().items()
    ]
    return Adam(groups, eps=1e-15, fused=True)


def means_rate(lr: LearningRates, progress: float) -> float:
    """Metres: falls exponentially from `means` to `means * means_decay`."""
    return lr.means * lr.means_decay**progress


def set_rates(optimizer: torch.optim.Adam, lr: LearningRates, progress: float) -> None:
    """Sets every group's rate for a point of the run, 0 to 1."""
    for group in optimizer.param_groups:
        name = group["name"]
        group["lr"] = means_rate(lr, progress) if name == "means" else getattr(lr, name) * lr.decay**progress


def scaled_rates(lr: LearningRates, factor: float) -> LearningRates:
    """Every rate times a factor; their decays stay."""
    rates = {f.name: factor * getattr(lr, f.name) for f in fields(lr) if f.name not in ("means_decay", "decay")}
    return replace(lr, **rates)


def set_memory(
    optimizer: torch.optim.Adam,
    betas: tuple[float, float],  # of a step with one image
    images: int = 1,  # a step: moments forget in one step as much as in so many with one image
) -> None:
    """Sets every group's betas."""
    for group in optimizer.param_groups:
        group["betas"] = tuple(beta**images for beta in betas)


def stored(scene: Scene, optimizer: torch.optim.Adam) -> tuple[Tensor | None, ...]:
    """Tensors that an update changes in place: parameters and their moments, and the Gaussians' nodes."""
    found: list[Tensor | None] = [scene.gaussians.node]
    for group in optimizer.param_groups:
        (parameter,) = group["params"]
        found += parameter, optimizer.state.get(parameter, {}).get("exp_avg")
    return tuple(found)


def replace_gaussians(scene: Scene, optimizer: torch.optim.Adam, moved: Relocation) -> None:
    """Puts the values of a relocation into the store, in new tensors, and carries Adam's moments along; Gaussians that begin anew have
    none."""
    for group in _groups(optimizer):
        old = group["params"][0]
        parameter = moved.value(group["name"], old.detach()).clone().requires_grad_()
        moments = optimizer.state.pop(old, None)
        if moments:
            for key in MOMENTS:
                moments[key] = _follow(moments[key], moved.source, moved.anew)
            optimizer.state[parameter] = moments
        group["params"][0] = parameter
        setattr(scene.gaussians, group["name"], parameter)
    scene.gaussians.node = moved.node


@torch.no_grad()
def overwrite_gaussians(
    scene: Scene,
    optimizer: torch.optim.Adam,
    moved: Relocation,  # of as many Gaussians as there are
    void: Tensor | None = None,  # [] bool: all stays as it is; None: it does not
) -> None:
    """Writes the values of a relocation in place, so that a recorded step, which reads these tensors, goes on."""
    if void is not None:
        moved = _unless(void, moved, scene)
    for group in _groups(optimizer):
        parameter = group["params"][0]
        parameter.copy_(moved.value(group["name"], parameter))
        for key, moment in optimizer.state.get(parameter, {}).items():
            if key in MOMENTS:
                moment.copy_(_follow(moment, moved.source, moved.anew))
    scene.gaussians.node.copy_(moved.node)


def _unless(void: Tensor, moved: Relocation, scene: Scene) -> Relocation:
    """Returns the relocation, or one that changes nothing where `void` holds on the device."""
    changed = {k: torch.where(void, getattr(scene.gaussians, k), value) for k, value in moved.changed.items()}
    source = torch.where(void, torch.arange(len(moved.source), device=void.device), moved.source)
    return Relocation(changed, torch.where(void, scene.gaussians.node, moved.node), source, moved.anew & ~void)


def _groups(optimizer: torch.optim.Adam) -> list[dict[str, Any]]:
    """The optimizer's groups of the Gaussians' parameters."""
    return [group for group in optimizer.param_groups if group["name"] in Gaussians.trained()]


def _follow(moment: Tensor, source: Tensor, anew: Tensor) -> Tensor:
    return rows_of(moment, source).masked_fill_(anew.view(-1, *[1] * (moment.dim() - 1)), 0)
