# SPDX-License-Identifier: Apache-2.0
"""train.timing: figures against a clock whose ticks are known, the output of a run, and events on a GPU."""

import csv
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny_capture import tiny_capture, tiny_config

from nurec_lite.base import timing as timing_module
from nurec_lite.base.ranges import BACKWARD, span, switch
from nurec_lite.base.timing import WARM_UP, Latency, Timing, table, timed, to_csv
from nurec_lite.capture.pack import write_pack
from nurec_lite.config import DataConfig, TrainConfig
from nurec_lite.train import run

CPU = torch.device("cpu")


class Clock:
    """Stands still until it is moved."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def pass_ms(self, ms: float) -> None:
        self.now += 1e-3 * ms


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)
    return clock


def step(clock: Clock, tile_ms: float, load_ms: float | None = 1.0) -> None:
    """1 ms of its own, two tiles, and a load if it takes time."""
    with span("step"):
        clock.pass_ms(1.0)
        if load_ms is not None:
            with span("load"):
                clock.pass_ms(load_ms)
        with span("render"):
            for _ in range(2):
                with span("tile"):
                    clock.pass_ms(tile_ms / 2)


def latencies(steps: Callable[[], None], warm_up: int = 0) -> list[Latency]:
    timing = Timing(CPU, warm_up)
    with switch(timing=timing):
        steps()
    return timing.latencies()


# Figures


def test_figures_by_hand(clock: Clock) -> None:
    def steps() -> None:
        step(clock, tile_ms=99, load_ms=99)  # warm-up
        for tile_ms in (2, 4, 6, 8):
            step(clock, tile_ms)

    found = {latency.range: latency for latency in latencies(steps, warm_up=1)}
    tile, whole, load = found["step/render/tile"], found["step"], found["step/load"]
    assert (tile.calls, tile.steps, whole.calls) == (2, 4, 1)
    assert tile.mean_ms == pytest.approx(5) and tile.median_ms == pytest.approx(5)
    assert tile.p95_ms == pytest.approx(7.7)  # 0.95 of the way from the first to the fourth: 6 + 0.85 * 2
    assert whole.mean_ms == pytest.approx(7) and load.mean_ms == pytest.approx(1)
    assert tile.share == pytest.approx(20 / 28) and load.share == pytest.approx(4 / 28) and whole.share == 1


def test_a_step_without_a_range_counts_as_0_ms_of_it(clock: Clock) -> None:
    def steps() -> None:
        for load_ms in (None, 3.0, None, None):
            step(clock, tile_ms=2, load_ms=load_ms)

    (load,) = (latency for latency in latencies(steps) if latency.range == "step/load")
    assert (load.calls, load.mean_ms, load.median_ms) == (0.25, pytest.approx(0.75), 0)


def test_every_range_stands_after_the_one_around_it_even_if_it_first_began_late(clock: Clock) -> None:
    def steps() -> None:
        step(clock, tile_ms=2, load_ms=None)
        with span("step"):
            with span("render"), span("blend"):
                clock.pass_ms(1)
            with span("load"):
                clock.pass_ms(1)

    order = ["step", "step/render", "step/render/tile", "step/render/blend", "step/load"]
    assert [latency.range for latency in latencies(steps)] == order


def test_a_run_that_ends_within_the_warm_up_has_no_figures(clock: Clock) -> None:
    assert latencies(lambda: step(clock, 2), warm_up=1) == []


def test_threads_may_record_at_the_same_time() -> None:
    def backward() -> None:
        for _ in range(200):
            with span("render", within=BACKWARD):
                pass

    def steps() -> None:
        for _ in range(5):
            with span("step"):
                threads = [threading.Thread(target=backward) for _ in range(4)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()

    (inner,) = (latency for latency in latencies(steps) if latency.range == f"{BACKWARD}/render")
    assert inner.calls == 800


def test_a_step_is_read_when_the_device_has_passed_it(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[float] = []
    monkeypatch.setattr(timing_module._HostClock, "passed", lambda self, mark: mark <= max(done, default=-1.0))
    timing = Timing(CPU, warm_up=0)
    with switch(timing=timing):
        for _ in range(3):
            step(clock, tile_ms=2)
        assert timing.latencies() == []
        done.append(clock.now)
        clock.pass_ms(1)
        step(clock, tile_ms=2)
    assert {latency.steps for latency in timing.latencies()} == {3}


# Output


def test_the_table_indents_inner_ranges(clock: Clock) -> None:
    lines = table(latencies(lambda: step(clock, tile_ms=6, load_ms=3))).splitlines()
    assert lines[0].split() == ["range", "calls", "mean", "ms", "median", "95", "%", "share"]
    assert lines[1].split() == ["step", "1.00", "10.000", "10.000", "10.000", "100.0%"]
    assert lines[4].startswith("    tile ") and lines[4].split() == ["tile", "2.00", "6.000", "6.000", "6.000", "60.0%"]
    assert len({len(line) for line in lines}) == 1


def test_csv_holds_whole_paths_and_the_number_of_steps(clock: Clock) -> None:
    rows = list(csv.DictReader(to_csv(latencies(lambda: step(clock, tile_ms=6, load_ms=3))).splitlines()))
    assert [row["range"] for row in rows] == ["step", "step/load", "step/render", "step/render/tile"]
    numbers = {
        "calls": "2.0",
        "mean_ms": "6.0",
        "median_ms": "6.0",
        "p95_ms": "6.0",
        "share": "0.6",
        "steps": "1",
        "kind": "plain",
    }
    assert rows[3] == {"range": "step/render/tile"} | numbers


def test_nothing_is_timed_unless_wanted(tmp_path: Path) -> None:
    with timed(False, CPU, tmp_path), span("step"):
        assert list(tmp_path.iterdir()) == []
    assert list(tmp_path.iterdir()) == []


def test_steps_launched_as_a_graph_are_distinguished_and_those_that_record_one_are_left_out(clock: Clock) -> None:
    timing = Timing(CPU, warm_up=1)
    with switch(timing=timing):
        for inner, ms in (("load", 9), ("record", 50), ("graph", 4), ("load", 8), ("graph", 6), ("graph", 2)):
            with span("step"), span(inner):
                clock.pass_ms(ms)
    plain = timing.latencies()
    assert [(row.range, row.steps) for row in plain] == [("step", 1), ("step/load", 1)]
    assert plain[1].median_ms == pytest.approx(8.0)
    launched = timing.latencies("graph")
    assert [(row.range, row.steps, row.kind) for row in launched] == [("step", 3, "graph"), ("step/graph", 3, "graph")]
    assert launched[1].median_ms == pytest.approx(4.0) and launched[1].share == pytest.approx(1.0)


def test_both_kinds_are_printed_and_written(clock: Clock, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"), timed(True, CPU, tmp_path):
        for k in range(WARM_UP + 3):
            with span("step"), span("graph" if k % 2 else "load"):
                clock.pass_ms(1)
    assert "2 steps launched as a graph, by the host's clock" in caplog.text
    assert "1 steps run without the graph between them, since it hides their ranges, by the host's clock" in caplog.text
    rows = list(csv.DictReader((tmp_path / "timing.csv").open()))
    assert [(row["range"], row["kind"]) for row in rows] == [
        ("step", "graph"), ("step/graph", "graph"), ("step", "plain"), ("step/load", "plain"),
    ]  # fmt: skip


# A run


@pytest.fixture(scope="module")
def timed_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a run of a few steps more than the warm-up."""
    folder = tmp_path_factory.mktemp("timed")
    write_pack(tiny_capture(), folder / "tiny.pack")
    train = TrainConfig(steps=WARM_UP + 7, lidar_rays=128, evaluate=False, timing=True)
    run(tiny_config(out=str(folder / "out"), data=DataConfig(kind="pack", root=str(folder / "tiny.pack")), train=train))
    return folder / "out"


def test_a_run_leaves_the_figures_of_the_steps_after_the_warm_up(timed_run: Path) -> None:
    rows = list(csv.DictReader((timed_run / "timing.csv").open()))
    means = {row["range"]: float(row["mean_ms"]) for row in rows}
    assert {row["steps"] for row in rows} == {"7"}
    assert {"step/next_batch", "step/collect/interpolate", "step/backward/render"} < means.keys()
    for path in means:
        inner = [ms for name, ms in means.items() if name.rpartition("/")[0] == path]
        assert sum(inner) <= means[path] + 1e-3, path


def test_a_run_says_what_it_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for steps, said in (
        (WARM_UP, "no step to tell of, the first 5"),
        (WARM_UP + 1, "1 steps by the host's clock, the first 5"),
    ):
        caplog.clear()
        with caplog.at_level("INFO"), timed(True, CPU, tmp_path):
            for _ in range(steps):
                with span("step"):
                    pass
        assert said in caplog.text


def test_after_a_block_that_failed_nothing_is_timed_or_written(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), timed(True, CPU, tmp_path), span("step"):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


# On a GPU


@pytest.mark.gpu
def test_events_time_kernels_and_are_used_again() -> None:
    timing, x = Timing(torch.device("cuda"), warm_up=2), torch.rand(2048, 2048, device="cuda")
    with switch(timing=timing):
        for _ in range(20):
            with span("step"):
                for name, products in (("short", 1), ("long", 8)):
                    with span(name):
                        for _ in range(products):
                            x @ x
            torch.cuda.synchronize()
    whole, short, long = timing.latencies()
    assert 0 < 4 * short.median_ms < long.median_ms < whole.median_ms
    assert len(timing._clock.free) <= 2 * 6  # those of two steps


@pytest.mark.gpu
def test_ranges_in_the_thread_of_autograd_stand_inside_backward() -> None:
    threads: list[int] = []

    def double(grad: torch.Tensor) -> torch.Tensor:
        threads.append(threading.get_ident())
        with span("double", within=BACKWARD):
            return 2 * grad

    timing, x = Timing(torch.device("cuda"), warm_up=0), torch.rand(1000, device="cuda", requires_grad=True)
    with switch(timing=timing), span("step"):
        y = x.square()
        y.register_hook(double)
        with span("backward"):
            y.sum().backward()
    found = {latency.range: latency.mean_ms for latency in timing.latencies()}
    assert threads[0] != threading.get_ident()
    assert 0 < found[f"{BACKWARD}/double"] <= found[BACKWARD] <= found["step"]
