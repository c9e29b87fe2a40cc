# SPDX-License-Identifier: Apache-2.0
"""Looking at a scene without training it: as many views at a time as the stages render together, in their order. Several in one launch:
tests/native/test_inference.py."""

from dataclasses import replace
from typing import Any

import torch
from tiny_capture import tiny_capture, tiny_scene

from nurec_lite.backends import base_stages
from nurec_lite.native.plan import CPU_PLAN, CUDA_PLAN
from nurec_lite.splat.views import camera_view, lidar_view
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.batches import render_views_in_batches
from nurec_lite.training.step import render_frame, render_sweep


def test_on_a_cpu_a_view_is_rendered_when_its_turn_comes() -> None:
    """It is the same to the last bit as in a training, and nothing is loaded ahead."""
    capture, scene, stages = tiny_capture(), tiny_scene(), base_stages("native", torch.device("cpu"))
    asked: list[int] = []

    def shots() -> Any:
        for k, frame in enumerate(capture.images[:3]):
            asked.append(k)
            yield k, camera_view(capture, frame, "cpu")

    for k, view, image in render_views_in_batches(stages, scene, shots()):
        assert asked == list(range(k + 1)) and not image.colour.requires_grad
        with torch.no_grad():
            expected = render_frame(stages, scene, view)
        assert image.colour.equal(expected.colour) and image.distance.equal(expected.distance)
    assert asked == [0, 1, 2]


def test_sweeps_are_what_a_training_renders() -> None:
    capture, scene, stages = tiny_capture(), tiny_scene(), reference_stages()
    views = [lidar_view(capture, frame, frame.load(), "cpu") for frame in capture.sweeps[:2]]
    for (_, view, returns), own in zip(
        render_views_in_batches(stages, scene, [(None, v) for v in views]), views, strict=True
    ):
        assert view is own and returns.median.equal(render_sweep(stages, scene, view).median)


def test_views_come_by_as_many_as_are_rendered_together() -> None:
    capture, numbers = tiny_capture(), []
    view = camera_view(capture, capture.images[0], "cpu")

    def together(stages: Any, scene: Any, views: list[Any]) -> tuple[int, ...]:
        numbers.append(len(views))
        return tuple(range(len(views)))

    stages = replace(reference_stages().replaced(render_views=together), plan=replace(CUDA_PLAN, max_views=4))  # type: ignore[arg-type]
    found = list(render_views_in_batches(stages, tiny_scene(), ((k, view) for k in range(9))))
    assert numbers == [4, 4, 1]
    assert [k for k, _, _ in found] == list(range(9)) and [one for _, _, one in found] == [0, 1, 2, 3] * 2 + [0]  # type: ignore[comparison-overlap]


def test_plans() -> None:
    assert CPU_PLAN.max_views == 1 and CUDA_PLAN.max_views > 1
