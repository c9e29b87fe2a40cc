# SPDX-License-Identifier: Apache-2.0
"""`collect_gaussian_parameters`: the Gaussians of the background and of every actor, in world space at one time or at several."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from nurec_lite.geometry.se3 import quat_multiply, quat_rotate
from nurec_lite.geometry.tracks import TrackPoses, Tracks, interpolate
from nurec_lite.scene.gaussians import BACKGROUND, WorldGaussians, activate, seen
from nurec_lite.scene.scene import Scene


def collect_gaussian_parameters(
    scene: Scene,
    time: float,  # seconds
    interpolate: Callable[[Tracks, Tensor], TrackPoses] = interpolate,
    by_lidar: bool = False,  # whether a lidar looks at them
) -> WorldGaussians:
    """World-space Gaussians of the background and of every actor that exists at `time`: means and rotations moved by the actor's
    pose, velocities from its motion (v + w x (mean - centre)). Differentiable in the Gaussians and in the tracks' keyframes."""
    times = torch.tensor([time], dtype=torch.float64, device=scene.tracks.times.device)
    return collect_at(scene, times, interpolate, by_lidar=(by_lidar,))[0]


def collect_at(
    scene: Scene,
    times: Tensor,  # [Q] float64, seconds, on the device
    interpolate: Callable[[Tracks, Tensor], TrackPoses] = interpolate,
    local: Mapping[str, Tensor] | None = None,  # activate(scene.gaussians), if it is known already
    by_lidar: Sequence[bool] | None = None,  # [Q] whether a lidar looks at each time; None: cameras do
) -> tuple[WorldGaussians, ...]:  # Q
    """World-space Gaussians as by `collect_gaussian_parameters`, at several times: one interpolation, one activation."""
    tracks = scene.learned_tracks()
    poses = interpolate(tracks, times)
    local = activate(scene.gaussians) if local is None else local
    local = {**local, "sh": scene.gaussians.sh()}
    looks = [False] * len(times) if by_lidar is None else by_lidar
    return tuple(_at(seen(local, lidar), scene.gaussians.node, poses, q) for q, lidar in enumerate(looks))


def _at(local: Mapping[str, Tensor], node: Tensor, poses: TrackPoses, query: int) -> WorldGaussians:
    """Gaussians without the actors that do not exist at that time."""
    if not poses.valid[query].all():
        present = torch.cat([poses.valid.new_ones(1), poses.valid[query]]).index_select(0, node)
        kept = torch.nonzero(present).squeeze(-1)  # once: a mask would count anew, and wait, for every tensor
        node = node.index_select(0, kept)
        local = {name: value.index_select(0, kept) for name, value in local.items()}
    return _to_world(local, node, poses, query)


def _to_world(local: Mapping[str, Tensor], node: Tensor, poses: TrackPoses, query: int) -> WorldGaussians:
    actor = torch.nonzero(node != BACKGROUND).squeeze(-1)
    track = node.index_select(0, actor) - 1
    q, place, velocity, spin = (
        values[query].index_select(0, track)
        for values in (poses.quaternions, poses.translations, poses.velocities, poses.angular_velocities)
    )
    arm = quat_rotate(q, local["means"].index_select(0, actor))
    frames = local["quats"].new_tensor([1.0, 0, 0, 0]).expand(len(node), 4)
    moved = {
        "means": local["means"].index_copy(0, actor, arm + place),
        "quats": local["quats"].index_copy(0, actor, quat_multiply(q, local["quats"].index_select(0, actor))),
        "frames": frames.index_copy(0, actor, q),
        "velocities": torch.zeros_like(local["means"]).index_copy(0, actor, velocity + torch.linalg.cross(spin, arm)),
    }
    return WorldGaussians(**{**local, **moved})
