# SPDX-License-Identifier: Apache-2.0
"""fused_interp: one kernel interpolates all tracks at all query times and moves every Gaussian of every actor; the background stays.

Idea: `interpolate` is over a hundred tiny kernels on a few poses, and `collect` copies all Gaussians in order to replace those of actors.
The store is ordered by node, so the Gaussians of a track are consecutive rows: one kernel finds a block's track, its two keyframes and
its pose, and writes world means, rotations and velocities of these rows alone. The renderer reads the background where it is stored.
Backward, a block adds up its rows' gradients of the pose, and a second kernel adds the blocks of a track in a fixed order, without
atomics, and goes on to the keyframes. Opacities at all query times, 0 of actors that are not there, are one kernel, too.
Source: NVIDIA's Nsight post on Omniverse NuRec (interpolate: 4.184 ms -> 83.81 us); formulas in kernels/math/actors.cuh.
Gain, code before and after, limits: docs/options/fused_interp.md.
Limits: Gaussians of actors that are absent are not left out but transparent (opacity 0), which the projection rejects: leaving them out
would need their number on the host. Class exact: the same formulas, single precision, rounded in another order.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.base.errors import OptionError
from nurec_lite.base.transfer import HostFuture
from nurec_lite.geometry.tracks import TrackPoses, Tracks, key_rows, spans
from nurec_lite.native import ops
from nurec_lite.native.backward_epilogue import Moved
from nurec_lite.native.operators.move_actors import ActorArrays
from nurec_lite.scene.gaussians import BACKGROUND, SplitGaussians, activate, seen
from nurec_lite.scene.scene import Scene
from nurec_lite.training.stages import Stages

CLASS = "exact"
SPARE_SHARE = 64  # one of so many rows stays free for relocations from the background
REQUIRES: tuple[str, ...] = ()


def unavailable(stages: Stages) -> str | None:
    return None


class Moving(NamedTuple):
    """The rows that move, all after the first ones, and their tracks."""

    still: int  # first rows, which do not move
    tracks: tuple[Tensor, ...]  # of ActorArrays, from `starts` on


class Posed(NamedTuple):
    """S static Gaussians, and the dynamic ones at Q times."""

    still_means: Tensor  # [S, 3]
    still_quats: Tensor  # [S, 4] unit
    moved: Sequence[Moved]  # Q


class WithIdentityTrack(NamedTuple):
    """The constant arrays of all tracks, after an identity track that is always there."""

    keys: Tensor  # [K + 2] rows of the keys of each track; the identity track has none
    first: Tensor  # [1 + K] float64 seconds: start of each track
    last: Tensor  # [1 + K] and end

    @staticmethod
    def before(tracks: Tracks) -> "WithIdentityTrack":
        keys, (first, last) = key_rows((0, *tracks.offsets), tracks.times.device), spans(tracks)
        return WithIdentityTrack(keys, F.pad(first, (1, 0), value=-math.inf), F.pad(last, (1, 0), value=math.inf))


class FusedCollect:
    """Replaces `collect_at`. Remembers the first row of each track until the store changes. The first rows are the background's and
    stay in place. Further rows of the background move like those of actors, by an identity track. So a relocation may change the number
    of background rows a little while a recorded step goes on. That number comes from the device; until it has come for a new store, all
    rows move."""

    def __init__(self) -> None:
        self._node = torch.zeros(0, dtype=torch.int64)  # [N] that the rows below belong to
        self._version = -1  # version of the tensor, which counts writes
        self._begins = torch.zeros(1, dtype=torch.int64)  # [K + 2] first row of each node, and N
        self._starts: dict[int, Tensor] = {}  # [K + 2] the same after so many static rows: a recorded step reads it
        self._coming: HostFuture | None = None  # result of `counted`: stored rows and needed rows
        self._counted = torch.zeros(2, dtype=torch.int64)  # the same for the last store
        self._still: int | None = None  # rows that stay where they are; None: the number is coming
        self._tracks: Tracks | None = None  # of the last origin
        self._before: WithIdentityTrack | None = None

    def __call__(
        self,
        scene: Scene,
        times: Tensor,  # [Q] float64, seconds
        interpolate: Callable[[Tracks, Tensor], TrackPoses] | None = None,  # not used: the kernel does it
        local: Mapping[str, Tensor] | None = None,  # activate(scene.gaussians), if it is known already
        by_lidar: Sequence[bool] | None = None,  # [Q] whether a lidar looks at each time; None: cameras do
    ) -> tuple[SplitGaussians, ...]:  # Q
        g = scene.gaussians
        moving, local = self.moving(scene, times), activate(g) if local is None else local
        # by splitting: that gradient is put together at once, while slices' are as large as the whole each, and added
        (means, places), (quats, turns) = (
            local[name].split([moving.still, len(g) - moving.still]) for name in ("means", "quats")
        )
        moved = torch.ops.nurec_lite.move_actors(ActorArrays(places, turns, *moving.tracks))
        # unbound: an index's gradient would be all Q again
        each = [Moved(*values) for values in zip(*(v.unbind(0) for v in moved), strict=True)]
        return self.split_views(scene, Posed(means, quats, each), times, local, by_lidar)

    def still(self, scene: Scene) -> int:
        """The number of first rows that stay where they are."""
        self._remember(scene)
        return self._still or 0

    def first_moving(self, scene: Scene) -> Tensor:  # [1] int64
        """The first row after the background's."""
        self._remember(scene)
        return self._begins[1:2]

    def moving(self, scene: Scene, times: Tensor) -> Moving:  # [Q] float64, seconds
        """The Gaussians that move, and their tracks."""
        still = self.still(scene)
        keys = self._identity_track(scene).keys, scene.tracks.times, scene.track_translations, scene.track_quaternions
        return Moving(still, (self._starts[still], *keys, times))

    def _identity_track(self, scene: Scene) -> WithIdentityTrack:
        """Returns the tracks after an identity track, made once a scene: else each step would begin with the kernels that make it."""
        if scene.tracks is not self._tracks or self._before is None:
            self._tracks, self._before = scene.tracks, WithIdentityTrack.before(scene.tracks)
        return self._before

    def split_views(
        self,
        scene: Scene,
        posed: Posed,
        times: Tensor,  # [Q] float64, seconds
        local: Mapping[str, Tensor],  # as `activate` gives it
        by_lidar: Sequence[bool] | None = None,
    ) -> tuple[SplitGaussians, ...]:  # Q
        """Returns the Gaussians at each time, as the sensor of that time sees them."""
        g, lidar_looks = scene.gaussians, [False] * len(times) if by_lidar is None else by_lidar
        known = {**local, "sh0": g.sh0, "sh_rest": g.sh_rest}
        views, (_, first, last) = [seen(known, lidar) for lidar in lidar_looks], self._identity_track(scene)
        present = torch.ops.nurec_lite.mask_absent_actors(
            [view["opacities"] for view in views], times.unbind(0), self._node, len(posed.still_means), first, last
        )
        each = zip(views, present, posed.moved, strict=True)
        return tuple(self._split_view(view | {"opacities": own}, posed, moved) for view, own, moved in each)

    def graph_key(self, scene: Scene) -> int | None:
        """Returns the number of rows that stay where they are, which sizes of its results follow; None while it is on its way."""
        self._remember(scene)
        return self._still

    def forbids_inplace_relocation(self, scene: Scene, node: Tensor) -> Tensor:
        """Returns whether one of the rows that stay where they are would be an actor's; then fewer stay after the next steps. In a graph
        it counts at each launch."""
        self._counted.copy_(counted(node))
        s = self._still or 0
        return node[s - 1] != BACKGROUND if s else torch.zeros((), dtype=torch.bool, device=node.device)

    def _split_view(self, view: Mapping[str, Tensor], posed: Posed, moved: Moved) -> SplitGaussians:
        of_all = {name: view[name] for name in ("scales", "opacities", "sh0", "sh_rest", "lidar")}
        return SplitGaussians(*posed[:2], *moved, self._node[len(posed.still_means) :], **of_all)

    def _remember(self, scene: Scene) -> None:
        """Stores the first row of each node. Nothing here waits."""
        node = scene.gaussians.node
        if node is not self._node:
            self._begins, self._still, self._node = scene.first_rows(), None, node
            self._starts = {0: self._begins}
            self._counted = self._counted.to(node.device)  # where a recorded relocation writes
            self._counted.copy_(counted(node))
            self._coming = HostFuture(self._counted)
        elif node._version != self._version:
            self._begins.copy_(scene.first_rows())
            for still, starts in self._starts.items():
                starts.copy_(self._behind(still))
            self._coming = HostFuture(torch.maximum(counted(node), self._counted))
        self._version = node._version
        if self._coming is not None and self._coming.done():
            less, early = map(int, self._coming.result())
            self._set_static_rows(-less, early)
            self._coming = None

    def _set_static_rows(self, background: int, early: int) -> None:
        """Sets the number of static rows: the background's without a reserve for relocations. An old number with enough reserve stays."""
        if early:
            raise OptionError(
                "option 'fused_interp' needs Gaussians in the order of their nodes, but this checkpoint was written "
                "before they were kept so; train again, or leave the option out"
            )
        spare = len(self._node) // SPARE_SHARE
        if self._still is None or not spare // 2 <= background - self._still <= 3 * spare:
            self._still = max(0, background - spare)
            self._starts.setdefault(self._still, self._behind(self._still))

    def _behind(self, still: int) -> Tensor:
        return (self._begins - still).clamp(min=0)


def counted(
    node: Tensor,  # [N]
) -> Tensor:  # [2] int64: less rows of the background, and how many come too early, the more, the worse
    return torch.stack([-(node == BACKGROUND).sum(), (node.diff() < 0).sum()])


def apply(stages: Stages) -> Stages:
    ops.load()
    return stages.swap("fused_interp", collect=FusedCollect())
