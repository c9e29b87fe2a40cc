# SPDX-License-Identifier: Apache-2.0
"""Figures of two recorded steps, against those computed by hand from the times in recorded.py."""

from dataclasses import replace
from pathlib import Path

import pytest
from recorded import MAIN, US, as_torch_tells, thread, two_steps, write_kineto

from nurec_lite.profiling.errors import ProfileError
from nurec_lite.profiling.summary import digest
from nurec_lite.profiling.summary.summarise import NO_GPU, ONE_WAIT, Taken, summarise
from nurec_lite.profiling.summary.summary import (
    Copy,
    Gap,
    KernelTime,
    RangeTime,
    Summary,
    Wait,
    read_summary,
    write_summary,
)
from nurec_lite.profiling.trace.kineto import read_kineto
from nurec_lite.profiling.trace.trace import COPY, KERNEL, Call, Nest, Owners, Range, Trace, Work

WINDOW = {"environment": {"device": "a GPU"}, "steps": 2, "peak_bytes": 3 << 20}


@pytest.fixture(scope="module")
def summary() -> Summary:
    taken = Taken("nsys", "2025.3.1", "python -m nurec_lite.profile", WINDOW, {"nurec_lite/training/history.py:35": 2})
    return summarise(two_steps(), taken)


def near(rows: list) -> list:
    """Each number within rounding."""
    return [
        type(row)(**{k: pytest.approx(v) if isinstance(v, float) else v for k, v in vars(row).items()}) for row in rows
    ]


def test_the_step(summary: Summary) -> None:
    assert (summary.steps, summary.step_ms, summary.step_times_ms) == (2, pytest.approx(1), pytest.approx((1, 1)))
    assert (summary.gpu_busy, summary.idle_ms) == (pytest.approx(0.365), pytest.approx(0.635))
    assert (summary.launches, summary.syncs, summary.copies, summary.copied_bytes) == (4, 1, 1, 8)
    assert (summary.graph_launches, summary.single_launches, summary.allocations, summary.peak_bytes) == (
        0,
        4,
        0,
        3 << 20,
    )


def test_ranges(summary: Summary) -> None:
    assert list(summary.ranges) == near([
        RangeTime("step", 1.0, 1.0, 0.695, 4.0),
        RangeTime("step/render_camera", 1.0, 0.3, 0.22, 2.0),
        RangeTime("step/render_camera/blend", 1.0, 0.1, 0.1, 1.0),
        RangeTime("step/backward", 1.0, 0.3, 0.2, 2.0),
        RangeTime("step/backward/render", 1.0, 0.1, 0.15, 1.0),
        RangeTime("step/report", 1.0, 0.1, 0.005, 0.0),
    ])  # fmt: skip


def test_kernels(summary: Summary) -> None:
    assert list(summary.kernels) == near([
        KernelTime("renderBackward", 1.0, 0.15, 167, 9216, 0, "step/backward/render", 9216),
        KernelTime("blend", 1.0, 0.1, 64, 1024, 512, "step/render_camera/blend", 1536),
        KernelTime("project<4>", 1.0, 0.05, 32, 0, 0, "step/render_camera", 0),
        KernelTime("add", 1.0, 0.05, 16, 0, 0, "step/backward", 0),
    ])  # fmt: skip


def test_waits_and_copies(summary: Summary) -> None:
    copy = "device to host, pageable"
    line = ("nurec_lite/training/history.py:35 (1 a step)",)
    assert list(summary.waits) == near([
        Wait(f"cudaMemcpyAsync ({copy})", 1.0, 0.03), Wait("cudaStreamSynchronize", 1.0, 0.004, line)
    ])  # fmt: skip
    assert ONE_WAIT in summary.notes
    assert list(summary.copy_kinds) == near([Copy("memset", 1.0, 4096.0, 0.01), Copy(copy, 1.0, 8.0, 0.005)])


def test_gaps(summary: Summary) -> None:
    assert list(summary.gaps[:4]) == near([
        Gap(0.825, 0.305, "step"), Gap(1.825, 0.175, "step"), Gap(0.35, 0.15, "step/backward"), Gap(1.35, 0.15, "step/backward")
    ])  # fmt: skip


def test_written_and_read_again(summary: Summary, tmp_path: Path) -> None:
    write_summary(tmp_path / "summary.json", summary)
    assert read_summary(tmp_path / "summary.json") == summary


def test_works_that_overlap_count_once() -> None:
    trace = two_steps()
    twin = tuple(
        replace(w, stream=8, start=w.start + 10 * US, end=w.end + 10 * US) for w in trace.works if w.name == "blend"
    )
    assert digest.busy(replace(trace, works=trace.works + twin)) == pytest.approx(0.375)


def test_the_window_lasts_until_the_gpu_has_done_its_work() -> None:
    trace = two_steps()
    late = Work(KERNEL, "late", 2100 * US, 2200 * US, 11, 7)
    times = digest.step_times(replace(trace, works=(*trace.works, late)))
    assert times == pytest.approx((1.0, 1.2))


def test_a_copy_without_a_range_is_reported() -> None:
    trace = replace(
        two_steps(), works=(*two_steps().works, Work(COPY, "device to device", 1900 * US, 1910 * US, 999, bytes=4))
    )
    summary = summarise(trace, Taken("nsys", None, "", WINDOW))
    assert "1 kernels and copies of the window were started outside all ranges." in summary.notes


def test_steps_that_were_not_recorded_are_reported() -> None:
    summary = summarise(two_steps(), Taken("nsys", None, "", WINDOW | {"steps": 3}))
    assert "3 steps were made, but 2 were recorded." in summary.notes


def test_sizes_that_are_not_known_stay_unknown() -> None:
    trace = two_steps()
    works = tuple(replace(w, bytes=None) if w.kind == COPY else w for w in trace.works)
    summary = summarise(replace(trace, works=works), Taken("nsys", None, "", WINDOW))
    assert summary.copied_bytes is None and [c.bytes for c in summary.copy_kinds] == [4096, None]


def test_every_kind_of_wait() -> None:
    """Two synchronisations in a row are two waits; one right after a pageable copy is the copy's; another thread's is its own."""
    main, other = thread(MAIN), thread(99)
    calls = [
        Call("cudaDeviceSynchronize", 10, 20, main, 1), Call("cudaEventSynchronize", 30, 40, main, 2),
        Call("cudaMemcpyAsync", 50, 60, main, 3), Call("cudaStreamSynchronize", 61, 62, other, 4),
        Call("cudaStreamSynchronize", 63, 64, main, 5), Call("cudaStreamWaitEvent", 65, 66, main, 6),
        Call("cudaMemcpy", 70, 80, main, 7), Call("cudaEventQuery", 81, 82, main, 8), Call("cudaMalloc", 83, 84, main, 9),
        Call("cudaGraphLaunch", 85, 86, main, 10),
    ]  # fmt: skip
    works = tuple(Work(COPY, "device to host, pageable", 50, 60, c) for c in (3, 7))
    trace = Trace((Range("step", 0, 100, main),), tuple(calls), works)
    assert digest.count_waits(trace, calls) == 5
    assert {w.call for w in digest.waits(trace, calls)} == {
        "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaStreamSynchronize", "cudaMemcpy",
        "cudaMemcpyAsync (device to host, pageable)",
    }  # fmt: skip
    assert (digest.count_allocations(calls), digest.count_graphs(calls)) == (1, 1)


def test_kernels_of_a_graph_are_not_launched_one_by_one() -> None:
    """They share the correlation of the call that launched it, or the tool says which are nodes."""
    main = thread(MAIN)
    calls = (Call("cudaGraphLaunch", 10, 20, main, 1), Call("cudaLaunchKernel", 30, 40, main, 2))
    works = tuple(
        Work(kind, "a", 50 + k, 51 + k, c)
        for k, (kind, c) in enumerate([(KERNEL, 1), (KERNEL, 1), (KERNEL, 2), (COPY, 2)])
    )
    trace = Trace((Range("step", 0, 100, main),), calls, works)
    assert digest.count_single(trace, digest.started(trace)) == 1
    found = replace(trace, works=tuple(replace(work, node=work.correlation == 2) for work in works))
    assert digest.count_single(found, digest.started(found)) == 0


def test_calls_after_the_last_step_do_not_count() -> None:
    trace = two_steps()
    calls = (*trace.calls, Call("cudaDeviceSynchronize", 2000 * US, 2100 * US, thread(MAIN), 999))
    assert len(digest.inside_steps(replace(trace, calls=calls))) == len(trace.calls)


def test_nested_ranges() -> None:
    a, b, c, d = Range("a", 0, 100, 1), Range("b", 0, 40, 1), Range("c", 10, 20, 1), Range("d", 40, 90, 1)
    nest = Nest([d, c, b, a])
    expected = {0: [b, a], 10: [c, b, a], 20: [b, a], 40: [d, a], 95: [a], 100: [], -1: []}
    assert {time: nest.around(time) for time in expected} == expected


def test_a_loaders_thread_with_a_range_of_its_own() -> None:
    """It is loading for a later step while this one renders: that is no work of render_camera."""
    main, loader = thread(MAIN), thread(50)
    ranges = (
        Range("step", 0, 100, main),
        Range("step/render_camera", 10, 90, main),
        Range("step/next_batch", 20, 80, loader),
    )
    around = Owners(Trace(ranges, (), ())).around
    assert [r.name for r in around(Call("cudaMemcpyAsync", 30, 31, loader, 1))] == ["step/next_batch", "step"]
    assert [r.name for r in around(Call("cudaMemcpyAsync", 85, 86, loader, 2))] == ["step/render_camera", "step"]


# ---- torch.profiler


def test_torch_tells_the_same_figures(tmp_path: Path, summary: Summary) -> None:
    trace = read_kineto(write_kineto(tmp_path / "trace.json", as_torch_tells(two_steps())), gpu=True)
    found = summarise(trace, Taken("torch", "2.13", "", WINDOW, estimates=("kernels.occupancy",)))
    assert found.ranges == summary.ranges and found.gaps == summary.gaps and found.copy_kinds == summary.copy_kinds
    assert (found.gpu_busy, found.launches, found.syncs) == (summary.gpu_busy, 4, 1)
    assert [(k.name, k.shared_static, k.shared, k.occupancy) for k in found.kernels[:2]] == [
        ("renderBackward", None, 9216, 40.0), ("blend", None, 1536, 40.0)
    ]  # fmt: skip


def test_without_a_gpu_nothing_is_said_of_one(tmp_path: Path) -> None:
    trace = replace(two_steps(), calls=(), works=())
    found = summarise(
        read_kineto(write_kineto(tmp_path / "t.json", trace), gpu=False), Taken("torch", "2.13", "", WINDOW)
    )
    assert (found.step_ms, found.ranges[1].cpu_ms) == (pytest.approx(1), pytest.approx(0.3))
    unknown = (
        found.gpu_busy,
        found.idle_ms,
        found.launches,
        found.syncs,
        found.copies,
        found.copied_bytes,
        found.allocations,
    )
    assert unknown == (None,) * 7 and found.kernels == found.gaps == found.waits == found.copy_kinds == ()
    assert all(r.gpu_ms is None and r.launches is None for r in found.ranges)
    assert NO_GPU in found.notes


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("nothing", r"cannot be read as a trace of torch\.profiler .*; take it again"),
        ("[1]", r"is no trace of torch\.profiler: it has no list traceEvents"),
        ('{"traceEvents": []}', r"has no range 'step', so no step was recorded"),
    ],
)
def test_no_trace(tmp_path: Path, content: str, sentence: str) -> None:
    (tmp_path / "trace.json").write_text(content)
    with pytest.raises(ProfileError, match=sentence):
        read_kineto(tmp_path / "trace.json", gpu=False)


def test_a_gpu_without_kernels(tmp_path: Path) -> None:
    path = write_kineto(tmp_path / "trace.json", replace(two_steps(), works=()))
    with pytest.raises(ProfileError, match=r"holds steps but no kernels: another profiler .* or use tool=nsys"):
        read_kineto(path, gpu=True)
