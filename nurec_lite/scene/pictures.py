# SPDX-License-Identifier: Apache-2.0
"""Colours of points from the images of one moment. Alike cameras share the operators of a projection: on a GPU their number is the cost."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.capture.deskew import project_into_frames
from nurec_lite.capture.types import ImageFrame
from nurec_lite.geometry.camera import Alike, Camera, CameraBatch, alike, project_points
from nurec_lite.geometry.masks import mask_on
from nurec_lite.geometry.se3 import transform
from nurec_lite.geometry.steady import SteadyMotion

NEAREST = 0.1  # least metres of a point from the camera
TOGETHER = 8  # pictures at most, for memory


@dataclass(frozen=True)
class Picture:
    """A decoded image with its camera and frame."""

    camera: Camera
    frame: ImageFrame
    image: Tensor  # [H, W, 3] uint8, on the device of the points that it colours
    motion: SteadyMotion  # of the rig meanwhile, there
    T_cam_world: Tensor  # [4, 4] in the middle of the exposure, float64, there


def colours_in(
    pictures: Sequence[Picture],  # of one moment
    world: Tensor,  # [n, 3] metres, at that moment
) -> tuple[Tensor, Tensor]:  # colour [n, 3] 0 to 1, whether any image saw the point [n]
    """Mean over the images that the points lie in; nothing is known of occlusion.

    Sums are whole numbers, so the order of addition does not matter.
    """
    n = len(world)
    sums = torch.zeros(
        n + 1, 4, dtype=torch.int32, device=world.device
    )  # red, green, blue, images; the last row is none's
    world = torch.cat([world, world.new_full((1, 3), torch.nan)])
    for group in _groups(pictures):
        some = _may_be_seen(group, world)
        values = _colours(group, world.expand(len(group), -1, -1) if some is None else world[some])
        if some is None:
            sums += values.sum(0, dtype=torch.int32)
        else:
            sums.scatter_add_(0, some.flatten()[:, None].expand(-1, 4), values.flatten(0, 1))
    total, count = sums[:n].split([3, 1], dim=1)
    seen = count > 0
    return torch.where(seen, total / (255 * count.clamp(min=1)), 0.5), seen[:, 0]


def _groups(pictures: Sequence[Picture]) -> Iterator[list[Picture]]:
    """Pictures of alike cameras, in their order."""
    groups: dict[Alike, list[Picture]] = {}
    for picture in pictures:
        groups.setdefault(alike(picture.camera), []).append(picture)
    for group in groups.values():
        yield from (group[k : k + TOGETHER] for k in range(0, len(group), TOGETHER))


def _projected(group: Sequence[Picture], points: Tensor, shutter: str) -> tuple[Tensor, Tensor]:
    """Pixels [F, n, 2] and depths [F, n] of points [F, n, 3], as `project_into_frames` has them."""
    camera = _together(tuple(p.camera for p in group), points.device)
    if shutter == "global":
        return project_points(camera, transform(torch.stack([p.T_cam_world for p in group]), points))
    motion = SteadyMotion.stack([p.motion for p in group])
    return project_into_frames(camera, [p.frame for p in group], points, motion)


@lru_cache(maxsize=64)
def _together(cameras: tuple[Camera, ...], device: torch.device) -> Camera | CameraBatch:
    alone = all(camera is cameras[0] for camera in cameras)
    return cameras[0] if alone else CameraBatch.of(cameras, device)


def _may_be_seen(group: Sequence[Picture], world: Tensor) -> Tensor | None:
    """[F, k] numbers of points for each picture, then that of the last point. None: all points.

    Under a rolling shutter, where a point costs several rounds, they are those that lie within half an image of it in the middle of the
    readout.
    """
    camera = group[0].camera
    if camera.shutter == "global":
        return None
    pixels, depth = _projected(group, world.expand(len(group), -1, -1), "global")
    u, v = pixels[..., 0] / camera.width, pixels[..., 1] / camera.height
    return _numbers((depth > 0) & ((u - 0.5).abs() < 1) & ((v - 0.5).abs() < 1))


def _numbers(which: Tensor) -> Tensor:  # [F, n] bool -> [F, k]: the columns of each row, then n - 1
    row, column = torch.nonzero(which, as_tuple=True)
    counts = which.sum(1)
    place = torch.arange(len(row), device=row.device) - (counts.cumsum(0) - counts)[row]
    found = column.new_full((len(which), int(counts.max())), which.shape[1] - 1)
    found[row, place] = column
    return found


def _colours(group: Sequence[Picture], points: Tensor) -> Tensor:
    """[F, n, 4] int32 of points [F, n, 3]: their colours in the pictures and 1, or zeros where a picture does not see the point."""
    camera = group[0].camera
    pixels, depth = _projected(group, points, camera.shutter)
    u, v = torch.floor(pixels).long().unbind(-1)
    seen = (depth > NEAREST) & (u >= 0) & (v >= 0) & (u < camera.width) & (v < camera.height)
    first = torch.arange(len(group), device=u.device)[:, None] * (camera.width * camera.height)
    place = torch.where(seen, first + v * camera.width + u, 0)  # a mask waits for nothing, a list of seen points would
    if any(p.camera.mask is not None for p in group):
        seen &= ~torch.cat([_masked(p) for p in group])[place]
    image = torch.cat([p.image.view(-1, 3) for p in group])
    return F.pad(image[place], (0, 1), value=1).int() * seen[..., None]


def _masked(picture: Picture) -> Tensor:  # [H W] bool
    mask, device = picture.camera.mask, picture.image.device
    return torch.zeros_like(picture.image[..., 0].flatten()).bool() if mask is None else mask_on(mask, device).flatten()
