# SPDX-License-Identifier: Apache-2.0
"""Gaussians as plain 3DGS stores them, for programs that know neither nodes nor tracks: one node in its own frame, or several where
they stand in the world at one time.

Letters: N Gaussians, S spherical-harmonic coefficients = (degree + 1)^2.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from nurec_lite.geometry.harmonics import rotate_sh
from nurec_lite.geometry.se3 import quat_multiply, quat_rotate
from nurec_lite.geometry.tracks import interpolate
from nurec_lite.scene.collect import collect_gaussian_parameters
from nurec_lite.scene.gaussians import BACKGROUND, Gaussians, activate
from nurec_lite.scene.scene import Scene

_HALF = math.sqrt(0.5)
UPS = {  # quaternions from the world (z up) to axes with the named axis up
    "z": (1.0, 0.0, 0.0, 0.0),
    "y": (_HALF, -_HALF, 0.0, 0.0),  # (x, z, -y)
    "-y": (_HALF, _HALF, 0.0, 0.0),  # (x, -z, y)
}


@dataclass(frozen=True)
class PlainGaussians:
    """Means, rotations and harmonics are in the same axes; activations are not applied (3DGS, Kerbl et al. 2023)."""

    means: Tensor  # [N, 3] metres
    quats: Tensor  # [N, 4] unit
    log_scales: Tensor  # [N, 3] log metres
    opacity_logits: Tensor  # [N]
    sh: Tensor  # [N, S, 3]

    def __len__(self) -> int:
        return len(self.means)


def nodes_at(
    scene: Scene,
    time: float,  # seconds
) -> list[int]:
    """The background, and the actors that exist at the time."""
    times = torch.tensor([time], dtype=torch.float64, device=scene.tracks.times.device)
    valid = interpolate(scene.tracks, times).valid[0]
    return [BACKGROUND, *(torch.nonzero(valid).squeeze(-1) + 1).tolist()]


@torch.no_grad()
def in_own_frame(scene: Scene, node: int) -> PlainGaussians:
    """An actor about the centre of its box, x forward, z up; the background as it is."""
    g = _rows(scene.gaussians, [node])
    local = activate(g)
    return PlainGaussians(g.means, local["quats"], g.log_scales, g.opacity_logits, g.sh())


@torch.no_grad()
def in_world(
    scene: Scene,
    nodes: Sequence[int],  # of `nodes_at`
    time: float,  # seconds
) -> PlainGaussians:
    """Gaussians in the world; the harmonics of actors are rotated, too."""
    g = _rows(scene.gaussians, nodes)
    world = collect_gaussian_parameters(replace(scene, gaussians=g), time)
    assert len(world) == len(g), "a node does not exist at this time"
    actor = torch.nonzero(g.node != BACKGROUND).squeeze(-1)
    sh = world.sh.index_copy(0, actor, rotate_sh(world.sh[actor], world.frames[actor]))
    return PlainGaussians(world.means, world.quats, g.log_scales, g.opacity_logits, sh)


def without_broken(g: PlainGaussians) -> PlainGaussians:
    """Gaussians with values that are finite in single precision and a quaternion with a direction."""
    values = torch.cat([g.means, g.quats, g.log_scales, g.opacity_logits[:, None], g.sh.flatten(1)], dim=1).float()
    whole = values.isfinite().all(1) & (g.quats.norm(dim=-1) > 0.5)
    return PlainGaussians(**{f.name: getattr(g, f.name)[whole] for f in fields(g)})


def in_axes(
    g: PlainGaussians,
    up: str,  # of UPS
) -> PlainGaussians:
    """Returns the Gaussians in axes with `up` upwards: means, rotations and harmonics turn together."""
    if up == "z":
        return g
    turn, size = g.quats.new_tensor(UPS[up]), g.sh.shape[1]
    units = torch.eye(size, dtype=torch.float64, device=g.sh.device)[..., None].expand(
        -1, -1, 3
    )  # one for each harmonic
    turned = rotate_sh(units, turn.double().expand(size, 4))[..., 0].to(g.sh.dtype)
    q = turn.expand(len(g), 4)
    sh = torch.einsum("nic,ij->njc", g.sh, turned)
    return replace(g, means=quat_rotate(q, g.means), quats=quat_multiply(q, g.quats), sh=sh)


def _rows(g: Gaussians, nodes: Sequence[int]) -> Gaussians:
    index = torch.nonzero(torch.isin(g.node, torch.tensor(nodes, device=g.node.device))).squeeze(-1)
    return Gaussians(**{f.name: getattr(g, f.name)[index] for f in fields(g)})
