# SPDX-License-Identifier: Apache-2.0
"""nsys exports that the test builds itself: they are read, of any version, and a missing part is named."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from recorded import AUTOGRAD, MAIN, PID, NsysFile, thread, two_steps

from nurec_lite.base import nvtx
from nurec_lite.base.nvtx import DOMAIN, PACKAGE, SETTING, TORCH
from nurec_lite.profiling.errors import ProfileError
from nurec_lite.profiling.summary.digest import kernel_times, range_times, started
from nurec_lite.profiling.trace.nsys import read_nsys
from nurec_lite.profiling.trace.trace import COPY, KERNEL, Call, Range, Trace, Work, plain_name

KERNEL_TABLE, CALL_TABLE = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "nsys.sqlite"


def test_all_is_read_as_it_was_recorded(database: Path) -> None:
    assert read_nsys(NsysFile(two_steps()).write(database)) == sorted_trace(two_steps())


def sorted_trace(trace: Trace) -> Trace:
    def by_start(rows: tuple) -> tuple:
        return tuple(sorted(rows, key=lambda row: (row.start, -row.end)))

    return replace(trace, ranges=by_start(trace.ranges), calls=by_start(trace.calls), works=by_start(trace.works))


def test_tables_of_another_version(database: Path) -> None:
    NsysFile(two_steps()).write(database, suffixed=[KERNEL_TABLE, "NVTX_EVENTS"])
    assert read_nsys(database) == sorted_trace(two_steps())


def test_kernels_of_a_graph(database: Path) -> None:
    trace = sorted_trace(two_steps())
    result = replace(
        trace, works=tuple(replace(work, node=work.kind == KERNEL and k % 2 == 0) for k, work in enumerate(trace.works))
    )
    assert read_nsys(NsysFile(result).write(database)) == result
    older = database.with_name("older.sqlite")
    NsysFile(result).write(older, renamed=[(KERNEL_TABLE, "graphNodeId", "")])
    assert read_nsys(older) == trace


@pytest.mark.parametrize("registered", [False, True])
def test_ranges_in_our_domain(database: Path, registered: bool) -> None:
    """Those of the package nvtx. CUB has a domain of its own, and another process numbers its domains by itself."""
    file = NsysFile(two_steps(), domain=2)
    file.domain("CCCL", 1)
    file.domain(DOMAIN, 2, registered=registered)
    file.domain("CCCL", 2, PID + 1)
    assert read_nsys(file.write(database)) == sorted_trace(two_steps())


def test_ranges_of_other_domains_are_not_ours_whatever_their_names(database: Path) -> None:
    file = NsysFile(two_steps(), domain=2)
    file.domain("elsewhere", 1)
    file.domain(DOMAIN, 2)
    file.range("step", 100, 2_000_000, thread(MAIN), domain=1)
    file.range("step/loss", 200, 300, thread(MAIN), domain=1)
    assert read_nsys(file.write(database)) == sorted_trace(two_steps())


def test_a_domain_whose_name_was_not_recorded_may_be_ours(database: Path) -> None:
    assert read_nsys(NsysFile(two_steps(), domain=3).write(database)) == sorted_trace(two_steps())


def test_a_file_that_knows_no_domains(database: Path) -> None:
    NsysFile(two_steps()).write(database, renamed=[("NVTX_EVENTS", "domainId", "")])
    assert read_nsys(database) == sorted_trace(two_steps())


def test_names_in_another_column(database: Path) -> None:
    NsysFile(two_steps()).write(database, renamed=[(KERNEL_TABLE, "demangledName", "")])
    assert {work.name for work in read_nsys(database).works if work.kind == KERNEL} == {"short"}


def test_what_a_version_does_not_tell_is_unknown_and_not_zero(database: Path) -> None:
    unknown = ["registersPerThread", "staticSharedMemory"]
    NsysFile(two_steps()).write(database, renamed=[(KERNEL_TABLE, column, "") for column in unknown])
    kernels = [work for work in read_nsys(database).works if work.kind == KERNEL]
    assert [(k.registers, k.shared_static, k.shared) for k in kernels] == [(None, None, None)] * 8
    assert [k.shared_dynamic for k in kernels] == [0, 512, 0, 0] * 2


@pytest.mark.parametrize(
    ("table", "column"), [(KERNEL_TABLE, "correlationId"), (CALL_TABLE, "nameId"), ("NVTX_EVENTS", "globalTid")]
)
def test_a_column_that_is_needed(database: Path, table: str, column: str) -> None:
    NsysFile(two_steps()).write(database, renamed=[(table, column, "renamed")])
    with pytest.raises(
        ProfileError, match=rf"table {table} of .*nsys\.sqlite has no column {column} \(it has .*renamed.*tool=torch"
    ):
        read_nsys(database)


def test_no_calls_though_kernels_ran(database: Path) -> None:
    file = NsysFile(two_steps())
    del file.rows[CALL_TABLE]
    with pytest.raises(ProfileError, match=rf"has no table {CALL_TABLE} \(its tables are .*its schema is 3\.20\.2\)"):
        read_nsys(file.write(database))


def test_no_copies_happened(database: Path) -> None:
    file = NsysFile(two_steps())
    del file.rows["CUPTI_ACTIVITY_KIND_MEMCPY"], file.rows["CUPTI_ACTIVITY_KIND_MEMSET"]
    assert {work.kind for work in read_nsys(file.write(database)).works} == {KERNEL}


def test_kinds_of_memory_that_the_file_lists(database: Path) -> None:
    file = NsysFile(two_steps())
    for number, label in ((0, "Unknown"), (5, "Pageable"), (6, "Pinned")):
        file.add("ENUM_CUDA_MEM_KIND", id=number, label=label)
    first, second = file.rows["CUPTI_ACTIVITY_KIND_MEMCPY"]
    first["dstKind"], second["dstKind"] = 6, 5
    copies = [work.name for work in read_nsys(file.write(database)).works if work.kind == COPY]
    assert copies == ["device to host, pinned", "device to host, pageable"]


def test_no_kernels(database: Path) -> None:
    file = NsysFile(two_steps())
    del file.rows[KERNEL_TABLE]
    file.add("DIAGNOSTIC_EVENT", timestamp=0, severity=2, text="Number of CPU cores: 2")
    file.add("DIAGNOSTIC_EVENT", timestamp=0, severity=3, text="Not all CUDA events might have been collected.")
    with pytest.raises(
        ProfileError,
        match=r"holds ranges but no kernels \(nsys says: Not all CUDA events might have been collected\); check",
    ):
        read_nsys(file.write(database))


def test_an_empty_capture(database: Path) -> None:
    file = NsysFile()
    file.string("unused")
    with pytest.raises(
        ProfileError, match=r"has no range 'step' \(it holds no ranges\), so no training step was recorded; give"
    ):
        read_nsys(file.write(database))


@pytest.mark.parametrize(("binding", "result"), [(PACKAGE, True), (TORCH, False)])
def test_where_there_are_no_ranges_at_all_the_other_binding_is_named(
    database: Path, monkeypatch: pytest.MonkeyPatch, binding: str, result: bool
) -> None:
    monkeypatch.setenv(SETTING, binding)
    monkeypatch.setattr(nvtx, "installed", lambda: True)
    with pytest.raises(ProfileError) as caught:
        read_nsys(NsysFile().write(database))
    assert (f"set {SETTING}={TORCH}" in str(caught.value)) == result


def test_other_ranges_only(database: Path) -> None:
    file = NsysFile()
    file.range("warmup", 0, 10, thread(MAIN))
    file.range("stepping", 0, 10, thread(MAIN))
    with pytest.raises(ProfileError, match=r"has no range 'step' \(its ranges are stepping, warmup\)"):
        read_nsys(file.write(database))


def test_a_step_that_never_ended(database: Path) -> None:
    file = NsysFile()
    file.range("step", 0, None, thread(MAIN))
    with pytest.raises(ProfileError, match=r"no range 'step' of .* ends before the capture does; record more steps"):
        read_nsys(file.write(database))


def test_ranges_that_have_not_ended_are_left_out_and_reported(database: Path) -> None:
    file = NsysFile(two_steps())
    file.range("step", 2_000_000, None, thread(MAIN))
    file.range("step/loss", 2_000_100, None, thread(MAIN))
    trace = read_nsys(file.write(database))
    assert len(trace.steps) == 2
    assert trace.notes == ("2 ranges had not ended when the capture did; they are left out.",)


def test_no_sqlite(database: Path) -> None:
    with pytest.raises(ProfileError, match=r"nsys\.sqlite does not exist; nsys export --type sqlite writes it"):
        read_nsys(database)
    database.write_bytes(b"not a database, but long enough to be looked at" * 4)
    with pytest.raises(ProfileError, match=r"nsys\.sqlite cannot be read as SQLite .*take the profile again"):
        read_nsys(database)


def test_another_database(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE photos (name TEXT)")
    with pytest.raises(ProfileError, match=r"is no export of nsys: its tables are photos; make it by nsys export"):
        read_nsys(database)


def test_two_processes(database: Path) -> None:
    """The one with more ranges counts, though the other used the same correlations."""
    file, other = NsysFile(two_steps()), PID + 1
    file.range("step", 100, 200, thread(MAIN, other))
    file.work(Work(KERNEL, "elsewhere", 120, 180, 1, 7, registers=8, shared_static=0, shared_dynamic=0), other)
    trace = read_nsys(file.write(database))
    assert trace.notes == ("2 processes made steps; the figures are of the one with the most ranges.",)
    assert replace(trace, notes=()) == sorted_trace(two_steps())


def test_loader_processes_without_steps_are_not_reported(database: Path) -> None:
    file = NsysFile(two_steps())
    file.range("worker", 100, 200, thread(MAIN, PID + 1))
    assert read_nsys(file.write(database)).notes == ()


def test_start_end_ranges_are_not_taken_for_nested_ones(database: Path) -> None:
    file = NsysFile(two_steps())
    file.range("step/async", 100, 1_500_000, thread(MAIN), kind=60)
    assert read_nsys(file.write(database)) == sorted_trace(two_steps())


def test_a_cuda_graph_by_node(database: Path) -> None:
    """Its kernels have the correlation of the launch: they belong to the range that launched the graph."""
    main = thread(MAIN)
    ranges = (Range("step", 0, 1000, main), Range("step/größe", 100, 300, main))
    calls = (Call("cudaGraphLaunch", 150, 160, main, 5),)
    works = tuple(
        Work(KERNEL, name, start, start + 50, 5, 3) for name, start in (("α<1>", 200), ("β", 260), ("α<1>", 330))
    )
    file = NsysFile(Trace(ranges, calls, works))
    for i, row in enumerate(file.rows[KERNEL_TABLE]):
        row["graphNodeId"] = i + 1
    trace = read_nsys(file.write(database))
    found = started(trace)
    graph = next(r for r in range_times(trace, found) if r.name == "step/größe")
    assert (graph.launches, graph.gpu_ms) == (3, pytest.approx(180e-6))
    assert [(k.name, k.count, k.range) for k in kernel_times(trace, found)] == [
        ("α<1>", 2, "step/größe"),
        ("β", 1, "step/größe"),
    ]


def test_graphs_that_were_recorded_whole_are_reported(database: Path) -> None:
    file = NsysFile(two_steps())
    file.add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", start=0, end=10, graphId=1)
    assert read_nsys(file.write(database)).notes == (
        "1 CUDA graphs were recorded as a whole; their kernels are missing.",
    )


def test_autograds_thread_is_one_of_the_process(database: Path) -> None:
    trace = read_nsys(NsysFile(two_steps()).write(database))
    assert {r.thread & 0xFFFFFF for r in trace.ranges} == {MAIN, AUTOGRAD}


@pytest.mark.parametrize(
    ("demangled", "plain"),
    [
        ("void f<4>(int, float *)", "f<4>"),
        ("a::(anonymous namespace)::g(T1)", "a::(anonymous namespace)::g"),
        ("void e<128, h(int)::{lambda(float)#1}>(int, k<(unsigned long)2>)", "e<128, h(int)::{lambda(float)#1}>"),
        ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"),
        ("Größe(int)", "Größe"),
        ("unbalanced)", "unbalanced)"),
    ],
)
def test_name_of_a_kernel(demangled: str, plain: str) -> None:
    assert plain_name(demangled) == plain
