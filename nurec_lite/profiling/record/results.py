# SPDX-License-Identifier: Apache-2.0
"""The files of a profile: summary.json, summary.md and pictures."""

from pathlib import Path

from nurec_lite.base.files import write_text
from nurec_lite.base.folders import discard
from nurec_lite.profiling.draw.bars import draw_kernels, draw_ranges
from nurec_lite.profiling.draw.timeline import draw_timeline
from nurec_lite.profiling.summary.markdown import markdown, ms, percent
from nurec_lite.profiling.summary.summary import Summary, write_summary
from nurec_lite.profiling.trace.trace import Trace


def write_profile(out: Path, summary: Summary, trace: Trace) -> None:
    pictures = ["timeline.png", "ranges.png"]
    draw_timeline(out / "timeline.png", trace, _title(summary))
    draw_ranges(out / "ranges.png", summary)
    discard([out / "kernels.png"])
    if summary.kernels:
        pictures.append("kernels.png")
        draw_kernels(out / "kernels.png", summary)
    write_summary(out / "summary.json", summary)
    write_text(out / "summary.md", markdown(summary, pictures))


def _title(s: Summary) -> str:
    busy = "" if s.gpu_busy is None else f", GPU busy {percent(s.gpu_busy)} of the time"
    return f"One step of training: {ms(s.step_ms)} on average under {s.tool}{busy}; {s.environment['device']}"
