# SPDX-License-Identifier: Apache-2.0
"""A Gaussian that leaves the scene, or is no number any more, is dead and counted. Only many of them end a run."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_capture import tiny_config, tiny_state

from nurec_lite.backends import base_stages
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.broken import BrokenError, check
from nurec_lite.training.checkpoint import load_checkpoint
from nurec_lite.training.density import DEAD_OPACITY, relocate, relocate_masked
from nurec_lite.training.gone import FAR, SHARE, bury, edge_of_scene, edge_of_stored_scene, find_gone
from nurec_lite.training.loop import _stepped, save
from nurec_lite.training.saving import write_checkpoint
from nurec_lite.training.state import TrainState
from nurec_lite.training.step import step
from nurec_lite.training.watch import EVERY

NEVER = 10**8
PARTS = ["means", "quats", "log_scales", "opacity_logits", "sh0", "sh_rest", "lidar_logits"]


def trained(steps: int = 1, **density: Any) -> TrainState:
    config = tiny_config()
    state = tiny_state(replace(config, density=replace(config.density, **density)))
    for _ in range(steps):
        step(reference_stages(), state)
        state.step += 1
    return state


def number(state: TrainState) -> int:
    return len(state.scene.gaussians)


def rows(state: TrainState, *which: int) -> torch.Tensor:
    return torch.zeros(number(state), dtype=torch.bool).index_fill(0, torch.tensor(which), True)


def put(state: TrainState, name: str, value: float, row: Any = 3) -> None:
    with torch.no_grad():
        state.scene.parameters()[name][row] = value


def found(state: TrainState) -> Any:
    return find_gone(state.optimizer, number(state), state.watch.edge)


def test_the_edge_is_far_beyond_the_first_scene() -> None:
    state = trained(0)
    reach = float(state.scene.gaussians.means.detach().abs().max())
    assert state.watch.edge == pytest.approx(FAR[0] * reach + FAR[1])


def test_the_edge_of_an_old_checkpoint_is_not_moved_by_a_few() -> None:
    means = torch.rand(400, 3) * 50
    means[::40, 1] = -3e6
    assert edge_of_stored_scene(means) == pytest.approx(edge_of_scene(torch.rand(4000, 3) * 50), rel=0.05)


def test_a_good_scene_has_none() -> None:
    gone = found(trained())
    assert gone.count == gone.not_finite == 0 and not gone.rows.any()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", PARTS)
def test_any_number_of_a_gaussian(name: str, value: float) -> None:
    state = trained()
    put(state, name, value)
    gone = found(state)
    assert torch.equal(gone.rows, rows(state, 3)) and gone.count == gone.not_finite == 1


@pytest.mark.parametrize("moment", ["exp_avg", "exp_avg_sq"])
def test_any_moment_of_a_gaussian(moment: str) -> None:
    state = trained()
    state.optimizer.state[state.scene.gaussians.sh_rest][moment][5, 1, 2] = math.nan
    assert torch.equal(found(state).rows, rows(state, 5))


def test_what_lies_beyond_the_edge_in_any_direction() -> None:
    state = trained()
    for k, sign in enumerate((1, -1)):
        state.scene.gaussians.means.data[k, k] = sign * state.watch.edge * 1.001
        state.scene.gaussians.means.data[2 + k, k] = sign * state.watch.edge
    gone = found(state)
    assert torch.equal(gone.rows, rows(state, 0, 1)) and gone.not_finite == 0


@pytest.mark.parametrize("how", [relocate, relocate_masked])
@pytest.mark.parametrize("own_opacity", [False, True])
def test_the_next_relocation_moves_what_is_buried(how: Callable[..., Any], own_opacity: bool) -> None:
    """It moves to a live Gaussian, without moments; all others stay."""
    state = trained(cap=0)
    g = state.scene.gaussians
    assert g.lidar_logits.shape[1] == 3
    if not own_opacity:
        g.lidar_logits.data[:, 2] = -9
    g.opacity_logits.data[:] = 1.0
    for name in PARTS:
        put(state, name, math.nan)
    before = g.means.detach().clone()
    bury(state.optimizer, found(state).rows)
    assert found(state).count == 0 and float(g.greatest_opacity()[3].detach()) < DEAD_OPACITY
    assert all(not moments[k][3].any() for p, moments in state.optimizer.state.items() if len(p) == number(state)
               for k in ("exp_avg", "exp_avg_sq"))  # fmt: skip
    others = ~rows(state, 3)
    assert torch.equal(g.means[others], before[others])
    moved = how(g, 0, state.generator)
    assert moved is not None and moved.source[3] != 3 and bool(moved.anew[3])
    assert bool(moved.changed["means"].isfinite().all())


@pytest.mark.parametrize("how", [relocate, relocate_masked])
@pytest.mark.parametrize("name", ["opacity_logits", "means"])
def test_a_relocation_before_anybody_looks(how: Callable[..., Any], name: str) -> None:
    """Draws as usual, and copies nothing that is no number."""
    state = trained()
    put(state, name, math.nan)
    g = state.scene.gaussians
    g.opacity_logits.data[10:20] = g.lidar_logits.data[10:20, 2:] = -9
    weights = torch.ones(number(state))
    weights[3] = 0.0
    moved = how(g, 0, state.generator, weights)
    assert moved is not None and len(moved.source[10:20].unique()) > 5 and 3 not in moved.source[10:20]


def looked(state: TrainState, checkpoint: Path, stages: Any, steps: int) -> None:
    for _ in range(steps):
        _stepped(stages, state, 0.0)
        check(state, checkpoint)


@pytest.mark.parametrize(
    ("ops", "name", "value"),
    [("native", "means", 1e4), ("native", "means", 1e7), ("native", "means", 1e20), ("native", "means", math.nan),
     ("native", "quats", math.nan), ("native", "log_scales", 41.0), ("native", "log_scales", math.nan),
     ("native", "opacity_logits", math.nan), ("reference", "means", 1e20), ("reference", "opacity_logits", math.nan)],
)  # fmt: skip
def test_a_few_cost_a_run_nothing(ops: str, name: str, value: float, tmp_path: Path) -> None:
    state, stages = trained(every=EVERY + 4), base_stages(ops, torch.device("cpu"))
    put(state, name, value, slice(3, 6))
    looked(state, tmp_path / "checkpoint.pt", stages, EVERY - 1)
    assert state.gone == 3 and found(state).count == 0
    assert float(state.scene.gaussians.greatest_opacity()[3:6].detach().max()) < DEAD_OPACITY
    looked(state, tmp_path / "checkpoint.pt", stages, EVERY)
    assert state.gone == 3
    assert float(state.scene.gaussians.greatest_opacity()[3:6].detach().max()) >= DEAD_OPACITY, "relocated"
    state.history.read()
    assert state.history.trouble() is None


def test_those_that_leave_after_the_last_relocation_are_counted_at_the_end(tmp_path: Path) -> None:
    state, path = trained(every=NEVER), tmp_path / "checkpoint.pt"
    put(state, "means", 1e12)
    save(state, path)
    content = load_checkpoint(path, "cpu")
    assert content["counters"]["gone"] == 1 and content["counters"]["edge"] == state.watch.edge
    assert content["scene"]["parameters"]["means"].abs().max() < state.watch.edge


def test_one_of_a_handful(tmp_path: Path) -> None:
    state = trained(every=NEVER)
    put(state, "means", 1e9)
    few = max(1, int(SHARE * number(state)))
    put(state, "means", 1e9, slice(0, few))
    save(state, tmp_path / "checkpoint.pt")
    assert state.gone == few


def test_many_end_a_run_with_a_checkpoint_to_look_at(tmp_path: Path) -> None:
    state, path = trained(every=NEVER), tmp_path / "checkpoint.pt"
    put(state, "means", 1e5, slice(0, int(SHARE * number(state)) + 2))
    with pytest.raises(BrokenError, match=r"Gaussians fly 100000 m away, .* Gaussians are affected"):
        save(state, path)
    means = load_checkpoint(path, "cpu")["scene"]["parameters"]["means"]
    assert torch.equal(means, state.scene.gaussians.means)


@pytest.mark.parametrize(("name", "value"), [("means", math.nan), ("sky", math.nan), ("means", 1e12), ("sky", 1e7)])
def test_what_cannot_be_looked_at_gives_way_to_the_first_scene(name: str, value: float, tmp_path: Path) -> None:
    state, path = trained(every=NEVER), tmp_path / "checkpoint.pt"
    put(state, name, value, slice(None))
    with pytest.raises(BrokenError, match="as it was before the first step"):
        save(state, path)
    content = load_checkpoint(path, "cpu")
    assert content["counters"]["step"] == 0
    assert torch.equal(content["scene"]["parameters"]["means"], trained(0).scene.gaussians.means)


def test_few_that_come_again_and_again_end_a_run(tmp_path: Path) -> None:
    """Their source is broken, and not they."""
    state, path = trained(every=NEVER), tmp_path / "checkpoint.pt"
    with pytest.raises(BrokenError, match="means is nan"):
        for k in range(number(state)):
            put(state, "means", math.nan, k)
            check(state, path, now=True)
    assert state.gone == int(SHARE * number(state))


def test_range_errors_that_grow_leave_the_scene_as_it_is(tmp_path: Path) -> None:
    state, path = trained(), tmp_path / "checkpoint.pt"
    state.history._trouble, state.history.worse = (1, "the range error is 20.0 m instead of 1.0 m at the start"), True
    with pytest.raises(BrokenError, match=r"the range error is .* holds the scene as it is now"):
        check(state, path)
    assert torch.equal(load_checkpoint(path, "cpu")["scene"]["parameters"]["means"], state.scene.gaussians.means)


def test_a_checkpoint_that_is_there_stays(tmp_path: Path) -> None:
    state, path = trained(every=NEVER), tmp_path / "checkpoint.pt"
    write_checkpoint(state, path)
    before = path.read_bytes()
    put(state, "sky", math.nan, 0)
    with pytest.raises(BrokenError, match="the checkpoint before it is kept"):
        check(state, path, now=True)
    assert path.read_bytes() == before
