# SPDX-License-Identifier: Apache-2.0
"""Results of `TrainedScene.render` and `TrainedScene.render_lidar`."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.capture.deskew import world_points
from nurec_lite.capture.origin import to_users_world
from nurec_lite.output.maps import CameraMaps
from nurec_lite.output.points import RenderedSweep


@dataclass(frozen=True)
class CameraRender:
    """An image of H x W pixels, or a batch: every shape then begins with B. Tensors are on the scene's device. None: not asked for."""

    colour: Tensor | None  # [H, W, 3] float32, 0 to 1, as the camera exposes
    depth: Tensor | None  # [H, W] float32, metres forward (angular lenses: along the ray); 0 below an opacity of 0.5
    normals: Tensor | None  # [H, W, 3] float32, unit, camera axes in mid-exposure, towards the camera; 0 as for depth
    opacity: Tensor | None  # [H, W] float32, 0 (sky alone) to 1
    classes: Tensor | None  # [H, W] uint8, index into TrainedScene.class_names


@dataclass(frozen=True)
class LidarRender:
    """A revolution of R rays, or a batch: every shape then begins with B, and R is that of the largest sweep. The rays that a smaller sweep
    lacks have ring -1 and did not return. Tensors are on the scene's device."""

    ranges: Tensor  # [R] float32, metres; 0 where nothing returned
    intensities: Tensor  # [R] float32, 0 to 1; 0 where nothing returned
    returned: Tensor  # [R] bool
    drop: Tensor  # [R] float32, probability that nothing returns
    opacity: Tensor  # [R] float32, 0 to 1
    directions: Tensor  # [R, 3] float32, unit, in the lidar's axes (x forward, y left, z up) at the ray's own time
    times: Tensor  # [R] float64, seconds
    rings: Tensor  # [R] int64, index of the beam
    points: Tensor  # [R, 3] float64, metres, world, each at its own time; NaN where nothing returned


def camera_render(
    maps: Sequence[CameraMaps],
    outputs: Sequence[str],
    batch: bool,
) -> CameraRender:
    """One render of all maps, or of the only one."""

    def joined(name: str) -> Tensor | None:
        values = [getattr(one, name) for one in maps] if name in outputs else []
        return (torch.stack(values) if batch else values[0]) if values else None

    return CameraRender(**{f.name: joined(f.name) for f in fields(CameraRender)})


def lidar_render(
    sweeps: Sequence[RenderedSweep],
    batch: bool,
) -> LidarRender:
    """One render of all sweeps, filled up to the most rays, or of the only one."""
    parts, most = [_values(one) for one in sweeps], max(len(one.rays) for one in sweeps)
    if not batch:
        return LidarRender(**parts[0])
    filled = [{name: _filled(name, value, most) for name, value in part.items()} for part in parts]
    return LidarRender(**{name: torch.stack([part[name] for part in filled]) for name in filled[0]})


def _values(rendered: RenderedSweep) -> dict[str, Tensor]:
    sweep, returns = rendered.sweep, rendered.returns
    points = to_users_world(world_points(rendered.frame, sweep, rendered.lidar), rendered.origin)
    names = ("ranges", "intensities", "returned", "directions", "times", "rings")
    return {name: getattr(sweep, name) for name in names} | {
        "drop": returns.drop,
        "opacity": returns.opacity,
        "points": points.masked_fill(~sweep.returned[:, None], torch.nan),
    }


_FILL = {"rings": -1, "points": torch.nan, "drop": 1}  # else 0


def _filled(name: str, values: Tensor, length: int) -> Tensor:
    missing = (0, 0) * (values.ndim - 1) + (0, length - len(values))
    return F.pad(values, missing, value=_FILL.get(name, 0))
