# SPDX-License-Identifier: Apache-2.0
"""Table of benchmarks/ladder/bench_options.py, as it prints it and docs/ladder.md shows it."""

from collections.abc import Sequence
from typing import Any


def table(
    rows: Sequence[dict[str, Any]],
    quality: Sequence[dict[str, Any]] = (),  # of option_quality.py: a column more, and its rows after the others
) -> str:
    """Markdown: an option a line, alone and as a rung. A step lasts from the end of its feed to its end on the device. Columns after the
    rung's step are those of the rung, or of the option alone if no rung has it."""
    head = "|option|a step, alone|GPU at work|a step, as a rung|GPU at work|launches|waits|copied|memory|"
    lines = [head + ("PSNR, alone|" if quality else ""), f"|---|{(9 if quality else 8) * '---:|'}"]
    reached = {row["name"]: row for row in quality}
    alone = {row["name"]: row for row in rows if not row["rung"]}
    rungs = {row["name"]: row for row in rows if row["rung"]}
    for name in dict.fromkeys(row["name"] for row in (*rows, *quality)):
        first, rung = alone.get(name, {}), rungs.get(name, {})
        cells = [
            f"`{name}`" if name else "none",
            *(_number(row, *of) for row in (first, rung) for of in (("ms", "{:.1f} ms"), ("gpu_ms", "{:.1f} ms"))),
            _number(rung or first, "launches", "{:,.0f}"),
            _number(rung or first, "waits", "{:.1f}"),
            _number(rung or first, "copied_bytes", "{:,.0f} kB", 1e-3),
            _number(rung or first, "peak_bytes", "{:.2f} GB", 1e-9),
        ]
        cells += [_number(reached.get(name, {}), "psnr", "{:.2f} dB")] if quality else []
        lines.append(f"|{'|'.join(cells)}|")
    return "\n".join(lines)


def _number(row: dict[str, Any], name: str, form: str, factor: float = 1) -> str:
    if "error" in row:
        return "failed"
    known = row.get(name)
    return "" if known is None else form.format(known * factor)
