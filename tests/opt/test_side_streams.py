# SPDX-License-Identifier: Apache-2.0
"""The option `side_streams`: waits between streams, with streams that take notes; and on a GPU steps are those without it, also where
branches lag far behind one another and memory that was freed is written over at once."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from recorded_streams import recorded_streams
from stepping import assert_close, steps
from tiny_capture import tiny_capture, tiny_config, tiny_shots, tiny_state
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.opt import bench_cuda_graph
from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.errors import OptionError
from nurec_lite.base.options import parameters_of
from nurec_lite.base.transfer import SideStream, tensors_of
from nurec_lite.opt.all import side_streams
from nurec_lite.opt.all.side_streams import SideStreams
from nurec_lite.training.shots import as_planned
from nurec_lite.training.stages import Stages
from nurec_lite.training.start import make_state
from nurec_lite.training.state import TrainState
from nurec_lite.training.streams import Streams

CPU = torch.device("cpu")
BELOW = ("fused_interp", "collect_once", "no_sync", "fused_adam", "fused_ssim", "fused_range")
FUSED = ("fused_sky", "fused_colour", "fused_activate", "fused_harmonics")
WARP_TILES = ("resident", "warp_cull", "tile_cull", "balanced_tiles")


def stages_of(*names: str, device: torch.device = CPU) -> Stages:
    return build_stages({name: parameters_of(name) for name in names}, base_stages("native", device))


@pytest.fixture
def anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allows the option on a CPU as well, where there is but one stream."""
    monkeypatch.setattr(side_streams, "unavailable", lambda stages: None)


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Notes of streams, which work of a CPU is given: `side` is the first branch's, `side 2` that of the second."""
    monkeypatch.setattr(side_streams, "SideStream", lambda _, priority: SideStream(torch.device("cuda"), priority))
    return recorded_streams(monkeypatch)


class Noted(Tensor):
    """A tensor that says that it lies on a GPU, and notes the streams that use it."""

    is_cuda = True
    notes: list[str]

    def record_stream(self, stream: Any) -> None:
        self.notes.append(f"{int(self)} is used on {stream.name}")


def noted(number: int, notes: list[str]) -> Tensor:
    tensor = torch.tensor(number).as_subclass(Noted)
    tensor.notes = notes
    return tensor


# ---- waits between streams


def test_it_is_for_a_gpu() -> None:
    with pytest.raises(OptionError, match="cannot run here: it is about streams of a GPU; use device=cuda"):
        stages_of("side_streams")


def test_a_branch_waits_for_the_step_and_the_step_for_branches(notes: list[str]) -> None:
    own, one, two = SideStreams(), noted(1, notes), noted(2, notes)
    with own.fork(CPU):
        assert own.run("images", lambda given, _: [two], {"a": one}, "b") == [two]
        own.join()
        notes.append("backward")
    forked = ["step records", "side waits for event of step", "1 is used on side", "into side", "out of side"]
    joined = ["side records", "step waits for event of side"]
    assert notes == [*forked, *joined, "2 is used on step", "backward", *joined]


def test_the_step_may_wait_for_one_branch_alone(notes: list[str]) -> None:
    own, one, two = SideStreams(), noted(1, notes), noted(2, notes)
    with own.fork(CPU):
        own.run("images", lambda: one)
        own.run("lists", lambda: two)
        notes.clear()
        own.join("lists", "harmonics")
        assert notes == ["side 2 records", "step waits for event of side 2", "2 is used on step"]
        notes.clear()
    both = "side records", "step waits for event of side", "1 is used on step"
    assert notes == [*both, "side 2 records", "step waits for event of side 2"]


def test_works_of_a_branch_share_a_stream_and_branches_do_not(notes: list[str]) -> None:
    own = SideStreams()
    with own.fork(CPU):
        for branch in ("images", "sweeps", "images"):
            own.run(branch, lambda: None)
        notes.clear()
        own.join()
    waits = ["step waits for event of side", "step waits for event of side 2"]
    assert [note for note in notes if note.startswith("step waits")] == [*waits, *waits]


def test_a_branch_waits_for_others_that_made_what_it_reads(notes: list[str]) -> None:
    own, two = SideStreams(), noted(2, notes)
    with own.fork(CPU):
        for branch in ("images", "sweeps"):
            own.run(branch, lambda made: made, torch.zeros(()))
        own.run("images", lambda: {"a": two})
        notes.clear()
        own.run("figures", lambda given: None, ([two],))
        own.run("images", lambda given: None, two)
    forked = ["step records", "side 3 waits for event of step", "2 is used on side 3", "into side 3"]
    waits = ["side records", "side 3 waits for event of side", "out of side 3"]
    assert notes[:7] == forked + waits
    assert not [note for note in notes[7:] if note.startswith("side waits for event of side")]


def test_streams_stay_and_those_of_another_step_are_not_waited_for(notes: list[str]) -> None:
    """A recording would end with an error."""
    own = SideStreams()
    for branches in (["images", "sweeps"], ["images"]):
        notes.clear()
        with own.fork(CPU):
            for branch in branches:
                own.run(branch, lambda: None)
    assert not [note for note in notes if "side 2" in note or "side 3" in note] and "into side" in notes


def test_after_an_error_nothing_is_waited_for(notes: list[str]) -> None:
    own = SideStreams()
    with pytest.raises(ZeroDivisionError), own.fork(CPU):
        own.run("images", lambda: 1 // 0)
    assert notes[-2:] == ["side waits for event of step", "into side"]
    notes.clear()
    with own.fork(CPU):
        own.join()
    assert not notes


def test_outside_of_a_step_all_is_in_one_row(notes: list[str]) -> None:
    own = SideStreams()
    assert own.run("images", lambda a: a + 1, 2) == 3
    own.join()
    assert not notes


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize(
    ("sweeps", "begun"),
    [
        ((0,), ["side", "side 2", "side 3", "side", "side", "side 3", "side 4", "side 5"]),
        ((), ["side", "side 2", "side", "side", "side 3", "side 4"]),
    ],
    ids=["with a sweep", "without one"],
)
def test_a_step_has_a_branch_for_what_it_has(notes: list[str], sweeps: tuple[int, ...], begun: list[str]) -> None:
    """They are for rendering, exposing, comparing, the reports of lists, and the figures' own."""
    stages = stages_of("side_streams")
    stages.update.learn(stages, tiny_state(), tiny_shots((0,), sweeps))
    assert [note.removeprefix("into ") for note in notes if note.startswith("into")] == begun
    assert notes[-1] == f"step waits for event of side {len(set(begun))}"


@pytest.mark.usefixtures("anywhere")
def test_harmonics_are_updated_during_the_backward_pass_after_the_lists_flag(notes: list[str]) -> None:
    """On a stream of their own, the sixth; lists have the fourth, and figures the fifth."""
    stages, state = stages_of(*BELOW, *FUSED, "side_streams"), tiny_state()
    state.failed = torch.zeros(())
    stages.feed.schedule(stages, state)
    stages.update.learn(stages, state, tiny_shots((0,), (0,)))
    last = notes.index("into side 6")
    assert last > notes.index("into side 5") and notes[last + 1 : last + 3] == [
        "side 4 records",
        "side 6 waits for event of side 4",
    ]


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("names", [(), (*BELOW, *FUSED), (*BELOW, *FUSED, "batch")], ids=len)
def test_steps_are_those_without_it(names: tuple[str, ...]) -> None:
    plain, concurrent = tiny_state(), tiny_state()
    steps(stages_of(*names), plain, 6)
    steps(stages_of(*names, "side_streams"), concurrent, 6)
    assert_close(concurrent, plain)


@pytest.mark.usefixtures("anywhere")
def test_it_may_be_named_after_others() -> None:
    stages = stages_of(*BELOW, *FUSED, "side_streams")
    assert stages.changes.claims["streams"] == "side_streams"


def test_the_benchmark_compares_what_is_recorded() -> None:
    without, those = bench_cuda_graph.without_and_with("side_streams")
    assert tuple(name for name in those if name != "side_streams") == without
    assert "cuda_graph" in without and "side_streams" not in without
    assert those.index("side_streams") < those.index("cuda_graph")


# ---- on a GPU


class Overwriting(TorchDispatchMode):
    """After each operation, memory of the sizes of its results is taken, filled with NaN, and given back: so any memory that was given
    back too early holds NaN."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tensors_of(out):
            if tensor.is_cuda and tensor.dtype.is_floating_point:
                sizes = (tensor.numel(), 2 * tensor.numel(), 1)
                [torch.full((n,), torch.nan, dtype=tensor.dtype, device=tensor.device) for n in sizes]
        return out


def sleep(*_: Any) -> None:
    """About a millisecond."""
    torch.cuda._sleep(2_000_000)


def lag(stages: Stages, who: str) -> Stages:
    """Before its works, forward and backward, a branch sleeps; or the step itself does, before it gathers and when it has begun one."""
    lagged = stages.wrap(streams=lambda inner: Lagging(inner, who))
    return lagged.wrap(gather=late) if who == "step" else lagged


def late(inner: Callable) -> Callable:
    def stage(*given: Any) -> Any:
        sleep()
        return inner(*given)

    return stage


def slowed(work: Callable[..., Any]) -> Callable[..., Any]:
    def slow(*given: Any) -> Any:
        sleep()
        made = work(*given)
        for tensor in tensors_of(made):
            if tensor.requires_grad:
                tensor.register_hook(sleep)  # on the stream of its maker
        return made

    return slow


class Lagging:
    """Streams whose branch or step sleeps."""

    def __init__(self, inner: Streams, who: str) -> None:
        self._inner, self._who = inner, who
        self.fork, self.join = inner.fork, inner.join

    def run(self, branch: str, work: Callable[..., Any], *given: Any) -> Any:
        made = self._inner.run(branch, slowed(work) if branch == self._who else work, *given)
        if self._who == "step":
            sleep()
        return made


def gpu_state(
    every: int = 1000, grid: list[int] | None = None, rays: int = 128, frames: Callable = as_planned
) -> TrainState:
    config = tiny_config(device="cuda")
    config = replace(config, model=replace(config.model, calibrate=grid is not None, bilateral_grid=grid))
    config = replace(config, density=replace(config.density, every=every))
    config = replace(config, train=replace(config.train, lidar_rays=rays))
    return make_state(config, tiny_capture(), torch.device("cuda"), frames=frames)


@contextmanager
def opened(*names: str) -> Iterator[Stages]:
    stages = stages_of(*names, device=torch.device("cuda"))
    try:
        yield stages
    finally:
        stages.close()


def learnt(stages: Stages, state: TrainState, n: int = 3) -> list[dict[str, Tensor]]:
    """Terms of steps that change nothing, and the gradients of the last. The first step gives lists their capacity."""
    found: dict[str, Tensor] = {}

    def keep(state: TrainState) -> None:
        found.update({k: p.grad.clone() for k, p in state.scene.parameters().items() if p.grad is not None})
        state.optimizer.zero_grad(set_to_none=True)

    def still(state: TrainState) -> None: ...

    stages = stages.replaced(optimize=keep, noise=still)
    shots, terms = stages.feed.fetch(stages, state), []
    for _ in range(n):
        terms.append(stages.update.try_step(stages, state, shots).terms)
        stages.update.synchronize(stages, state)
    return [*terms, found]


def assert_same(found: dict[str, Tensor], plain: dict[str, Tensor], again: dict[str, Tensor]) -> None:
    """Compares up to the order of atomic additions; two runs without the option differ as much."""
    assert found.keys() == plain.keys()
    for name, value in plain.items():
        size = value.norm().clamp(min=1e-12)
        far, between = (float((other[name] - value).norm() / size) for other in (found, again))
        assert far <= 1e-4 + 4 * between, f"{name}: {far}, without the option {between}"


@pytest.mark.gpu
@pytest.mark.parametrize("who", ["nobody", "step", "images", "sweeps", "figures"])
@pytest.mark.parametrize("grid", [None, [3, 2, 2]], ids=["as given", "corrected"])
@pytest.mark.parametrize(
    "names", [(), BELOW, (*BELOW, *FUSED[:3], *WARP_TILES), (*BELOW, *FUSED, *WARP_TILES, "batch")], ids=len
)
def test_losses_and_gradients_are_those_without_it(names: tuple[str, ...], grid: list[int] | None, who: str) -> None:
    with opened(*names) as without, opened(*names, "side_streams") as stages:
        plain, again = (learnt(without, gpu_state(grid=grid, frames=without.feed.frames)) for _ in range(2))
        with Overwriting():
            found = learnt(lag(stages, who), gpu_state(grid=grid, frames=stages.feed.frames))
    for of_one in zip(found, plain, again, strict=True):
        assert_same(*of_one)


def far_apart(a: TrainState, b: TrainState, name: str) -> float:
    """Share of the numbers."""
    one, other = (state.scene.parameters()[name] for state in (a, b))
    return float(((one - other).abs() > 1e-3 * other.abs() + 1e-4).float().mean())


@pytest.mark.gpu
@pytest.mark.parametrize("rays", [128, 0, 10**6])
@pytest.mark.parametrize("grid", [None, [3, 2, 2]], ids=["as given", "corrected"])
@pytest.mark.parametrize("graph", [(), ("cuda_graph",)], ids=["eager", "recorded"])
def test_steps_on_a_gpu_are_those_without_it(graph: tuple[str, ...], grid: list[int] | None, rays: int) -> None:
    """Two runs without it, which add up by atomics, differ; the third may differ as much."""
    names, states = (*BELOW, *FUSED, *WARP_TILES), [gpu_state(grid=grid, rays=rays) for _ in range(3)]
    for state, more in zip(states, ((), (), ("side_streams", *graph)), strict=True):
        with opened(*names, *more) as stages:
            steps(stages, state, 16)
    plain, again, concurrent = states
    if graph:
        assert stages.update.learn.launched >= 4  # type: ignore[attr-defined]
    for name in plain.scene.parameters():
        assert far_apart(concurrent, plain, name) < 0.02 + 2 * far_apart(again, plain, name), name


@pytest.mark.gpu
@pytest.mark.parametrize("who", ["nobody", "step", "images", "exposures", "sweeps", "lists", "harmonics"])
@pytest.mark.parametrize("graph", [(), ("cuda_graph",)], ids=["eager", "recorded"])
def test_many_steps_with_relocation(graph: tuple[str, ...], who: str) -> None:
    """With growth, too, and a sweep in every second step alone."""
    state = gpu_state(every=5)
    state.plan = replace(state.plan, sweeps_every=2)
    with opened(*BELOW, *FUSED, *WARP_TILES, "side_streams", *graph) as stages:
        with Overwriting():
            steps(lag(stages, who), state, 40)
        assert not graph or (stages.update.learn.launched >= 1 and not stages.update.learn._off)  # type: ignore[attr-defined]
    state.history.read()
    assert state.history.rows and state.history.trouble() is None
    assert all(value.isfinite().all() for value in state.scene.parameters().values())
    assert len(state.scene.gaussians) > len(gpu_state().scene.gaussians)


@pytest.mark.gpu
def test_named_after_the_graph_it_is_recorded_as_well() -> None:
    state = gpu_state()
    with opened(*BELOW, "cuda_graph", "side_streams") as stages:
        steps(stages, state, 16)
        assert stages.update.learn.launched >= 4  # type: ignore[attr-defined]
        own = stages.streams.fork.__self__  # type: ignore[attr-defined]
    assert {branch for _, branch in own._streams} == {"images", "exposures", "sweeps", "lists", "figures"}
    assert all(value.isfinite().all() for value in state.scene.parameters().values())
