# SPDX-License-Identifier: Apache-2.0
"""The report of a run as one self-contained page: what it reached, how it looks, how it got there, and how to repeat it."""

from functools import partial
from pathlib import Path

from nurec_lite.base.files import all_tried, write_text
from nurec_lite.evaluation.results import write_frames, write_metrics
from nurec_lite.report.content import Report
from nurec_lite.report.document import document
from nurec_lite.report.sections import configuration, frames, header, odd, provenance, summary
from nurec_lite.report.views import curves, images, sweeps

_SECTIONS = (odd, summary, images, sweeps, curves, frames, configuration, provenance)


def page(report: Report) -> str:
    """HTML that needs no other file and no network; whatever comes from outside is escaped."""
    return document(report.capture, header(report), "".join(part(report) for part in _SECTIONS))


def write_results(out: Path, report: Report) -> None:
    """frames.csv, if frames were measured, report.html and metrics.json, as many of them as can be written. metrics.json comes last:
    with it the results are complete."""
    frames = () if report.evaluation is None else (partial(write_frames, out / "frames.csv", report.evaluation.frames),)
    all_tried(
        *frames,
        lambda: write_text(out / "report.html", page(report)),
        partial(write_metrics, out / "metrics.json", report.metrics),
    )
