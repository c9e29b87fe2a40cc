# SPDX-License-Identifier: Apache-2.0
"""The record of stages: swaps, wrappers, and the step that is written with them."""

from collections import Counter
from collections.abc import Callable
from dataclasses import MISSING, fields, replace
from typing import Any

import pytest
import torch
from tiny_capture import tiny_config, tiny_state

from nurec_lite.backends import base_stages
from nurec_lite.base.errors import OptionError
from nurec_lite.config import TrainConfig
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.stages import RECORD_OF, RECORDS, Replacements, Stages
from nurec_lite.training.step import step

NAMES = tuple(RECORD_OF)
# For the camera and for the lidar.
TWICE = ("correct", "interpolate", "collect", "capacity", "project", "tile", "render_all")
APART = (
    "frames",
    "begin_frames",
    "group_rays",
    "slice_grid",
    "footprints",
    "relocate",
    "order",
    "mcmc_split",
    "rearrange",
    "synchronize",
    "render_views",
)  # not in every step


def counted(calls: Counter[str], name: str) -> Callable[[Callable], Callable]:
    def wrapper(inner: Callable) -> Callable:
        def stage(*args: Any) -> Any:
            calls[name] += 1
            return inner(*args)

        return stage

    return wrapper


def all_counted(calls: Counter[str]) -> Stages:
    return reference_stages().wrap(**{name: counted(calls, name) for name in NAMES})


def one_step(stages: Stages, lidar_rays: int = 128) -> dict[str, torch.Tensor]:
    state = tiny_state(tiny_config(train=TrainConfig(steps=1, lidar_rays=lidar_rays)))
    step(stages, state)
    return state.scene.parameters()


def test_the_stages_are_those_of_the_design() -> None:
    """None has a default: the maker of the record names every one."""
    design = (
        "frames begin_frames next_batch upload place fetch resize group_rays schedule "
        "correct activate interpolate collect gather capacity project tile render_camera render_lidar render_all render_views "
        "expose slice_grid image_loss lidar_loss regularisers terms "
        "reduce keep_unseen optimize noise learn footprints relocate order mcmc_split rearrange density try_step synchronize"
    )
    assert design.split() == list(NAMES)
    assert [*NAMES, "streams"] == list(Replacements.__annotations__)
    assert all(
        f.default is MISSING and f.default_factory is MISSING for record in RECORDS.values() for f in fields(record)
    )


def test_a_swap_replaces_one_stage_and_records_its_option() -> None:
    def other(*args: Any) -> Any: ...

    stages = reference_stages().swap("mine", tile=other)
    assert stages.render.tile is other
    assert stages.changes.claims == {"tile": "mine"}
    assert all(stages.stage(name) is reference_stages().stage(name) for name in NAMES if name != "tile")
    assert reference_stages().changes.claims == {}


def test_two_options_that_claim_one_stage_are_an_error_that_names_both_and_the_stage() -> None:
    stages = reference_stages().swap("first", tile=print, project=print)
    with pytest.raises(OptionError, match=r"'first' and 'second' .* stage 'project'"):
        stages.swap("second", interpolate=print, project=len)
    assert set(stages.swap("second", interpolate=print).changes.claims) == {"tile", "project", "interpolate"}


def test_an_unknown_stage_cannot_be_swapped() -> None:
    with pytest.raises(TypeError, match="nonsense"):
        reference_stages().swap("mine", nonsense=print)  # type: ignore[call-arg]


def test_wrappers_stand_around_each_other_in_the_order_given_and_around_a_swap() -> None:
    order: list[str] = []

    def named(name: str) -> Callable[[Callable], Callable]:
        def wrapper(inner: Callable) -> Callable:
            def stage(*args: Any) -> Any:
                order.append(f"{name} in")
                result = inner(*args)
                order.append(f"{name} out")
                return result

            return stage

        return wrapper

    stages = reference_stages().swap("option", density=lambda stages, state: order.append("swapped"))
    stages = stages.wrap(density=named("first")).wrap(density=named("second"))
    stages.update.density(stages, None)  # type: ignore[arg-type]
    assert order == ["second in", "first in", "swapped", "first out", "second out"]
    assert stages.changes.claims == {"density": "option"}


def test_a_swap_cannot_lose_a_wrapper() -> None:
    stages = reference_stages().wrap(learn=lambda inner: inner)
    with pytest.raises(OptionError, match=r"'late' replaces the stage 'learn', which another option wraps"):
        stages.swap("late", learn=print)
    assert stages.swap("late", tile=print).changes.wrapped == {"learn"}


def test_fields_of_the_plan_reach_the_compiled_stages() -> None:
    native = base_stages("native", torch.device("cpu"))
    stages = native.planned("first", tile=8).planned("second", cell_rays=16)
    assert stages.changes.claims == {"plan.tile": "first", "plan.cell_rays": "second"} and native.changes.claims == {}
    assert native.plan is not None and stages.plan == replace(native.plan, tile=8, cell_rays=16)
    for name in ("tile", "render_camera", "render_lidar"):
        assert stages.stage(name).keywords == {"plan": stages.plan}, name


def test_two_options_that_set_one_field_are_an_error_that_names_both_and_the_field() -> None:
    stages = base_stages("native", torch.device("cpu")).planned("first", tile=8)
    with pytest.raises(OptionError, match=r"'first' and 'second' both set 'tile' of the plan"):
        stages.planned("second", tile=4)


def test_a_plan_leaves_swapped_stages_and_refuses_wrapped_ones() -> None:
    native = base_stages("native", torch.device("cpu"))
    stages = native.swap("mine", tile=print).planned("other", cell_rays=16)
    assert stages.render.tile is print and getattr(stages.render.render_lidar, "keywords", None) == {
        "plan": stages.plan
    }
    with pytest.raises(OptionError, match=r"'late' replaces the stage 'render_camera', which another option wraps"):
        native.wrap(render_camera=lambda inner: inner).planned("late", cell_rays=16)


def test_the_reference_has_no_plan() -> None:
    with pytest.raises(
        OptionError, match="'mine' cannot run here: it changes compiled kernels; use ops=native and render=own"
    ):
        reference_stages().planned("mine", tile=8)


def test_close_ends_what_stages_have_started() -> None:
    class Closing:
        closed = 0

        def __call__(self, *args: Any) -> Any: ...

        def close(self) -> None:
            self.closed += 1

    stage = Closing()
    reference_stages().swap("mine", next_batch=stage).close()
    assert stage.closed == 1
    reference_stages().close()


def test_what_stands_outside_is_closed_before_what_it_calls() -> None:
    closed: list[str] = []

    class Closing:
        def __init__(self, name: str) -> None:
            self.name = name

        def __call__(self, *args: Any) -> Any: ...

        def close(self) -> None:
            closed.append(self.name)

    stages = reference_stages().swap("mine", next_batch=Closing("inner"))
    stages.wrap(fetch=lambda feed: Closing("outer"), learn=lambda learn: learn).close()
    assert closed == ["outer", "inner"]


def test_a_step_calls_every_stage_once_a_sensor() -> None:
    calls: Counter[str] = Counter()
    one_step(all_counted(calls))
    assert calls.pop("upload") == 7 + 11  # those of a sweep whose directions are the view's, too
    assert calls == {name: 2 if name in TWICE else 1 for name in NAMES if name not in ("upload", *APART)}


def test_a_step_without_rays_renders_the_camera_alone() -> None:
    calls: Counter[str] = Counter()
    one_step(all_counted(calls), lidar_rays=0)
    assert calls.pop("upload") == 7  # image, poses at start and end, time, velocity, row; rates
    assert calls == {name: 1 for name in NAMES if name not in ("upload", "render_lidar", "lidar_loss", *APART)}


def test_relocation_is_a_stage_that_density_calls_when_it_is_due() -> None:
    calls: Counter[str] = Counter()
    state, stages = tiny_state(), all_counted(calls)
    for state.step in range(4):
        step(stages, state)
        assert calls["relocate"] == (state.step == 3)


def test_wrappers_that_do_nothing_leave_the_step_as_it_is() -> None:
    plain, wrapped = one_step(reference_stages()), one_step(all_counted(Counter()))
    assert all(torch.equal(plain[name], wrapped[name]) for name in plain)


def test_a_step_changes_every_kind_of_parameter() -> None:
    before, after = tiny_state().scene.parameters(), one_step(reference_stages())
    unchanged = {name for name in before if torch.equal(before[name], after[name])}
    assert unchanged == set()


def test_a_step_reports_every_term_of_the_loss() -> None:
    state = tiny_state()
    stages = reference_stages()
    result = step(stages, state)
    assert set(result.terms) == {"image", "range", "intensity", "drop", "opacity", "tie", "scale", "exposure"}
    assert all(term.shape == () and not term.requires_grad and term.isfinite() for term in result.terms.values())
    assert 0 < float(result.mse) < 1


def test_the_progress_of_the_budget_sets_the_rates() -> None:
    rates = []
    for progress in (0.0, 1.0):
        state = replace(tiny_state(), progress=progress)
        stages = reference_stages()
        step(stages, state)
        rates.append({group["name"]: group["lr"] for group in state.optimizer.param_groups})
    lr = tiny_config().lr
    assert rates[1]["means"] == pytest.approx(rates[0]["means"] * lr.means_decay)
    assert rates[1]["sh0"] == pytest.approx(rates[0]["sh0"] * lr.decay)
