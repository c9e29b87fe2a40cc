# SPDX-License-Identifier: Apache-2.0
"""A stand-in for gsplat without CUDA: its rasterization with the exact response of our reference, and its harmonics."""

import torch
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.harmonics import sh_basis
from nurec_lite.geometry.se3 import invert
from nurec_lite.peer.depth import stages_of
from nurec_lite.peer.rasterize import Peer, project, render_camera, tile
from nurec_lite.scene.gaussians import AnyGaussians, WorldGaussians
from nurec_lite.splat.project import project as project_ours
from nurec_lite.splat.reference import blend
from nurec_lite.splat.render import CameraImage
from nurec_lite.splat.render import render_camera as render_ours
from nurec_lite.splat.tiles import tile as tile_ours
from nurec_lite.splat.views import CameraView
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.stages import Stages


def rasterization(
    means: Tensor, quats: Tensor, scales: Tensor, opacities: Tensor, colors: Tensor, viewmats: Tensor, Ks: Tensor,
    width: int, height: int, near_plane: float, packed: bool, render_mode: str,
) -> tuple[Tensor, Tensor, dict]:  # fmt: skip
    """The depth is that of the means, as in gsplat."""
    assert (near_plane, packed, render_mode) == (0.2, False, "RGB+ED")
    (T_cam_world,), ((fx, _, cx), (_, fy, cy), _) = viewmats, Ks[0].tolist()
    camera = Camera("peer", width, height, fx, fy, cx, cy, torch.eye(4, dtype=torch.float64))
    view = CameraView(invert(T_cam_world), invert(T_cam_world), 0.0, 0.0, camera)
    none = torch.zeros_like(means)
    gaussians = WorldGaussians(means, quats, scales, opacities, none[:, None], quats, none[:, :2], none)
    z = means @ T_cam_world[2, :3] + T_cam_world[2, 3]
    pairs = tile_ours(project_ours(gaussians, view), view)
    out = blend(gaussians, torch.cat([colors, z[:, None]], dim=1), view.rays(), pairs, view.centre())
    opacity = 1 - out.transmittance[:, None]
    drawn = torch.cat([out.features[:, :3], out.features[:, 3:] / opacity.clamp(min=1e-10)], dim=1)
    return drawn.view(1, height, width, 4), opacity.view(1, height, width, 1), {}


def spherical_harmonics(degree: int, directions: Tensor, coefficients: Tensor) -> Tensor:
    assert (degree + 1) ** 2 == coefficients.shape[1]
    basis = sh_basis(F.normalize(directions, dim=-1), coefficients.shape[1])
    return (basis[:, :, None] * coefficients).sum(1)


STANDIN = Peer(rasterization, spherical_harmonics)


def peer_stages() -> Stages:
    return stages_of(reference_stages(), STANDIN)


def drawn(gaussians: AnyGaussians, view: CameraView, sky: Tensor, peer: Peer = STANDIN) -> CameraImage:
    return render_camera(gaussians, view, tile(project(gaussians, view), view), sky, peer)


def ours(gaussians: WorldGaussians, view: CameraView, sky: Tensor) -> CameraImage:
    return render_ours(gaussians, view, tile_ours(project_ours(gaussians, view), view), sky)
