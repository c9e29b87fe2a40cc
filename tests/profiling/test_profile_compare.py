# SPDX-License-Identifier: Apache-2.0
"""Two profiles side by side: hand-computed differences, their order, gates, and cases that never pass."""

import json
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nurec_lite.profiling.compare.compare import main, notes, resource_rows, time_rows, total_rows
from nurec_lite.profiling.compare.gates import Gate, judge, parse_gates, ratio_interval
from nurec_lite.profiling.compare.sides import Resources, Side, read_side
from nurec_lite.profiling.errors import ProfileError
from nurec_lite.profiling.ncu.kernel import Kernel
from nurec_lite.profiling.ncu.report import Profile, write_report
from nurec_lite.profiling.summary.summary import KernelTime, RangeTime, Summary, write_summary

STEADY = (10.0, 10.1, 9.9, 10.0, 10.05, 9.95, 10.0, 10.1)


def kernel(name: str, ms: float, registers: int | None = 64, shared: int | None = 1024) -> KernelTime:
    return KernelTime(name, 1.0, ms, registers, shared, 0, "step/blend", shared)


BASE = Summary(
    tool="nsys", tool_version="2025.3.1", command="", environment={"device": "H200", "commit": "a"}, steps=10,
    step_ms=20.0, gpu_busy=0.5, idle_ms=10.0, launches=100.0, syncs=4.0, copies=6.0, copied_bytes=3e6, peak_bytes=1 << 30,
    step_times_ms=STEADY,
    ranges=(RangeTime("step/render", 2.0, 3.0, 8.0, 40.0), RangeTime("step/collect", 2.0, 1.0, 2.0, 20.0)),
    kernels=(kernel("blend<3>", 5.0), kernel("sort", 1.0, shared=None)),
)  # fmt: skip
BETTER = replace(
    BASE, environment={"device": "H200", "commit": "b"}, step_ms=15.0, idle_ms=9.5, launches=40.0, syncs=0.0,
    ranges=(RangeTime("step/render", 2.0, 3.0, 5.0, 30.0), RangeTime("step/collect", 2.0, 1.0, 1.75, 1.0)),
    kernels=(kernel("blend<3>", 2.25, registers=40), kernel("fused | 日本", 0.5)),
)  # fmt: skip


def side(tmp_path: Path, summary: Summary) -> Side:
    write_summary(tmp_path / "summary.json", summary)
    return read_side(tmp_path)


def verdict(tmp_path: Path, gate: str, a: Summary, b: Summary) -> tuple[str, str]:
    (parsed,) = parse_gates(gate)
    found = judge(parsed, side(tmp_path / "a", a), side(tmp_path / "b", b))
    return found.outcome, found.reason


def run(tmp_path: Path, a: Summary, b: Summary, *more: str) -> int:
    write_summary(tmp_path / "a/summary.json", a)
    write_summary(tmp_path / "b.json", b)
    return main([str(tmp_path / "a"), str(tmp_path / "b.json"), *more])


# ---- tables


def test_times_are_sorted_by_what_moves_the_step_most(tmp_path: Path) -> None:
    rows = time_rows(side(tmp_path / "a", BASE), side(tmp_path / "b", BETTER))
    assert [(row.figure, row.difference) for row in rows] == [
        ("all kernels, sum a step", -3.25), ("whole step", -5.0),
        ("step/render", -3.0), ("kernel blend<3>", -2.75), ("kernel sort", -1.0), ("idle GPU", -0.5),
        ("kernel fused | 日本", 0.5), ("step/collect", -0.25),
        ("step/render (host)", 0.0), ("step/collect (host)", 0.0),
    ]  # fmt: skip
    assert rows[1].ratio == 0.75 and rows[2].ratio == 0.625
    gone = rows[4]
    assert (gone.a, gone.b, gone.ratio) == (1.0, None, None)


def test_kernels_that_an_option_replaces_rank_by_their_time() -> None:
    """ncu does not say that a kernel was not launched, so there is no difference to rank by."""
    a = Side(Path("a"), "ncu", {}, False, kernel_times={"old": 7.5, "kept": 0.5}, sum_ms=8.0)
    b = Side(Path("b"), "ncu", {}, False, kernel_times={"kept": 0.25, "new": 0.125, "unknown": None}, sum_ms=0.375)
    rows = time_rows(a, b)
    assert [(row.figure, row.difference) for row in rows] == [
        ("all kernels, sum a step", -7.625), ("kernel old", None), ("kernel kept", -0.25), ("kernel new", None),
        ("kernel unknown", None),
    ]  # fmt: skip
    some = replace(b, overrides=("kernels=render",))
    assert time_rows(a, some)[0].difference is None, "sums of other kernels do not compare"


def test_the_overrides_that_differ_come_first(tmp_path: Path) -> None:
    line = "python -m nurec_lite.profile tool=nsys data.root='a b' out=x {}"
    a = replace(BASE, command=line.format("'+opt=[workers,no_sync]' train.lidar_rays=64"))
    b = replace(
        BASE,
        command=line.format("+opt=workers").replace("out=x", "out=y"),
        environment={"device": "H100", "commit": "a"},
    )
    assert notes(side(tmp_path / "a", a), side(tmp_path / "b", b)) == [
        "options only in A: no_sync", "overrides only in A: train.lidar_rays=64", "device: H200 in A, H100 in B"
    ]  # fmt: skip
    assert notes(side(tmp_path / "c", replace(BASE, command="an 'open quote")), side(tmp_path / "d", BASE)) == []


def test_counts_are_sorted_by_their_relative_change(tmp_path: Path) -> None:
    rows = total_rows(side(tmp_path / "a", BASE), side(tmp_path / "b", BETTER))
    assert [(row.figure, row.difference) for row in rows[:2]] == [("syncs", -4.0), ("launches", -60.0)]
    assert [row.figure for row in rows] == ["syncs", "launches", "copies", "bytes", "memory"], "nobody told the others"


def test_only_resources_that_changed_are_listed(tmp_path: Path) -> None:
    rows = resource_rows(side(tmp_path / "a", BASE), side(tmp_path / "b", BETTER))
    assert [(row.figure, row.a, row.b) for row in rows] == [("blend<3>: registers", 64, 40)]


def test_a_missing_figure_is_a_dash_and_no_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, BASE, replace(BASE, syncs=None, idle_ms=None)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "| syncs | 4 | – | – | – |" in lines and "| idle GPU | 10.000 | – | – | – |" in lines


def test_ranges_without_a_gpu_are_reported_by_the_host(tmp_path: Path) -> None:
    found = side(tmp_path, replace(BASE, ranges=(RangeTime("step", 1.0, 7.0, None, None),), kernels=()))
    assert found.times == {"whole step": 20.0, "idle GPU": 10.0, "step (host)": 7.0} and not found.whole


def test_instances_of_one_name_add_up_and_the_largest_counts(tmp_path: Path) -> None:
    found = side(tmp_path, replace(BASE, kernels=(kernel("k", 1.0, 32), kernel("k", 2.0, 48), kernel("m", 1.0, None))))
    assert found.kernel_times == {"k": 3.0, "m": 1.0}
    assert (found.kernels["k"].registers, found.kernels["k"].shared, found.kernels["m"].registers) == (48, 1024, None)


def test_the_page_says_what_else_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, BASE, replace(BETTER, tool="torch"), "--rows", "2") == 0
    out = capsys.readouterr().out
    assert "- commit: a in A, b in B" in out and "device: " not in out
    assert "A was taken by nsys, B by torch" in out and "8 rows with smaller or unknown differences left out" in out
    assert "| whole step | 20.000 | 15.000 | -5.000 | 0.750 |" in out and "| syncs | 4 | 0 | -4 | 0.000 |" in out


def test_a_bar_in_a_name_does_not_break_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, BASE, BETTER)
    assert "| kernel fused \\| 日本 | – | 0.500 | 0.500 | – |" in capsys.readouterr().out


# ---- gates


@pytest.mark.parametrize(
    ("gate", "change", "outcome"),
    [
        ("launches=0", {"launches": 100.0}, "passed"),
        ("launches=0", {"launches": 100.1}, "failed"),
        ("launches=1", {"launches": 101.0}, "passed"),
        ("launches=1%", {"launches": 101.0}, "passed"),
        ("launches=1%", {"launches": 101.2}, "failed"),
        ("launches=0", {"launches": None}, "inconclusive"),
        ("syncs=0", {"syncs": 5.0}, "failed"),
        ("copies=0", {"copies": 6.0}, "passed"),
        ("bytes=10%", {"copied_bytes": 3.4e6}, "failed"),
        ("memory=5%", {"peak_bytes": 1 << 30}, "passed"),
        ("memory=5%", {"peak_bytes": None}, "inconclusive"),
        ("allocations=0", {}, "inconclusive"),
        ("registers=0", {"kernels": (kernel("blend<3>", 9.0, 64),)}, "passed"),
        ("registers=0", {"kernels": (kernel("blend<3>", 1.0, 65),)}, "failed"),
        ("registers=8", {"kernels": (kernel("blend<3>", 1.0, 72),)}, "passed"),
        ("registers=0", {"kernels": (kernel("blend<3>", 1.0, None),)}, "inconclusive"),
        ("registers=0", {"kernels": (kernel("blend<3>", 1.0), kernel("new", 1.0, 8))}, "inconclusive"),
        ("registers=0", {"kernels": (kernel("blend<3>", 1.0, 65), kernel("new", 1.0, 8))}, "failed"),
        ("registers=0", {"kernels": ()}, "inconclusive"),
        ("shared=0", {"kernels": (kernel("blend<3>", 1.0, 64, 2048),)}, "failed"),
        ("shared=0", {"kernels": (kernel("sort", 1.0),)}, "inconclusive"),
    ],
)
def test_a_gate_on_an_exact_figure(tmp_path: Path, gate: str, change: dict[str, Any], outcome: str) -> None:
    assert verdict(tmp_path, gate, BASE, replace(BASE, **change))[0] == outcome


def test_a_figure_that_misses_on_the_first_side_is_inconclusive_too(tmp_path: Path) -> None:
    assert verdict(tmp_path, "syncs=0", replace(BASE, syncs=None), BASE) == ("inconclusive", "A does not tell")
    assert verdict(tmp_path, "allocations=0", BASE, BASE) == ("inconclusive", "both sides do not tell")


@pytest.mark.parametrize(
    ("times", "outcome"),
    [
        (STEADY, "passed"),
        (tuple(1.1 * ms for ms in STEADY), "failed"),
        (tuple(0.5 * ms for ms in STEADY), "passed"),
        (tuple(1.03 * ms for ms in STEADY), "inconclusive"),
        ((5.0, 20.0, 8.0, 12.0, 10.0, 30.0, 9.0, 11.0), "inconclusive"),
        (STEADY[:4], "inconclusive"),
        ((), "inconclusive"),
    ],
)
def test_the_gate_on_time_decides_only_what_the_spread_allows(
    tmp_path: Path, times: tuple[float, ...], outcome: str
) -> None:
    assert verdict(tmp_path, "time=3%", BASE, replace(BASE, step_times_ms=times))[0] == outcome


def test_the_interval_of_constant_times_is_their_ratio() -> None:
    assert ratio_interval([(2.0,) * 5, (1.0,) * 5], [(4.0,) * 6, (2.0,) * 6]) == (2.0, 2.0, 2.0)


def test_the_interval_covers_the_true_ratio_about_as_often_as_it_says() -> None:
    random = np.random.default_rng(1)
    covered = 0
    for _ in range(100):
        a, b = 10 + random.normal(0, 1, 30), 11 + random.normal(0, 1, 30)
        low, _, high = ratio_interval([tuple(a)], [tuple(b)])
        covered += low <= 1.1 <= high
    assert 88 <= covered <= 100


def test_gates_are_parsed() -> None:
    assert parse_gates("launches=0, time=3%") == [Gate("launches", 0, False), Gate("time", 0.03, True)]


@pytest.mark.parametrize(
    "text", ["", "launches", "launch=0", "syncs=-1", "syncs=some", "time=3", "registers=nan", "bytes=inf"]
)
def test_what_is_no_gate_is_reported(text: str) -> None:
    with pytest.raises(ProfileError, match="is no gate"):
        parse_gates(text)


@pytest.mark.parametrize(
    ("gates", "code", "said"),
    [
        ("launches=0,syncs=0,memory=0", 0, "Gates: passed."),
        ("launches=0,allocations=0", 3, "Gates: inconclusive."),
        ("launches=0,allocations=0,copies=0", 1, "Gates: failed."),
    ],
)
def test_the_code_is_that_of_the_worst_gate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], gates: str, code: int, said: str
) -> None:
    assert run(tmp_path, BASE, replace(BETTER, copies=7.0), "--gate", gates) == code
    out = capsys.readouterr().out
    assert said in out and "| launches=0 | passed | 100 -> 40 |" in out


# ---- ncu


def launches(name: str, *ms: float | None, registers: float = 64) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "ms": t,
            "registers": registers,
            "shared_static": 512.0,
            "shared_dynamic": 512.0,
            "grid": [1, 1, 1],
        }
        for t in ms
    ]


def write_kernels(folder: Path, rows: list[dict[str, Any]]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernels.json").write_text(json.dumps({"tool": "ncu", "environment": {}, "kernels": rows}))
    return folder


def test_launches_of_ncu_are_compared_by_kernel(tmp_path: Path) -> None:
    a = read_side(write_kernels(tmp_path / "a", [*launches("blend", 2.0, 4.0), *launches("only", 1.0)]))
    b = read_side(write_kernels(tmp_path / "b", [*launches("blend", 1.5, 1.5, registers=72), *launches("odd", None)]))
    rows = {row.figure: row for row in time_rows(a, b)}
    assert (rows["kernel blend"].a, rows["kernel blend"].b, rows["kernel blend"].ratio) == (3.0, 1.5, 0.5)
    assert rows["kernel only"].difference is None, "not profiled on the other side, which does not mean not launched"
    assert rows["kernel odd"].b is None and total_rows(a, b) == []
    assert b.kernels["blend"].shared == 1024
    assert judge(Gate("registers", 0, False), a, b).outcome == "failed"
    assert judge(Gate("launches", 0, False), a, b).outcome == "inconclusive"


def test_what_the_profile_by_ncu_writes_is_read(tmp_path: Path) -> None:
    unknown = dict.fromkeys(
        (f.name for f in fields(Kernel) if f.default is MISSING and f.default_factory is MISSING), None
    )
    known = {"id": 0, "name": "blend<3>", "ms": 2.5, "registers": 64.0, "shared_static": 512.0, "shared_dynamic": 0.0}
    kernel = Kernel(**(unknown | known))  # type: ignore[arg-type]
    write_report(tmp_path, Profile("2025.3", "command", {"device": "H200"}, 5, (), (kernel, replace(kernel, ms=3.5))))
    found = read_side(tmp_path / "kernels.json")
    assert found.kernel_times == {"blend<3>": 3.0} and found.environment == {"device": "H200"}
    assert found.kernels == {"blend<3>": Resources(64, 512)} and found.samples == {"blend<3>": (2.5, 3.5)}


def test_the_time_of_ncu_is_that_of_the_kernels_both_sides_have(tmp_path: Path) -> None:
    a = read_side(write_kernels(tmp_path / "a", launches("blend", *STEADY)))
    same = read_side(write_kernels(tmp_path / "b", launches("blend", *STEADY)))
    more = read_side(write_kernels(tmp_path / "c", [*launches("blend", *STEADY), *launches("second", *STEADY)]))
    gate = Gate("time", 0.03, True)
    assert judge(gate, a, same).outcome == "passed"
    assert judge(gate, a, more).outcome == "inconclusive" and "only one side has second" in judge(gate, a, more).reason


# ---- mistakes


def test_mistakes_are_sentences(tmp_path: Path) -> None:
    good = tmp_path / "good"
    write_summary(good / "summary.json", BASE)
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.json").write_text("no json")
    ncu = write_kernels(tmp_path / "ncu", launches("k", 1.0))
    broken = write_kernels(tmp_path / "broken", [{"name": "k"}])
    both = write_kernels(tmp_path / "both", launches("k", 1.0))
    write_summary(both / "summary.json", BASE)
    cases: list[tuple[list[str], str]] = [
        ([str(good)], "arguments are required: B"),
        ([str(good), str(tmp_path / "none.json")], "none.json cannot be read"),
        ([str(good), str(tmp_path / "empty")], "neither summary.json nor kernels.json"),
        ([str(good), str(both)], "holds both"),
        ([str(good), str(tmp_path / "text.json")], "cannot be read as a summary"),
        (
            [str(good), str(tmp_path / "none")],
            "none cannot be read as a summary (No such file or directory); name a folder",
        ),
        ([str(good), str(ncu)], "compare two profiles of one kind"),
        ([str(ncu), str(broken)], "lacks ms, name, registers"),
        ([str(good), str(good), "--gate", "speed=1"], "'speed=1' is no gate"),
        ([str(good), str(good), "--fast"], "unrecognized arguments: --fast"),
    ]
    for arguments, said in cases:
        with pytest.raises(ProfileError) as error:
            main(arguments)
        assert said in str(error.value) and "\n" not in str(error.value), arguments
