# SPDX-License-Identifier: Apache-2.0
"""fused_project: one pass over the Gaussians finishes the backward pass of all views of a step; it reads only visible rows of each view.

Idea: the gradient of a Gaussian from rays is 16 sums a view. Each view turned them into gradients of means, shapes and opacities of all
Gaussians, zeros for unseen ones; autograd added these up, view by view, and joined static and moving Gaussians. Here a view only zeroes
and fills the rows of visible Gaussians, and one kernel turns the rows of all views into gradients, each written once. With
fused_activate it goes on to the stored parameters and adds the gradients of regularisers and colours on the way. On a long drive it
leaves those of unseen Gaussians out, so that no pass after it has to. Where the update is sparse, too (fused_adam), a step first finds the
blocks of 256 neighbours in the store that an image or a sweep may see. Activation, colours, regularisers, epilogue, update and noise pass
the others by. A sphere stands for a hidden block: its Gaussians are read again when a view sees the
sphere. Several ranks join their blocks, and exchange gradients of these alone. If poses are corrected, the same kernel sums the six
numbers of a view's pose gradient.
Source: none that we know of. Formulas: kernels/math/moments.cuh.
Gain, code before and after, limits: docs/options/fused_project.md.
Limits: on a GPU alone, within a step. If poses need gradients of rays, or a step has more than 16 views, each view has an epilogue of
its own, and the log says so. Gradients of colours have their own kernel. Class exact: the same formulas; sums are taken in another order,
and noise waits where a block is passed by.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from nurec_lite.base.errors import OptionError
from nurec_lite.base.ranges import span
from nurec_lite.native import backward_epilogue, ops
from nurec_lite.native.deferred_backward import with_grad_slot
from nurec_lite.native.operators.visible_blocks import BlockSpheres, count_blocks, drop_unseen, visible_blocks
from nurec_lite.opt.all import fused_activate
from nurec_lite.opt.all.fused_adam import FusedAdam
from nurec_lite.opt.post.fused_interp import FusedCollect, Posed
from nurec_lite.scene.scene import Scene
from nurec_lite.splat.views import LidarView
from nurec_lite.training.exchange import Exchange
from nurec_lite.training.shots import Shots
from nurec_lite.training.stage_protocols import Regularisers, UpdateState
from nurec_lite.training.stages import LISTS, AnyView, Gather, Learn, Stages, without_gpu
from nurec_lite.training.state import Gathered, ListUse, StepResult, TrainState, overflow_of
from nurec_lite.training.unseen import is_long, regularised

CLASS = "exact"
REQUIRES: tuple[str, ...] = ("warp_cull", "fused_interp", "collect_once")
log = logging.getLogger("nurec_lite")


def unavailable(stages: Stages) -> str | None:
    return without_gpu(stages)


@dataclass(frozen=True)
class Sent:
    """A part of the messages of several ranks, as a list with a capacity."""

    kind: str


BLOCKS = Sent("blocks of images"), Sent("blocks of images and sweeps")  # a sweep sees more
DIRECTIONS = Sent("moving Gaussians")


class OnePass:
    """Wraps `learn` and `gather`: Gaussians that are gathered for a step have a grad slot. Wraps `keep_unseen`, which then has nothing
    left to do, and `regularisers`, which read visible blocks alone."""

    def __init__(self, collect: FusedCollect, stored: bool) -> None:
        self._collect = collect
        self._stored = stored  # by fused_activate: gradients go on to the stored parameters
        self._learning = False
        self._seen_only = False  # regularisers leave unseen Gaussians alone
        self._state: TrainState | None = None  # of a step that finds visible blocks
        self._exchange: Exchange | None = None  # of several ranks
        self._capacity: Callable[[Any], int | None] = lambda _: None  # of messages
        self._spheres = BlockSpheres()  # of hidden blocks
        self._logged: set[str] = set()

    def learn(self, inner: Learn) -> Learn:
        def learn(stages: Stages, state: TrainState, shots: Shots) -> StepResult:
            reduce, self._capacity = stages.update.reduce, stages.render.capacity
            self._exchange = reduce if isinstance(reduce, Exchange) else None
            # of several ranks, others may see a Gaussian
            seen_only = is_long(state) and stages.ranks == 1
            joined = seen_only or (is_long(state) and self._exchange is not None)
            by_blocks = joined and self._passes_blocks_by(stages, state)
            with self.learning(seen_only, state if by_blocks else None):
                return inner(stages, state, shots)

        return learn

    def _passes_blocks_by(self, stages: Stages, state: TrainState) -> bool:
        """Returns whether all kernels of a step leave blocks alone that no view sees."""
        update, plan = stages.update.optimize, stages.plan
        sparse = isinstance(update, FusedAdam) and update.is_sparse(state)
        in_kernels = plan is not None and (plan.fused_colour or plan.rank1_sh is not None)  # colours: torch reads all
        return self._stored and sparse and in_kernels

    def regularisers(self, inner: Regularisers) -> Regularisers:
        def regularisers(opacities: Tensor, lidar_opacities: Tensor, scales: Tensor) -> dict[str, Tensor]:
            blocks = None if self._state is None else self._state.visible_blocks
            if blocks is None:
                return inner(opacities, lidar_opacities, scales)
            return fused_activate.regularisers(opacities, lidar_opacities, scales, blocks)

        return regularisers

    def keep_unseen(self, inner: UpdateState) -> UpdateState:
        def keep_unseen(state: TrainState) -> None:
            if self._seen_only:
                return
            gaussians, blocks = state.scene.gaussians, state.visible_blocks
            if blocks is None or gaussians.means.grad is None:
                inner(state)
            else:
                drop_unseen(gaussians.means.grad, blocks, regularised(gaussians))

        return keep_unseen

    @contextmanager
    def learning(
        self,
        seen_only: bool = False,
        by_blocks: TrainState | None = None,  # hidden blocks of this state are passed by; None: all blocks count
    ) -> Iterator[None]:
        """Block that differentiates gathered Gaussians, once."""
        self._learning, self._seen_only, self._state = True, seen_only, by_blocks
        try:
            yield
        finally:
            self._learning = self._seen_only = False
            if by_blocks is None or by_blocks.visible_blocks is None:
                self._spheres.forget()  # all Gaussians have changed
            else:
                by_blocks.visible_blocks = None
            self._state = None

    def follow(self, scene: Scene) -> None:
        """Notices another store before a step."""
        self._spheres.follow(scene.gaussians)

    def gather(self, inner: Gather) -> Gather:
        def gather(stages: Stages, scene: Scene, views: Sequence[AnyView]) -> Gathered:
            if not self._learning or self._unsupported(views):
                self._seen_only = False
                return inner(stages, scene, views)
            return self._gathered(stages, scene, views)

        return _Gathering(self, gather)

    def _unsupported(self, views: Sequence[AnyView]) -> bool:
        why = backward_epilogue.unsupported_reason(views)
        if why is not None and why not in self._logged:
            self._logged.add(why)
            log.info("fused_project: gradients of each view are made by itself: %s", why)
        return why is not None

    def _gathered(self, stages: Stages, scene: Scene, views: Sequence[AnyView]) -> Gathered:
        times = torch.stack([view.moment() for view in views])
        blocks = self._find_blocks(scene, views)
        sent = () if blocks is None or self._exchange is None else self._sent(stages, scene, blocks, views)
        with span("activate"):
            values = backward_epilogue.as_stored(scene.gaussians) if self._stored else _activated(stages, scene)
        with span("collect"):
            moving = self._collect.moving(scene, times)
            found = backward_epilogue.deferred_scene(
                views, values, self._stored, moving.still, moving.tracks, self._seen_only, blocks
            )
            known = _by_name(found.shared)
            posed = Posed(*found.shared[:2], found.moved)
            by_lidar = [isinstance(view, LidarView) for view in views]
            gaussians = self._collect.split_views(scene, posed, times, known, by_lidar)
        slots = zip(gaussians, found.grad_slots, strict=True)
        return Gathered(tuple(with_grad_slot(own, slot, blocks) for own, slot in slots), known, sent)

    def _find_blocks(self, scene: Scene, views: Sequence[AnyView]) -> Tensor | None:
        if self._state is None:
            return None
        with span("visible_blocks"):
            g, still = scene.gaussians, self._collect.still(scene)
            joined = None if self._exchange is None else partial(self._exchange.join, self._state)
            blocks = visible_blocks(g, still, views, self._spheres.of(g), joined)
        self._state.visible_blocks = blocks
        return blocks

    def _sent(self, stages: Stages, scene: Scene, blocks: Tensor, views: Sequence[AnyView]) -> tuple[ListUse, ListUse]:
        """The use of messages by these blocks, and by directions. Messages hold all until it is known how many steps need."""
        state, most = self._state, len(scene.gaussians)
        assert state is not None
        of_blocks = BLOCKS[any(isinstance(view, LidarView) for view in views)]
        state.blocks_sent = self.capacity(of_blocks, len(blocks) - 1)
        state.directions_sent = self.capacity(DIRECTIONS, most)

        def by_blocks(listed: Tensor) -> ListUse:
            return used(of_blocks, state.blocks_sent, listed[:1].long())

        def by_directions(first: Tensor) -> ListUse:
            return used(DIRECTIONS, state.directions_sent, most - first)

        run = stages.streams.run
        return run(LISTS, by_blocks, blocks), run(LISTS, by_directions, self._collect.first_moving(scene))

    def capacity(
        self,
        sent: Sent,
        most: int,  # blocks or Gaussians of the store
    ) -> int:
        known = self._capacity(sent)
        return most if known is None else min(known, most)

    def capacities(self, scene: Scene) -> tuple[int, ...]:
        """Capacities of all parts."""
        of_blocks = (self.capacity(sent, count_blocks(scene.gaussians)) for sent in BLOCKS)
        return *of_blocks, self.capacity(DIRECTIONS, len(scene.gaussians))


def used(
    sent: Sent,
    capacity: int,
    needed: Tensor,  # [1] int64
) -> ListUse:
    return ListUse(sent.kind, capacity, needed, overflow_of(needed, capacity))


@dataclass(frozen=True)
class _Gathering:
    """The stage `gather`, and its part in recordings: spheres of blocks outlast a step."""

    one: OnePass
    stage: Gather

    def __call__(self, stages: Stages, scene: Scene, views: Sequence[AnyView]) -> Gathered:
        return self.stage(stages, scene, views)

    def graph_key(self, scene: Scene) -> tuple[int, ...]:
        self.one.follow(scene)
        return self.one.capacities(scene)

    def forbids_inplace_relocation(self, scene: Scene, node: Tensor) -> Tensor:
        return torch.zeros((), dtype=torch.bool, device=node.device)


def _activated(stages: Stages, scene: Scene) -> backward_epilogue.Values:
    known = stages.render.activate(scene.gaussians)
    own = known["lidar_opacities"] if known["lidar_opacities"] is not known["opacities"] else None
    return backward_epilogue.Values(
        known["means"], known["quats"], known["scales"], known["opacities"], own, known["lidar"]
    )


def _by_name(shared: backward_epilogue.Shared) -> dict[str, Any]:
    """Tensors by the names of nurec_lite.scene.gaussians.activate; one tensor of opacities where the lidar has none of
    its own."""
    own = shared.opacities if shared.lidar_opacities is None else shared.lidar_opacities
    values = {"scales": shared.scales, "opacities": shared.opacities, "lidar": shared.lidar}
    return values | {"lidar_opacities": own}


def apply(stages: Stages) -> Stages:
    collect = stages.render.collect
    if not isinstance(collect, FusedCollect) or stages.changes.claims.get("gather") != "collect_once":
        raise OptionError(
            "option 'fused_project' goes on from the Gaussians that 'fused_interp' and 'collect_once' gather; name these first"
        )
    ops.load()
    one = OnePass(collect, stored=stages.changes.claims.get("activate") == "fused_activate")
    own = stages.planned("fused_project", deferred_backward=True)
    return own.wrap(learn=one.learn, gather=one.gather, regularisers=one.regularisers, keep_unseen=one.keep_unseen)
