# SPDX-License-Identifier: Apache-2.0
"""The flat store of Gaussians, and Gaussians in world space as sensors see them.

Letters: N Gaussians, K tracks, S spherical-harmonic coefficients = (degree + 1)^2.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from nurec_lite.geometry.se3 import quat_normalize

BACKGROUND = 0  # node id; the node of track k is k + 1
LIDAR_VALUES = 2  # that a lidar's ray blends: intensity and ray drop
THINNEST = 1e-4  # metres, of a scale: thinner ones gain nothing, and at 1e-19 m float32 has no square of them


@dataclass
class Gaussians:
    """Parameters of N Gaussians in the frame of their node (world for the background, the box frame for an actor), in the order of
    their nodes. Logits are before the sigmoid."""

    means: Tensor  # [N, 3] metres
    quats: Tensor  # [N, 4] any length, node from Gaussian
    log_scales: Tensor  # [N, 3] log metres
    opacity_logits: Tensor  # [N] for cameras, and for the lidar if it has none of its own
    sh0: Tensor  # [N, 1, 3] constant band of the colour
    sh_rest: Tensor  # [N, S - 1, 3] higher bands
    lidar_logits: Tensor  # [N, 2] intensity, ray-drop probability; [N, 3]: and the lidar's own opacity
    node: Tensor  # [N] int64, not trained

    def __len__(self) -> int:
        return len(self.means)

    def sh(self) -> Tensor:  # [N, S, 3] all bands, by copying
        return torch.cat([self.sh0, self.sh_rest], dim=1)

    @staticmethod
    def trained() -> tuple[str, ...]:
        return tuple(f.name for f in fields(Gaussians) if f.name != "node")

    @torch.no_grad()
    def clamp_min_scale_(self) -> None:
        """Clamps scales in place. Ranges ask for ever thinner disks, and Adam follows however small the gradient is."""
        self.log_scales.clamp_(min=math.log(THINNEST))

    def all_opacity_logits(self) -> Tensor:  # [N, 1], or [N, 2]: the camera's, and the lidar's own
        return torch.cat([self.opacity_logits[:, None], self.lidar_logits[:, LIDAR_VALUES:]], dim=1)

    def greatest_opacity(self) -> Tensor:  # [N] 0 to 1
        """Opacity for the sensor that sees a Gaussian as more opaque."""
        own = self.lidar_logits[:, LIDAR_VALUES:].unbind(1)
        return torch.sigmoid(torch.maximum(self.opacity_logits, *own) if own else self.opacity_logits)


@dataclass(frozen=True)
class WorldGaussians:
    """Gaussians in world space at one time, activations applied, for one kind of sensor."""

    means: Tensor  # [N, 3] metres
    quats: Tensor  # [N, 4] unit
    scales: Tensor  # [N, 3] metres
    opacities: Tensor  # [N] 0 to 1, for the sensor that looks
    sh: Tensor  # [N, S, 3] in the axes of `frames`
    frames: Tensor  # [N, 4] unit, world from node: view directions are turned back by it before the harmonics
    lidar: Tensor  # [N, 2] intensity and ray-drop probability, 0 to 1
    velocities: Tensor  # [N, 3] metres a second, turning of the actor included

    def __len__(self) -> int:
        return len(self.means)

    def select(
        self,
        index: Tensor,  # [n] int64
    ) -> "WorldGaussians":
        tensors = {f.name: getattr(self, f.name) for f in fields(self)}
        return WorldGaussians(**{name: value.index_select(0, index) for name, value in tensors.items()})

    def whole(self) -> "WorldGaussians":
        return self


@dataclass(frozen=True)
class SplitGaussians:
    """World-space Gaussians: S static ones, the store's own, then A moving ones. It replaces WorldGaussians where the background must not
    be copied. N = S + A."""

    still_means: Tensor  # [S, 3] metres
    still_quats: Tensor  # [S, 4] unit
    means: Tensor  # [A, 3] of those that move, world
    quats: Tensor  # [A, 4] unit, world
    velocities: Tensor  # [A, 3] metres a second, turning of the actor included
    rotations: Tensor  # [K, 4] unit, world from node, of K nodes
    nodes: Tensor  # [A] int64, row of these
    scales: Tensor  # [N, 3] metres; of all, as everything below
    opacities: Tensor  # [N] 0 to 1, for the sensor that looks
    sh0: Tensor  # [N, 1, 3] in the axes of the node
    sh_rest: Tensor  # [N, S_h - 1, 3]
    lidar: Tensor  # [N, 2] intensity and ray-drop probability, 0 to 1

    def __len__(self) -> int:
        return len(self.scales)

    @property
    def sh(self) -> Tensor:  # [N, S_h, 3] all bands, by copying
        return torch.cat([self.sh0, self.sh_rest], dim=1)

    @property
    def frames(self) -> Tensor:  # [A, 4] unit, world from node, by copying
        return self.rotations.index_select(0, self.nodes)

    def select(
        self,
        index: Tensor,  # [n] int64, ascending
    ) -> "SplitGaussians":
        """Selects Gaussians. Waits for the device, which alone knows how many of them are static."""
        still = int((index < len(self.still_means)).sum())
        rows = dict.fromkeys(("still_means", "still_quats"), index[:still])
        rows |= dict.fromkeys(("means", "quats", "velocities", "nodes"), index[still:] - len(self.still_means))
        rows |= dict.fromkeys(("scales", "opacities", "sh0", "sh_rest", "lidar"), index)
        return replace(self, **{k: getattr(self, k).index_select(0, i) for k, i in rows.items()})

    def whole(self) -> WorldGaussians:
        """All N in one, by copying."""
        unturned = self.rotations.new_tensor([1.0, 0, 0, 0]).expand(len(self.still_means), 4)
        return WorldGaussians(
            means=torch.cat([self.still_means, self.means]),
            quats=torch.cat([self.still_quats, self.quats]),
            scales=self.scales,
            opacities=self.opacities,
            sh=self.sh,
            frames=torch.cat([unturned, self.frames]),
            lidar=self.lidar,
            velocities=torch.cat([torch.zeros_like(self.still_means), self.velocities]),
        )


AnyGaussians = WorldGaussians | SplitGaussians  # the input of projection and renderers


def activate(g: Gaussians) -> dict[str, Tensor]:
    """Unit quaternions, scales = exp, opacities and lidar values = sigmoid; by the names of WorldGaussians, and `lidar_opacities` [N],
    the very tensor `opacities` where the lidar has none of its own. Harmonics stay unchanged."""
    opacities = torch.sigmoid(g.opacity_logits)
    lidar, own = g.lidar_logits.split([LIDAR_VALUES, g.lidar_logits.shape[1] - LIDAR_VALUES], dim=1)
    return {
        "means": g.means,
        "quats": quat_normalize(g.quats),
        "scales": g.log_scales.exp(),
        "opacities": opacities,
        "lidar": torch.sigmoid(lidar),
        "lidar_opacities": torch.sigmoid(own[:, 0]) if own.shape[1] else opacities,
    }


def seen(
    activated: Mapping[str, Tensor],  # as `activate` gives it
    by_lidar: bool,  # or by a camera
) -> dict[str, Tensor]:
    """Tensors by the names of WorldGaussians, with the opacities that this kind of sensor sees."""
    values = dict(activated)
    lidar_opacities = values.pop("lidar_opacities")
    return values | {"opacities": lidar_opacities} if by_lidar else values


def log_odds(
    p: Tensor,  # [...] probability
) -> Tensor:  # [...] finite at 0 and 1, too
    return torch.logit(p, eps=1e-6)
