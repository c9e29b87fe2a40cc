# SPDX-License-Identifier: Apache-2.0
"""Figures that pages quote: a row each in benchmarks/figures.csv, derived from a report in benchmarks/results.

`where` is the path within the report, with slashes: names, or numbers counted from 0 in a list. A factor may follow, as in
`peak_memory_bytes*1e-9`. `commit` and `machine` are those of the report. A row without its report stays, and `kept_at` is a commit that
has the report.
"""

import csv
import io
import json
import re
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import Any

from nurec_lite.base.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "benchmarks/figures.csv"
RESULTS = ROOT / "benchmarks/results"
COLUMNS = ("id", "value", "unit", "file", "where", "commit", "machine", "kept_at")
NUMBER = re.compile(r"-?\d[\d,]*(?:\.(\d+))?")
Row = dict[str, str]  # a text for each of COLUMNS


@lru_cache
def content(file: Path) -> Any:
    return json.loads(file.read_text())


def rows_of(table: Path) -> dict[str, Row]:
    """Returns the rows of a table by their id."""
    with table.open(newline="") as lines:
        found = list(csv.DictReader(lines))
    rows = {row["id"]: {name: row.get(name) or "" for name in COLUMNS} for row in found}
    if len(rows) != len(found):
        raise UserError(f"{table.name} has two rows of one id; each figure has one row")
    return rows


def text_of(rows: dict[str, Row]) -> str:
    """Returns the table, sorted by id."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows[name] for name in sorted(rows))
    return out.getvalue()


def derived(row: Row, results: Path = RESULTS) -> Row:
    """Returns the row as its report has it; as it is, with a commit that has the report, where that is gone."""
    file = results / row["file"]
    if not file.is_file():
        return row | {"kept_at": row["kept_at"] or commit_with(file)}
    report = content(file)
    known = report.get("environment", report)
    try:
        machine = known.get("device") or row["machine"]  # old reports lack it
        return row | {
            "value": f"{value(report, row['where']):.10g}",
            "commit": known["commit"],
            "machine": machine,
            "kept_at": "",
        }
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        raise UserError(
            f'the figure {row["id"]} is "{row["where"]}" of {row["file"]}, which lacks it ({error})'
        ) from error


def value(tree: Any, where: str) -> float:
    """Returns the number at a path, times its factor."""
    path, _, factor = where.partition("*")
    for name in path.split("/"):
        inside = tree if isinstance(tree, list) else list(tree.values())
        tree = tree[name] if isinstance(tree, dict) and name in tree else inside[int(name)]
    return float(tree) * float(factor or 1)


def commit_with(file: Path) -> str:
    """Returns the newest commit that has a file; UserError where none has it."""
    gone = _git("log", "-1", "--format=%h^", "--diff-filter=D", "--", str(file)) or "HEAD"
    if not _git("cat-file", "-t", f"{gone}:{file.relative_to(ROOT) if file.is_relative_to(ROOT) else file}"):
        raise UserError(f"there is no {file} and no commit has it; name a report, or remove the rows of {TABLE.name}")
    return _git("rev-parse", "--short", gone)


def _git(*arguments: str) -> str:
    """Returns git's output, or nothing if it fails."""
    try:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def shown(row: Row, text: str) -> str:
    """Returns a quoted text with the row's number in place of its own, with as many digits: `2.50 ms` from `0.00 ms`."""
    found = NUMBER.search(text)
    if found is None:
        raise UserError(
            f"a page quotes {row['id']} as '{text}'; write a number in its form, such as 0.00 {row['unit']}"
        )
    comma = "," if "," in found[0] else ""
    number = f"{float(row['value']):{comma}.{len(found[1] or '')}f}"
    return text[: found.start()] + number + text[found.end() :]
