# SPDX-License-Identifier: Apache-2.0
"""fused_interp: one kernel interpolates all tracks at all query times and moves every Gaussian of every actor; the background stays.

Idea: `interpolate` is over a hundred tiny kernels on a few poses, and `collect` copies all Gaussians in order to replace those of actors.
The store is ordered by node, so the Gaussians of a track are consecutive rows: one kernel finds a block's track, its two keyframes and
its pose, and writes world means, rotations and velocities of these rows alone. The renderer reads the background where it is stored.
Backward, a block adds up what its rows tell of the pose, and a second kernel adds the blocks of a track in a fixed order, without
atomics, and goes on to the keyframes.
Source: NVIDIA's Nsight post on Omniverse NuRec (interpolate: 4.184 ms -> 83.81 us); formulas in kernels/math/actors.cuh.
Gain: collecting 9.2 -> 1.7 ms of a step of 56.2 ms, which becomes 43.8 ms (H200, KITTI drive 0009, 1 M Gaussians); on 64 tracks,
3 query times and 600 k Gaussians of actors 33 us forward, 64.5 % of copy bandwidth. More in docs/story-1-timeline.md.
Limits: Gaussians of actors that are absent are not left out but transparent (opacity 0), which the projection rejects: leaving them out
would need their number on the host. Class exact: the same formulas, single precision, rounded in another order.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.base.errors import OptionError
from nurec_lite.base.transfer import Arrival
from nurec_lite.geometry.tracks import TrackPoses, Tracks, end_times, key_rows
from nurec_lite.native import ops
from nurec_lite.native.groups import ActorArrays
from nurec_lite.scene.gaussians import BACKGROUND, PartedGaussians, activate, seen
from nurec_lite.scene.scene import Scene
from nurec_lite.training.stages import Stages

CLASS = "exact"
REQUIRES: tuple[str, ...] = ()


def unavailable(stages: Stages) -> str | None:
    return None


class FusedCollect:
    """Stands in for `collect_at`. Remembers where the rows of each track begin until the store changes. How many Gaussians are the
    background's comes from the device; until it has come, they are moved like all others, by a track that stands at the origin."""

    def __init__(self) -> None:
        self._node: Tensor | None = None  # [N] for which the rows below hold
        self._begins = torch.zeros(1, dtype=torch.int64)  # [K + 2] first row of each node, and N
        self._coming: Arrival | None = None  # number of the background's, and whether some node comes too early
        self._still = 0  # Gaussians of the background, as far as they are known
        self._track = torch.zeros(
            0, dtype=torch.int64
        )  # [A] of each row that moves, or its node while the above is coming

    def __call__(
        self,
        scene: Scene,
        times: Tensor,  # [Q] float64, seconds
        interpolate: Callable[[Tracks, Tensor], TrackPoses] | None = None,  # not used: the kernel does it
        local: Mapping[str, Tensor] | None = None,  # activate(scene.gaussians), if it is known already
        by_lidar: Sequence[bool] | None = None,  # [Q] whether a lidar looks at each time; None: cameras do
    ) -> tuple[PartedGaussians, ...]:  # Q
        self._remember(scene)
        g, tracks, s = scene.gaussians, scene.learned_tracks(), self._still
        local = activate(g) if local is None else local
        starts, present = self._begins[1:] - s, exist(tracks, times)
        if self._coming is not None:
            tracks, starts, present = with_origin(tracks), self._begins, F.pad(present, (1, 0), value=1)
        keys = (key_rows(tracks.offsets, tracks.times.device), tracks.times, tracks.translations, tracks.quaternions)
        moved = torch.ops.nurec_lite.move_actors(ActorArrays(g.means[s:], g.quats[s:], starts, *keys, times))
        values = (*moved, present)
        by_query = zip(*(v.unbind(0) for v in values), strict=True)  # unbound: an index's gradient would be all Q again
        looks = [False] * len(times) if by_lidar is None else by_lidar
        known = {**local, "sh0": g.sh0, "sh_rest": g.sh_rest}
        return tuple(self._parted(seen(known, lidar), *own) for lidar, own in zip(looks, by_query, strict=True))

    def known(self, scene: Scene) -> int | None:
        """Gaussians of the background, by which sizes of what it makes follow; None while they are coming."""
        self._remember(scene)
        return None if self._coming is not None else self._still

    def _parted(
        self,
        local: Mapping[str, Tensor],
        means: Tensor,  # [A, 3] world
        quats: Tensor,  # [A, 4]
        velocities: Tensor,  # [A, 3]
        rotations: Tensor,  # [K, 4]
        present: Tensor,  # [K] 1 where the track exists, else 0
    ) -> PartedGaussians:
        s, there = self._still, present.index_select(0, self._track)
        opacities = torch.cat([local["opacities"][:s], local["opacities"][s:] * there])
        return PartedGaussians(
            still_means=local["means"][:s], still_quats=local["quats"][:s],
            means=means, quats=quats, velocities=velocities, frames=rotations.index_select(0, self._track),
            scales=local["scales"], opacities=opacities, sh0=local["sh0"], sh_rest=local["sh_rest"], lidar=local["lidar"],
        )  # fmt: skip

    def _remember(self, scene: Scene) -> None:
        """Where each node's rows begin. Nothing here waits."""
        node = scene.gaussians.node
        if node is not self._node:
            nodes = torch.arange(len(scene.tracks) + 2, device=node.device)
            self._begins, self._still, self._track, self._node = torch.searchsorted(node, nodes), 0, node, node
            self._coming = Arrival(torch.stack([self._begins[BACKGROUND + 1], (node.diff() < 0).sum()]))
        if self._coming is not None and self._coming.there():
            self._still, early = map(int, self._coming.numbers())
            if early:
                raise OptionError(
                    "option 'fused_interp' needs Gaussians in the order of their nodes, but this checkpoint was written "
                    "before they were kept so; train again, or leave the option out"
                )
            self._coming, self._track = None, node[self._still :] - 1


def with_origin(tracks: Tracks) -> Tracks:
    """Before all others, one that stands at the origin, not turned."""
    t, q = tracks.translations, tracks.quaternions
    return replace(
        tracks,
        offsets=(0, *(1 + offset for offset in tracks.offsets)),
        times=F.pad(tracks.times, (1, 0)),
        translations=torch.cat([t.new_zeros(1, 3), t]),
        quaternions=torch.cat([F.pad(q.new_ones(1, 1), (0, 3)), q]),
    )


def exist(
    tracks: Tracks,
    times: Tensor,  # [Q] seconds
) -> Tensor:  # [Q, K] 1 where the track exists, else 0
    first, last = end_times(tracks)
    at = times[:, None]
    return ((at >= first - tracks.margin) & (at <= last + tracks.margin)).to(tracks.translations.dtype)


def apply(stages: Stages) -> Stages:
    ops.load()
    return stages.swap("fused_interp", collect=FusedCollect())
