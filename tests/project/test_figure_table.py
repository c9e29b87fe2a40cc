# SPDX-License-Identifier: Apache-2.0
"""Figures of pages come from their row in benchmarks/figures.csv, and rows from reports."""

import json
from pathlib import Path

import pytest

from nurec_lite.base.errors import UserError
from scripts import figure_table
from scripts.figure_table import COLUMNS, RESULTS, TABLE, Row, commit_with, derived, rows_of, shown, text_of
from scripts.figures import filled, idle

REPORT = {
    "environment": {"device": "a GPU", "commit": "abc+"}, "psnr": 31.26, "bytes": 2.5e9, "rows": [{"ms": 0.00123}], "steps": 1476,
}  # fmt: skip


def row(where: str, **more: str) -> Row:
    return dict.fromkeys(COLUMNS, "") | {"id": "x", "file": "run.json", "where": where} | more


@pytest.fixture
def results(tmp_path: Path) -> Path:
    (tmp_path / "run.json").write_text(json.dumps(REPORT))
    return tmp_path


def test_the_table_is_that_of_its_reports() -> None:
    rows = rows_of(TABLE)
    assert TABLE.read_text() == text_of({name: derived(one) for name, one in rows.items()}), "make figures"
    assert all(one["commit"] and one["machine"] for one in rows.values())
    assert all((RESULTS / one["file"]).is_file() or one["kept_at"] for one in rows.values())


@pytest.mark.parametrize(
    ("where", "value"),
    [("psnr", "31.26"), ("bytes*1e-9", "2.5"), ("rows/0/ms*1000", "1.23"), ("3/0/0", "0.00123"), ("steps", "1476")],
)
def test_a_row_is_what_its_report_has(results: Path, where: str, value: str) -> None:
    found = derived(row(where, value="7", kept_at="old"), results)
    assert (found["value"], found["commit"], found["machine"], found["kept_at"]) == (value, "abc+", "a GPU", "")


def test_metrics_of_a_run_have_their_conditions_at_the_top(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"psnr": 20.5, "device": "cpu", "commit": "abc"}')
    found = derived(row("psnr"), tmp_path)
    assert (found["value"], found["commit"], found["machine"]) == ("20.5", "abc", "cpu")


@pytest.mark.parametrize("where", ["ssim", "rows/1/ms", "psnr/more", "environment/device", ""])
def test_a_place_that_the_report_lacks(results: Path, where: str) -> None:
    with pytest.raises(UserError, match=rf'the figure x is "{where}" of run.json, which lacks it'):
        derived(row(where), results)


def test_a_row_outlives_its_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure_table, "commit_with", lambda file: "0123abc")
    gone = derived(row("psnr", value="31.26"), tmp_path)
    assert (gone["value"], gone["kept_at"]) == ("31.26", "0123abc")
    monkeypatch.undo()
    assert derived(gone, tmp_path) == gone  # without asking again


def test_a_report_that_never_was() -> None:
    with pytest.raises(UserError, match=r"no commit has it; name a report, or remove the rows of figures\.csv"):
        commit_with(RESULTS / "never_measured.json")


def test_a_table_is_read_as_it_is_written(tmp_path: Path) -> None:
    rows = {"b": row("a, b", id="b"), "a": row("psnr", id="a", unit="µs")}
    (tmp_path / "t.csv").write_text(text_of(rows))
    assert rows_of(tmp_path / "t.csv") == rows and list(rows_of(tmp_path / "t.csv")) == ["a", "b"]
    (tmp_path / "t.csv").write_text(text_of(rows) + "a,1\n")
    with pytest.raises(UserError, match="two rows of one id"):
        rows_of(tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("value", "before", "after"),
    [
        ("31.26", "0.0 dB", "31.3 dB"), ("31.26", "7", "31"), ("1476.2", "1,000 steps", "1,476 steps"), ("-0.4", "0.00", "-0.40"),
        ("0.00123", "about 0.0000 s", "about 0.0012 s"),
    ],
)  # fmt: skip
def test_a_quote_keeps_its_digits_and_words(value: str, before: str, after: str) -> None:
    assert shown(row("psnr", value=value), before) == after


def test_a_quote_without_a_number() -> None:
    with pytest.raises(UserError, match=r"quotes x as '\?'; write a number in its form, such as 0.00 dB"):
        shown(row("psnr", value="1", unit="dB"), "?")


def test_a_page_gets_its_figures(tmp_path: Path) -> None:
    page, text = (
        tmp_path / "page.md",
        "It has [0.0 dB](../benchmarks/figures.csv#x), as [9](../../benchmarks/figures.csv#x) says.",
    )
    rows = {"x": row("psnr", value="31.26"), "y": row("psnr")}
    made = filled(page, text, rows)
    assert made == "It has [31.3 dB](../benchmarks/figures.csv#x), as [31](../../benchmarks/figures.csv#x) says."
    assert idle(rows, [made]) == ["y"]
    with pytest.raises(
        UserError, match=r"page\.md quotes the figure x, which .*figures\.csv lacks; add a row, or mend the id"
    ):
        filled(page, text, {})
