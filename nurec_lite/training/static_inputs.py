# SPDX-License-Identifier: Apache-2.0
"""Shots at fixed places in memory: work that was recorded with them learns from the numbers that are copied there."""

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from nurec_lite.geometry.lidar import Sweep
from nurec_lite.native.capacity import rounded_up
from nurec_lite.native.operators.multi_tensor_copy import Pair, filled
from nurec_lite.splat.views import CameraView, LidarView, RayGroups
from nurec_lite.training.shots import Shots, SweepShot

AnyView = TypeVar("AnyView", CameraView, LidarView)
_POSE = ("T_world_sensor_start", "T_world_sensor_end", "row", "middle", "velocity")
_RAYS = tuple(f.name for f in fields(Sweep))
_VIEW_RAYS = ("directions", "fractions")
GROUP = 32  # rays
FULL = 0.8  # of the places for rays, that a sweep must fill


class StaticInputs:
    """Room for shots of the sizes of others."""

    def __init__(
        self,
        like: Shots,
        rays: Sequence[int],  # capacity of each sweep, not less than its rays
    ) -> None:
        images = tuple(replace(s, image=_like(s.image), view=_posed(s.view)) for s in like.images)
        self.shots = replace(like, images=images, sweeps=tuple(map(_padded, like.sweeps, rays)))
        most, device = max(rays, default=0), _device(like)
        self._true, self._false = (torch.full((most,), value, device=device) for value in (True, False))
        longest = max((len(s.view.ray_groups.rays) for s in self.shots.sweeps if s.view.ray_groups), default=0)
        self._no_ray = torch.full((longest, GROUP), -1, device=device)

    def pairs(self, shots: Shots) -> Iterator[Pair]:
        """Pairs of tensors to copy, so that `self.shots` hold these shots."""
        for own, image in zip(self.shots.images, shots.images, strict=True):
            yield own.image, image.image
            yield from _poses(own.view, image.view)
        for place, sweep in zip(self.shots.sweeps, shots.sweeps, strict=True):
            yield from _poses(place.view, sweep.view)
            yield from self._rays(place, sweep)
            yield from self._ray_groups(place.view, sweep.view)

    def _rays(self, own: SweepShot, shot: SweepShot) -> Iterator[Pair]:
        """Places beyond the rays get copies of the first ones, which count for nothing."""
        records = ((own.sweep, shot.sweep, _RAYS), (own.view, shot.view, _VIEW_RAYS))
        for into, record, names in records:
            for name in names:
                values = getattr(record, name)
                yield from filled(getattr(into, name), values, self._false if name == "returned" else values)
        assert own.counted is not None
        yield from filled(own.counted, self._true[: len(shot.sweep)], self._false)

    def _ray_groups(self, own: LidarView, view: LidarView) -> Iterator[Pair]:
        """Ray groups of the real rays alone: padding rays are in no group, so nothing is rendered for them."""
        if own.ray_groups is None or view.ray_groups is None:
            return
        into, known = own.ray_groups, view.ray_groups
        for name in ("first", "bins", "heights", "occupied"):
            yield getattr(into, name), getattr(known, name)
        yield from filled(into.rays, known.rays, self._no_ray)


def ray_capacity_for(
    n: int,
    known: Sequence[int],  # existing capacities, preferred
) -> int:
    """Size of a recording: one of few sizes, and not much more than the rays."""
    fitting = [capacity for capacity in known if n <= capacity <= n / FULL]
    return min(fitting) if fitting else rounded_up(n)


def _like(tensor: Tensor) -> Tensor:
    """Row by row, for any strides: `multi_tensor_copy` writes bytes."""
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def _posed(view: AnyView) -> AnyView:
    places: dict[str, Any] = {name: _like(getattr(view, name)) for name in _POSE if getattr(view, name) is not None}
    return replace(view, **places)


def _poses(own: CameraView | LidarView, view: CameraView | LidarView) -> Iterator[Pair]:
    for name in _POSE:
        if getattr(own, name) is not None:
            yield getattr(own, name), getattr(view, name)


def _padded(shot: SweepShot, rays: int) -> SweepShot:
    def longer(values: Tensor) -> Tensor:
        return values.new_empty((rays, *values.shape[1:]))

    sweep = Sweep(**{name: longer(getattr(shot.sweep, name)) for name in _RAYS})
    seen: dict[str, Any] = {name: longer(getattr(shot.view, name)) for name in _VIEW_RAYS}
    seen["ray_groups"] = _padded_groups(shot.view.ray_groups, rays - len(shot.sweep))
    return replace(shot, sweep=sweep, view=replace(_posed(shot.view), **seen), counted=longer(shot.sweep.returned))


def _padded_groups(known: RayGroups | None, more: int) -> RayGroups | None:
    """Returns ray groups with places for as many more rays, however they spread over bands."""
    if known is None:
        return None
    n = len(known.rays) + more // GROUP + 1
    others = (known.first, known.bins, known.heights, known.occupied)
    return RayGroups(known.rays.new_empty(n, GROUP), *(torch.empty_like(t) for t in others))


def _device(shots: Shots) -> torch.device:
    return shots.views[0].T_world_sensor_start.device
