# SPDX-License-Identifier: Apache-2.0
"""Correct result of a render: the torch reference in float64, outputs and gradients, from the same Gaussians and on the
same lists.

The loss is a sum over rays and each ray belongs to one tile, so the reference takes the tiles in groups and their gradients are added
up: autograd keeps memory of the size of a group, of an image of any size. A ray outside the group sees the sky alone, which no Gaussian
changes.

Where a colour is 0 but for rounding, float32 and float64 may fall on either side of the clamp of `sh_colour`, and then they differ by
that Gaussian's whole gradient. Such Gaussians are made invisible, for all alike.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.render.contenders import (
    Own,
    as_leaves,
    gradients_of,
    leaves_of,
    outputs_of,
    perturbed,
    upstream_of,
)
from benchmarks.render.workload import Workload
from nurec_lite.geometry.harmonics import sh_basis
from nurec_lite.scene.gaussians import AnyGaussians
from nurec_lite.splat.reference import SLAB
from nurec_lite.splat.render import local_directions
from nurec_lite.splat.tiles import PairList
from nurec_lite.splat.views import CameraView, LidarView
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.stages import Stages

ROUNDING = 64 * 2.0**-24  # of a colour in float32: so much of the sum of its terms' sizes
PAIRS = 1 << 24  # (ray, entry) pairs of a group; each takes about 225 bytes: 4 GB


@dataclass(frozen=True)
class Problem:
    """All that a render starts from."""

    gaussians: AnyGaussians  # leaves
    view: CameraView | LidarView
    pairs: PairList
    sky: Tensor  # [3, H, W] logits
    hidden: int = 0  # `undecided` Gaussians; their opacity is 0

    @property
    def outputs(self) -> tuple[str, ...]:  # names of `outputs_of`
        return ("colour",) if isinstance(self.view, CameraView) else ("distance", "intensity", "drop")

    def perturbed(self, seed: int) -> "Problem":
        return replace(self, gaussians=as_leaves(perturbed(self.gaussians, seed)))

    def double(self) -> "Problem":
        """The same numbers in float64."""
        changed: dict[str, Any] = {k: t.detach().double() for k, t in leaves_of(self.gaussians).items()}
        gaussians = as_leaves(replace(self.gaussians, **changed))
        tensors = {f.name: getattr(self.view, f.name) for f in fields(self.view)}
        view: dict[str, Any] = {k: t.double() for k, t in tensors.items() if isinstance(t, Tensor)}
        return replace(self, gaussians=gaussians, view=replace(self.view, **view), sky=self.sky.double())


def problem_of(
    stages: Stages,  # that collect the Gaussians and make the lists
    workload: Workload,
    sensor: str,
) -> Problem:
    own = Own(stages, workload, sensor)
    hidden = undecided(own.gaussians, own.view)
    gaussians = as_leaves(replace(own.gaussians, opacities=own.gaussians.opacities.detach().masked_fill(hidden, 0)))
    return Problem(gaussians, own.view, own.pairs(), workload.scene.sky.detach(), int(hidden.sum()))


def undecided(gaussians: AnyGaussians, view: CameraView | LidarView) -> Tensor:  # [N] bool
    """Those with a colour that float32 cannot tell from 0. A lidar sees none."""
    if isinstance(view, LidarView):
        return torch.zeros_like(gaussians.opacities, dtype=torch.bool)
    colours, sizes = unclamped(gaussians, view)
    return (colours.abs() < ROUNDING * sizes).any(1)


@torch.no_grad()
def unclamped(
    gaussians: AnyGaussians,
    view: CameraView,
) -> tuple[Tensor, Tensor]:  # [N, 3] colours before the clamp, and the sums of their terms' sizes, float64
    doubles: dict[str, Any] = {k: t.double() for k, t in leaves_of(gaussians).items()}
    directions = local_directions(replace(gaussians, **doubles), view.eye().double())
    terms = sh_basis(directions, gaussians.sh.shape[1])[:, :, None] * gaussians.sh.double()  # [N, S, 3]
    return 0.5 + terms.sum(1), 0.5 + terms.abs().sum(1)


@dataclass(frozen=True)
class Rendered:
    """Result of stages for a problem, in float64."""

    outputs: dict[str, Tensor]
    gradients: dict[str, Tensor]  # by the names of the Gaussians' tensors; 0 where nothing depends on one

    def tensors(self) -> dict[str, Tensor]:
        return self.outputs | {f"d {name}": gradient for name, gradient in self.gradients.items()}


def rendered(stages: Stages, problem: Problem) -> Rendered:
    """Outputs of the stages, and the gradients of a random loss (`upstream_of`)."""
    g = problem.gaussians
    outputs = outputs_of(stages, g, problem.view, problem.pairs, problem.sky)
    found = gradients_of(g, outputs, [upstream_of(output) for output in outputs])
    leaves = leaves_of(g)
    gradients = {k: torch.zeros_like(leaves[k]) if v is None else v for k, v in found.items()}
    named = zip(problem.outputs, outputs, strict=True)
    return Rendered(
        {k: v.detach().double() for k, v in named},
        {k: _tangent(v.double(), leaves[k]) if k.endswith("quats") else v.double() for k, v in gradients.items()},
    )


def _tangent(gradient: Tensor, quats: Tensor) -> Tensor:  # [N, 4] each
    """A gradient without its part along the unit quaternion. No rotation depends on that part: formulas differ there, and normalisation
    drops it."""
    q = F.normalize(quats.detach().double(), dim=1)
    return gradient - (gradient * q).sum(1, keepdim=True) * q


# ---- the reference, group by group


def truth(
    problem: Problem,
    most: int = PAIRS,  # (ray, entry) pairs that are taken at once, if a single tile does not have more
) -> Rendered:
    exact, total = problem.double(), None
    for part in groups(problem.pairs, most):
        found = rendered(reference_stages(), replace(exact, pairs=part))
        total = found if total is None else _joined(total, found, part)
    assert total is not None
    return total


def groups(pairs: PairList, most: int) -> Iterator[PairList]:
    """Neighbouring tiles together, at least one. The reference goes through entries by slabs and takes even those that no tile fills."""
    lengths = pairs.offsets.diff()
    sizes = (-torch.div(-lengths, SLAB, rounding_mode="floor") * SLAB * pairs.rays.shape[1]).tolist()
    start = held = 0
    for tile, size in enumerate(sizes):
        if tile > start and held + size > most:
            yield pairs.part(start, tile)
            start, held = tile, 0
        held += size
    yield pairs.part(start, len(sizes))


def _joined(total: Rendered, found: Rendered, part: PairList) -> Rendered:
    """Writes into total."""
    rays = part.rays[part.rays >= 0]
    for name, output in found.outputs.items():
        _by_ray(total.outputs[name])[rays] = _by_ray(output)[rays]
    for name, gradient in found.gradients.items():
        total.gradients[name].add_(gradient)
    return total


def _by_ray(output: Tensor) -> Tensor:
    """[P, 3] of an image's [H, W, 3], [R] of a sweep's."""
    return output.flatten(0, 1) if output.ndim == 3 else output
