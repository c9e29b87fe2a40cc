# SPDX-License-Identifier: Apache-2.0
"""The option `compile`: every function is taken whole, and a step is that without it. The compiler's own back end takes long, so most tests
stop where it would begin."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from stepping import steps
from tiny_capture import tiny_capture, tiny_config, tiny_state
from torch import Tensor

from benchmarks.opt import bench_cuda_graph
from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base import compiled as compiling
from nurec_lite.base.compiled import compiled
from nurec_lite.base.errors import OptionError
from nurec_lite.base.options import parameters_of
from nurec_lite.config import DensityConfig
from nurec_lite.native.torch_fallbacks import torch_fallbacks
from nurec_lite.opt.lab import compile as option
from nurec_lite.training.stages import Stages
from nurec_lite.training.start import make_state

CPU = torch.device("cpu")
BELOW: dict[str, dict] = {"fused_interp": {}, "collect_once": {}}


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs are made and differentiated, but run as they are."""
    monkeypatch.setattr(compiling, "BACKEND", "aot_eager")
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch_fallbacks.cache_clear()


def stages_of(names: tuple[str, ...], device: torch.device = CPU) -> Stages:
    return build_stages({**BELOW, **{name: {} for name in names}}, base_stages("native", device))


def trained(names: tuple[str, ...], n: int) -> dict[str, Tensor]:
    state = tiny_state()
    steps(stages_of(names), state, n)
    return state.scene.parameters()


@pytest.mark.usefixtures("traced")
def test_steps_are_those_without_it() -> None:
    """Through a relocation with growth; nothing breaks a graph, which would be an error, and another number of Gaussians compiles
    nothing again."""
    found = trained(("compile",), 6)
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    plain = trained((), 6)
    assert not torch._dynamo.utils.counters["graph_break"]
    assert graphs >= 4
    for name, value in plain.items():
        torch.testing.assert_close(found[name], value, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
@pytest.mark.usefixtures("traced")
def test_other_sizes_compile_nothing_again() -> None:
    state, stages = tiny_state(), stages_of(("compile",))
    steps(stages, state, 8)  # two numbers of Gaussians
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    steps(stages, state, 8)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before


@pytest.mark.usefixtures("traced")
def test_rendering_alone_compiles_nothing() -> None:
    state, stages = tiny_state(), stages_of(("compile",))
    with torch.no_grad():
        stages.render.activate(state.scene.gaussians)
    assert not torch._dynamo.utils.counters["stats"]["unique_graphs"]


@pytest.mark.usefixtures("traced")
def test_what_the_compiler_cannot_take_whole_is_an_error() -> None:
    def broken(x: Tensor) -> Tensor:
        torch._dynamo.graph_break()
        return 2 * x

    with pytest.raises(Exception, match=r"(?i)graph.break"):
        compiled(broken)(torch.ones(3, requires_grad=True))


@pytest.mark.slow
@pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() == "DEFAULT",
    reason="torch's compiler writes C++ of vectors that torch is told not to have",
)
def test_the_compiler_s_own_back_end_gives_the_same() -> None:
    from torch._inductor import config  # takes seconds, which collecting tests need not wait for

    torch._dynamo.reset()
    state = tiny_state()
    with config.patch(cpp_cache_precompile_headers=False):  # they pay from several compilations on
        plain, found = (
            f(state.scene.gaussians) for f in (stages_of(()).render.activate, compiled(stages_of(()).render.activate))
        )
    for name, value in plain.items():
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("traced")
def test_the_time_to_compile_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        steps(stages_of(("compile",)), tiny_state(), 2)
    assert caplog.text.count("compile: the first step took") == 1


def test_what_it_changes() -> None:
    stages = stages_of(("compile",))
    swapped = {stage for stage, by in stages.changes.claims.items() if by == "compile"}
    assert swapped == {"activate", "noise", "plan.compile_rest"}


def test_the_benchmark_compiles_what_is_recorded() -> None:
    without, those = bench_cuda_graph.without_and_with("compile")
    assert tuple(name for name in those if name != "compile") == without
    assert those.index("compile") < those.index("cuda_graph")


def test_where_it_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match="use ops=native"):
        build_stages({"compile": {}}, base_stages("reference", CPU))
    monkeypatch.setattr(option.importlib.util, "find_spec", lambda name: None)
    assert "needs the package triton" in str(option.unavailable(replace(base_stages("native", CPU), device="cuda")))


@pytest.mark.gpu
def test_on_a_gpu_it_goes_with_a_graph() -> None:
    device = torch.device("cuda")
    names = ("no_sync", "fused_adam", "fused_ssim", "fused_range", "compile", "cuda_graph")
    given: dict[str, Any] = {name: parameters_of(name) for name in ("fused_interp", "collect_once", *names)}
    stages = build_stages(given, base_stages("native", device))
    density = DensityConfig(every=1000, start=0.0, stop=1.0)
    state = make_state(tiny_config(device="cuda", density=density), tiny_capture(), device)
    steps(stages, state, 40)
    assert stages.update.learn.launched > 5  # type: ignore[attr-defined]
    assert all(value.isfinite().all() for value in state.scene.parameters().values())
