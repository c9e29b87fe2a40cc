# SPDX-License-Identifier: Apache-2.0
"""The sections of the page in their order, each as HTML; empty where there is nothing to show."""

import math
from itertools import groupby
from typing import Any

from omegaconf import OmegaConf

from nurec_lite.base.key_values import hydra_value
from nurec_lite.config import to_dict
from nurec_lite.evaluation.drawing import FrameFigures
from nurec_lite.evaluation.results import FIGURES, Figure, known_figures, measured
from nurec_lite.report.charts import frame_chart
from nurec_lite.report.content import Report
from nurec_lite.report.parts import escaped, section, table, with_code
from nurec_lite.report.settings import changes

_TILES = ("psnr", "ssim", "psnr_actors", "lidar_median_abs_m")
_BY_KEY = {figure.key: figure for figure in FIGURES}


def header(report: Report) -> str:
    """Name, subject in a line, and the main figures."""
    tiles = "".join(_tile(_BY_KEY[key], report.metrics[key]) for key in _TILES if measured(report.metrics.get(key)))
    facts = " · ".join(escaped(fact) for fact in _facts(report))
    return f'<header><h1>{escaped(report.capture)}</h1><p class="note">{facts}</p><div class="tiles">{tiles}</div></header>'


def _facts(report: Report) -> list[str]:
    budget, metrics, facts = report.config.train, report.metrics, []
    if report.evaluation is not None:
        kinds = [sum(f.psnr is not None for f in report.evaluation.frames)]
        kinds.append(len(report.evaluation.frames) - kinds[0])
        facts.append(f"{report.measured} of split {report.config.data.split}: {kinds[0]} images, {kinds[1]} sweeps")
    limits = [f"{n:g} {unit}" for n, unit in ((budget.seconds, "s"), (budget.steps, "steps")) if n is not None]
    facts.append(f"budget {' or '.join(limits)}")
    facts += [
        f"{_BY_KEY[key].text(metrics[key])} {word}"
        for key, word in (("steps", "steps done"), ("gaussians", "Gaussians"))
    ]
    if measured(metrics.get("step_ms")):
        facts.append(f"{_BY_KEY['step_ms'].text(metrics['step_ms'])} ms a step")
    return [*facts, str(metrics["device"])]


def _tile(figure: Figure, value: Any) -> str:
    unit = f' <span class="unit">{escaped(figure.unit)}</span>' if figure.unit else ""
    return (
        f'<div class="tile"><div class="value">{escaped(figure.text(value))}{unit}</div>{escaped(figure.label)}</div>'
    )


def odd(report: Report) -> str:
    """Findings about the capture, in sentences."""
    found = "".join(f"<li>{escaped(sentence)}</li>" for sentence in report.findings)
    return section("findings", "Findings about the capture", f"<ul>{found}</ul>") if found else ""


def summary(report: Report) -> str:
    rows = [
        (
            f'{escaped(f.label)} <code class="key">{f.key}</code>',
            _value(f, report.metrics[f.key]),
            escaped(f.meaning + _met_nothing(f, report.metrics)),
        )
        for f in known_figures(report.metrics)
    ]
    notes = "".join(f'<p class="note">{escaped(sentence)}</p>' for sentence in report.metrics.get("notes", ()))
    body = table(("figure", "value", "meaning"), rows, "figures") + notes + _actors(report)
    return section("summary", "Summary", body)


def _met_nothing(figure: Figure, metrics: dict[str, Any]) -> str:
    """Note to the mean range error: the share of rays that meet nothing and raise it far above the median."""
    met = metrics.get("lidar_opacity_half", math.nan)
    return f" ({100 * (1 - met):.1f} % do)" if figure.key == "lidar_mean_abs_m" and measured(met) else ""


def _value(figure: Figure, value: Any) -> str:
    text = f"{figure.text(value)} {figure.unit if measured(value) else ''}".strip()
    return escaped(text) if isinstance(value, str) else f'<span class="value">{escaped(text)}</span>'


def _actors(report: Report) -> str:
    """PSNR of each moving actor, best first."""
    actors = sorted(report.metrics.get("psnr_per_actor", {}).items(), key=lambda item: -item[1])
    if not actors:
        return ""
    rows = [(escaped(name), f'<span class="value">{value:.2f}</span> dB') for name, value in actors]
    title = '<h3>Moving actors <code class="key">psnr_per_actor</code></h3>'
    return title + table(("track", "PSNR inside its box"), rows, "actors")


def frames(report: Report) -> str:
    """A chart a sensor, and the figures of every frame."""
    if report.evaluation is None:
        return ""
    psnrs = [f.psnr for f in report.evaluation.frames if f.psnr is not None and math.isfinite(f.psnr)]
    charts, limits = "", (min(psnrs, default=0.0), max(psnrs, default=1.0))
    for sensor, group in groupby(sorted(report.evaluation.frames, key=lambda f: f.sensor), lambda f: f.sensor):
        members = list(group)
        seen = {f.index: f.psnr for f in members if f.psnr is not None}
        ranged = {f.index: f.lidar_median_abs_m for f in members if f.lidar_median_abs_m is not None}
        if seen:
            charts += frame_chart(f"{sensor}, PSNR", "dB", list(seen), list(seen.values()), 2, limits)
        if ranged:
            charts += frame_chart(f"{sensor}, median error", "m", list(ranged), list(ranged.values()), 3)
    listed = table(
        ("sensor", "frame", "PSNR, dB", "SSIM", "median range error, m"), map(_row, report.evaluation.frames)
    )
    body = f'<div class="grid">{charts}</div><details><summary>Figures of every frame</summary>{listed}</details>'
    return section("frames", "Frame by frame", body, "All cameras have one axis of PSNR; the line is the mean.")


def _row(f: FrameFigures) -> tuple[str, ...]:
    shown = (("psnr", f.psnr), ("ssim", f.ssim), ("lidar_median_abs_m", f.lidar_median_abs_m))
    figures = ["" if value is None else _BY_KEY[key].text(value) for key, value in shown]
    return escaped(f.sensor), str(f.index), *figures


def configuration(report: Report) -> str:
    """The section of the configuration: keys that differ from the defaults, and all keys."""
    changed = changes(report.config)
    rows = [
        (f"<code>{escaped(c.key)}</code>", *(f"<code>{escaped(hydra_value(v))}</code>" for v in (c.value, c.default)), with_code(c.meaning))
        for c in changed
    ]  # fmt: skip
    listed = (
        table(("key", "value", "default", "meaning"), rows, "settings")
        if rows
        else "<p>Everything is at its default.</p>"
    )
    options = ", ".join(report.config.opt) or "none"
    text = _marked_yaml(to_dict(report.config), {c.key for c in changed})
    body = f"{listed}<p>Options: {escaped(options)}</p><details><summary>The whole configuration</summary><pre>{text}</pre></details>"
    note = f"What differs from the defaults of data={report.config.data.kind}."
    return section("configuration", "Configuration", body, note)


def _marked_yaml(
    content: dict[str, Any],
    keys: set[str],  # with dots
) -> str:
    """YAML with the lines of these keys marked."""
    lines, path = [], list[str]()
    for line in OmegaConf.to_yaml(OmegaConf.create(content)).splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        if not line.lstrip().startswith("- "):  # an item of a list belongs to the key above
            path = [*path[:depth], line.strip().partition(":")[0]]
        lines.append(f"<mark>{escaped(line)}</mark>" if ".".join(path) in keys else escaped(line))
    return "\n".join(lines)


def provenance(report: Report) -> str:
    """Section about the machine of the run and the next commands."""
    commands = "".join(
        f"<h3>{escaped(c.purpose)}</h3><pre><code>{escaped(c.line)}</code></pre>" for c in report.commands
    )
    rows = [(escaped(key), escaped(value)) for key, value in report.environment.items()]
    where = section("environment", "Environment", table(("what", "which"), rows, "facts"))
    return section("commands", "Reproduce and go on", commands) + where
