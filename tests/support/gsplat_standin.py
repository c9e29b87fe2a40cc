# SPDX-License-Identifier: Apache-2.0
"""A stand-in for gsplat's kernels without CUDA: its own plain torch projection and lists, and dense blending.

Its unscented transform drops other Gaussians than that projection (UnscentedTransformParameters): all sigma points, 0.17 standard
deviations from the mean, must lie in front of the camera and within a tenth of the image's size from it. So a Gaussian whose mean lies
farther outside is missing, however far it reaches into the image.

Every call is bound to the signature of the function that it stands in for.
"""

import inspect
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("gsplat")
import gsplat
import torch
from gsplat.cuda._torch_impl import (
    _fully_fused_projection,
    _isect_offset_encode,
    _isect_tiles,
    _quat_scale_to_covar_preci,
)
from gsplat.cuda._wrapper import UnscentedTransformParameters
from peer_standin import STANDIN
from torch import Tensor

from nurec_lite.geometry.se3 import quat_to_matrix

Projected = tuple[Tensor, ...]


def _project(
    means: Tensor, quats: Tensor, scales: Tensor, viewmats: Tensor, Ks: Tensor, width: int, height: int, near: float
) -> Projected:
    covariances = _quat_scale_to_covar_preci(quats, scales, compute_preci=False, triu=False)[0]
    return tuple(_fully_fused_projection(means, covariances, viewmats, Ks, width, height, 0.3, near))


def _conic(
    means: Tensor, covars: None, quats: Tensor, scales: Tensor, viewmats: Tensor, Ks: Tensor, width: int, height: int,
    near_plane: float, eps2d: float, **rest: Any,
) -> Projected:  # fmt: skip
    return _project(means, quats, scales, viewmats, Ks, width, height, near_plane)


def _unscented(
    means: Tensor, quats: Tensor, scales: Tensor, opacities: Tensor, viewmats: Tensor, Ks: Tensor, width: int,
    height: int, near_plane: float, eps2d: float,
) -> Projected:  # fmt: skip
    radii, *rest = _project(means, quats, scales, viewmats, Ks, width, height, near_plane)
    return radii * _sigma_points_seen(means, quats, scales, viewmats[0], Ks[0], (width, height))[:, None], *rest


def _sigma_points_seen(
    means: Tensor, quats: Tensor, scales: Tensor, T_cam_world: Tensor, K: Tensor, size: tuple[int, int]
) -> Tensor:  # [N] bool
    settings = UnscentedTransformParameters()
    assert settings.kappa == 0 and settings.require_all_sigma_points_valid
    steps = settings.alpha * math.sqrt(3) * (quat_to_matrix(quats) * scales[:, None]).transpose(1, 2)
    points = torch.cat([means[:, None], means[:, None] + steps, means[:, None] - steps], dim=1)
    homogeneous = (points @ T_cam_world[:3, :3].T + T_cam_world[:3, 3]) @ K.T
    place, margin = homogeneous[..., :2] / homogeneous[..., 2:] / torch.tensor(size), settings.in_image_margin_factor
    return ((homogeneous[..., 2:] > 0) & (place >= -margin) & (place < 1 + margin)).flatten(1).all(1)


def alphas(means2d: Tensor, conics: Tensor, opacities: Tensor, width: int, height: int) -> Tensor:
    """[N, H, W] of every Gaussian at every pixel; 0 where it is skipped."""
    y, x = torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing="ij")
    dx, dy = (means2d[:, k, None, None] - p for k, p in ((0, x), (1, y)))
    a, b, c = (conics[:, k, None, None] for k in range(3))
    sigma = 0.5 * (a * dx * dx + c * dy * dy) + b * dx * dy
    alpha = (opacities[:, None, None] * torch.exp(-sigma)).clamp(max=0.999)
    return torch.where((sigma >= 0) & (alpha >= 1 / 255), alpha, 0.0)


def _blend(
    means2d: Tensor, conics: Tensor, colors: Tensor, opacities: Tensor, image_width: int, image_height: int,
    tile_size: int, isect_offsets: Tensor, flatten_ids: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Blends by the depth, the last of the colours, and without lists."""
    order = torch.argsort(colors[0, :, -1])
    alpha = alphas(means2d[0], conics[0], opacities[0], image_width, image_height)[order]
    T = torch.cat([torch.ones_like(alpha[:1]), (1 - alpha).cumprod(0)])
    drawn = torch.einsum("nhw,nc->hwc", alpha * T[:-1], colors[0][order])
    return drawn[None], (1 - T[-1])[None, ..., None]


def _blend_exact(
    means: Tensor, quats: Tensor, scales: Tensor, colors: Tensor, opacities: Tensor, viewmats: Tensor, Ks: Tensor,
    image_width: int, image_height: int, **lists: Any,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    assert colors.shape[-1] == 3  # as gsplat's kernel demands
    _, means2d, depths, conics, _ = _project(means, quats, scales, viewmats, Ks, image_width, image_height, 0.2)
    colors = torch.cat([colors, depths[..., None]], dim=-1)
    drawn, opacity = _blend(means2d, conics, colors, opacities, image_width, image_height, **lists)
    return drawn[..., :3], opacity


def _bound(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(getattr(gsplat, name))

    def call(*args: Any, **kwargs: Any) -> Any:
        signature.bind(*args, **kwargs)
        return function(*args, **kwargs)

    return call


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "fully_fused_projection": _conic,
    "fully_fused_projection_with_ut": _unscented,
    "isect_tiles": lambda *args, packed, n_images: _isect_tiles(*args),
    "isect_offset_encode": _isect_offset_encode,
    "rasterize_to_pixels": _blend,
    "rasterize_to_pixels_eval3d": _blend_exact,
    "spherical_harmonics": STANDIN.spherical_harmonics,
}
GSPLAT: Any = SimpleNamespace(
    rasterization=STANDIN.rasterization,
    __version__="stand-in",
    **{name: _bound(name, function) for name, function in _FUNCTIONS.items()},
)
