# SPDX-License-Identifier: Apache-2.0
"""The option `no_sync`: nothing in a step asks the device for a number, and lists without enough capacity cost time alone."""

import json
import math
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from stepping import cramped, everything, no_sync_of, steps
from tiny_capture import tiny_capture, tiny_config, tiny_shots, tiny_state
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.opt import bench_no_sync
from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base import transfer
from nurec_lite.base.capture_safety import HOST_READS
from nurec_lite.base.errors import OptionError
from nurec_lite.base.options import parameters_of
from nurec_lite.capture.pack import write_pack
from nurec_lite.config import DensityConfig
from nurec_lite.evaluation.measure import evaluate, held_out
from nurec_lite.native import stages as native
from nurec_lite.opt.post import no_sync
from nurec_lite.training.checkpoint import load_checkpoint
from nurec_lite.training.loop import one_step, train
from nurec_lite.training.shots import Shots
from nurec_lite.training.stages import Stages
from nurec_lite.training.start import make_state
from nurec_lite.training.state import TrainState

NAMES = ("fused_interp", "collect_once", "no_sync")
OPTIONS = {name: parameters_of(name) for name in NAMES}
WITHOUT = {name: OPTIONS[name] for name in NAMES[:2]}
CPU = torch.device("cpu")


def stages_of(options: dict[str, dict], device: torch.device = CPU) -> Stages:
    return build_stages(options, base_stages("native", device))


def assert_same(a: TrainState, b: TrainState) -> None:
    mine, other = everything(a), everything(b)
    assert mine.keys() == other.keys()
    for name in mine:
        assert torch.equal(mine[name], other[name]), name


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a step is known at the third question, as it is while the GPU is behind."""

    class Late(transfer.HostFuture):
        asked = 0

        def done(self) -> bool:
            self.asked += 1
            return self.asked > 3

    monkeypatch.setattr(no_sync, "HostFuture", Late)


# ---- the option


def test_the_stages_that_it_swaps() -> None:
    stages = stages_of(OPTIONS)
    swapped = {stage for stage, option in stages.changes.claims.items() if option == "no_sync"}
    assert swapped == {"capacity", "upload", "relocate", "synchronize"}
    assert stages.changes.wrapped == {"try_step"}


@pytest.mark.parametrize(
    ("options", "base", "words"),
    [
        (("no_sync",), "native", "requires 'fused_interp'"),
        (("fused_interp", "no_sync"), "reference", "cannot run here: .* use ops=native"),
    ],
)
def test_what_it_needs(options: tuple[str, ...], base: str, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        build_stages({name: OPTIONS[name] for name in options}, base_stages(base, CPU))


def test_slack_below_one_would_never_end() -> None:
    with pytest.raises(OptionError, match="must be at least 1"):
        stages_of(WITHOUT | {"no_sync": {"slack": 0.9}})


@pytest.mark.parametrize("rays", [128, 0])
def test_shots_and_views_are_the_baseline_s(rays: int) -> None:
    state = tiny_state()
    state.plan, state.step = replace(state.plan, lidar_rays=rays), 3
    mine, other = (stages.feed.fetch(stages, state) for stages in (stages_of(OPTIONS), stages_of({})))
    assert mine.step == other.step
    for a, b in zip(records(mine), records(other), strict=True):
        assert type(a) is type(b)
        for f in fields(a):
            x, y = getattr(a, f.name), getattr(b, f.name)
            assert torch.equal(x, y) if isinstance(x, Tensor) else type(x) is type(y)


def records(shots: Shots) -> list[Any]:
    return [*shots.images, *(shot.sweep for shot in shots.sweeps), *shots.views]


# ---- the same numbers


def test_steps_are_those_without_it() -> None:
    """No relocation, which draws by other numbers."""
    config = tiny_config(density=DensityConfig(every=1000, start=0.0, stop=1.0))
    states = [tiny_state(config), tiny_state(config)]
    for state, options in zip(states, (WITHOUT, OPTIONS), strict=True):
        steps(stages_of(options), state, 6)
    for name, value in everything(states[0]).items():
        torch.testing.assert_close(everything(states[1])[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("at", [{2}, {3}, {1, 5, 6}, set(range(1, 10))], ids=str)
def test_too_little_capacity_changes_nothing(at: set[int]) -> None:
    """Bitwise: every parameter, every moment, every random number after; relocation, with growth, in steps 3 and 7."""
    plain, overflown = tiny_state(), tiny_state()
    steps(stages_of(OPTIONS), plain, 10)
    stages = cramped(stages_of(OPTIONS), at)
    steps(stages, overflown, 10)
    assert no_sync_of(stages).redone >= len(at)
    assert_same(plain, overflown)
    assert len(plain.scene.gaussians) > len(tiny_state().scene.gaussians)


def test_lists_get_longer_with_more_gaussians(monkeypatch: pytest.MonkeyPatch) -> None:
    """Growth in steps 3 and 7, also where the steps after it are done again."""
    for at in (set[int](), {4}):
        state, stages = tiny_state(), cramped(stages_of(OPTIONS), at)
        before, found = len(state.scene.gaussians), list[float]()
        monkeypatch.setattr(no_sync_of(stages).capacities, "expect", found.append)
        steps(stages, state, 10)
        assert len(found) == 2 and min(found) > 1
        assert math.prod(found) == pytest.approx(len(state.scene.gaussians) / before)


def test_too_little_capacity_changes_nothing_where_one_kernel_updates_all() -> None:
    """The flag is asked for in the kernel of fused_adam, too."""
    options = OPTIONS | {name: parameters_of(name) for name in ("fused_adam", "fused_ssim", "fused_range")}
    plain, overflown = tiny_state(), tiny_state()
    steps(stages_of(options), plain, 10)
    stages = cramped(stages_of(options), {1, 5, 6})
    steps(stages, overflown, 10)
    assert no_sync_of(stages).redone >= 3
    assert_same(plain, overflown)


@pytest.mark.usefixtures("late")
@pytest.mark.parametrize("cap", [10_000, 1])
@pytest.mark.parametrize("at", [{2}, {3}, {6, 7}], ids=str)
def test_too_little_capacity_that_is_reported_late(at: set[int], cap: int) -> None:
    """Several steps are under way by then, relocations among them, with growth and without: all are done again."""
    config = tiny_config()
    config = replace(config, density=replace(config.density, cap=cap))
    plain, overflown = tiny_state(config), tiny_state(config)
    steps(stages_of(OPTIONS), plain, 10)
    stages = cramped(stages_of(OPTIONS), at)
    steps(stages, overflown, 10)
    assert no_sync_of(stages).redone >= 3
    assert_same(plain, overflown)


def test_a_failed_step_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    state, stages = tiny_state(), stages_of(OPTIONS)
    steps(stages, state, 2)
    before = {name: value.clone() for name, value in everything(state).items() if name != "rng"}
    monkeypatch.setattr(transfer.HostFuture, "done", lambda arrival: False)
    cramped(stages, {2})
    result = stages.update.try_step(stages, state, state.plan.load(2))
    assert result.report is not None and bool(result.report[-1]) and bool(state.failed)
    for name, value in before.items():
        assert torch.equal(everything(state)[name], value), name


def test_failed_steps_are_no_rows_of_the_history() -> None:
    state = tiny_state()
    steps(cramped(stages_of(OPTIONS), {4}), state, 10)
    state.history.read()
    plain = tiny_state()
    steps(stages_of(OPTIONS), plain, 10)
    plain.history.read()
    assert {row["step"] for row in plain.history.rows} >= {row["step"] for row in state.history.rows}
    assert all(row["psnr"] > 3 for row in state.history.rows)


def test_measuring_uses_all_entries() -> None:
    """Outside of a step nobody would do it again."""
    state, stages = tiny_state(), stages_of(OPTIONS)
    steps(stages, state, 1)
    no_sync_of(stages).capacities.of = lambda view: 3  # type: ignore[method-assign]
    capture = state.plan.capture
    found = [evaluate(s, state.scene, capture, held_out(capture), None) for s in (stages, stages_of(WITHOUT))]
    assert found[0].metrics == found[1].metrics


def test_what_is_saved_is_settled(tmp_path: Path) -> None:
    roomy = OPTIONS | {"no_sync": {"slack": 4.0}}  # no list but the cramped ones lacks capacity
    state, stages = tiny_state(tiny_config(steps=6)), cramped(stages_of(roomy), {5})
    train(stages, state, tmp_path / "checkpoint.pt")
    plain = tiny_state(tiny_config(steps=6))
    train(stages_of(roomy), plain, tmp_path / "plain.pt")
    assert no_sync_of(stages).redone == 1
    saved, expected = (load_checkpoint(tmp_path / f"{name}.pt", "cpu") for name in ("checkpoint", "plain"))
    for name, value in expected["scene"]["parameters"].items():
        assert torch.equal(saved["scene"]["parameters"][name], value)


# ---- no waiting


class _Asks(TorchDispatchMode):
    """Refuses every operator whose result's size, or which itself, is a number that the host must know."""

    WAITING = (*HOST_READS, "unique")

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        name = func.__name__.split(".")[0]
        masks = name in ("index", "index_put", "index_put_") and any(
            t is not None and t.dtype in (torch.bool, torch.uint8) for t in args[1]
        )
        repeats = name == "repeat_interleave" and (kwargs or {}).get("output_size") is None
        assert name not in self.WAITING and not masks and not repeats, f"{func} would wait for a GPU"
        return func(*args, **(kwargs or {}))


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lets a CPU act as a GPU does. Otherwise a CPU gathers the listed Gaussians first, and asks for their number."""
    monkeypatch.setattr(native, "on_gpu", lambda gaussians: True)
    yield


@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.parametrize(("calibrate", "grid"), [(False, None), (True, None), (True, [3, 2, 2])])
def test_nothing_in_a_step_asks_for_a_number(calibrate: bool, grid: list[int] | None) -> None:
    """After the first step; with relocation and noise."""
    config = tiny_config()
    config.model.calibrate, config.model.bilateral_grid = calibrate, grid
    state, stages = tiny_state(config), stages_of(OPTIONS)
    steps(stages, state, 1)
    loaded = [state.plan.load(step) for step in range(9)]
    with _Asks():
        for step in range(1, 9):
            state.step = step
            stages.update.try_step(stages, state, stages.feed.place(stages, state, loaded[step]))


@pytest.mark.usefixtures("as_on_a_gpu")
def test_without_it_a_step_asks() -> None:
    """The test above can fail: a step without the option asks the device."""
    state, stages = tiny_state(), stages_of(WITHOUT)
    shots = state.plan.load(3)
    with _Asks(), pytest.raises(AssertionError, match="would wait for a GPU"):
        state.step = 3
        stages.update.try_step(stages, state, stages.feed.place(stages, state, shots))


@pytest.mark.gpu
@pytest.mark.parametrize("names", [("fused_interp", "no_sync"), NAMES], ids=",".join)
def test_no_step_synchronises(names: tuple[str, ...]) -> None:
    """500 steps of the tiny drive, with relocation and growth, under torch's own check; the first ones may wait."""
    device = torch.device("cuda")
    config = replace(tiny_config(density=DensityConfig(every=20, start=0.0, stop=1.0, cap=560)), device="cuda")
    state = make_state(config, tiny_capture(), device)
    stages = stages_of({name: OPTIONS[name] for name in names}, device)
    steps(stages, state, 3)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(500):
            state.progress = 0.5
            one_step(stages, state, 0.0)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    stages.update.synchronize(stages, state)
    assert no_sync_of(stages).redone <= 50
    assert all(bool(value.isfinite().all()) for value in state.scene.parameters().values())


@pytest.mark.gpu
def test_too_little_capacity_on_a_gpu() -> None:
    """Until the flag has come, steps change nothing; afterwards they are done again, and training goes on as without."""
    device = torch.device("cuda")
    state = make_state(replace(tiny_config(), device="cuda"), tiny_capture(), device)
    stages = stages_of(OPTIONS, device)
    steps(cramped(stages, {4, 5, 9}), state, 12)
    assert no_sync_of(stages).redone >= 3 and not bool(state.failed)
    counts = {int(moments["step"]) for moments in state.optimizer.state.values()}
    assert counts == {12}


def test_each_sensor_of_a_run_has_a_capacity_of_its_own() -> None:
    state, stages = tiny_state(), stages_of(OPTIONS)
    steps(stages, state, 8)
    kinds = {view.kind for step in range(8) for view in state.plan.load(step).views}
    assert set(no_sync_of(stages).capacities._needed) == kinds and len(kinds) == 3  # two cameras and a lidar


@pytest.mark.parametrize(("images", "sweeps"), [((0, 1, 2), (0, 3)), ((0, 0), ()), ((), (1, 2))])
def test_any_number_of_images_and_sweeps(images: tuple[int, ...], sweeps: tuple[int, ...]) -> None:
    """Each list's need comes back for its own sensor; too little capacity for one of them fails the step, which is done again."""
    config, shots = tiny_config(density=DensityConfig(every=1000)), tiny_shots(images, sweeps)
    states, redone = [tiny_state(config), tiny_state(config)], []
    for state, narrow in zip(states, (set(), {2}), strict=True):
        stages = cramped(stages_of(OPTIONS), narrow)
        for state.step in range(4):
            stages.update.try_step(stages, state, shots)
        state.step = 4
        stages.update.synchronize(stages, state)
        redone.append(no_sync_of(stages).redone)
        assert set(no_sync_of(stages).capacities._needed) == {view.kind for view in shots.views}
    assert redone[0] == 0 and redone[1] >= 1
    assert_same(*states)


# ---- its benchmark


def test_the_benchmark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_pack(tiny_capture(), tmp_path / "tiny.pack")
    tiny = ["model.points=300", "model.actor_points=40", "model.raised_points=100", "model.far_points=80", "device=cpu"]
    bench_no_sync.main(
        ["data=pack", f"data.root={tmp_path}/tiny.pack", *tiny, "model.sky_height=8", "density.cap=600", "train.lidar_rays=128",
         "--rounds", "2", "--steps", "2", "--warmup", "1", "--counted", "1", "--out", str(tmp_path / "out.json")]
    )  # fmt: skip
    report = json.loads((tmp_path / "out.json").read_text())
    assert list(report["sets"]) == ["baseline", " + ".join(NAMES[:2]), " + ".join(NAMES)]
    for found in report["sets"].values():
        assert 0 < found["host_ms"] <= found["wall_ms"] and len(found["rounds"]) == 2
        assert found["waits"] is None  # nobody can count them without a GPU
    assert "no_sync" in capsys.readouterr().out
