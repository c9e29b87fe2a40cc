# SPDX-License-Identifier: Apache-2.0
"""scripts/reduce_results.py keeps the figures that pages read, unchanged."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts import reduce_results
from scripts.reduce_results import KERNEL, LONGEST, WIDTH, laid_out, reduced

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks/results"


@pytest.mark.parametrize("file", sorted(RESULTS.rglob("*.json")), ids=lambda file: str(file.relative_to(RESULTS)))
def test_results_of_the_repository_are_reduced(file: Path) -> None:
    text = file.read_text()
    assert text == laid_out(reduced(json.loads(text))) + "\n", "scripts/reduce_results.py benchmarks/results"


@pytest.mark.parametrize(
    "report",
    [
        [],
        {},
        None,
        0.1 + 0.2,
        {"a": {}, "b": [], "ö": "x" * 200, "c": {"d": ["y" * 90, "z" * 90, {"e": None}]}},
        {"ms": [k / 3 for k in range(100)], "rows": [{"name": f"row {k}", "ms": {"median": k / 7}} for k in range(9)]},
        [[[k] * 30 for k in range(9)], {str(k): k for k in range(60)}],
    ],
)
def test_a_report_without_profile_loses_nothing(report: Any) -> None:
    assert reduced(report) == report and json.loads(laid_out(report)) == report


def test_lines_are_short_and_few() -> None:
    text = laid_out(
        {"ms": [k / 3 for k in range(100)], "rows": [{"name": f"row {k}", "ms": k / 7} for k in range(100)]}
    )
    assert max(map(len, text.splitlines())) <= WIDTH + 1 and len(text.splitlines()) < 130


def test_profiles_keep_what_pages_read() -> None:
    kernel = dict.fromkeys(KERNEL, 1.5) | {"stalls": {"wait": 2.0}, "fp16_flop": 0}
    ncu = reduced({"tool": "ncu", "steps": 1, "kernels": [kernel]})
    assert ncu == {"tool": "ncu", "steps": 1, "kernels": [dict.fromkeys(KERNEL, 1.5)]}
    diagnosis = reduced({"instances": [{"name": "lidar", "kernel": kernel}]})["instances"][0]
    assert diagnosis["name"] == "lidar" and "stalls" in diagnosis["kernel"] and "fp16_flop" not in diagnosis["kernel"]
    nsys = reduced({"tool": "nsys", "step_ms": 3.5, "ranges": [{"name": "step"}], "kernels": [kernel]})
    assert nsys == {"tool": "nsys", "step_ms": 3.5, "ranges": [{"name": "step"}]}


def test_a_step_keeps_its_longest_kernels() -> None:
    step = {"step_ms": 2.5, "profile": {"kernels": 90.0, "every_kernel": [{"ms": 90 - k} for k in range(90)]}}
    profile = reduced(step)["profile"]
    assert profile["kernels"] == 90.0 and profile["every_kernel"] == step["profile"]["every_kernel"][:LONGEST]  # type: ignore[index]
    assert reduced({"profile": None}) == {"profile": None}


@pytest.mark.parametrize("content", [None, "{", ""])
def test_what_is_no_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], content: str | None
) -> None:
    if content is not None:
        (tmp_path / "report.json").write_text(content)
    monkeypatch.setattr(sys, "argv", ["reduce_results.py", str(tmp_path / "report.json")])
    with pytest.raises(SystemExit) as ended:
        reduce_results.main()
    assert ended.value.code == 2 and "name" in capsys.readouterr().err
