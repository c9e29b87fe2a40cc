# SPDX-License-Identifier: Apache-2.0
"""One view or a few views of a sensor as one CUDA graph: a simulator asks for one view at a time, and the GPU runs its sixty kernels faster
than the host launches them. On CUDA alone.

A recording reads the scene in place, so that it follows later training, and the view from memory that receives a copy of each view. Sweeps
of similar size share a recording; padding repeats rays, and their results are dropped.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any
from weakref import ref

import torch
from torch import Tensor

from nurec_lite.base.graphs import CapturedGraph, Recorder
from nurec_lite.native.capacity import rounded_up
from nurec_lite.native.operators.multi_tensor_copy import Pair, filled, multi_tensor_copy
from nurec_lite.native.operators.shared import has_per_ray_origins, packed_view, wants_pose_grad
from nurec_lite.splat.render import CameraImage, LidarReturns
from nurec_lite.splat.views import CameraView, LidarView

AnyView = CameraView | LidarView
Rendering = CameraImage | LidarReturns
Queued = tuple[Sequence[Rendering], Tensor]  # renders of views, and the number that lets the host accept them
Queue = Callable[[Sequence[AnyView]], Queued]
RENDERS_BEFORE_CAPTURE = 2  # times that views are rendered without a recording, which takes as long as some of them
MAX_CAPTURED_VIEWS = 4  # that one recording may render: with more of them the GPU is the slower one
MAX_GRAPHS = 16  # recordings that are kept: a view of each sensor of a rig
KIND = "cuda"  # of machine, which can record
log = logging.getLogger("nurec_lite")


@dataclass
class Kept:
    """The graph of views that differ by numbers alone."""

    reads: tuple[ref[Any], ...]  # tensors at addresses that a graph holds; weak references
    seen: int = 0
    refused: bool = False  # it cannot be recorded
    views: tuple[AnyView, ...] = ()  # the places
    recording: CapturedGraph[Queued] | None = None


class InferenceGraphs:
    """Recordings by sensor, size, and capacity of lists."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Any, ...], Kept] = {}  # the least recently used first
        self._recorder: Recorder | None = None

    def __call__(
        self,
        views: Sequence[AnyView],  # of one sensor, alike
        reads: tuple[Any, ...],  # all that `queue` reads and that lies at its place until it is replaced
        sizes: tuple[Any, ...],  # of other things than views that may change its launches
        queue: Queue,  # queues the renders of views, and does not wait
    ) -> Queued | None:
        """Renders by a recorded graph; None: it is not recorded yet, or cannot be."""
        rays, sensor = tuple(map(room_for, views)), views[0].sensor
        if views[0].T_world_sensor_start.device.type != KIND or 0 in rays or any(map(wants_pose_grad, views)):
            return None
        kept = self._of((id(sensor), has_per_ray_origins(views[0]), rays, *sizes), (sensor, *reads))
        kept.seen += 1
        if kept.seen <= RENDERS_BEFORE_CAPTURE or kept.refused:
            return None
        kept.views = kept.views or tuple(map(places_for, views, rays))
        multi_tensor_copy(pair for places, view in zip(kept.views, views, strict=True) for pair in _pairs(places, view))
        if kept.recording is None and not self._record(kept, queue):
            return None
        assert kept.recording is not None
        found, needed = kept.recording.launch()
        return _copied(found, views), needed

    def _of(self, key: tuple[Any, ...], reads: tuple[Any, ...]) -> Kept:
        kept = self._kept.pop(key, None)
        if kept is None or not _same(kept.reads, reads):
            kept = Kept(tuple(map(ref, reads)))
        self._kept[key] = kept
        if len(self._kept) > MAX_GRAPHS:
            del self._kept[next(iter(self._kept))]
        return kept

    def _record(self, kept: Kept, queue: Queue) -> bool:
        """Records a graph without rendering; returns whether it could."""
        views = kept.views
        try:
            if self._recorder is None:
                self._recorder = Recorder(views[0].T_world_sensor_start.device)
            kept.recording = self._recorder.record(lambda: queue(views), ())
        except RuntimeError as error:  # no memory, for one
            kept.refused, kept.views = True, ()
            log.info("views of %s are not recorded: %s", views[0].sensor.name, str(error).splitlines()[0])
            return False
        return True


def _same(known: tuple[ref[Any], ...], reads: tuple[Any, ...]) -> bool:
    return len(known) == len(reads) and all(a() is b for a, b in zip(known, reads, strict=True))


def room_for(view: AnyView) -> int | None:  # rays that its places are for; None: those of all pixels
    return rounded_up(len(view.directions)) if isinstance(view, LidarView) else None


def places_for(
    view: AnyView,
    rays: int | None,  # of a sweep, not less than the view's
) -> AnyView:
    """Returns a view of the same sensor with row, moment and rays in memory of their own."""
    own: dict[str, Any] = {"row": torch.empty_like(packed_view(view)), "middle": torch.empty_like(view.moment())}
    if isinstance(view, LidarView):
        own |= {name: getattr(view, name).new_empty((rays, *getattr(view, name).shape[1:])) for name in _RAYS}
        own["ray_groups"] = None
    return replace(view, **own)


_RAYS = ("directions", "fractions")


def _pairs(places: AnyView, view: AnyView) -> Iterator[Pair]:
    """Pairs of tensors to copy, so that the places hold this view."""
    assert places.row is not None
    yield places.row, packed_view(view)
    yield places.moment(), view.moment()
    if isinstance(view, LidarView):
        for name in _RAYS:
            values = getattr(view, name)
            yield from filled(getattr(places, name), values, values)


def _copied(found: Sequence[Rendering], views: Sequence[AnyView]) -> list[Rendering]:
    """Copies the results of the views' own rays for the caller: the next launch overwrites them."""
    values = [_own(one, view) for one, view in zip(found, views, strict=True)]
    copies = [{name: torch.empty_like(value) for name, value in one.items()} for one in values]
    multi_tensor_copy((into[name], one[name]) for into, one in zip(copies, values, strict=True) for name in one)
    return [type(one)(**own) for one, own in zip(found, copies, strict=True)]


def _own(found: Rendering, view: AnyView) -> dict[str, Tensor]:
    n = len(view.directions) if isinstance(view, LidarView) else None
    return {f.name: getattr(found, f.name)[:n] for f in fields(found)}
