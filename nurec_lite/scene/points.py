# SPDX-License-Identifier: Apache-2.0
"""Points of sweeps with their colours, those of actors in the frames of their boxes."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nurec_lite.geometry.distances import distances_between
from nurec_lite.geometry.lidar import Sweep
from nurec_lite.geometry.se3 import quat_conjugate, quat_rotate
from nurec_lite.geometry.tracks import Tracks, interpolate, poses_of

BOX_MARGIN = 1.1  # a box is enlarged by this factor to catch all points of its object
SPEEDING = 2.0  # within a sweep an object may be so much faster than in its middle
GROUND_METRES = 0.05  # above the underside of a box points belong to the object, not to the ground that it stands on


@dataclass(frozen=True)
class Points:
    """n points with measured colours and intensities."""

    xyz: Tensor  # [n, 3] metres, float64, in the frame of their node
    node: Tensor  # [n] int64: 0 background, k + 1 track k
    colour: Tensor  # [n, 3] 0 to 1; mean grey where no image saw the point
    coloured: Tensor  # [n] bool
    intensity: Tensor  # [n] 0 to 1
    weights: Tensor | None = (
        None  # [n, 2] float64: of how many each is the mean, and how many of these had a colour; None: of itself
    )

    def __len__(self) -> int:
        return len(self.xyz)

    def weighed(self) -> Tensor:  # [n, 2]
        if self.weights is not None:
            return self.weights
        return torch.stack([torch.ones_like(self.coloured), self.coloured], dim=1).double()

    def columns(self, weighed: bool) -> dict[str, Tensor]:
        """Tensors by name, with the weights if asked for."""
        found = {f: getattr(self, f) for f in self.__dataclass_fields__}
        return found | {"weights": self.weighed()} if weighed else {f: v for f, v in found.items() if f != "weights"}

    def select(
        self,
        which: Tensor,  # [n] bool, or numbers of points
    ) -> "Points":
        index = torch.nonzero(which).squeeze(-1) if which.dtype == torch.bool else which  # once for all fields
        return Points(**{f: v[index] for f, v in self.columns(self.weights is not None).items()})

    @staticmethod
    def empty(device: torch.device | str) -> "Points":
        none = torch.zeros(0, device=device)
        return Points(none.double().view(0, 3), none.long(), none.view(0, 3), none.bool(), none)

    @staticmethod
    def cat(parts: Sequence["Points"]) -> "Points":
        weighed = any(p.weights is not None for p in parts)
        columns = [p.columns(weighed) for p in parts]
        return Points(**{f: torch.cat([c[f] for c in columns]) for f in columns[0]})


def assign_to_actors(
    tracks: Tracks,
    sweep: Sweep,  # R rays that returned
    world: Tensor,  # [R, 3] metres
) -> tuple[Tensor, Tensor]:  # node [R], position in the node's frame [R, 3]
    """A point belongs to the box that holds it at the point's own time; to the last one of several."""
    node = torch.zeros(len(world), dtype=torch.int64, device=world.device)
    if len(tracks) == 0 or len(world) == 0:
        return node, world
    track, near = _near(tracks, sweep.times, world)
    q, t = poses_of(tracks, track, sweep.times[near])
    local, half = quat_rotate(quat_conjugate(q), world[near] - t), 0.5 * tracks.sizes[track]
    inside = (local.abs() <= BOX_MARGIN * half).all(-1) & (local[:, 2] > GROUND_METRES - half[:, 2])
    owner = torch.where(inside, track + 1, 0)
    node = node.scatter_reduce(0, near, owner, "amax")
    won = torch.nonzero(inside & (node[near] == owner)).squeeze(-1)
    return node, world.index_copy(0, near[won], local[won])


def _near(tracks: Tracks, times: Tensor, world: Tensor) -> tuple[Tensor, Tensor]:
    """Pairs of a track that is there in the middle of the times, and of a point that may be in its box."""
    mean = times.mean()
    middle = interpolate(tracks, mean[None])
    moved = SPEEDING * middle.velocities[0].norm(dim=-1) * (times - mean).abs().max()
    radius = 0.5 * BOX_MARGIN * tracks.sizes.norm(dim=-1) + moved + 2  # metres
    there = torch.nonzero(middle.valid[0]).squeeze(-1)
    close = distances_between(middle.translations[0, there], world) < radius[there, None]
    track, near = torch.nonzero(close, as_tuple=True)
    return there[track], near
