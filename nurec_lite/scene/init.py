# SPDX-License-Identifier: Apache-2.0
"""The scene that training starts from: disks on the lidar's surfaces, coloured from the images, a far shell, and a grey sky."""

import math

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.capture.types import Capture
from nurec_lite.config import ModelConfig
from nurec_lite.geometry.lidar import unit_directions
from nurec_lite.geometry.se3 import matrix_to_quat
from nurec_lite.scene.gaussians import BACKGROUND, Gaussians, log_odds
from nurec_lite.scene.points import Points, colours_at, lidar_points
from nurec_lite.scene.scene import Scene
from nurec_lite.splat.harmonics import DEGREE_0

NEIGHBOURS = 8
REFERENCE_METRES = 10.0  # up to this distance from the trajectory voxels have their smallest size
FAR_OPACITY = 0.1


def make_scene(
    capture: Capture,
    config: ModelConfig,
    seed: int,
    device: torch.device | str,
) -> Scene:
    """Gaussians from all training sweeps and images, on the device."""
    generator = torch.Generator().manual_seed(seed)
    points = lidar_points(capture)
    path = torch.stack([frame.T_world_rig_start[:3, 3] for frame in (*capture.sweeps, *capture.images)])
    parts = [_background(points.select(points.node == BACKGROUND), path, config.points)]
    for k in range(len(capture.tracks)):
        own = points.select(points.node == k + 1)
        parts.append(own.select(torch.randperm(len(own), generator=generator)[: config.actor_points].sort().values))
    stores = [_disks(part, config) for part in parts if len(part)]
    stores.append(_far_shell(capture, path, config, generator))
    gaussians = Gaussians(*(torch.cat([getattr(s, f) for s in stores]) for f in Gaussians.__dataclass_fields__))
    return _assemble(capture, gaussians, config, device)


def _assemble(capture: Capture, g: Gaussians, config: ModelConfig, device: torch.device | str) -> Scene:
    tracks = capture.tracks.to(device)
    g = Gaussians(*(getattr(g, f).to(device) for f in Gaussians.__dataclass_fields__))
    sky = torch.zeros(3, config.sky_height, 2 * config.sky_height, device=device)
    exposure = torch.zeros(len(capture.cameras), 2, 3, device=device)
    return Scene(g, sky, tracks, tracks.translations.clone(), tracks.quaternions.clone(), exposure)


def _background(points: Points, path: Tensor, n: int) -> Points:
    """About n points: means of voxels whose size grows with the distance to the trajectory, as what a pixel covers does."""
    if len(points) <= n:
        return points
    distance = torch.from_numpy(cKDTree(path.numpy()).query(points.xyz.numpy())[0])
    level = torch.log2((distance / REFERENCE_METRES).clamp(min=1)).floor().clamp(max=4)
    low, high = 0.01, 10.0  # metres, size of the smallest voxel
    for _ in range(12):
        size = math.sqrt(low * high)
        cell = _voxel_of(points.xyz, level, size)
        if int(cell.max()) + 1 > n:
            low = size
        else:
            high = size
    return _voxel_means(points, _voxel_of(points.xyz, level, high))


def _voxel_of(xyz: Tensor, level: Tensor, size: float) -> Tensor:
    """[n] number of the voxel of each point, voxels numbered from 0 without gaps."""
    place = torch.floor(xyz / (size * 2**level)[:, None]).long()
    place -= place.min(0).values
    span = place.max(0).values + 1
    key = ((level.long() * span[0] + place[:, 0]) * span[1] + place[:, 1]) * span[2] + place[:, 2]
    return torch.from_numpy(np.unique(key.numpy(), return_inverse=True)[1])


def _voxel_means(points: Points, cell: Tensor) -> Points:
    n = int(cell.max()) + 1
    count = torch.bincount(cell, minlength=n)

    def mean(values: Tensor, weight: Tensor) -> Tensor:  # values [points, C]
        total = torch.zeros(n, values.shape[1], dtype=torch.float64).index_add(
            0, cell, (values * weight[:, None]).double()
        )
        return total / torch.bincount(cell, weight.double(), minlength=n).clamp(min=1e-9)[:, None]

    ones, coloured = torch.ones(len(points)), points.coloured.float()
    has_colour = torch.bincount(cell, coloured, minlength=n) > 0
    colour = torch.where(has_colour[:, None], mean(points.colour, coloured), torch.tensor(0.5, dtype=torch.float64))
    intensity = mean(points.intensity[:, None], ones)[:, 0].float()
    return Points(mean(points.xyz, ones), torch.zeros_like(count), colour.float(), has_colour, intensity)


def _disks(points: Points, config: ModelConfig) -> Gaussians:
    """Flat Gaussians in the plane of their neighbours (principal axes), as wide as the neighbours are apart."""
    xyz = points.xyz.numpy()
    k = min(NEIGHBOURS, len(xyz))
    distances, index = cKDTree(xyz).query(xyz, k=k, workers=-1)
    around = torch.from_numpy(xyz[index.reshape(len(xyz), k)])
    offsets = around - around.mean(1, keepdim=True)
    axes = torch.linalg.eigh(offsets.transpose(1, 2) @ offsets + 1e-12 * torch.eye(3, dtype=torch.float64)).eigenvectors
    axes = axes * torch.linalg.det(axes)[:, None, None].sign()
    near = torch.from_numpy(distances.reshape(len(xyz), k)[:, 1:4]).mean(1) if k > 1 else torch.full((len(xyz),), 0.1)
    scales = 0.6 * near.clamp(0.01, 2.0)[:, None] * torch.tensor([config.thickness, 1.0, 1.0], dtype=torch.float64)
    return _gaussians(
        points.xyz, matrix_to_quat(axes), scales, points.colour, points.intensity, points.node, config, config.opacity
    )


def _gaussians(
    xyz: Tensor,
    quats: Tensor,
    scales: Tensor,
    colour: Tensor,
    intensity: Tensor,
    node: Tensor,
    config: ModelConfig,
    opacity: float,
) -> Gaussians:
    n, rest = len(xyz), (config.sh_degree + 1) ** 2 - 1
    return Gaussians(
        means=xyz.float(),
        quats=quats.float(),
        log_scales=scales.float().log(),
        opacity_logits=log_odds(torch.full((n,), opacity)),
        sh0=((colour.float() - 0.5) / DEGREE_0)[:, None],
        sh_rest=torch.zeros(n, rest, 3),
        lidar_logits=log_odds(torch.stack([intensity.float().clamp(0.02, 0.98), torch.full((n,), 0.02)], dim=-1)),
        node=node,
    )


def _far_shell(capture: Capture, path: Tensor, config: ModelConfig, generator: torch.Generator) -> Gaussians:
    """Faint Gaussians over the upper half space, evenly in inverse distance, coloured by the image that sees them first."""
    n = config.far_points
    u = torch.rand(n, 3, generator=generator, dtype=torch.float64)
    angles = torch.stack([2 * math.pi * u[:, 0], torch.asin(-0.05 + 0.65 * u[:, 1])], dim=-1)
    distance = 1 / (1 / config.far_metres + u[:, 2] * (1 / 15.0 - 1 / config.far_metres))
    origin = path[torch.randint(len(path), (n,), generator=generator)]
    xyz = origin + distance[:, None] * unit_directions(angles)
    colour, seen = torch.full((n, 3), 0.5), torch.zeros(n, dtype=torch.bool)
    assert capture.split is not None
    for index in sorted({capture.images[i].index for i in capture.split.train_images}):
        if bool(seen.all()):
            break
        missing = torch.nonzero(~seen).squeeze(-1)
        colour[missing], seen[missing] = colours_at(capture, index, xyz[missing])
    scales = (distance * 0.5 * math.sqrt(4 * math.pi * 0.325 / max(n, 1)))[:, None].expand(n, 3)
    quats = F.normalize(torch.randn(n, 4, generator=generator, dtype=torch.float64), dim=-1)
    node = torch.zeros(n, dtype=torch.int64)
    keep = torch.nonzero(seen).squeeze(-1)
    shell = _gaussians(xyz, quats, scales, colour, torch.full((n,), 0.1), node, config, FAR_OPACITY)
    return Gaussians(*(getattr(shell, f)[keep] for f in Gaussians.__dataclass_fields__))
