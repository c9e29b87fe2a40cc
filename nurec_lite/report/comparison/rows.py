# SPDX-License-Identifier: Apache-2.0
"""Rows of a comparison: settings that differ, and all figures; as Markdown for a terminal and as CSV for a spreadsheet."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nurec_lite.base.key_values import flat, hydra_value
from nurec_lite.base.texts import printable
from nurec_lite.evaluation.results import FIGURES, Figure
from nurec_lite.report.comparison.runs import Run

NONE = "–"
_PLACES = ("out", "train.resume", "train.overwrite")  # differ between all runs, and do not change the training
_CAPTURE = (
    "data.kind",
    "data.root",
    "data.drive",
    "data.date",
    "data.frames",
    "data.without",
    "data.cameras",
    "data.downscale",
    "data.split",
)
_MANY = 6  # runs; from there on, a run is a line of the table instead of a column


@dataclass(frozen=True)
class Row:
    """One setting or figure of all runs, in their order; None where a run lacks it."""

    key: str
    label: str
    values: tuple[Any, ...]
    figure: Figure | None = None  # None: a setting

    def texts(self) -> list[str]:
        if self.figure is None:
            return [NONE if value is None else printable(_setting(value)) for value in self.values]
        return [self.figure.text(value) for value in self.values]

    @property
    def difference(self) -> str:
        """The second of two numbers less the first; empty unless both are numbers."""
        numbers = [v for v in self.values if isinstance(v, int | float) and not isinstance(v, bool)]
        if self.figure is None or len(self.values) != 2 or len(numbers) != 2:
            return ""
        return f"{self.figure.factor * (numbers[1] - numbers[0]):+,.{self.figure.digits}f}".replace(",", "\u202f")


class _Unset:
    """Value of a key that a run's configuration lacks; null is another value."""


def _setting(value: Any) -> str:
    return value if isinstance(value, str) else hydra_value(value)


def setting_rows(runs: Sequence[Run]) -> list[Row]:
    """Keys that differ between the runs that have a configuration."""
    known = [run for run in runs if run.config]
    keys = dict.fromkeys(key for run in known for key in run.config if key not in _PLACES)
    rows = []
    for key in keys:
        values = [run.config.get(key, _Unset) for run in known]
        if any(value != values[0] for value in values):
            rows.append(Row(key, key, tuple(_shown(run, key) for run in runs)))
    return rows


def _shown(run: Run, key: str) -> Any:
    """null stands for itself; None for a key that the run does not have."""
    if key not in run.config:
        return None
    return "null" if run.config[key] is None else run.config[key]


def figure_rows(runs: Sequence[Run]) -> list[Row]:
    """Every number and text of metrics.json: those that reports show, in their order, and then all others."""
    found = [{k: v for k, v in flat(run.metrics).items() if not isinstance(v, list)} for run in runs]
    known = {figure.key: figure for figure in FIGURES}
    present = dict.fromkeys(key for metrics in found for key in metrics)
    order = [key for key in known if key in present] + [key for key in present if key not in known]
    rows = []
    for key in order:
        figure = known.get(key) or _other(key)
        label = f"{figure.label}, {figure.unit}" if figure.unit else figure.label
        rows.append(Row(key, label, tuple(metrics.get(key) for metrics in found), figure))
    return rows


def _other(key: str) -> Figure:
    """Returns how a figure is shown that reports show elsewhere, or not at all."""
    group, _, actor = key.partition(".")
    return (
        Figure(key, f"PSNR of actor {actor}", "dB", 2, "") if group == "psnr_per_actor" else Figure(key, key, "", 4, "")
    )


def notes(runs: Sequence[Run]) -> list[str]:
    """Sentences that a reader needs before comparing: unreadable parts, and conditions that make figures differ by themselves."""
    found = [note for run in runs for note in run.notes]
    differing = {row.key for row in setting_rows(runs)}
    frames = [key for key in _CAPTURE if key in differing]
    if frames:
        found.append(
            f"The runs measure different frames, so their figures do not compare ({', '.join(frames)} differ{'s' * (len(frames) == 1)})."
        )
    for key, what in (("device", "The runs used different devices"), ("commit", "The runs are of different code")):
        values = list(dict.fromkeys(str(run.metrics[key]) for run in runs if key in run.metrics))
        if len(values) > 1:
            found.append(f"{what}: {'; '.join(values)}.")
    return found


def no_rows(runs: Sequence[Run]) -> str:
    """The sentence in place of settings that differ."""
    known = sum(bool(run.config) for run in runs)
    return "All settings are equal." if known > 1 else "Fewer than two runs have settings."


def markdown(runs: Sequence[Run]) -> str:
    """Notes, settings that differ, and figures."""
    settings, figures = setting_rows(runs), figure_rows(runs)
    parts = ["\n".join(f"- {printable(note)}" for note in notes(runs))]
    if len(runs) > _MANY:
        parts.append(_by_run(runs, [*settings, *figures]))
    else:
        parts.append(_by_key("setting", runs, settings) or no_rows(runs))
        parts.append(_by_key("figure", runs, figures) or "No run has figures.")
    return "\n\n".join(part for part in parts if part)


def _by_key(head: str, runs: Sequence[Run], rows: Sequence[Row]) -> str:
    """Table with a line a row."""
    if not rows:
        return ""
    paired = len(runs) == 2 and head == "figure"
    heads = [head, *(run.name for run in runs), *(["difference"] if paired else [])]
    lines = [[row.label, *row.texts(), *([row.difference] if paired else [])] for row in rows]
    return _table(heads, lines)


def _by_run(runs: Sequence[Run], rows: Sequence[Row]) -> str:
    """Table with a line a run."""
    columns = [row.texts() for row in rows]
    lines = [[run.name, *(column[i] for column in columns)] for i, run in enumerate(runs)]
    return _table(["run", *(row.label for row in rows)], lines)


def _table(heads: list[str], lines: list[list[str]]) -> str:
    """Table in Markdown. Columns are padded, so that it reads on a terminal as well."""
    cells = [[_cell(text) for text in line] for line in (heads, *lines)]
    widths = [max(3, *(len(line[k]) for line in cells)) for k in range(len(heads))]
    rule = ["-" * widths[0], *(f"{'-' * (width - 1)}:" for width in widths[1:])]
    padded = [
        [line[0].ljust(widths[0]), *(text.rjust(w) for text, w in zip(line[1:], widths[1:], strict=True))]
        for line in cells
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in (padded[0], rule, *padded[1:]))


def _cell(text: str) -> str:
    return printable(text).replace("|", "\\|")


def csv_table(runs: Sequence[Run]) -> str:
    """A line a run; a column for each setting that differs and for each figure, by its key."""
    rows = [*setting_rows(runs), *figure_rows(runs)]
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["run", "folder", *(row.key for row in rows)])
    for i, run in enumerate(runs):
        values = [row.values[i] for row in rows]
        table.writerow([run.name, run.folder, *("" if v is None else _setting(v) for v in values)])
    return text.getvalue()
