# SPDX-License-Identifier: Apache-2.0
"""Several views of one sensor, and scenes with actors that they see (nurec_lite/native/inference.py)."""

from dataclasses import replace
from typing import Any

import torch
from lenses import lens_view
from parity import cast, cast_view, scene_of
from splat_scenes import (
    CAMERA_MOTION,
    F64,
    LIDAR_MOTION,
    POSE,
    STILL,
    around,
    changed,
    in_frustum,
    make_camera_view,
    make_gaussians,
    make_lidar,
    make_lidar_view,
    make_pose,
    make_rosette_view,
    make_sky,
    uniform,
    view_float32,
)

from nurec_lite.scene.gaussians import Gaussians, WorldGaussians
from nurec_lite.scene.scene import Scene
from nurec_lite.splat.views import CameraView, LidarView

SENSORS = ("still camera", "moving camera", "lidar")
View = CameraView | LidarView


def views_of(sensor: str, n: int, device: torch.device, **sizes: int) -> list[View]:
    """Each from a place and at a time of its own, of one sensor; actors are gone at the time of the third and those after it."""
    made: list[Any] = []
    for k in range(n):
        T = POSE @ make_pose((0.0, 0.02 * k, 0.01 * k), (0.3 * k, -0.1 * k, 0.05 * k))
        if sensor == "lidar":
            view: Any = make_lidar_view(make_lidar(12, 64), LIDAR_MOTION, T)
            view = replace(view, directions=view.directions[k:], fractions=view.fractions[k:])  # not all as many
        else:
            moving = "moving" in sensor
            shutter, motion = ("top_to_bottom", CAMERA_MOTION) if moving else ("global", STILL)
            view = make_camera_view(sizes.get("width", 37), sizes.get("height", 29), 30.0, shutter, motion, T)
        late = 0.1 * k if k < 2 else 2.0
        made.append(replace(view, time_start=view.time_start + late, time_end=view.time_end + late))
    shared = made[0].sensor
    field = "lidar" if sensor == "lidar" else "camera"
    return [cast_view(view_float32(replace(v, **{field: shared})), torch.float32, device) for v in made]


def scene_for(view: View, n: int, device: torch.device, actors: float = 0.4, **options: Any) -> Scene:
    at_home = cast_view(view, F64, "cpu")
    local = in_frustum(at_home, n, 3, 8, 0.2) if isinstance(at_home, CameraView) else around(n, 3, 8)
    given = {"scales": (0.05, 0.8), "coefficients": 9} | {k: v for k, v in options.items() if k == "coefficients"}
    g = make_gaussians(local, **given)  # type: ignore[arg-type]
    return ordered(changed(g, **{k: v for k, v in options.items() if k == "opacities"}), device, actors)


def lens_views(
    kinds: tuple[str, ...],  # of LENSES, or plain
    device: torch.device,
    shutter: str = "top_to_bottom",
    same: bool = False,  # one camera has all views
) -> list[View]:
    """A view through each lens, of images of one size, each from a place and at a time of its own."""
    made: list[Any] = []
    for k, kind in enumerate(kinds):
        T = POSE @ make_pose((0.0, 0.2 * k, 0.1 * k), (0.3 * k, -0.1 * k, 0.05 * k))
        motion = STILL if shutter == "global" else CAMERA_MOTION
        if kind == "plain":
            view = make_camera_view(37, 29, 30.0, shutter, motion, T)
        else:
            view = lens_view(kind, 37, 29, shutter=shutter, motion=motion, T_world_cam=T)
        camera = made[0].camera if same and made else replace(view.camera, name=f"c{k}", cx=view.camera.cx - k)
        late = 0.1 * k if k < 2 else 2.0
        made.append(replace(view, camera=camera, time_start=view.time_start + late, time_end=view.time_end + late))
    return [cast_view(view_float32(view), torch.float32, device) for view in made]


def scene_around(n: int, device: torch.device) -> Scene:
    """Gaussians on all sides of a camera at POSE, some of them on it."""
    local = uniform(0.3, 8, n, 1) * torch.nn.functional.normalize(torch.randn(n, 3, dtype=F64), dim=-1)
    return ordered(make_gaussians(local, scales=(0.05, 0.8), coefficients=9), device)


def rosette_views(n: int, device: torch.device) -> list[View]:
    """Sweeps of a lidar without rows and columns."""
    first = make_rosette_view(500, LIDAR_MOTION)
    made = [replace(first, directions=first.directions[k:], fractions=first.fractions[k:]) for k in range(n)]
    late = [replace(v, time_start=v.time_start + 0.1 * k, time_end=v.time_end + 0.1 * k) for k, v in enumerate(made)]
    return [cast_view(view_float32(view), torch.float32, device) for view in late]


def ordered(g: WorldGaussians, device: torch.device, actors: float = 0.4) -> Scene:
    scene = scene_of(g, actors, sky=make_sky())
    order = torch.argsort(scene.gaussians.node, stable=True)
    scene.gaussians = Gaussians(*(getattr(scene.gaussians, f)[order] for f in Gaussians.__dataclass_fields__))
    return cast(scene, torch.float32, device)
