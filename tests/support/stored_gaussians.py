# SPDX-License-Identifier: Apache-2.0
"""Gaussians as they are stored, with numbers where activations are singular."""

import torch
from torch import Tensor

from nurec_lite.scene.gaussians import Gaussians

STORED = ("quats", "log_scales", "opacity_logits", "lidar_logits")  # sources of activations


def gaussians_of(n: int, columns: int = 3, odd: bool = True) -> Gaussians:
    """Stored Gaussians. With `odd` some quaternions have no length, or too little of it, and the sigmoid of some logits is 0 or 1."""
    generator = torch.Generator().manual_seed(n + columns)

    def made(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    g = Gaussians(
        means=made(n, 3), quats=3 * made(n, 4), log_scales=3 * made(n, 3) - 4, opacity_logits=3 * made(n),
        sh0=made(n, 1, 3), sh_rest=made(n, 0, 3), lidar_logits=3 * made(n, columns), node=torch.zeros(n, dtype=torch.int64),
    )  # fmt: skip
    if odd and n > 20:
        g.quats[1], g.quats[2], g.quats[3] = 0, torch.tensor([1e-13, 0, 0, 0]), torch.tensor([0, -6e-6, 8e-6, 0])
        g.quats[4] *= 1e9
        g.opacity_logits[5:9] = torch.tensor([40.0, -40, 200, -200])
        g.lidar_logits[9:13] = torch.tensor([40.0, -40, 200, -200])[:, None]
        g.log_scales[13] = torch.tensor([-30.0, 8, 0])
    return g


def on(g: Gaussians, device: str, dtype: torch.dtype = torch.float32) -> Gaussians:
    return Gaussians(
        **{k: v.to(device, dtype if v.is_floating_point() else None, copy=True) for k, v in vars(g).items()}
    )


def opacities_of(n: int) -> tuple[Tensor, Tensor, Tensor]:
    """Opacities of camera and lidar, some near one another or equal, and scales."""
    camera, lidar = torch.rand(2, n)
    lidar[: n // 3] = camera[: n // 3] + 0.02 * (torch.rand(n // 3) - 0.5)
    lidar[: n // 6] = camera[: n // 6]
    return camera, lidar, torch.randn(n, 3).exp()
