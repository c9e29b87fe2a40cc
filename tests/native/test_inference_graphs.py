# SPDX-License-Identifier: Apache-2.0
"""Views that are looked at one after another, or a few at a time (nurec_lite/native/inference_graphs.py): recorded as a CUDA graph on a
GPU; elsewhere, over the emulated drivers, a stand-in does the work again and leaves the results where it left the first, as a graph does.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any
from weakref import ref

import pytest
import torch
from look_scenes import SENSORS, View, scene_for, views_of
from parity import DEVICES
from torch import Tensor
from warp_tile_scenes import driven

from nurec_lite.backends import base_stages
from nurec_lite.base.graphs import CapturedGraph, Recorder
from nurec_lite.native import inference_graphs
from nurec_lite.native.inference import BatchedRenderer
from nurec_lite.native.inference_graphs import MAX_CAPTURED_VIEWS, MAX_GRAPHS, RENDERS_BEFORE_CAPTURE, Queued, Rendering
from nurec_lite.scene.scene import Scene
from nurec_lite.training.stages import Stages


class Again(CapturedGraph[Queued]):
    """Stands in for a graph."""

    def __init__(self, work: Callable[[], Queued]) -> None:
        self.work, self.made = work, work()

    def launch(self) -> Queued:
        (found, needed), (again, now) = self.made, self.work()
        for one, other in zip(found, again, strict=True):
            for f in fields(one):
                getattr(one, f.name).copy_(getattr(other, f.name))
        needed.copy_(now)
        return self.made


class Counted:
    """A recorder, and the calls that it got."""

    def __init__(self, real: Recorder | None) -> None:
        self.recorded, self.flaw, self.real = 0, "", real

    def record(self, work: Callable[[], Any], generators: Sequence[torch.Generator]) -> CapturedGraph[Any]:
        if self.flaw:
            raise RuntimeError(self.flaw)
        self.recorded += 1
        return Again(work) if self.real is None else self.real.record(work, generators)


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    return driven(request.param)


@pytest.fixture
def recorder(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    counted = Counted(Recorder(device) if device.type == "cuda" else None)
    monkeypatch.setattr(inference_graphs, "Recorder", lambda device: counted)
    monkeypatch.setattr(inference_graphs, "KIND", device.type)
    yield counted


def stages_of(device: torch.device) -> Stages:
    return base_stages("native", device)


def one_at_a_time(own: BatchedRenderer, stages: Stages, scene: Scene, views: Sequence[View]) -> list[Rendering]:
    return [own(stages, scene, [view])[0] for view in views]


def plainly(stages: Stages, scene: Scene, views: Sequence[View]) -> list[Rendering]:
    """Each view by a renderer that never saw another."""
    return [BatchedRenderer()(stages, scene, [view])[0] for view in views]


def assert_equal(found: Sequence[Rendering], expected: Sequence[Rendering]) -> None:
    """Sweeps are nearly equal: where rays are repeated, others share a warp tile."""
    for one, two in zip(found, expected, strict=True):
        for f in fields(one):
            mine, other = getattr(one, f.name), getattr(two, f.name)
            assert mine.shape == other.shape
            torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("sensor", SENSORS)
def test_views_are_those_without_a_recording(sensor: str, device: torch.device, recorder: Counted) -> None:
    """From places of their own, at times of their own, sweeps of 768 to 764 rays; actors go."""
    views = views_of(sensor, 5, device)
    scene, stages = scene_for(views[0], 120, device), stages_of(device)
    assert_equal(
        one_at_a_time(BatchedRenderer(), stages, scene, [*views, *views]), [*plainly(stages, scene, views)] * 2
    )
    assert 1 <= recorder.recorded <= 3  # capacities grow where a view needs more than the first


def test_the_first_views_are_not_recorded(device: torch.device, recorder: Counted) -> None:
    views = views_of("still camera", 1, device)
    own, scene = BatchedRenderer(), scene_for(views[0], 50, device)
    for k in range(RENDERS_BEFORE_CAPTURE + 3):  # the first finds the capacity
        one_at_a_time(own, stages_of(device), scene, views)
        assert recorder.recorded == (k > RENDERS_BEFORE_CAPTURE)


@pytest.mark.parametrize("sensor", SENSORS)
def test_a_few_at_once(sensor: str, device: torch.device, recorder: Counted) -> None:
    """Three, and three others; sweeps of 768, 767 and so on rays."""
    views = views_of(sensor, 6, device)
    scene, stages, own = scene_for(views[0], 120, device), stages_of(device), BatchedRenderer()
    for some in (views[:3], views[3:], views[:3], views[3:], views[2:5], views[:3]):
        assert_equal(own(stages, scene, some), plainly(stages, scene, some))
    assert 1 <= recorder.recorded <= 2


def test_many_at_once_are_not_recorded(device: torch.device, recorder: Counted) -> None:
    views = views_of("lidar", MAX_CAPTURED_VIEWS + 1, device)
    own, scene = BatchedRenderer(), scene_for(views[0], 50, device)
    for _ in range(RENDERS_BEFORE_CAPTURE + 3):
        own(stages_of(device), scene, views)
    assert recorder.recorded == 0


@pytest.mark.parametrize("sensor", ["moving camera", "lidar"])
def test_what_was_seen_stays(sensor: str, device: torch.device, recorder: Counted) -> None:
    views = views_of(sensor, 2, device)
    own, stages, scene = BatchedRenderer(), stages_of(device), scene_for(views[0], 100, device)
    one_at_a_time(own, stages, scene, views * 3)
    (first,) = one_at_a_time(own, stages, scene, views[:1])
    before = {f.name: getattr(first, f.name).clone() for f in fields(first)}
    one_at_a_time(own, stages, scene, views[1:])
    assert recorder.recorded and all(getattr(first, name).equal(value) for name, value in before.items())


@pytest.mark.parametrize("sensor", SENSORS)
def test_a_scene_that_is_written_into(sensor: str, device: torch.device, recorder: Counted) -> None:
    """A training does that, for instance; its store stays where it is."""
    views = views_of(sensor, 1, device)
    own, stages, scene = BatchedRenderer(), stages_of(device), scene_for(views[0], 100, device)
    one_at_a_time(own, stages, scene, views * 5)
    assert recorder.recorded == 1
    with torch.no_grad():
        scene.gaussians.means += 0.1
        scene.gaussians.opacity_logits -= 0.5
        scene.sky += 0.3
        scene.track_translations += 0.05
    assert_equal(one_at_a_time(own, stages, scene, views), plainly(stages, scene, views))


def test_another_store_is_recorded_anew(device: torch.device, recorder: Counted) -> None:
    views = views_of("still camera", 1, device)
    own, stages, scene = BatchedRenderer(), stages_of(device), scene_for(views[0], 60, device)
    one_at_a_time(own, stages, scene, views * 5)
    moved = replace(scene, gaussians=replace(scene.gaussians, means=scene.gaussians.means + 0.2))
    assert_equal(one_at_a_time(own, stages, moved, views * 5), plainly(stages, moved, views) * 5)
    assert recorder.recorded == 2


def test_a_scene_that_nobody_needs_is_not_kept(device: torch.device, recorder: Counted) -> None:
    if recorder.real is None:
        pytest.skip("the stand-in holds its work, and with it the scene")
    views = views_of("still camera", 1, device)
    own, stages, scene = BatchedRenderer(), stages_of(device), scene_for(views[0], 60, device)
    one_at_a_time(own, stages, scene, views * 5)
    held = ref(scene.gaussians.sh_rest)
    assert recorder.recorded == 1
    del scene
    assert held() is None


def test_nodes_that_a_relocation_writes(device: torch.device, recorder: Counted) -> None:
    """The same tensor, with another end of the background."""
    views = views_of("lidar", 1, device)
    own, stages, scene = BatchedRenderer(), stages_of(device), scene_for(views[0], 60, device)
    one_at_a_time(own, stages, scene, views * 5)
    still = int((scene.gaussians.node == 0).sum())
    scene.gaussians.node[still - 3 : still] = 1
    assert_equal(one_at_a_time(own, stages, scene, views * 5), plainly(stages, scene, views) * 5)
    assert recorder.recorded == 2


@pytest.mark.parametrize("sensor", ["still camera", "lidar"])
def test_a_capacity_that_is_too_small(sensor: str, device: torch.device, recorder: Counted) -> None:
    views = views_of(sensor, 1, device)
    own, stages, scene = BatchedRenderer(), stages_of(device), scene_for(views[0], 100, device)
    expected = plainly(stages, scene, views)
    one_at_a_time(own, stages, scene, views)
    ((key, _),) = own._capacities.items()
    own._capacities[key] = (3, 5)
    for _ in range(RENDERS_BEFORE_CAPTURE + 2):
        assert_equal(one_at_a_time(own, stages, scene, views), expected)
    own._capacities[key] = (3, 5)
    assert_equal(one_at_a_time(own, stages, scene, views), expected)


def test_what_cannot_be_recorded_is_rendered_all_the_same(device: torch.device, recorder: Counted) -> None:
    views = views_of("still camera", 1, device)
    own, stages, scene = BatchedRenderer(), stages_of(device), scene_for(views[0], 60, device)
    recorder.flaw = "CUDA out of memory"
    assert_equal(one_at_a_time(own, stages, scene, views * 6), plainly(stages, scene, views) * 6)
    recorder.flaw = ""
    one_at_a_time(own, stages, scene, views * 3)
    assert recorder.recorded == 0  # nor tried again


def test_few_recordings_are_kept(device: torch.device, recorder: Counted) -> None:
    own, stages = BatchedRenderer(), stages_of(device)
    for k in range(MAX_GRAPHS + 3):
        views = views_of("still camera", 1, device, width=20 + k)
        one_at_a_time(own, stages, scene_for(views[0], 30, device), views * (RENDERS_BEFORE_CAPTURE + 2))
    assert recorder.recorded == MAX_GRAPHS + 3 and len(own._recorded._kept) == MAX_GRAPHS


def test_a_sweep_without_rays(device: torch.device, recorder: Counted) -> None:
    (view,) = views_of("lidar", 1, device)
    scene = scene_for(view, 60, device)
    empty = replace(view, directions=view.directions[:0], fractions=view.fractions[:0])  # type: ignore[union-attr]
    for found in one_at_a_time(BatchedRenderer(), stages_of(device), scene, [empty] * 5):
        assert found.distance.shape == (0,)
    assert recorder.recorded == 0


def test_places_hold_what_is_copied(device: torch.device) -> None:
    (view,) = views_of("lidar", 1, device)
    places = inference_graphs.places_for(view, 800)
    for into, values in inference_graphs._pairs(places, view):
        assert into.shape == values.shape
        into.copy_(values)
    assert isinstance(places.row, Tensor) and places.row.equal(inference_graphs.packed_view(view))
    assert len(places.directions) == 800  # type: ignore[union-attr]
    assert places.directions[768:].equal(view.directions[:32])  # type: ignore[union-attr]
