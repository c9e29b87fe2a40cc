# SPDX-License-Identifier: Apache-2.0
"""The scene that training starts from: disks on the lidar's surfaces, coloured from the images, guesses beyond them, and a sky."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nurec_lite.base.memory import memory_for
from nurec_lite.base.ranges import span
from nurec_lite.bounds import AUTO
from nurec_lite.capture.types import Capture, CaptureError
from nurec_lite.config import ModelConfig, TrainConfig
from nurec_lite.scene.beyond import far_positions, panorama
from nurec_lite.scene.disks import disks
from nurec_lite.scene.gaussians import Gaussians
from nurec_lite.scene.mirror import symmetric_nodes, with_mirrored
from nurec_lite.scene.moments import Asked, Seen, Wanted, fewer_frames, seen
from nurec_lite.scene.needed import Cap, CapLimits, InitialCounts, Number, patches_seen
from nurec_lite.scene.neighbours import nearest
from nurec_lite.scene.points import Points
from nurec_lite.scene.scene import Scene
from nurec_lite.scene.unmeasured import unmeasured_positions
from nurec_lite.scene.voxels import Voxels, voxel_means

REFERENCE_METRES = 10.0  # up to this distance from the trajectory voxels have their smallest size


@dataclass(frozen=True)
class FirstScene:
    """A scene to start from, and the most Gaussians that it may grow to."""

    scene: Scene
    chosen: Cap


def make_scene(
    capture: Capture,
    config: ModelConfig,
    seed: int,
    device: torch.device | str,
) -> Scene:
    """Gaussians from all training sweeps and images, computed on the device."""
    return first_scene(capture, config, AUTO, seed, device, TrainConfig()).scene


def first_scene(
    capture: Capture,
    config: ModelConfig,
    cap: Number,  # largest number of Gaussians
    seed: int,
    device: torch.device | str,
    budget: TrainConfig,
    looked: Callable[[], None] = lambda: None,  # called when no more frames are looked at
) -> FirstScene:
    """Scene as by `make_scene`, and its cap. The capture decides on numbers that the configuration leaves open."""
    limits = CapLimits.of(capture, torch.device(device), budget)
    least = limits.choose(0).cap if isinstance(cap, str) else cap  # nothing is looked at yet
    first = InitialCounts.of(config, least)
    poses = torch.stack([frame.T_world_rig_start[:3, 3] for frame in (*capture.sweeps, *capture.images)])
    far = far_positions(poses, first.far, config.far_metres, seed)
    if not _training_sweeps(capture):
        far = torch.cat([far, unmeasured_positions(capture, first.points, config.far_metres, seed)])
    wanted = Wanted(first.points, config.actor_points * len(capture.tracks), first.raised)
    symmetric = symmetric_nodes(capture.tracks) if config.mirror_actors else frozenset()
    with memory_for(f"the frames of {capture.name}", fewer_frames(capture, wanted.background)):
        with span("moments"):
            shown = seen(Asked(capture, far.to(device), config.sky_height, wanted))
        looked()
        path = poses.unique(dim=0).to(device)
        level = _level(shown.background, path)
        chosen = limits.choose(patches_seen(shown.background, level)) if isinstance(cap, str) else Cap(cap, "given")
        parts = _parts(shown, level, path, config, InitialCounts.of(config, chosen.cap), symmetric)
    if not parts:
        raise CaptureError(
            f"capture {capture.name} shows nothing to start from: no ray of a training sweep returned and no training "
            "image sees the far shell; use more frames, or model.points and model.far_points above 0"
        )
    with span("disks"):
        gaussians = disks([part for part, _ in parts], [opacity for _, opacity in parts], config)
    order = torch.argsort(gaussians.node, stable=True)  # the background, then track by track
    gaussians = Gaussians(*(getattr(gaussians, f)[order] for f in Gaussians.__dataclass_fields__))
    tracks = capture.tracks.to(device)
    exposure = torch.zeros(len(capture.cameras), 2, 3, device=device)
    learned = tracks.translations.clone(), tracks.quaternions.clone(), exposure
    scene = Scene(gaussians, panorama(shown.sky, config.sky_height), tracks, *learned, capture.origin)
    return FirstScene(scene, chosen)


def _training_sweeps(capture: Capture) -> int:
    assert capture.split is not None
    return len(capture.split.train_sweeps)


def _parts(
    shown: Seen,
    level: Tensor,  # [n] of the background's points, as `_level` has it
    path: Tensor,  # [m, 3] metres, where the vehicle was
    config: ModelConfig,
    counts: InitialCounts,
    symmetric: frozenset[int],  # nodes that get a far side like the near one
) -> list[tuple[Points, float]]:
    """Points that become Gaussians, each part with its opacity; none of them is empty."""
    background = _thinned(shown.background, level, counts.points)
    raised = _thinned(shown.raised, _level(shown.raised, path), counts.raised)
    parts = [(part, config.opacity) for part in (background, *_of_actors(shown.actors, config, symmetric))]
    parts += [(part, config.guessed_opacity) for part in (raised, shown.far)]
    return [(part, opacity) for part, opacity in parts if len(part)]


def _of_actors(points: Points, config: ModelConfig, symmetric: frozenset[int]) -> list[Points]:
    """Points of each actor that was seen."""
    points = with_mirrored(points, symmetric)
    order = points.node.argsort(stable=True)
    counts = torch.unique_consecutive(points.node[order], return_counts=True)[1]
    return [_thinned(points.select(own), None, config.actor_points) for own in order.split(counts.tolist())]


def _level(points: Points, path: Tensor) -> Tensor:
    """[n] how often the voxels double: their size grows with the distance to the trajectory, as a pixel's footprint does."""
    with span("levels"):
        distance = nearest(points.xyz, path, 1)[0][:, 0] if len(points) else points.xyz[:, 0]
    return torch.log2((distance / REFERENCE_METRES).clamp(min=1)).floor().clamp(max=4)


def _thinned(
    points: Points,  # of one node
    level: Tensor | None,  # [n] how often the voxels double; None: never
    n: int,
) -> Points:
    """About n points at most: means of voxels, of the size that leaves so many; points without a colour take the nearest one's."""
    if n == 0:
        return Points.empty(points.xyz.device)
    if len(points) > n:
        with span("voxels"):
            points = voxel_means(points, _key(points, level, n))
    with span("uncoloured"):
        return _with_colours(points)


def _key(points: Points, level: Tensor | None, n: int) -> Tensor:  # [points] int64
    """The voxel of each point, of a size that lets about n voxels hold points."""
    voxels = Voxels(points.xyz, level)
    return voxels.key(voxels.size_for(n))


def _with_colours(points: Points) -> Points:
    known, missing = (torch.nonzero(c).squeeze(-1) for c in (points.coloured, ~points.coloured))
    if len(known) == 0 or len(missing) == 0:
        return points
    index = nearest(points.xyz[missing], points.xyz[known], 1)[1][:, 0]
    return replace(points, colour=points.colour.index_copy(0, missing, points.colour[known[index]]))
