# SPDX-License-Identifier: Apache-2.0
"""The benchmark of the training step: its counts in a trace, and that it runs from end to end."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_arguments import TINY
from tiny_capture import tiny_config, tiny_state

from benchmarks.step.bench_step import iteration, main, spread, window
from benchmarks.step.launches import MARK, figures
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.step import step

FORWARD = "void nurec::cuda::(anonymous namespace)::renderForward<true>(nurec::cuda::RenderParams)"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int)"


def event(category: str, name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "ts": ts, "dur": dur, "args": args}


def trace() -> list[dict[str, Any]]:
    """Two steps, 0 to 100 and 200 to 300 us, and the profiler's own work after them."""
    return [
        event("user_annotation", MARK, 0, 100),
        event("user_annotation", MARK, 200, 100),
        event("user_annotation", "step", 0, 400),
        event("cuda_runtime", "cudaLaunchKernel", 10, 5),
        event("cuda_runtime", "cudaLaunchKernelExC", 20, 5),
        event("cuda_driver", "cuLaunchKernel", 210, 5),
        event("cuda_runtime", "cudaMemcpyAsync", 30, 5),  # with the next, a tensor.item()
        event("cuda_runtime", "cudaStreamSynchronize", 40, 50),
        event("cuda_runtime", "cudaEventSynchronize", 220, 5),
        event("cuda_runtime", "cudaEventRecord", 226, 1),
        event("cuda_runtime", "cudaDeviceSynchronize", 350, 5),  # between the steps and the profiler's end
        event("kernel", FORWARD, 15, 20),
        event("kernel", ADD, 30, 10),  # 5 us of it beside the other kernel
        event("kernel", FORWARD, 215, 40),
        event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 60, 2, bytes=8),
        event("gpu_memset", "Memset (Device)", 70, 1, bytes=64),
        event("gpu_user_annotation", MARK, 15, 240),
        {"ph": "i", "cat": "kernel", "name": "no span", "ts": 0},
    ]


def test_figures_of_a_trace() -> None:
    found = figures(trace(), steps=2)
    table = found.pop("every_kernel")
    assert found == {
        "steps": 2,
        "kernels": 1.5,
        "launch_calls": 1.5,
        "syncs": 1.0,
        "sync_calls": {"cudaStreamSynchronize": 0.5, "cudaEventSynchronize": 0.5},
        "copies": {"Memcpy DtoH (Device -> Pageable)": 0.5},
        "copied_bytes": 4.0,
        "gpu_busy_ms": pytest.approx((25 + 40 + 2 + 1) / 2e3),
        "outside_ms": pytest.approx((10 + 2 + 1) / 2e3),
        "outside_alone_ms": pytest.approx((5 + 2 + 1) / 2e3),
    }
    assert [(row["name"], row["count"], row["ms"]) for row in table] == [
        ("renderForward<true>", 1.0, pytest.approx(0.03)),
        ("vectorized_elementwise_kernel<4, CUDAFunctor_add<float>, array<char*, 3ul> >", 0.5, pytest.approx(0.005)),
    ]


@pytest.mark.parametrize("name", ["cudaMemcpy", "cudaMemcpy2D", "cuCtxSynchronize", "cuStreamSynchronize"])
def test_these_calls_are_waits_too(name: str) -> None:
    assert figures([*trace(), event("cuda_runtime", name, 50, 1)], steps=2)["syncs"] == 1.5


@pytest.mark.parametrize("name", ["cudaMemcpyAsync", "cudaMemcpy2DAsync", "cudaStreamWaitEvent", "cudaMalloc"])
def test_these_calls_are_not(name: str) -> None:
    assert figures([*trace(), event("cuda_runtime", name, 50, 1)], steps=2)["syncs"] == 1.0


def test_a_trace_without_kernels_says_nothing() -> None:
    found = figures([e for e in trace() if e["cat"] != "kernel"], steps=3)
    assert found.pop("steps") == 3
    assert set(found.values()) == {None} and {"kernels", "syncs", "every_kernel"} <= found.keys()


def test_spread() -> None:
    assert spread([4.0, 1.0, 2.0, 3.0, 5.0]) == {
        "median": 3.0,
        "quarter": 2.0,
        "three_quarters": 4.0,
        "min": 1.0,
        "mean": 3.0,
    }


def test_steps_are_those_of_training() -> None:
    """Bitwise: the same scene after the window as after plain steps."""
    benched, plain = tiny_state(), tiny_state()
    iteration(reference_stages(), benched)
    measured = window(reference_stages(), benched, 2)
    for plain.step in range(3):
        step(reference_stages(), plain)
    plain.step += 1
    assert benched.step == plain.step == 3
    for name, value in plain.scene.parameters().items():
        assert torch.equal(value, benched.scene.parameters()[name]), name
    assert len(measured["single_step_ms"]) == 2
    assert measured["wall_ms_a_step"] * 2 > sum(measured["single_step_ms"])
    parts = sum(measured[f"{part}_ms"]["mean"] for part in ("feed", "attempt", "report"))
    assert 0.9 * measured["wall_ms_a_step"] < parts <= measured["wall_ms_a_step"]
    assert measured["feed_share"] == pytest.approx(measured["feed_ms"]["mean"] / measured["wall_ms_a_step"])
    assert measured["lidar_rays_a_step"] >= tiny_config().train.lidar_rays / 2


def test_the_file_of_a_run_on_a_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "step.json"
    main([*TINY, "--steps", "3", "--warmup", "1", "--profiled", "1", "--out", str(out)])
    report = json.loads(out.read_text())
    assert report["command"].startswith("python benchmarks/step/bench_step.py ops=reference")
    assert (report["steps"], report["warmup"], report["progress"], report["image"]) == (3, 1, 0.5, [24, 12])
    assert report["config"]["data"]["downscale"] == 8 and "cuda" not in report["environment"]
    assert report["step_ms"]["min"] <= report["step_ms"]["median"] <= report["wall_ms_a_step"] * 3
    assert report["peak_memory_bytes"] is None and report["profile"]["kernels"] is None
    shown = capsys.readouterr().out
    assert "street" in shown and "peak memory not measured" in shown and "saw no kernel" in shown


@pytest.mark.gpu
def test_a_run_on_a_gpu_has_all_figures(tmp_path: Path) -> None:
    out = tmp_path / "step.json"
    main([*TINY, "device=cuda", "ops=native", "--steps", "3", "--warmup", "1", "--profiled", "2", "--out", str(out)])
    report = json.loads(out.read_text())
    counted = report["profile"]
    assert report["peak_memory_bytes"] > 1e5 and {"cuda", "driver"} <= report["environment"].keys()
    assert counted["kernels"] > 50 and counted["syncs"] >= 1 and counted["gpu_busy_ms"] > 0
    assert sum(row["count"] for row in counted["every_kernel"]) == pytest.approx(counted["kernels"])
    assert any(row["name"].startswith("renderBackward") for row in counted["every_kernel"])
