# SPDX-License-Identifier: Apache-2.0
"""The flat store of Gaussians, and Gaussians in world space as sensors see them.

Letters: N Gaussians, K tracks, S spherical-harmonic coefficients = (degree + 1)^2.
"""

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from nurec_lite.geometry.se3 import quat_normalize

BACKGROUND = 0  # node id; the node of track k is k + 1


@dataclass
class Gaussians:
    """Parameters of N Gaussians in the frame of their node (world for the background, the box frame for an actor), in the order of
    their nodes."""

    means: Tensor  # [N, 3] metres
    quats: Tensor  # [N, 4] any length, node from Gaussian
    log_scales: Tensor  # [N, 3] log metres
    opacity_logits: Tensor  # [N]
    sh0: Tensor  # [N, 1, 3] constant band of the colour
    sh_rest: Tensor  # [N, S - 1, 3] higher bands
    lidar_logits: Tensor  # [N, 2] intensity and ray-drop probability before the sigmoid
    node: Tensor  # [N] int64, not trained

    def __len__(self) -> int:
        return len(self.means)

    def sh(self) -> Tensor:  # [N, S, 3] all bands, by copying
        return torch.cat([self.sh0, self.sh_rest], dim=1)

    @staticmethod
    def trained() -> tuple[str, ...]:
        return tuple(f.name for f in fields(Gaussians) if f.name != "node")


@dataclass(frozen=True)
class WorldGaussians:
    """Gaussians in world space at one time, activations applied."""

    means: Tensor  # [N, 3] metres
    quats: Tensor  # [N, 4] unit
    scales: Tensor  # [N, 3] metres
    opacities: Tensor  # [N] 0 to 1
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
class PartedGaussians:
    """World-space Gaussians of which the first S stand still, and are the store's own, and A follow that move; as WorldGaussians for
    who must not copy the background. N = S + A."""

    still_means: Tensor  # [S, 3] metres
    still_quats: Tensor  # [S, 4] unit
    means: Tensor  # [A, 3] of those that move, world
    quats: Tensor  # [A, 4] unit, world
    velocities: Tensor  # [A, 3] metres a second, turning of the actor included
    frames: Tensor  # [A, 4] unit, world from node
    scales: Tensor  # [N, 3] metres; of all, as everything below
    opacities: Tensor  # [N] 0 to 1
    sh0: Tensor  # [N, 1, 3] in the axes of the node
    sh_rest: Tensor  # [N, S_h - 1, 3]
    lidar: Tensor  # [N, 2] intensity and ray-drop probability, 0 to 1

    def __len__(self) -> int:
        return len(self.scales)

    @property
    def sh(self) -> Tensor:  # [N, S_h, 3] all bands, by copying
        return torch.cat([self.sh0, self.sh_rest], dim=1)

    def select(
        self,
        index: Tensor,  # [n] int64, ascending
    ) -> "PartedGaussians":
        """Waits for the device, which alone knows how many of them stand still."""
        still = int((index < len(self.still_means)).sum())
        rows = dict.fromkeys(("still_means", "still_quats"), index[:still])
        rows |= dict.fromkeys(("means", "quats", "velocities", "frames"), index[still:] - len(self.still_means))
        rows |= dict.fromkeys(("scales", "opacities", "sh0", "sh_rest", "lidar"), index)
        return PartedGaussians(**{k: getattr(self, k).index_select(0, i) for k, i in rows.items()})

    def whole(self) -> WorldGaussians:
        """All N in one, by copying."""
        unturned = self.frames.new_tensor([1.0, 0, 0, 0]).expand(len(self.still_means), 4)
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


AnyGaussians = WorldGaussians | PartedGaussians  # what projection and renderers take


def activate(g: Gaussians) -> dict[str, Tensor]:
    """Unit quaternions, scales = exp, opacities and lidar values = sigmoid; by the names of WorldGaussians. Harmonics are what they are."""
    return {
        "means": g.means,
        "quats": quat_normalize(g.quats),
        "scales": g.log_scales.exp(),
        "opacities": torch.sigmoid(g.opacity_logits),
        "lidar": torch.sigmoid(g.lidar_logits),
    }


def log_odds(
    p: Tensor,  # [...] probability
) -> Tensor:
    return torch.logit(p, eps=1e-6)
