# SPDX-License-Identifier: Apache-2.0
"""The stages project, tile and render_camera by gsplat's rasterization: the peer that ours is compared with.

gsplat (Ye et al. 2025) blends the ellipses that Gaussians leave in the image plane, as 3DGS does (Kerbl et al. 2023), in one call that
projects, lists and blends. It runs on CUDA only, and draws pinhole images: a rolling shutter stands still in the middle of its exposure.
Arguments are those of gsplat's own trainer with MCMC (not packed, 0.3 pixels^2 added to every ellipse), with our near plane.
Letters: N Gaussians, P pixels.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import isqrt

import torch
from torch import Tensor

from nurec_lite.base.errors import ConfigError
from nurec_lite.geometry.camera import Camera, pixel_directions
from nurec_lite.geometry.se3 import quat_conjugate, quat_rotate, quat_to_matrix
from nurec_lite.native.cache import alone, cache_folder, private_folder
from nurec_lite.scene.gaussians import AnyGaussians, WorldGaussians
from nurec_lite.scene.sky import sample_sky
from nurec_lite.splat.project import NEAR, Projection
from nurec_lite.splat.render import CameraImage, LidarReturns
from nurec_lite.splat.tiles import PairList
from nurec_lite.splat.views import CameraView, LidarView

IMAGES_ALONE = "render=gsplat draws images alone, no lidar"
log = logging.getLogger("nurec_lite")


@dataclass(frozen=True)
class Peer:
    """Functions of gsplat that are used, with their arguments."""

    rasterization: Callable[..., tuple[Tensor, Tensor, dict]]  # -> [1, H, W, 4], [1, H, W, 1], and more
    spherical_harmonics: Callable[[int, Tensor, Tensor], Tensor]  # degree, directions [N, 3], [N, S, 3] -> [N, 3]


def check_device(device: torch.device) -> None:
    if device.type != "cuda":
        raise ConfigError(f"render=gsplat runs on CUDA only, but the device is {device}; use render=own")


def load_peer(device: torch.device) -> Peer:
    """gsplat with its kernels compiled, which its first use would do otherwise; ConfigError names the missing part."""
    check_device(device)
    try:
        import gsplat
    except ImportError as error:
        raise ConfigError(
            f"render=gsplat needs the package gsplat ({error}); pip install gsplat, or use render=own"
        ) from error
    log.info("gsplat compiles its CUDA kernels at its first use on a machine, which takes minutes")
    try:
        with alone(
            private_folder(cache_folder(), "gsplat") / "lock", "gsplat"
        ):  # it removes the files of a build beside it
            gsplat.spherical_harmonics(0, torch.ones(1, 3, device=device), torch.ones(1, 1, 3, device=device))
    except Exception as error:  # of many classes: without nvcc, without a compiler, of the compiler
        raise ConfigError(
            f"gsplat cannot compile its CUDA kernels ({str(error).splitlines()[0]}); install the CUDA toolkit of "
            f"torch's version {torch.version.cuda}, or use render=own"
        ) from error
    return Peer(gsplat.rasterization, gsplat.spherical_harmonics)


@torch.no_grad()
def project(
    gaussians: AnyGaussians,
    view: CameraView | LidarView,
    capacity: int | None = None,  # not used
) -> Projection:
    """Returns no bounds: gsplat finds its own."""
    none = gaussians.means[:0]
    return Projection(torch.zeros(0, dtype=torch.int64, device=none.device), none[:, :2], none[:, :2])


def tile(
    projection: Projection,
    view: CameraView | LidarView,
    capacity: int | None = None,  # not used
) -> PairList:
    """Returns no tiles: gsplat lists its own."""
    return PairList(projection.index[:, None], projection.index.new_zeros(1), projection.index)


def render_camera(
    gaussians: AnyGaussians,
    view: CameraView,
    pairs: PairList,  # empty
    sky: Tensor,  # [3, H, W] logits of the environment map
    peer: Peer,
) -> CameraImage:
    """C = sum w c + T sky(d), all from the camera's pose in the middle of the exposure.

    gsplat's depth is sum w z / sum w with the z of each mean; `distance` is sum w z / d_z, where the ray meets each mean's plane of
    equal z. (Ours is where the ray's response is greatest.)
    """
    gaussians, camera, T_cam_world = gaussians.whole(), view.camera, mid_exposure(view)
    drawn, opacity, _ = peer.rasterization(
        gaussians.means - view.centre(), gaussians.quats, gaussians.scales, gaussians.opacities,
        colour(gaussians, view, peer), T_cam_world[None], intrinsics(camera, T_cam_world.device).to(T_cam_world)[None],
        camera.width, camera.height, near_plane=NEAR, packed=False, render_mode="RGB+ED",
    )  # fmt: skip
    drawn, opacity = drawn[0], opacity[0, ..., 0]
    directions = pixel_directions(camera, T_cam_world.dtype, T_cam_world.device)
    behind = sample_sky(sky, (directions @ T_cam_world[:3, :3]).flatten(0, 1)).view_as(directions)
    image = drawn[..., :3] + (1 - opacity)[..., None] * behind
    return CameraImage(image, drawn[..., 3] * opacity / directions[..., 2], opacity)


def render_lidar(
    gaussians: AnyGaussians,
    view: LidarView,
    pairs: PairList,
) -> LidarReturns:
    raise ConfigError(f"{IMAGES_ALONE}; use render=own")


def colour(
    gaussians: WorldGaussians,
    view: CameraView,
    peer: Peer,
) -> Tensor:  # [N, 3] at least 0
    """Colours from gsplat's own kernel for harmonics, called as its rasterization calls it, but with directions in the
    frame of each Gaussian's node: actors' harmonics rotate with them, which `sh_degree` of the rasterization cannot
    know."""
    towards = gaussians.means - view.eye()
    local = quat_rotate(quat_conjugate(gaussians.frames), towards)
    degree = isqrt(gaussians.sh.shape[1]) - 1
    return (peer.spherical_harmonics(degree, local, gaussians.sh) + 0.5).clamp(min=0)


def mid_exposure(
    view: CameraView,
) -> Tensor:  # [4, 4] camera in the middle of the exposure, from the world's axes about centre()
    pose = view.T_world_sensor_start
    back = pose[:3, :3].T if view.time_start == view.time_end else _middle_axes(view).T
    top = torch.cat([back, back @ (view.centre() - view.eye())[:, None]], dim=1)
    return torch.cat([top, pose[3:]])


def _middle_axes(view: CameraView) -> Tensor:  # [3, 3] world from camera
    return quat_to_matrix(view.pose(torch.full_like(view.T_world_sensor_start[0, 0], 0.5))[0])


@lru_cache(maxsize=32)
def intrinsics(
    camera: Camera,
    device: torch.device,
) -> Tensor:  # [3, 3] float64
    """Intrinsics of a camera, made once and kept; ConfigError for a lens that is no pinhole."""
    if any(camera.distortion) or camera.lens != "pinhole":
        what = "lens distortion" if camera.lens == "pinhole" else f"a {camera.lens} lens"
        raise ConfigError(
            f"camera {camera.name} has {what}, which render=gsplat does not model; "
            "rectify the images, or use render=own"
        )
    rows = [[camera.fx, 0, camera.cx], [0, camera.fy, camera.cy], [0, 0, 1]]
    return torch.tensor(rows, dtype=torch.float64, device=device)
