# SPDX-License-Identifier: Apache-2.0
"""A picture of a PLY by gsplat's own projection and harmonics, in torch: its kernels need a GPU."""

import numpy as np
import pytest
import torch
from gsplat.cuda._torch_impl import _fully_fused_projection, _quat_scale_to_covar_preci, _spherical_harmonics
from torch import Tensor

pytest.importorskip("gsplat")
from nurec_lite.splat.views import CameraView

NEAR, FAR, FAINTEST, LARGEST = 0.01, 1e10, 1 / 255, 0.999  # of gsplat
BLUR = 0.3  # square pixels, which gsplat adds
SKY = 0.5  # grey, as `photograph` has it


def picture(
    ply: dict[str, np.ndarray],  # columns, as a reader that goes by names has them
    view: CameraView,  # an instant of a pinhole without distortion
    blur: float = BLUR,
) -> Tensor:  # [H, W, 3]
    columns = {name: torch.tensor(values, dtype=torch.float32) for name, values in ply.items()}
    means, quats, scales = (torch.stack([columns[k] for k in names], -1) for names in (
        ("x", "y", "z"), [f"rot_{i}" for i in range(4)], [f"scale_{i}" for i in range(3)]))  # fmt: skip
    camera, T = view.camera, view.T_world_sensor_start.float()
    K = torch.tensor([[camera.fx, 0, camera.cx], [0, camera.fy, camera.cy], [0, 0, 1]], dtype=torch.float32)
    covariances, _ = _quat_scale_to_covar_preci(quats, scales.exp(), compute_preci=False)
    radii, centres, depths, conics, _ = (
        None if one is None else one[0]
        for one in _fully_fused_projection(
            means, covariances, T.inverse()[None], K[None], camera.width, camera.height, blur, NEAR, FAR
        )
    )
    seen = torch.nonzero((radii > 0).all(-1)).squeeze(1)
    seen = seen[depths[seen].argsort()]
    colours = (_spherical_harmonics(_degree(ply), means - T[:3, 3], _harmonics(columns)) + 0.5).clamp(min=0)
    return _blended(centres[seen], conics[seen], columns["opacity"][seen].sigmoid(), colours[seen], view)


def _degree(ply: dict[str, np.ndarray]) -> int:
    return round((sum(name.startswith("f_rest_") for name in ply) / 3 + 1) ** 0.5) - 1


def _harmonics(columns: dict[str, Tensor]) -> Tensor:  # [N, S, 3]
    count = sum(name.startswith("f_rest_") for name in columns)
    constant = torch.stack([columns[f"f_dc_{i}"] for i in range(3)], -1)[:, None]
    rest = [columns[f"f_rest_{i}"] for i in range(count)]
    return torch.cat([constant, torch.stack(rest, -1).unflatten(1, (3, -1)).mT], 1) if rest else constant


def _blended(centres: Tensor, conics: Tensor, opacities: Tensor, colours: Tensor, view: CameraView) -> Tensor:
    """Front to back, a row of pixels at a time."""
    x, rows = torch.arange(view.camera.width) + 0.5, []
    for y in range(view.camera.height):
        dx, dy = x[:, None] - centres[:, 0], y + 0.5 - centres[:, 1]
        power = 0.5 * (conics[:, 0] * dx**2 + conics[:, 2] * dy**2) + conics[:, 1] * dx * dy
        alphas = (opacities * torch.exp(-power)).clamp(max=LARGEST)
        alphas = torch.where((power >= 0) & (alphas >= FAINTEST), alphas, 0)
        left = torch.cumprod(1 - alphas, 1)
        before = torch.cat([torch.ones_like(left[:, :1]), left[:, :-1]], 1)
        rows.append((alphas * before) @ colours + SKY * left[:, -1:])
    return torch.stack(rows)
