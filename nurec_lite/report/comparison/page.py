# SPDX-License-Identifier: Apache-2.0
"""The page of a comparison: settings, figures, the same held-out frames side by side, and curves over the seconds of training."""

import math
from collections.abc import Sequence

from nurec_lite.report.charts import COLOURS, curves_chart
from nurec_lite.report.comparison.pictures import Frame, captions, frames_of
from nurec_lite.report.comparison.rows import Row, figure_rows, no_rows, notes, setting_rows
from nurec_lite.report.comparison.runs import Run
from nurec_lite.report.document import document
from nurec_lite.report.parts import escaped, image, section, table
from nurec_lite.report.views import TERMS, time_unit

_LARGEST = 1e30  # that an axis shows
_KIND = "comparison"


def page(runs: Sequence[Run]) -> str:
    """HTML that needs no other file and no network."""
    names = " and ".join(run.name for run in runs) if len(runs) < 4 else f"{len(runs)} runs"
    header = f'<header><h1>{escaped(names)}</h1><p class="runs">{_legend(runs)}</p></header>'
    frames = frames_of(runs)
    said = "".join(f"<li>{escaped(note)}</li>" for note in [*notes(runs), *frames.notes])
    body = [
        section("notes", "Before you compare", f"<ul>{said}</ul>") if said else "",
        _rows("settings", "Settings that differ", runs, setting_rows(runs), no_rows(runs)),
        _rows("figures", "Figures", runs, figure_rows(runs), "No run has figures."),
        _images(runs, frames.images),
        _sweeps(runs, frames.sweeps),
        _curves(runs),
    ]
    return document(names, header, "".join(body), _KIND)


def is_page(
    head: bytes,  # of a file
) -> bool:
    """Whether it begins as the page of a comparison does."""
    return head.startswith(b"<!DOCTYPE html>") and f'content="nurec_lite, {_KIND}"'.encode() in head


def _legend(runs: Sequence[Run]) -> str:
    return " ".join(
        f'<span class="legend"><span class="swatch run{k % COLOURS}"></span>{escaped(run.name)}</span>'
        for k, run in enumerate(runs)
    )


def _rows(name: str, title: str, runs: Sequence[Run], rows: Sequence[Row], otherwise: str) -> str:
    if not rows:
        return section(name, title, f"<p>{escaped(otherwise)}</p>")
    lines = [(_head(row), *map(escaped, row.texts())) for row in rows]
    body = table((name.removesuffix("s"), *(run.name for run in runs)), lines)
    return section(name, title, f'<div class="table">{body}</div>')


def _head(row: Row) -> str:
    if row.figure is None:
        return f"<code>{escaped(row.key)}</code>"
    return (
        f'{escaped(row.label)} <code class="key">{escaped(row.key)}</code>'
        if row.label != row.key
        else escaped(row.key)
    )


def _images(runs: Sequence[Run], frames: Sequence[Frame]) -> str:
    note = "The captured image, and the same frame as each run renders it."
    return section("images", "Images", "".join(_frame(runs, f, "captured", "") for f in frames), note) if frames else ""


def _sweeps(runs: Sequence[Run], frames: Sequence[Frame]) -> str:
    note = "Range maps of the same sweep: measured, and as each run renders it."
    shown = "".join(_frame(runs, f, "measured", " maps") for f in frames)
    return section("lidar", "Lidar", shown, note) if frames else ""


def _frame(runs: Sequence[Run], frame: Frame, truth: str, kind: str) -> str:
    fine = bool(kind)
    figures = [
        f"<figure>{image(frame.measured, f'{frame.name}, {truth}', fine=fine)}<figcaption>{truth}</figcaption></figure>"
    ]
    for k, caption in captions(runs, frame):
        shown = image(frame.rendered[k], f"{frame.name}, {runs[k].name}", fine=fine)
        below = f'<span class="legend"><span class="swatch run{k % COLOURS}"></span>{escaped(caption)}</span>'
        figures.append(f"<figure>{shown}<figcaption>{below}</figcaption></figure>")
    return f'<article><h3>{escaped(frame.name)}</h3><div class="beside{kind}">{"".join(figures)}</div></article>'


def _curves(runs: Sequence[Run]) -> str:
    """A chart for each column of the histories."""
    last = max((row["seconds"] for run in runs for row in run.history), default=0.0)
    length, unit = time_unit(last)
    columns = dict.fromkeys(
        name for run in runs for row in run.history for name in row if name not in ("step", "seconds")
    )
    charts = ""
    for name in sorted(columns, key=lambda name: (name == "gaussians", name != "psnr")):
        curves = {k: found for k, run in enumerate(runs) if (found := _curve(run, name, length)) is not None}
        if curves:
            title, y_unit = ("PSNR of training images", "dB") if name == "psnr" else TERMS.get(name, (name, ""))
            charts += curves_chart(title, y_unit, curves, [run.name for run in runs], unit)
    note = "Running means over the steps, before weights, over the seconds of training."
    body = f'<p class="runs">{_legend(runs)}</p><div class="grid">{charts}</div>'
    return section("training", "Training", body, note) if charts else ""


def _curve(run: Run, name: str, length: float) -> tuple[list[float], list[float]] | None:
    known = [row for row in run.history if abs(row.get(name, math.nan)) < _LARGEST]
    return ([row["seconds"] / length for row in known], [row[name] for row in known]) if known else None
