# SPDX-License-Identifier: Apache-2.0
"""Contents of a profile's pictures and tables."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from recorded import US, two_steps

from nurec_lite.base.nvtx import STAGES
from nurec_lite.profiling.draw.bars import HOST, KERNELS, draw_kernels, draw_ranges, launched
from nurec_lite.profiling.draw.canvas import GREY, SCALE, WAIT, Canvas, stage_colours, stage_of
from nurec_lite.profiling.draw.timeline import (
    LABELS,
    ROW,
    TOP,
    WIDTH,
    draw_timeline,
    median_step,
    named_colours,
    rows_of,
)
from nurec_lite.profiling.summary.digest import started
from nurec_lite.profiling.summary.markdown import KERNELS as TABLE
from nurec_lite.profiling.summary.markdown import first, markdown, number
from nurec_lite.profiling.summary.summarise import Taken, summarise
from nurec_lite.profiling.summary.summary import KernelTime, Summary
from nurec_lite.profiling.trace.trace import KERNEL, Work

WINDOW = {"environment": {"device": "a GPU", "torch": "2.13"}, "steps": 2, "peak_bytes": 3 << 20}


@pytest.fixture
def summary() -> Summary:
    return summarise(two_steps(), Taken("nsys", "2025.3", "python -m nurec_lite.profile", WINDOW, {"a.py:1": 2}))


# ---- timeline


def test_the_median_step() -> None:
    trace = two_steps()
    assert median_step(trace) == trace.steps[0], "the first of two that are equal"
    late = Work(KERNEL, "late", 2100 * US, 2200 * US, 14, 7)
    assert median_step(replace(trace, works=(*trace.works, late))) == trace.steps[0], "the lower one of two"


def test_rows_of_a_step() -> None:
    trace = two_steps()
    colours = stage_colours([r.name for r in trace.ranges])
    rows, end = rows_of(trace, trace.steps[1], colours)
    texts = [(row.label, [block.text for block in row.blocks]) for row in rows]
    assert end == 2000 * US
    assert texts == [
        ("host, ranges", ["step"]),
        ("", ["render_camera", "backward", "report"]),
        ("", ["blend"]),
        ("host, other thread", ["render"]),
        ("host waits", ["", ""]),
        ("GPU, kernels", ["project", "blend", "renderBackward", "add"]),
        ("GPU, copies, sets", ["memset", "device to host, pageable"]),
    ]
    kernels = {block.text: block.colour for block in rows[5].blocks}
    assert kernels["blend"] == colours["render_camera"] and kernels["add"] == colours["backward"]


def test_what_the_step_before_left_to_the_gpu_is_grey() -> None:
    trace = two_steps()
    late = Work(KERNEL, "late", 900 * US, 1100 * US, 4, 7)
    rows, _ = rows_of(
        replace(trace, works=(*trace.works, late)), trace.steps[1], stage_colours([r.name for r in trace.ranges])
    )
    (block,) = [block for row in rows for block in row.blocks if block.text == "late"]
    assert block.colour == GREY


def test_kernels_of_a_recording_have_colours_by_name(tmp_path: Path) -> None:
    """Its range is `graph`, with any kernels. A kernel outside keeps the colour of its stage."""
    trace = two_steps()
    recorded = replace(
        trace,
        ranges=tuple(
            replace(r, name=r.name.replace("render_camera", "graph").replace("backward", "graph")) for r in trace.ranges
        ),
    )
    colours = stage_colours([r.name for r in recorded.ranges])
    names = named_colours(started(recorded), colours.values())
    assert set(names) == {"project", "blend", "renderBackward", "add"}
    assert len({*names.values(), *colours.values()}) == len(names) + len(colours)
    rows, _ = rows_of(recorded, recorded.steps[1], colours, names)
    assert {block.text: block.colour for block in rows[5].blocks} == names
    draw_timeline(tmp_path / "timeline.png", recorded, "a step")
    assert (np.asarray(Image.open(tmp_path / "timeline.png")) == names["renderBackward"]).all(-1).any()
    assert named_colours(started(trace), ()) == {}


def test_the_gpus_last_work_lies_in_the_picture() -> None:
    trace = two_steps()
    late = Work(KERNEL, "late", 2100 * US, 2200 * US, 14, 7)
    _, end = rows_of(
        replace(trace, works=(*trace.works, late)), trace.steps[1], stage_colours([r.name for r in trace.ranges])
    )
    assert end == 2200 * US


def test_streams_have_rows_of_their_own() -> None:
    trace = two_steps()
    works = tuple(replace(w, stream=9) if w.name == "add" else w for w in trace.works)
    rows, _ = rows_of(replace(trace, works=works), trace.steps[0], stage_colours([r.name for r in trace.ranges]))
    assert [row.label for row in rows if row.label.startswith("GPU, stream")] == ["GPU, stream 7", "GPU, stream 9"]


def test_waits_are_where_they_happened(tmp_path: Path) -> None:
    """The copy waits from 810 to 840 of 1000 microseconds; the row is the fifth."""
    draw_timeline(tmp_path / "timeline.png", two_steps(), "a step")
    pixels = np.asarray(Image.open(tmp_path / "timeline.png"))
    row = pixels[round((TOP + 4.5 * ROW) * SCALE)]
    red = np.flatnonzero((row == WAIT).all(-1)) / SCALE
    expected = [LABELS + share * (WIDTH - LABELS - 24) for share in (0.810, 0.845)]
    assert red.min() == pytest.approx(expected[0], abs=1.5) and red.max() == pytest.approx(expected[1], abs=1.5)


# ---- bars and canvas


def test_length_of_bars(tmp_path: Path, summary: Summary) -> None:
    """The step takes 1 ms on the host, render_camera 0.3."""
    draw_ranges(tmp_path / "ranges.png", summary)
    pixels = np.asarray(Image.open(tmp_path / "ranges.png"))
    lengths = [(row == HOST).all(-1).sum() for row in pixels[84 * SCALE + 12 :: 24 * SCALE][:2]]
    assert lengths[1] / lengths[0] == pytest.approx(0.3, abs=0.01)


def test_kernels_beyond_the_chart_are_one_bar(tmp_path: Path, summary: Summary) -> None:
    many = tuple(KernelTime(f"k{i}", 1.0, 1.0, None, None, None, None) for i in range(KERNELS + 5))
    draw_kernels(tmp_path / "a.png", replace(summary, kernels=many))
    draw_kernels(tmp_path / "b.png", replace(summary, kernels=many[:KERNELS]))
    heights = [Image.open(tmp_path / name).height for name in ("a.png", "b.png")]
    assert heights[0] - heights[1] == 24 * SCALE


def test_long_names_lose_their_middle() -> None:
    canvas = Canvas(100, 20)
    shown = canvas.fitting("at::native::vectorized_elementwise_kernel", 12, 120)
    assert shown.startswith("at::") and shown.endswith("kernel") and "…" in shown and canvas.length(shown, 12) <= 120
    assert canvas.fitting("short", 12, 120) == "short"


def test_stages_and_their_colours() -> None:
    names = ["step", "step/a", "step/a/b", "step/c", None]
    assert [stage_of(name) for name in names] == ["rest of the step", "a", "a", "c", "outside ranges"]
    colours = stage_colours(names)
    assert list(colours) == ["a", "c", "rest of the step", "outside ranges"] and len(set(colours.values())) == 4


def test_a_stage_has_one_colour_in_all_pictures() -> None:
    """The colour is that of its range in nsys, beside anything else in the picture."""
    names = [f"step/{stage}" for stage in STAGES if stage != "step"]
    first, last = stage_colours([*names, "step/other"]), stage_colours(["step/another", *reversed(names)])
    assert {stage: first[stage] for stage in STAGES if stage != "step"} == {
        stage: last[stage] for stage in STAGES if stage != "step"
    }
    assert first["render_camera"] == (0x26, 0x6E, 0xB0) and len(set(first.values())) == len(first)


def test_launches_in_words() -> None:
    assert [launched(n) for n in (1, 0, 2.5)] == ["1 launch", "0 launches", "2.5 launches"]


# ---- summary.md


def test_first_sentences(summary: Summary) -> None:
    assert first(summary) == [
        "A step took 1 ms while it was recorded (2 steps, 1 to 1 ms).",
        "Something ran on the GPU for 36.5 % of the time, and it idled 0.635 ms a step; the longest gap is 0.305 ms, with the "
        "host in step.",
        "Times a step that the host waited for the GPU: 1, most often at a.py:1.",
        "Kernels a step: 4; copies: 1, of 8 B in all.",
        "The longest stage on the GPU is step/render_camera, 0.22 ms a step.",
        "The kernel with the most time is `renderBackward`, 0.15 ms a step, 42.9 % of all kernels' time.",
    ]


def test_tables(summary: Summary) -> None:
    text = markdown(summary, ["timeline.png"])
    for line in (
        "![timeline](timeline.png)", "| GPU busy | 36.5 % |", "| memory at most in the window, MiB | 3 |",
        "| step/backward/render | 1 | 0.1 | 0.15 | 1 |", "| `blend` | 1 | 0.1 | 64 | 1,024 + 512 | step/render_camera/blend |",
        "| cudaStreamSynchronize | 1 | 0.004 | a.py:1 (1 a step) |", "| memset | 1 | 4,096 | 0.01 |",
        "| 0.825 | 0.305 | step |", "- torch: 2.13",
    ):  # fmt: skip
        assert line in text.splitlines(), line
    assert "occupancy" not in text


def test_what_is_unknown_is_not_written_as_zero(summary: Summary) -> None:
    kernel = KernelTime("k|1", 1.0, 1.0, None, None, None, None)
    changed = replace(summary, kernels=(kernel,) * (TABLE + 2), peak_bytes=None, estimates=("kernels.occupancy",))
    text = markdown(changed, [])
    assert r"| `k\|1` | 1 | 1 | unknown | unknown | no range | unknown |" in text
    assert "| memory at most in the window, MiB | unknown |" in text
    assert "2 more kernels are in summary.json." in text
    assert "- Estimated by nsys, not counted: kernels.occupancy." in text


def test_numbers() -> None:
    assert [number(v) for v in (None, 0.0, 0.12345, 999.96, 1234.5)] == ["unknown", "0", "0.1235", "1000", "1,234"]
