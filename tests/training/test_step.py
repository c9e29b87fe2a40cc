# SPDX-License-Identifier: Apache-2.0
"""The step: messages between its parts, any number of images and sweeps, and a step that failed."""

from typing import Any

import pytest
import torch
from tiny_capture import tiny_capture, tiny_config, tiny_shots, tiny_state
from torch import Tensor

from nurec_lite.backends import base_stages
from nurec_lite.config import DensityConfig
from nurec_lite.scene.gaussians import LIDAR_VALUES
from nurec_lite.splat.views import camera_view, lidar_view
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.shots import Shots
from nurec_lite.training.stages import Stages
from nurec_lite.training.state import StepResult, TrainState, overflow_of
from nurec_lite.training.step import failed, render, render_frame, render_sweep, step

IMAGE_TERMS, SWEEP_TERMS = {"image"}, {"range", "intensity", "drop"}
SCENE_TERMS = {"opacity", "tie", "scale", "exposure"}


def learnt(shots: Shots) -> tuple[StepResult, dict[str, Tensor]]:
    """The step's report, and the gradients for the optimizer."""
    found: dict[str, Tensor] = {}

    def keep(state: TrainState) -> None:
        found.update({n: p.grad for n, p in state.scene.parameters().items() if p.grad is not None})

    stages = reference_stages().replaced(optimize=keep)
    return stages.update.learn(stages, tiny_state(), shots), found


def test_rates_come_to_the_device_with_what_is_learned() -> None:
    """They do not come earlier: until then another stage may bring them."""
    brought: list[Tensor] = []
    stages = reference_stages().replaced(upload=lambda t, device: brought.append(t) or t.clone())  # type: ignore[func-returns-value]
    state = tiny_state()
    stages.feed.schedule(stages, state)
    scheduled = state.lr_and_noise
    assert not brought
    stages.update.learn(stages, state, tiny_shots((0,), ()))
    assert [id(t) for t in brought] == [id(scheduled)] and state.lr_and_noise is not scheduled


def changed(stages: Stages, state: TrainState, shots: Shots) -> set[str]:
    """Names of the parameters that learning and density control write into."""
    before = {name: value.detach().clone() for name, value in state.scene.parameters().items()}
    stages.update.try_step(stages, state, shots)
    return {name for name, value in state.scene.parameters().items() if not torch.equal(value, before[name])}


# ---- its parts


def test_a_step_feeds_then_learns_then_adapts() -> None:
    order: list[str] = []

    def noted(name: str) -> Any:
        return lambda inner: lambda *given: (order.append(name), inner(*given))[1]

    names = ("next_batch", "place", "gather", "terms", "reduce", "optimize", "density")
    step_stages = reference_stages().wrap(**{name: noted(name) for name in names})
    step(step_stages, tiny_state())
    assert tuple(order) == names


def test_what_is_fed_are_the_plan_s_shots_of_the_state_s_step() -> None:
    stages, state = reference_stages(), tiny_state()
    state.step = 5
    fed, loaded = stages.feed.fetch(stages, state), state.plan.load(5)
    assert fed.step == 5 and [s.index for s in fed.images] == [s.index for s in loaded.images]
    assert torch.equal(fed.images[0].image, loaded.images[0].image)
    assert torch.equal(fed.sweeps[0].sweep.directions, loaded.sweeps[0].sweep.directions)


def test_gradients_are_reduced_between_backward_and_the_update() -> None:
    """Several processes do so: the optimizer takes the result of `reduce`."""
    seen: list[float] = []

    def reduce(state: TrainState) -> None:
        gradient = state.scene.sky.grad
        assert gradient is not None and gradient.abs().max() > 0
        gradient.fill_(7.0)

    stages = reference_stages().replaced(reduce=reduce, optimize=lambda s: seen.append(float(s.scene.sky.grad.mean())))
    step(stages, tiny_state())
    assert seen == [7.0]


def test_the_lists_are_reported_by_kind_of_view_images_first() -> None:
    result, _ = learnt(tiny_shots((0, 1), (2,)))
    shots, (lidar,) = tiny_shots((0, 1), (2,)), tiny_capture().lidars
    assert [listed.kind for listed in result.lists] == [f"{s.view.camera.name} 40x24" for s in shots.images] + [
        lidar.name
    ]
    assert all(listed.capacity > 0 and listed.needed is None for listed in result.lists)
    assert result.report is None


def test_frames_and_sweeps_alone_are_what_a_step_renders() -> None:
    capture, stages, scene = tiny_capture(), reference_stages(), tiny_state().scene
    shots = tiny_shots((3,), (3,))
    rendered = render(stages, scene, shots)
    image = camera_view(capture, capture.images[shots.images[0].index], "cpu")
    assert torch.equal(render_frame(stages, scene, image).colour, rendered.images[0].colour)
    sweep = lidar_view(capture, capture.sweeps[shots.sweeps[0].index], shots.sweeps[0].sweep, "cpu")
    assert torch.equal(render_sweep(stages, scene, sweep).distance, rendered.returns[0].distance)


# ---- any number of images and sweeps


@pytest.mark.parametrize(
    ("images", "sweeps"), [((0, 1, 2), (0,)), ((0,), (0, 3)), ((0, 1), (0, 1, 5)), ((4, 4), (4, 4))]
)
def test_terms_of_several_are_their_means(images: tuple[int, ...], sweeps: tuple[int, ...]) -> None:
    result, _ = learnt(tiny_shots(images, sweeps))
    single_images = [learnt(tiny_shots((i,), ()))[0] for i in images]
    single_sweeps = [learnt(tiny_shots((), (i,)))[0] for i in sweeps]
    assert set(result.terms) == IMAGE_TERMS | SWEEP_TERMS | SCENE_TERMS
    for names, singles in ((IMAGE_TERMS, single_images), (SWEEP_TERMS, single_sweeps)):
        for name in names:
            mean = sum(float(single.terms[name]) for single in singles) / len(singles)
            assert float(result.terms[name]) == pytest.approx(mean, rel=1e-6), name
    errors = [float(single.mse) for single in single_images if single.mse is not None]
    assert result.mse is not None and float(result.mse) == pytest.approx(sum(errors) / len(errors), rel=1e-6)


def test_the_gradient_of_several_is_the_mean_of_theirs() -> None:
    """Only images see the sky, and only sweeps the lidar's numbers; means get gradients from both."""
    _, found = learnt(tiny_shots((0, 1, 2), (0, 3)))
    images = [learnt(tiny_shots((i,), ()))[1] for i in (0, 1, 2)]
    sweeps = [learnt(tiny_shots((), (i,)))[1] for i in (0, 3)]
    for name, singles in (("sky", images), ("lidar_logits", sweeps)):
        expected = torch.stack([single[name] for single in singles]).mean(0)
        close = {"rtol": 1e-4, "atol": 1e-6 * float(expected.abs().max())}
        torch.testing.assert_close(found[name], expected, **close)
    assert found["means"].abs().max() > 0


def test_a_step_may_have_no_sweep() -> None:
    result, found = learnt(tiny_shots((0, 1), ()))
    assert set(result.terms) == IMAGE_TERMS | SCENE_TERMS and result.mse is not None
    assert not found["lidar_logits"][:, :LIDAR_VALUES].any()  # of the lidar's opacity the regularisers tell
    assert found["sky"].abs().max() > 0


def test_a_step_may_have_no_image() -> None:
    """The report then says nothing of images, and the scene still learns."""
    result, found = learnt(tiny_shots((), (0, 1)))
    assert set(result.terms) == SWEEP_TERMS | SCENE_TERMS and result.mse is None
    assert "sky" not in found and found["lidar_logits"].abs().max() > 0 and found["means"].abs().max() > 0


def test_steps_without_images_are_rows_of_the_history_without_psnr() -> None:
    state = tiny_state()
    for n, shots in enumerate((tiny_shots((), (0,)), tiny_shots((0,), ())), 1):
        result, _ = learnt(shots)
        state.history.add(n, float(n), 10, result.figures)
    state.history.read()
    first, second = state.history.rows
    assert "psnr" not in first and "range" in first
    assert second["psnr"] > 3


def test_compiled_kernels_take_any_number_too() -> None:
    stages, state = base_stages("native", torch.device("cpu")), tiny_state()
    for images, sweeps in (((0, 1), (2, 3)), ((0,), ()), ((), (1,))):
        result = stages.update.try_step(stages, state, tiny_shots(images, sweeps))
        assert all(bool(term.isfinite()) for term in result.terms.values())
        assert len(result.lists) == len(images) + len(sweeps)


# ---- a step that failed


@pytest.mark.parametrize(
    ("before", "needed", "expected"),
    [
        (None, (None, None), None), (None, (10, None), 0.0), (None, (11, None), 1.0), (None, (None, 11), 1.0),
        (None, (11, 3), 1.0), (1.0, (3, 3), 1.0), (1.0, (None, None), 1.0), (0.0, (11, 11), 1.0), (0.0, (10, 9), 0.0),
    ],
)  # fmt: skip
def test_a_step_failed_if_a_list_needs_more_than_its_capacity_of_ten(
    before: float | None, needed: tuple[int | None, ...], expected: float | None
) -> None:
    overflow = [None if n is None else overflow_of(torch.tensor([n]), 10) for n in needed]
    found = failed(None if before is None else torch.tensor(before), overflow)
    assert found is None if expected is None else float(found) == expected  # type: ignore[arg-type]


def test_lists_without_enough_capacity_are_noted_in_the_state_and_nothing_changes() -> None:
    """Compiled lists with a capacity of three entries: no parameter moves, neither in this step nor in those after it."""
    state, shots = tiny_state(tiny_config(density=DensityConfig(every=1000))), tiny_shots((0,), (0,))
    stages = base_stages("native", torch.device("cpu")).replaced(capacity=lambda view: 3)
    assert changed(stages, state, shots) == set()
    assert state.failed is not None and bool(state.failed)
    roomy = stages.replaced(capacity=lambda view: 1 << 20)
    assert changed(roomy, state, shots) == set() and bool(state.failed)
    state.failed = None
    assert changed(roomy, state, shots) == set(state.scene.parameters())
    assert state.failed is not None and not bool(state.failed)


def test_neither_the_optimizer_nor_noise_acts_on_a_step_that_failed() -> None:
    shots, config = tiny_shots((0,), (0,)), tiny_config(density=DensityConfig(every=1000, noise=1.0))
    stages, state = reference_stages(), tiny_state(config)
    state.failed = torch.ones(())
    assert changed(stages, state, shots) == set()
    moments = [m for m in state.optimizer.state.values() if "exp_avg" in m]
    assert all(not m["exp_avg"].any() and not m["step"] for m in moments)
    assert all(p.grad is None for p in state.scene.parameters().values())  # of the next step, none is left
    assert not hasattr(state.optimizer, "found_inf")


def test_a_flag_that_is_not_set_is_as_none() -> None:
    """Bitwise, noise included, and the same random numbers are used up."""
    states, shots = (tiny_state(), tiny_state()), tiny_shots((0,), (0,))
    states[1].failed = torch.zeros(())
    for state in states:
        stages = reference_stages()
        stages.update.try_step(stages, state, shots)
    for name, value in states[0].scene.parameters().items():
        assert torch.equal(value, states[1].scene.parameters()[name]), name
    assert torch.equal(states[0].generator.get_state(), states[1].generator.get_state())
