# SPDX-License-Identifier: Apache-2.0
"""Figures off the path: rays that meet their points, points that others hide, and boxes that are there or not."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from tiny_capture import TINY, tiny_capture

from nurec_lite.base.left_out import LeftOut
from nurec_lite.capture.trajectory import shifted
from nurec_lite.capture.types import Capture
from nurec_lite.config import ModelConfig
from nurec_lite.evaluation import measure, perceptual
from nurec_lite.evaluation.beside import DISTANCES, Measured, aimed, rays_beside, unhidden
from nurec_lite.evaluation.beside_path import DrawnBeside, measure_beside
from nurec_lite.evaluation.measure import Frames, as_seen, held_out
from nurec_lite.evaluation.spread import spread
from nurec_lite.scene.edit import without_actors
from nurec_lite.scene.init import make_scene
from nurec_lite.scene.scene import Scene
from nurec_lite.splat.views import lidar_view
from nurec_lite.training.baseline import reference_stages


@pytest.fixture(scope="module")
def capture() -> Capture:
    return tiny_capture(replace(TINY, width=64, height=40, beams=16, azimuth_steps=180))


@pytest.fixture(scope="module")
def scene(capture: Capture) -> Scene:
    model = ModelConfig(points=4000, actor_points=400, raised_points=200, far_points=100, sky_height=8, opacity=0.95)
    return make_scene(capture, model, 0, "cpu")


def beside(capture: Capture, scene: Scene, seconds: float) -> tuple[dict[str, float], DrawnBeside | None]:
    chosen, by_camera = held_out(capture).images[:1], partial(as_seen, scene, capture)
    return measure_beside(reference_stages(), scene, capture, chosen, seconds, by_camera)


@pytest.mark.parametrize("left", [0.0, 3.0, -3.0])
def test_rays_of_the_moved_lidar_end_at_the_points(capture: Capture, left: float) -> None:
    frame = shifted(capture.sweeps[4], (0.0, left, 0.0))
    points = Measured.of(capture, 4, capture.sweeps[4].load()).points
    rays = aimed(frame, capture.lidar(frame.sensor), points)
    view = lidar_view(capture, frame, rays, "cpu")
    cast = view.rays()
    ends = cast.origins.double() + rays.ranges[:, None].double() * cast.directions.double() + view.centre().double()
    assert float((ends - points).norm(dim=1).max()) < 0.02
    if left == 0:
        sweep = capture.sweeps[4].load()
        assert torch.allclose(rays.ranges, sweep.ranges[sweep.returned], atol=0.02)


def test_points_on_actors_are_left_out(capture: Capture) -> None:
    measured = Measured.of(capture, 4, capture.sweeps[4].load())
    assert 0 < int((measured.box >= 0).sum()) < len(measured.box)
    rays = rays_beside(capture.sweeps[4], capture.lidars[0], measured)
    assert 0 < len(rays) <= int((measured.box < 0).sum())


def test_the_nearest_point_of_a_cell_hides_what_is_farther() -> None:
    cell, distances = torch.tensor([0, 0, 0, 3]), torch.tensor([10.0, 10.9, 30.0, 30.0])
    assert unhidden(cell, distances).tolist() == [True, True, False, True]
    assert unhidden(cell[:0], distances[:0]).tolist() == []


def test_a_scene_of_the_measured_points_is_found_again(capture: Capture, scene: Scene) -> None:
    metrics, drawn = beside(capture, scene, 60)
    assert drawn is not None and list(drawn.pictures) == list(DISTANCES) and drawn.side == "left"
    assert [f"{kind}_beside_{d}m" in metrics for kind in ("lidar", "boxes") for d in DISTANCES] == [True] * 8
    assert all(0 <= metrics[f"lidar_beside_{d}m"] < 1.5 for d in DISTANCES)
    assert metrics["boxes_beside_0m"] >= 0.5


def test_boxes_of_actors_that_are_gone_are_not_found(capture: Capture, scene: Scene) -> None:
    whole, _ = beside(capture, scene, 60)
    gone, _ = beside(capture, without_actors(scene, ["actors"]), 60)
    assert gone["boxes_beside_0m"] < whole["boxes_beside_0m"]
    assert gone["lidar_beside_0m"] == pytest.approx(whole["lidar_beside_0m"], abs=0.2), "actors are left out of it"


def test_without_time_nothing_is_measured(capture: Capture, scene: Scene) -> None:
    assert beside(capture, scene, 0) == ({}, None)


def test_every_beginning_spreads_over_all() -> None:
    order = spread(tuple(range(100)), 8)
    assert len(set(order)) == 8
    gaps = [b - a for a, b in zip([0, *sorted(order)], [*sorted(order), 100], strict=True)]
    assert max(gaps) < 30 and spread((), 8) == [] and sorted(spread((3, 5), 8)) == [3, 5]
    assert math.isclose(sum(order) / 8, 50, abs_tol=10)


def test_figures_that_fail_cost_no_others(capture: Capture, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(measure, "measure_beside", fails)
    monkeypatch.setattr(perceptual, "mean_flip", fails)
    left_out, chosen = LeftOut(), Frames(held_out(capture).images[:1], ())
    found = measure.evaluate(reference_stages(), scene, capture, chosen, left_out=left_out, seconds=60)
    assert found.metrics["psnr"] > 5 and "flip" not in found.metrics and found.beside is None
    assert left_out.sentences == [
        "FLIP or LPIPS of an image failed: RuntimeError: out of luck.",
        "Measuring off the path failed: RuntimeError: out of luck.",
    ]
