# SPDX-License-Identifier: Apache-2.0
"""Small scenes, the lists of their warp tiles, and renders from them by segments (nurec_lite/native/warps.py)."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from parity import cast_view, drivers_of
from splat_scenes import (
    CAMERA_MOTION,
    F64,
    LIDAR_MOTION,
    around,
    in_frustum,
    make_camera_view,
    make_gaussians,
    make_lidar,
    make_lidar_view,
    to_float32,
    view_float32,
)
from torch import Tensor

from nurec_lite.native import ops
from nurec_lite.native import stages as native
from nurec_lite.native.operators.rays import rays
from nurec_lite.native.operators.shared import gaussian_args, has_per_ray_origins, packed_view, ray_and_list_args
from nurec_lite.native.plan import CUDA_PLAN
from nurec_lite.scene.gaussians import AnyGaussians, WorldGaussians
from nurec_lite.splat.tiles import PairList
from nurec_lite.splat.views import CameraView, LidarView

PLAN = replace(CUDA_PLAN, warp_tiles=True, tight_lists=True)
WHOLE = 1 << 30  # entries of a segment: no list is cut
View = CameraView | LidarView
VIEWS = ("still camera", "moving camera", "lidar")


def driven(name: str) -> torch.device:
    """Device of the CUDA drivers; the test is skipped elsewhere."""
    found = torch.device(name)
    if drivers_of(found) == "cpu":
        pytest.skip("the CPU has no warp tiles; with NUREC_LITE_EMULATE_CUDA=1 it runs the CUDA drivers")
    ops.load()
    return found


def view_of(sensor: str, device: torch.device) -> View:
    if sensor == "lidar":
        view: View = make_lidar_view(make_lidar(12, 64), LIDAR_MOTION)
    else:
        view = make_camera_view(37, 29, 30.0, *(("top_to_bottom", CAMERA_MOTION) if "moving" in sensor else ()))
    return cast_view(view_float32(view), torch.float32, device)


def scene(view: View, device: torch.device, n: int = 200, **options: Any) -> WorldGaussians:
    local = in_frustum(cast_view(view, F64, "cpu"), n, 3, 8, 0.2) if isinstance(view, CameraView) else around(n, 3, 8)
    return on(device, make_gaussians(local, **({"speed": 2.0, "scales": (0.05, 0.8)} | options)))


def on(device: torch.device, g: WorldGaussians) -> WorldGaussians:
    return WorldGaussians(**{k: v.to(device) for k, v in vars(to_float32(g)).items()})


def lists_of(g: AnyGaussians, view: View, exact: bool, capacity: int | None = None) -> PairList:
    plan = replace(PLAN, tight_lists=exact)
    return native.tile(native.project(g, view, capacity, plan), view, capacity, plan)


def listed(pairs: PairList, n: int) -> Tensor:  # [A, n] bool
    found = torch.zeros(len(pairs.rays), n, dtype=torch.bool)
    of = torch.repeat_interleave(torch.arange(len(pairs.rays)), pairs.offsets.diff().cpu())
    found[of, pairs.gaussians[: len(of)].cpu()] = True
    return found


def in_warp_tiles(pairs: PairList, seen: Tensor) -> Tensor:  # [A, N] of [R, N] bool: whether a ray of the bundle does
    rays = pairs.rays.cpu()
    return ((rays >= 0)[:, :, None] & seen[rays.clamp(min=0)]).any(1)


def rendered(g: AnyGaussians, view: View, pairs: PairList, length: int = WHOLE) -> list[Tensor]:
    """Features, distance, transmittance and median of each ray."""
    return call_parts(g, view, pairs, length)[:4]


def call_parts(g: AnyGaussians, view: View, pairs: PairList, length: int) -> list[Tensor]:
    return list(torch.ops.nurec_lite.render_segments(*given(g, view, pairs), length))


def given(g: AnyGaussians, view: View, pairs: PairList) -> tuple[Any, ...]:
    """Arguments of the operator, less the length of a segment."""
    features = g.lidar if isinstance(view, LidarView) else g.sh[:, 0].abs().contiguous()
    arrays = ray_and_list_args(rays(view), pairs)
    return gaussian_args(g), features, *arrays, packed_view(view), has_per_ray_origins(view)
