# SPDX-License-Identifier: Apache-2.0
"""The report of a run as one self-contained page: figures, images, curves, and the command that repeats it."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from nurec_lite.base.files import all_tried, write_text
from nurec_lite.evaluation.drawing import Drawing
from nurec_lite.evaluation.results import write_frames, write_metrics
from nurec_lite.report.beside import beside
from nurec_lite.report.content import Report
from nurec_lite.report.document import document
from nurec_lite.report.parts import escaped
from nurec_lite.report.sections import configuration, frames, header, odd, provenance, summary
from nurec_lite.report.views import curves, images, sweeps

_SECTIONS: dict[str, Callable[[Report], str]] = {  # by their names in a message if they fail
    "summary": summary, "images": images, "sweeps": sweeps, "beside": beside, "training": curves, "frames": frames,
    "configuration": configuration, "provenance": provenance,
}  # fmt: skip


def page(report: Report) -> str:
    """HTML that needs no other file and no network; texts from outside are escaped. A section that fails is left out, which the
    first section says."""
    return _page(report, _sections(report))


def _sections(report: Report) -> list[str]:
    """Head and sections, without the first one, which names those that failed."""
    tried = report.left_out.tried
    title = f"<header><h1>{escaped(report.capture)}</h1></header>"
    head = tried("The head of the report", partial(header, report)) or title
    rest = [tried(f"The section {name} of the report", partial(part, report)) or "" for name, part in _SECTIONS.items()]
    return [head, *rest]


def _page(report: Report, sections: list[str]) -> str:
    head, *rest = sections
    return document(report.capture, head, "".join((odd(report), *rest)))


def write_results(
    out: Path,
    report: Report,
    drawing: Drawing,  # the pictures
) -> None:
    """Writes frames.csv, if frames were measured, report.html and metrics.json: as many of them as can be written. metrics.json comes last:
    with it the results are complete, and it names the parts that failed."""
    tried = report.left_out.tried

    def write_table() -> None:
        if report.evaluation is not None:
            write_frames(out / "frames.csv", report.evaluation.frames)

    def write_figures() -> None:
        findings = {"findings": report.findings} if report.findings or "findings" in report.metrics else {}
        write_metrics(out / "metrics.json", report.metrics | findings)

    sections = _sections(report)
    all_tried(
        drawing.written,
        lambda: tried("The table frames.csv", write_table),
        lambda: tried("The report", lambda: write_text(out / "report.html", _page(report, sections))),
        write_figures,
    )
