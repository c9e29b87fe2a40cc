# SPDX-License-Identifier: Apache-2.0
"""The table of the worth of every option: its rows and figures, and a run from end to end."""

import json
from pathlib import Path

import pytest
from tiny_arguments import TINY

from benchmarks.ladder.bench_options import Row, is_asked, main, required, rows_of
from benchmarks.ladder.options_table import table
from nurec_lite.base.options import known_options

SHORT = ["--steps", "2", "--warmup", "0", "--profiled", "1"]


def test_what_an_option_requires_comes_before_it() -> None:
    assert required("workers") == ["workers"]
    assert required("cuda_graph") == ["fused_interp", "no_sync", "fused_adam", "cuda_graph"]
    for name in known_options():
        if name != "all":
            assert required(name)[-1] == name and len(set(required(name))) == len(required(name))


def test_rows_are_the_baseline_each_alone_and_each_rung() -> None:
    order, others = ["fused_interp", "no_sync", "fused_adam", "cuda_graph"], ["pinned"]
    rows = list(rows_of(order, others))
    assert [(row.name, row.rung) for row in rows] == [
        ("", True),
        *((name, True) for name in order),
        *((name, False) for name in (*order, *others)),
    ]
    options = {(row.name, row.rung): row.options for row in rows}
    assert options["cuda_graph", False] == ("fused_interp", "no_sync", "fused_adam", "cuda_graph")
    assert options["fused_adam", False] == ("fused_adam",) and options["pinned", False] == ("pinned",)
    assert options["fused_adam", True] == ("fused_interp", "no_sync", "fused_adam")


def test_a_table_has_a_line_an_option() -> None:
    measured = {"gpu_ms": 4.5, "launches": 1234.0, "waits": 0.0, "copied_bytes": 2500, "peak_bytes": 2e9}
    rows = [
        {"name": "", "rung": True, "ms": 50.0} | measured,
        {"name": "resident", "rung": True, "ms": 20.0} | measured | {"gpu_ms": None},
        {"name": "resident", "rung": False, "ms": 34.06} | measured,
        {"name": "pinned", "rung": False, "error": "it broke"},
    ]
    assert table(rows).splitlines()[2:] == [
        "|none|||50.0 ms|4.5 ms|1,234|0.0|2 kB|2.00 GB|",
        "|`resident`|34.1 ms|4.5 ms|20.0 ms||1,234|0.0|2 kB|2.00 GB|",
        "|`pinned`|failed|failed|||failed|failed|failed|failed|",
    ]


def test_it_runs_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "options.json"
    main([*TINY, *SHORT, "--others", "resident", "--out", str(out)])
    report = json.loads(out.read_text())
    assert [(row["name"], row["rung"]) for row in report["rows"]] == [
        ("", True),
        ("fused_interp", True),
        ("collect_once", True),
        ("fused_interp", False),
        ("collect_once", False),
        ("resident", False),
    ]
    assert all(row["wall_ms"] > 0 and row["launches"] is None for row in report["rows"])
    assert report["steps"] == 2 and report["environment"]["device"].startswith("cpu")
    assert "|`collect_once`|" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("only", "rungs", "names"),
    [(None, False, ["", "a", "b", "a", "b", "c"]), (None, True, ["", "a", "b"]), (["b"], True, ["", "b"])],
)
def test_what_is_asked_for_is_measured(only: list[str] | None, rungs: bool, names: list[str]) -> None:
    rows = [Row("", True, ()), *(Row(name, True, ()) for name in "ab"), *(Row(name, False, ()) for name in "abc")]
    assert [row.name for row in rows if is_asked(row, only, rungs)] == names
