# SPDX-License-Identifier: Apache-2.0
"""The scene that training starts from: disks on the lidar's surfaces, coloured from the images, guesses beyond them, and a sky."""

import math
from dataclasses import replace

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from nurec_lite.base.pool import in_threads
from nurec_lite.capture.types import Capture, CaptureError
from nurec_lite.config import ModelConfig
from nurec_lite.geometry.harmonics import DEGREE_0
from nurec_lite.geometry.se3 import matrix_to_quat
from nurec_lite.scene.beyond import far_points, panorama, raised_points
from nurec_lite.scene.gaussians import BACKGROUND, Gaussians, log_odds
from nurec_lite.scene.points import Points, lidar_points
from nurec_lite.scene.scene import Scene

NEIGHBOURS = 8
CHUNK = 20_000  # points whose axes one thread finds at a time
REFERENCE_METRES = 10.0  # up to this distance from the trajectory voxels have their smallest size


def make_scene(
    capture: Capture,
    config: ModelConfig,
    seed: int,
    device: torch.device | str,
) -> Scene:
    """Gaussians from all training sweeps and images, on the device."""
    points = lidar_points(capture)
    path = torch.stack([frame.T_world_rig_start[:3, 3] for frame in (*capture.sweeps, *capture.images)])
    background = points.select(points.node == BACKGROUND)
    measured = [_thinned(background, _level(background, path), config.points)]
    for k in range(len(capture.tracks)):
        own = points.select(points.node == k + 1)
        measured.append(_thinned(own, torch.zeros(len(own)), config.actor_points))
    raised = raised_points(capture)
    guessed = [
        _thinned(raised, _level(raised, path), config.raised_points),
        far_points(capture, path, config.far_points, config.far_metres, seed),
    ]
    stores = [_disks(part, config, config.opacity) for part in measured if len(part)]
    stores += [_disks(part, config, config.guessed_opacity) for part in guessed if len(part)]
    if not stores:
        raise CaptureError(
            f"capture {capture.name} shows nothing to start from: no ray of a training sweep returned and no training "
            "image sees the far shell; use more frames, or model.points and model.far_points above 0"
        )
    order = torch.argsort(torch.cat([s.node for s in stores]), stable=True)  # the background, then track by track
    gaussians = Gaussians(
        *(torch.cat([getattr(s, f) for s in stores])[order].to(device) for f in Gaussians.__dataclass_fields__)
    )
    tracks = capture.tracks.to(device)
    exposure = torch.zeros(len(capture.cameras), 2, 3, device=device)
    sky = panorama(capture, config.sky_height).to(device)
    return Scene(
        gaussians, sky, tracks, tracks.translations.clone(), tracks.quaternions.clone(), exposure, capture.origin
    )


def _level(points: Points, path: Tensor) -> Tensor:
    """[n] how often the voxels double: their size grows with the distance to the trajectory, as what a pixel covers does."""
    if len(points) == 0:
        return torch.zeros(0)
    distance = torch.from_numpy(cKDTree(path.numpy()).query(points.xyz.numpy(), workers=-1)[0])
    return torch.log2((distance / REFERENCE_METRES).clamp(min=1)).floor().clamp(max=4)


def _thinned(points: Points, level: Tensor, n: int) -> Points:
    """About n points at most: means of voxels, of the size that leaves so many; points without a colour take the nearest one's."""
    if n == 0:
        return points.select(torch.arange(0))
    low, high = 0.01, 10.0  # metres, size of the smallest voxel
    if len(points) > n:
        voxels = Voxels(points.xyz, level)
        for _ in range(12):
            size = math.sqrt(low * high)
            if _distinct(voxels.key(size)) > n:
                low = size
            else:
                high = size
        points = _voxel_means(points, _numbered(voxels.key(high)))
    return _with_colours(points)


def _with_colours(points: Points) -> Points:
    known, missing = (torch.nonzero(c).squeeze(-1) for c in (points.coloured, ~points.coloured))
    if len(known) == 0 or len(missing) == 0:
        return points
    nearest = cKDTree(points.xyz[known].numpy()).query(points.xyz[missing].numpy(), workers=-1)[1]
    colour = points.colour.index_copy(0, missing, points.colour[known[torch.from_numpy(nearest)]])
    return replace(points, colour=colour)


class Voxels:
    """Which points share a voxel, for one size after the other, in the same memory."""

    def __init__(
        self,
        xyz: Tensor,  # [n, 3] metres, float64
        level: Tensor,  # [n] how often the voxels double
    ) -> None:
        self.scaled, self.level = xyz.T.contiguous() / 2**level, level.long()
        self.low, self.high = self.scaled.amin(1), self.scaled.amax(1)
        self.room, self.whole = torch.empty_like(self.scaled[0]), torch.empty_like(self.level)
        self.keys = torch.empty_like(self.level)

    def key(
        self,
        size: float,  # metres, of the smallest
    ) -> Tensor:  # [n] int64, equal for points of one voxel; the next call overwrites it
        counts = (self.high / size).floor() - (self.low / size).floor() + 1
        self.keys.copy_(self.level)
        for along, count in zip(self.scaled, counts.long().tolist(), strict=True):
            self.whole.copy_(torch.div(along, size, out=self.room).floor_())
            self.keys.mul_(count).add_(self.whole)
        return self.keys


def _distinct(key: Tensor) -> int:
    """How many different ones. NumPy sorts integers several times as fast as PyTorch does, which also keeps track of where they were."""
    ordered = np.sort(key.numpy())
    return int(np.count_nonzero(ordered[1:] != ordered[:-1])) + 1


def _numbered(key: Tensor) -> Tensor:
    """[n] the keys numbered in order, without gaps."""
    ordered, order = key.sort()
    number = torch.cat([torch.zeros(1, dtype=torch.int64), (ordered[1:] != ordered[:-1]).long().cumsum(0)])
    return torch.empty_like(number).index_copy(0, order, number)


def _voxel_means(points: Points, cell: Tensor) -> Points:
    n = int(cell.max()) + 1

    def mean(values: Tensor, weight: Tensor) -> Tensor:  # values [points, C]
        total = torch.zeros(n, values.shape[1], dtype=torch.float64).index_add(
            0, cell, (values * weight[:, None]).double()
        )
        return total / torch.bincount(cell, weight.double(), minlength=n).clamp(min=1e-9)[:, None]

    ones, coloured = torch.ones(len(points)), points.coloured.float()
    has_colour = torch.bincount(cell, coloured, minlength=n) > 0
    colour = torch.where(has_colour[:, None], mean(points.colour, coloured), torch.tensor(0.5, dtype=torch.float64))
    intensity = mean(points.intensity[:, None], ones)[:, 0].float()
    return Points(mean(points.xyz, ones), points.node[:1].expand(n), colour.float(), has_colour, intensity)


def _disks(points: Points, config: ModelConfig, opacity: float) -> Gaussians:
    """Flat Gaussians in the plane of their neighbours (principal axes), as wide as the neighbours are apart."""
    xyz = points.xyz.numpy()
    k = min(NEIGHBOURS, len(xyz))
    distances, index = cKDTree(xyz).query(xyz, k=k, workers=-1)
    around = torch.from_numpy(xyz[index.reshape(len(xyz), k)])
    offsets = around - around.mean(1, keepdim=True)
    axes = torch.cat(list(in_threads(_principal_axes, offsets.split(CHUNK))))
    near = torch.from_numpy(distances.reshape(len(xyz), k)[:, 1:4]).mean(1) if k > 1 else torch.full((len(xyz),), 0.1)
    scales = 0.6 * near.clamp(0.01, 4.0)[:, None] * torch.tensor([config.thickness, 1.0, 1.0], dtype=torch.float64)
    n, rest = len(points), (config.sh_degree + 1) ** 2 - 1
    opacities = torch.full((n,), opacity)
    lidar = [points.intensity.clamp(0.02, 0.98), torch.full((n,), 0.02), *([opacities] if config.lidar_opacity else [])]
    return Gaussians(
        means=points.xyz.float(),
        quats=matrix_to_quat(axes).float(),
        log_scales=scales.float().log(),
        opacity_logits=log_odds(opacities),
        sh0=((points.colour - 0.5) / DEGREE_0)[:, None],
        sh_rest=torch.zeros(n, rest, 3),
        lidar_logits=log_odds(torch.stack(lidar, dim=-1)),
        node=points.node,
    )


def _principal_axes(
    offsets: Tensor,  # [n, k, 3] of neighbours from their mean
) -> Tensor:  # [n, 3, 3] columns from the least to the largest extent, right-handed
    scatter = offsets.transpose(1, 2) @ offsets + 1e-12 * torch.eye(3, dtype=torch.float64)
    axes = torch.linalg.eigh(scatter).eigenvectors
    return axes * torch.linalg.det(axes)[:, None, None].sign()
