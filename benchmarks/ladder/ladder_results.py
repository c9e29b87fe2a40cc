# SPDX-License-Identifier: Apache-2.0
"""Medians, spreads and speedups of benchmarks/ladder/ladder.py, as CSV, as a table, and between the markers of docs/ladder.md."""

import csv
import io
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from nurec_lite.base.errors import UserError
from nurec_lite.base.files import write_text


def markers(conditions: dict[str, Any]) -> tuple[str, str]:
    """Markers of the place in docs/ladder.md: each kind of machine has its own."""
    kind = "cuda" if "cuda" in conditions["environment"] else "cpu"
    return f"<!-- ladder:{kind}:begin -->", f"<!-- ladder:{kind}:end -->"


class Measured(Protocol):
    """A rung of benchmarks/ladder/ladder.py."""

    label: str
    options: tuple[str, ...]
    samples: list[dict[str, Any]]
    quality: dict[str, float] | None
    error: str | None


@dataclass(frozen=True)
class Row:
    """A rung; None if it failed before the figure was known, or if the figure was not asked for."""

    rung: str
    options: str
    step_ms: float | None = None  # median over all counted steps of all rounds
    step_ms_q1: float | None = None
    step_ms_q3: float | None = None
    speedup: float | None = None  # of the first rung's median step over this one's, median over rounds
    speedup_q1: float | None = None
    speedup_q3: float | None = None
    rounds: int = 0
    peak_mib: float | None = None  # median over rounds
    psnr: float | None = None
    ssim: float | None = None
    lidar_median_abs_m: float | None = None
    quality_seconds: float | None = None  # of training, in the whole run
    error: str | None = None


def rows_of(rungs: Sequence[Measured]) -> list[Row]:
    """A failed rung has its error and no figures."""
    return [_row(rung, rungs[0]) for rung in rungs]


def _row(rung: Measured, first: Measured) -> Row:
    options = ",".join(rung.options)
    if rung.error is not None or not rung.samples:
        return Row(rung.label, options, error=rung.error or "no round was run")
    ratios = [] if first.error is not None else _ratios(first.samples, rung.samples)
    quality = rung.quality or {}
    return Row(
        rung.label,
        options,
        *quartiles([ms for sample in rung.samples for ms in sample["step_ms"]]),
        *quartiles(ratios),
        rounds=len(rung.samples),
        peak_mib=float(np.median([sample["peak_bytes"] for sample in rung.samples])) / (1 << 20),
        psnr=quality.get("psnr"),
        ssim=quality.get("ssim"),
        lidar_median_abs_m=quality.get("lidar_median_abs_m"),
        quality_seconds=quality.get("seconds_train"),
    )


def _ratios(first: list[dict[str, Any]], own: list[dict[str, Any]]) -> list[float]:
    """Round by round: both ran shortly after one another."""
    pairs = zip(first, own, strict=True)
    return [float(np.median(a["step_ms"]) / np.median(b["step_ms"])) for a, b in pairs]


def quartiles(values: list[float]) -> tuple[float | None, float | None, float | None]:  # median, lower, upper
    if not values:
        return None, None, None
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return float(middle), float(low), float(high)


def write_csv(path: Path, rows: list[Row]) -> None:
    """Empty where a figure is not known."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(f.name for f in fields(Row))
    lines.writerows(["" if value is None else value for value in astuple(row)] for row in rows)
    write_text(path, text.getvalue())


def table(rows: list[Row]) -> str:
    """Markdown; columns of quality only if somebody measured it."""
    quality = any(row.psnr is not None for row in rows)
    names = ["rung", "step", "speedup", "peak memory", *(["PSNR", "lidar median"] if quality else [])]
    lines = [f"| {' | '.join(names)} |", "|---|" + "---:|" * (len(names) - 1)]
    return "\n".join([*lines, *(f"| {' | '.join(_cells(row, quality))} |" for row in rows)])


def _cells(row: Row, quality: bool) -> list[str]:
    name = "baseline" if not row.options else row.rung
    if row.error is not None:
        return [name, "failed: " + row.error.replace("|", "\\|"), *["–"] * (4 if quality else 2)]
    cells = [
        name,
        f"{spread(row.step_ms, row.step_ms_q1, row.step_ms_q3, '.1f')} ms",
        spread(row.speedup, row.speedup_q1, row.speedup_q3, ".3f"),
        f"{row.peak_mib:,.0f} MiB",
    ]
    return cells + ([_cell(row.psnr, ".2f", "dB"), _cell(row.lidar_median_abs_m, ".3f", "m")] if quality else [])


def spread(middle: float | None, low: float | None, high: float | None, digits: str) -> str:
    return "–" if middle is None else f"{middle:{digits}} ({low:{digits}} to {high:{digits}})"


def _cell(value: float | None, digits: str, unit: str) -> str:
    return "–" if value is None else f"{value:{digits}} {unit}"


def how(conditions: dict[str, Any]) -> str:
    """The conditions in one line."""
    machine, image = conditions["environment"], conditions["image"] or ["?", "?"]
    on_gpu = "cuda" in machine
    hardware = [machine.get("device", "?"), f"driver {machine.get('driver', '?')}" if on_gpu else conditions["cpu"]]
    software = [f"torch {machine.get('torch', '?')}", *([f"CUDA {machine['cuda']}"] if on_gpu else [])]
    what = f"{conditions['capture']}, {image[0]}x{image[1]}, {conditions['gaussians']} Gaussians, {conditions['lidar_rays']} lidar rays"
    rounds = f"{conditions['repeat']} rounds of fresh processes in turns, {conditions['steps']} steps each after {conditions['warmup']}"
    others = "an unknown number of" if conditions["others_cores"] is None else f"up to {conditions['others_cores']:.2f}"
    load = f"other programs kept {others} of {machine.get('cores', '?')} cores busy"
    return "; ".join([what, ", ".join([*hardware, *software]), f"commit {machine.get('commit', '?')}", rounds, load])


def section(
    rows: list[Row],
    conditions: dict[str, Any],  # of benchmarks/ladder/ladder.py
    out: Path,  # folder of the results
    beside: Path,  # folder of the page: docs/ of the checkout
) -> str:
    """Text between the markers; with the picture if it is in the checkout."""
    inside = out.is_relative_to(beside.parent)
    within = f"../{out.relative_to(beside.parent).as_posix()}" if inside else None
    words = (
        f"*Medians (quartiles): steps over all rounds, speedups over rounds. {how(conditions)}; {conditions['date']}.*"
    )
    parts = [table(rows), words]
    parts += (
        [f"![Time of a step by rung]({within}/waterfall.png)\n\nSingle times: [{out.name}]({within})"] if within else []
    )
    return "\n\n".join(parts)


def fill(
    page: str,
    text: str,
    between: tuple[str, str],  # markers
    name: str,  # of the page's file
) -> str:
    """Replaces the text between the markers; raises UserError if they are missing."""
    before, begin, rest = page.partition(between[0])
    _, end, after = rest.partition(between[1])
    if not begin or not end:
        raise UserError(
            f"{name} lacks the markers {between[0]} and {between[1]}, one after the other; put them where the table belongs"
        )
    return f"{before}{begin}\n\n{text}\n\n{end}{after}"
