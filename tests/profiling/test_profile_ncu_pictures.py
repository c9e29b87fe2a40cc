# SPDX-License-Identifier: Apache-2.0
"""roofline.png and stalls.png: places and colours of kernels, and missing figures."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ncu_page import page, write_page
from PIL import Image

from nurec_lite.profiling.draw.canvas import INK, SCALE
from nurec_lite.profiling.draw.roofline import (
    VERDICTS,
    Ceilings,
    LogAxis,
    axes,
    ceilings,
    draw_roofline,
    longest,
    placed,
)
from nurec_lite.profiling.draw.stalls import ISSUE, draw_stalls, shares
from nurec_lite.profiling.ncu.csv import read_launches
from nurec_lite.profiling.ncu.kernel import Kernel, kernel


@pytest.fixture
def blend(tmp_path: Path) -> Kernel:
    return kernel(read_launches(write_page(tmp_path / "ncu.csv", page({})))[0])


def pixels(path: Path) -> np.ndarray:  # [H, W, 3]
    return np.asarray(Image.open(path).convert("RGB"))


def test_logarithmic_axis() -> None:
    axis = LogAxis(0.05, 500.0, 100, 500)
    assert (
        axis.at(0.05) == pytest.approx(100)
        and axis.at(5.0) == pytest.approx(300)
        and axis.at(500) == pytest.approx(500)
    )
    assert axis.decades() == pytest.approx([0.1, 1, 10, 100])
    assert LogAxis(1.0, 1000.0, 0, 1).decades() == pytest.approx([1, 10, 100, 1000])


def test_ceilings_are_the_highest_of_all_launches(blend: Kernel) -> None:
    slower = replace(blend, peak_flop_per_s=1e13, peak_bytes_per_s=5e12)
    assert ceilings([blend, slower, replace(blend, peak_flop_per_s=None)]) == Ceilings(2e13, 5e12)
    assert Ceilings(2e13, 5e12).ridge == pytest.approx(4.0)
    assert ceilings([replace(blend, peak_bytes_per_s=None)]) is None


def test_a_kernel_lies_at_its_intensity_in_the_colour_of_its_verdict(tmp_path: Path, blend: Kernel) -> None:
    found = [blend, replace(blend, name="other", intensity=0.5, flop_per_s=1e11, verdict="memory-bound")]
    draw_roofline(tmp_path / "roofline.png", found)
    image, peaks = pixels(tmp_path / "roofline.png"), ceilings(found)
    assert peaks is not None
    x, y = axes([(5.0, 5e12), (0.5, 1e11)], peaks)
    for at, verdict in (((5.0, 5e12), "latency-bound"), ((0.5, 1e11), "memory-bound")):
        assert placed(found[verdict == "memory-bound"]) == pytest.approx(at)
        assert tuple(image[round(SCALE * y.at(at[1])), round(SCALE * x.at(at[0]))]) == VERDICTS[verdict]
    roof = image[round(SCALE * y.at(peaks.flop_per_s)), round(SCALE * x.at(4 * peaks.ridge))]
    slope = image[round(SCALE * y.at(0.2 * peaks.bytes_per_s)), round(SCALE * x.at(0.2))]
    assert tuple(roof) == INK and slope.max() < 128


@pytest.mark.parametrize("missing", ["peak_flop_per_s", "flop_per_s", "intensity"])
def test_without_figures_there_is_still_a_picture(tmp_path: Path, blend: Kernel, missing: str) -> None:
    bare = replace(blend, **{missing: None}, verdict=None)
    draw_roofline(tmp_path / "roofline.png", [bare])
    image = pixels(tmp_path / "roofline.png")
    assert image.shape[1] == 2400 and (image == VERDICTS[None]).all(2).any()  # in the legend


def test_more_kernels_than_numbers(tmp_path: Path, blend: Kernel) -> None:
    many = [replace(blend, name=f"kernel {k} ü", intensity=5.0 + 0.01 * k) for k in range(60)]
    draw_roofline(tmp_path / "roofline.png", many)
    assert pixels(tmp_path / "roofline.png").shape == (1360, 2400, 3)


def test_of_many_kernels_those_are_drawn_that_take_most_of_the_time(tmp_path: Path, blend: Kernel) -> None:
    """29 kernels of a millisecond, and a thousand launches of another, which are so short that all together take one."""
    long = [replace(blend, name=f"kernel {k}", ms=1.0) for k in range(29)]
    short = [replace(blend, name="tiny", ms=0.001, intensity=1e-9, flop_per_s=1.0) for k in range(1000)]
    assert longest([*long, *short]) == long  # 29 of 30 ms
    some = [replace(s, ms=0.01) for s in short]
    assert longest([*long, *some]) == [*long, *some]
    assert longest([*long[:5], *short]) == [*long[:5], *short]  # few kernels
    unknown = [*long, *short, replace(blend, ms=None)]
    assert longest(unknown) == unknown
    draw_roofline(tmp_path / "few.png", long)
    draw_roofline(tmp_path / "many.png", [*long, *short])
    few, many = (pixels(tmp_path / f"{name}.png")[140:1220, 190:1520] for name in ("few", "many"))  # the chart alone
    assert np.array_equal(few, many)


def test_shares_of_stalls(blend: Kernel) -> None:
    """1 cycle issues, 12.5 + 4 + 2.5 are stalls."""
    found = shares(blend)
    assert found == pytest.approx({ISSUE: 1 / 20, "long_scoreboard": 12.5 / 20, "barrier": 0.2, "wait": 0.125})
    assert shares(replace(blend, stalls={})) == {}


def test_bars_are_as_long_as_their_shares(tmp_path: Path, blend: Kernel) -> None:
    unknown = replace(blend, name="unknown", ms=None, stalls={})
    draw_stalls(tmp_path / "stalls.png", [blend, unknown])
    image = pixels(tmp_path / "stalls.png")
    row = image[round(SCALE * (108 + 13)), round(SCALE * 330) : round(SCALE * 1080)]
    colours, counts = np.unique(row, axis=0, return_counts=True)
    measured = {tuple(c): n / len(row) for c, n in zip(colours.tolist(), counts.tolist(), strict=True)}
    assert sorted(measured.values()) == pytest.approx([0.05, 0.125, 0.2, 0.625], abs=2e-3)
    assert measured[INK] == pytest.approx(0.05, abs=2e-3)
