# SPDX-License-Identifier: Apache-2.0
"""Scaling: points of the axes, exponents of the fit, and the page's table and picture."""

import argparse
from typing import Any
from xml.etree import ElementTree

import pytest
from tiny_capture import tiny_capture

from benchmarks.scaling.bench_scaling import check_frames, distinct, keys, points, steps_of
from benchmarks.scaling.scaling_table import exponent, picture, table
from nurec_lite.base.errors import UserError


def row(axis: str, value: int, step_ms: float, **more: Any) -> dict[str, Any]:
    return {
        "axis": axis,
        "value": value,
        "step_ms": step_ms,
        "start_s": 4.0,
        "peak_bytes": 3e9,
        "gaussians": 1000,
        **more,
    }


ROWS = [
    row("pixels", 4, 1.0), row("pixels", 2, 4.0), row("pixels", 1, 16.0),
    row("gaussians", 900, 8.0, gaussians=800), row("gaussians", 100, 2.0, gaussians=200),
]  # fmt: skip


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_the_exponent_of_a_power_is_that_power(power: float) -> None:
    assert exponent([1.0, 3.0, 10.0], [7 * x**power for x in (1.0, 3.0, 10.0)]) == pytest.approx(power)


def test_the_table_has_a_line_an_axis_with_measured_sizes_and_exponents() -> None:
    lines = table(ROWS).splitlines()
    assert lines[2].startswith("|pixels, share of all|0.0625, 0.25, 1|1.00, 4.00, 16.00 ms|1.00|4.0, 4.0, 4.0 s|0.00|")
    assert lines[3].startswith("|Gaussians|200, 800|2.00, 8.00 ms|1.00|")


def test_the_picture_has_a_curve_for_each_axis_and_measure() -> None:
    drawn = ElementTree.fromstring(picture(ROWS))
    curves = [line for line in drawn.iter("{http://www.w3.org/2000/svg}polyline") if line.get("stroke-width")]
    assert len(curves) == 2 * 3


def test_one_axis_varies_at_a_time() -> None:
    args = argparse.Namespace(frames=[50, 20], pixels=[4, 2, 1], rays=[10, 20, 30], gaussians=[1000], gpus=[1, 2])
    found = list(points(args))
    assert [axis for axis, _ in found] == ["frames"] * 2 + ["pixels"] * 3 + ["rays"] * 3 + ["gpus"] * 2
    assert found[3][1] == {"frames": 50, "pixels": 2, "rays": 20, "gaussians": 1000, "gpus": 1}
    assert found[1][1] == {"frames": 20, "pixels": 2, "rays": 20, "gaussians": 400, "gpus": 1}  # a shorter drive
    assert "data.frames=[0,50]" in keys(found[3][1]) and "data.downscale=2" in keys(found[3][1])


def test_runs_take_two_passes_over_their_images() -> None:
    """A mean over the first pass would grow with the frames: its steps wait for the decoder."""
    point = {"frames": 50, "pixels": 2, "rays": 20, "gaussians": 1000, "gpus": 1}
    assert steps_of(point, 300, 6) == 600 and steps_of(point | {"gpus": 2}, 200, 6) == 600
    assert steps_of(point, 700, 6) == 700


def test_more_frames_than_there_are_are_refused() -> None:
    """All runs would have the same frames, and an exponent of nothing."""
    capture = tiny_capture()
    moments = len({*capture.moments.images, *capture.moments.sweeps})
    check_frames(capture, [moments, 2])
    with pytest.raises(
        UserError, match=rf"--frames {moments + 1}: .* has {moments}; give fewer, as in --frames {moments} "
    ):
        check_frames(capture, [2, moments + 1])


def test_sizes_that_come_twice_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    """A capture may have no more points than the smallest run asks for."""
    rows = [row("gaussians", n, 1.0, gaussians=size) for n, size in ((100, 90), (300, 250), (900, 250))]
    rows += [row("frames", 8, 1.0), row("frames", 4, 1.0)]
    assert [(found["axis"], found["value"]) for found in distinct(rows)] == [
        ("gaussians", 100), ("gaussians", 300), ("frames", 8), ("frames", 4),
    ]  # fmt: skip
    assert "--gaussians 900 gives 250 again" in capsys.readouterr().err
    assert distinct(rows[1:3]) == []
