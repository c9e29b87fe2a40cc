# SPDX-License-Identifier: Apache-2.0
"""Report of benchmarks/opt/bench_launch_bounds.py: its rows as JSON, CSV and Markdown, and its choice among them."""

import csv
import io
import json
from pathlib import Path
from typing import Any

from nurec_lite.base.files import write_text

Row = dict[str, Any]
COLUMNS = (
    "workload", "sensor", "architecture", "threads", "min_blocks", "rays", "rows", "ahead", "registers", "spills", "shared", "occupancy",
    "ms", "quarter", "three_quarters", "giga_pairs_per_s", "difference", "status",
)  # fmt: skip
FORMATS = {"occupancy": ".0%", "difference": ".1e", "giga_pairs_per_s": ".3g"}  # of other floats .4f


def chosen(rows: list[Row]) -> Row | None:
    """The fastest variant; None without times."""
    timed = [row for row in rows if row.get("ms") is not None and row["status"] is None]
    return min(timed, key=lambda row: row["ms"], default=None)


def choices(rows: list[Row]) -> list[Row]:
    """One for every workload, sensor and architecture."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["workload"], row["sensor"], row["architecture"]), []).append(row)
    return [best for group in groups.values() if (best := chosen(group)) is not None]


# ---- files


def cell(row: Row, column: str) -> str:
    value = row.get(column)
    if value is None:
        return ""
    return format(value, FORMATS.get(column, ".4f")) if isinstance(value, float) else str(value)


def markdown(rows: list[Row]) -> str:
    """Fastest first within each view; columns that nothing fills are left out."""
    columns = [column for column in COLUMNS if any(row.get(column) is not None for row in rows)]
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    best = [id(row) for row in choices(rows)]
    for row in sorted(rows, key=lambda r: (str(r["workload"]), r["sensor"], r["architecture"], r.get("ms") or 0.0)):
        cells = [cell(row, column) for column in columns]
        lines.append("| " + " | ".join(f"**{c}**" if c and id(row) in best else c for c in cells) + " |")
    return "\n".join(lines) + "\n"


def comma_separated(rows: list[Row]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def write(folder: Path, report: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "sweep.json", json.dumps(report, indent=1) + "\n")
    write_text(folder / "sweep.csv", comma_separated(report["rows"]))
    write_text(folder / "sweep.md", f"    {report['command']}\n\n{markdown(report['rows'])}")


def pick_of(row: Row) -> str:
    bounds = ", ".join(str(row[name]) for name in ("threads", "min_blocks", "rays", "ahead"))
    return (
        f"{row['workload']}, {row['sensor']}, sm_{row['architecture']}: {{{bounds}}} with {row['rows']} rows, "
        f"{row['ms']:.4f} ms, {row['registers']} registers, {row['spills']} bytes of spills"
    )
