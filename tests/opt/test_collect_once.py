# SPDX-License-Identifier: Apache-2.0
"""The option `collect_once`: the step computes the same as the baseline's, with one collection and one activation."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rounding import assert_rounded_alike
from tiny_capture import tiny_capture, tiny_shots, tiny_state
from torch import Tensor

from benchmarks.opt import bench_collect_once
from nurec_lite.backends import build_stages
from nurec_lite.base.options import parameters_of
from nurec_lite.capture.pack import write_pack
from nurec_lite.geometry.tracks import TrackPoses, Tracks, interpolate
from nurec_lite.scene import collect
from nurec_lite.scene.collect import collect_at, collect_gaussian_parameters
from nurec_lite.scene.gaussians import activate
from nurec_lite.scene.scene import Scene
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.shots import Shots
from nurec_lite.training.stages import Stages
from nurec_lite.training.state import TrainState

ONCE = {"collect_once": parameters_of("collect_once")}
FIELDS = ("means", "quats", "scales", "opacities", "sh", "frames", "lidar", "velocities")


def gradients(
    stages: Stages, state: TrainState, lidar_rays: int = 128, shots: Shots | None = None
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Loss terms of one step, and the optimizer's gradients; of the plan's shots, or of those that are given."""
    found: dict[str, Tensor] = {}

    def keep(state: TrainState) -> None:
        found.update({n: p.grad.clone() for n, p in state.scene.parameters().items() if p.grad is not None})
        state.optimizer.zero_grad(set_to_none=True)

    state.plan = replace(state.plan, lidar_rays=lidar_rays)
    stages = stages.replaced(optimize=keep)
    if shots is None:
        state.step = 3
        shots = stages.feed.fetch(stages, state)
    return stages.update.learn(stages, state, shots).terms, found


def test_the_option_swaps_gather() -> None:
    assert build_stages(ONCE).changes.claims == {"gather": "collect_once"}


@pytest.mark.parametrize("lidar_rays", [128, 0])
def test_terms_and_gradients_are_the_baseline_s(lidar_rays: int) -> None:
    assert_equal_steps(
        gradients(build_stages(ONCE), tiny_state(), lidar_rays),
        gradients(reference_stages(), tiny_state(), lidar_rays),
    )


@pytest.mark.parametrize(("images", "sweeps"), [((0, 1, 2), (0, 3)), ((0, 0), ()), ((), (1,))])
def test_so_are_those_of_any_number_of_images_and_sweeps(images: tuple[int, ...], sweeps: tuple[int, ...]) -> None:
    shots = tiny_shots(images, sweeps)
    assert_equal_steps(
        gradients(build_stages(ONCE), tiny_state(), shots=shots),
        gradients(reference_stages(), tiny_state(), shots=shots),
    )


def test_gathering_once_and_one_by_one_is_the_same() -> None:
    """They agree up to rounding: the same formulas on more rows. The baseline leaves the activation to its readers, the option hands on
    its own."""
    scene, views = tiny_state().scene, tiny_shots((0, 1), (2,)).views
    one_by_one, once = reference_stages(), build_stages(ONCE)
    expected, found = one_by_one.render.gather(one_by_one, scene, views), once.render.gather(once, scene, views)
    assert len(found.gaussians) == len(expected.gaussians) == len(views)
    for world, other in zip(found.gaussians, expected.gaussians, strict=True):
        for name in FIELDS:
            assert_rounded_alike(getattr(world, name), getattr(other, name))
    assert expected.activated is None and found.activated is not None
    assert found.activated["scales"] is found.gaussians[0].scales or len(found.gaussians[0]) < len(scene.gaussians)


def test_collect_is_called_once_for_all_views() -> None:
    """That holds for any collector: with an option that swaps it, too."""
    asked: list[int] = []

    def noted(scene: Scene, times: Tensor, *rest: Any) -> Any:
        asked.append(len(times))
        return collect_at(scene, times, *rest)

    scene, views = tiny_state().scene, tiny_shots((0, 1), (2,)).views
    for stages in (reference_stages(), build_stages(ONCE)):
        stages = stages.swap("mine", collect=noted)
        stages.render.gather(stages, scene, views)
    assert asked == [1, 1, 1, 3]


Step = tuple[dict[str, Tensor], dict[str, Tensor]]


def assert_equal_steps(one: Step, other: Step) -> None:
    (terms, found), (expected_terms, expected) = one, other
    assert terms.keys() == expected_terms.keys()
    for name in terms:  # means that are rounded otherwise
        torch.testing.assert_close(terms[name], expected_terms[name], rtol=1e-5, atol=0)
    assert found.keys() == expected.keys()
    for name in found:  # added up in another order
        torch.testing.assert_close(
            found[name], expected[name], rtol=1e-5, atol=1e-6 * float(expected[name].abs().max())
        )


def test_one_interpolation_and_one_activation(monkeypatch: pytest.MonkeyPatch) -> None:
    queries: list[int] = []
    activations: list[int] = []

    def recorded(tracks: Tracks, times: Tensor) -> TrackPoses:
        queries.append(len(times))
        return interpolate(tracks, times)

    def counted(*arguments: Any) -> dict[str, Tensor]:
        activations.append(1)
        return activate(*arguments)

    monkeypatch.setattr(collect, "activate", counted)
    gradients(reference_stages().replaced(interpolate=recorded, activate=counted), tiny_state())
    assert (queries, sum(activations)) == ([1, 1], 3)
    queries.clear(), activations.clear()
    gradients(build_stages(ONCE).replaced(interpolate=recorded, activate=counted), tiny_state())
    assert (queries, sum(activations)) == ([2], 1)


def test_several_times_are_as_one_after_another() -> None:
    scene = tiny_state().scene
    first, last = float(scene.tracks.times.min()), float(scene.tracks.times.max())
    times = torch.tensor(
        [first - 100, first, 0.5 * (first + last), last], dtype=torch.float64
    )  # actors absent, and present
    for world, time in zip(collect_at(scene, times), times.tolist(), strict=True):
        expected = collect_gaussian_parameters(scene, time)
        assert len(world) == len(expected)
        for name in FIELDS:
            assert_rounded_alike(getattr(world, name), getattr(expected, name))


@pytest.mark.parametrize(
    ("scene", "numbers"), [([], (None, len(tiny_capture().tracks))), (["--invented", "0.0005"], (0.0005, 64))]
)
def test_the_benchmark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], scene: list[str], numbers: tuple[float | None, int]
) -> None:
    write_pack(tiny_capture(), tmp_path / "tiny.pack")
    model = [f"model.{name}={n}" for name, n in (("points", 200), ("raised_points", 20), ("far_points", 20))]
    keys = ["data=pack", f"data.root={tmp_path / 'tiny.pack'}", "device=cpu", "ops=reference", "train.steps=50", *model]
    bench_collect_once.main(
        [*keys, "--rounds", "2", "--steps", "2", "--uncounted", "1", "--out", str(tmp_path / "b.json"), *scene]
    )
    report = json.loads((tmp_path / "b.json").read_text())
    sets = report["sets"]
    assert (report["invented"], report["tracks"]) == numbers
    assert report["gaussians"][0] == 1000 or not scene
    assert sets["baseline"]["collect_calls"] == 2 and sets["collect_once"]["collect_calls"] == 1
    assert all(0 < f["collect_ms"] < f["step_ms"] and f["steps"] == 4 for f in sets.values())
    assert "collect_once" in capsys.readouterr().out


def test_an_activation_that_is_known_is_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = tiny_state().scene
    local = activate(scene.gaussians)
    times = torch.tensor([0.3], dtype=torch.float64)
    expected = collect_at(scene, times)[0]
    monkeypatch.setattr(collect, "activate", lambda g: pytest.fail("activated again"))
    world = collect_at(scene, times, local=local)[0]
    assert all(torch.equal(getattr(world, name), getattr(expected, name)) for name in FIELDS)
