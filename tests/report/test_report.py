# SPDX-License-Identifier: Apache-2.0
"""The page: valid, whole without a network, escaped, complete, and fit for incomplete runs."""

import base64
import io
import math
import re
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import torch
from html_page import Page, assert_whole
from PIL import Image
from tiny_capture import tiny_capture, tiny_config, tiny_scene

from nurec_lite.cli.command import composed
from nurec_lite.config import DataConfig, EvaluateConfig, TrainConfig
from nurec_lite.evaluation.beside_path import DrawnBeside
from nurec_lite.evaluation.drawing import FrameFigures
from nurec_lite.evaluation.measure import Evaluation, evaluate, held_out
from nurec_lite.evaluation.pictures import MEASURED, RENDERED, range_picture
from nurec_lite.evaluation.results import FIGURES, table
from nurec_lite.report.content import Report
from nurec_lite.report.lidar import BOTH, CELLS, from_above, range_maps
from nurec_lite.report.page import page
from nurec_lite.report.parts import MAX_WIDTH, image
from nurec_lite.report.settings import Command, commands_after_evaluate
from nurec_lite.training.baseline import reference_stages

NASTY = "<b>&\"'"


@lru_cache(maxsize=1)
def measured() -> Evaluation:
    capture = tiny_capture()
    return evaluate(reference_stages(), tiny_scene(), capture, held_out(capture))


def history(n: int = 40) -> list[dict[str, float]]:
    return [
        {"step": k, "seconds": 0.5 * k, "gaussians": 500 + k, "psnr": 10 + k / 10, "image": 1 / k, "exposure": 1e-6 * k}
        for k in range(1, n + 1)
    ]


def report(**changed: Any) -> Report:
    found = changed.pop("evaluation", measured())
    metrics: dict[str, Any] = (
        {} if found is None else found.metrics | {"psnr_actors": 20.25, "psnr_per_actor": {"7": 20.25}}
    )
    metrics |= {
        "gaussians": 540,
        "steps": 40,
        "seconds_train": 20.0,
        "seconds_total": 21.5,
        "device": "cpu",
        "commit": None,
    }
    content = {
        "capture": "tiny", "config": tiny_config(), "metrics": metrics, "evaluation": found, "history": history(),
        "environment": {"torch": "2.0"}, "commands": [Command("again", "python -m nurec_lite.train")],
    }  # fmt: skip
    return Report(**(content | changed))


# The whole page


def test_the_page_is_valid_and_whole() -> None:
    text = page(report())
    parsed = assert_whole(text)
    assert (
        text.startswith("<!DOCTYPE html>\n<html")
        and parsed.all("html", lang="en")
        and parsed.all("meta", charset="utf-8")
    )
    assert len(parsed.all("h1")) == 1 and "prefers-color-scheme: dark" in text
    assert [a["id"] for a in parsed.all("section")] == [
        "summary", "images", "lidar", "training", "frames", "configuration", "commands", "environment",
    ]  # fmt: skip
    assert {a["href"] for a in parsed.all("a")} == {f"#{a['id']}" for a in parsed.all("section")}


def test_views_from_beside_the_path_have_their_figures() -> None:
    drawn = DrawnBeside("camera_0", 4, "left", {d: np.full((6, 8, 3), 50 * d, np.uint8) for d in range(4)})
    metrics = report().metrics | {
        "lidar_beside_0m": 0.0351,
        "lidar_beside_3m": 0.25,
        "notes": ["LPIPS is left out: <why>."],
    }
    text = page(report(evaluation=replace(measured(), beside=drawn), metrics=metrics))
    parsed = assert_whole(text)
    assert [a["alt"] for a in parsed.all("img") if "to the left" in (a["alt"] or "")] == [
        f"camera_0, frame 4, {d} m to the left" for d in (1, 2, 3)
    ]  # fmt: skip
    assert "Off the path" in parsed.texts and "LPIPS is left out: <why>." in parsed.texts
    assert "0.035" in parsed.texts and "boxes found again" not in parsed.texts


def test_every_metric_stands_in_the_summary() -> None:
    content = report()
    parsed = Page(page(content))
    assert set(content.metrics) - {"psnr_per_actor"} <= {f.key for f in FIGURES}
    for figure in (f for f in FIGURES if f.key in content.metrics):
        assert figure.key in parsed.texts and any(text.startswith(figure.meaning) for text in parsed.texts)
        assert f"{figure.text(content.metrics[figure.key])} {figure.unit}".strip() in parsed.text
    met = content.metrics["lidar_opacity_half"]
    assert f"rays that meet nothing count as 80 m ({100 * (1 - met):.1f} % do)" in parsed.text
    assert "psnr_per_actor" in parsed.texts and "20.25" in parsed.texts


def test_a_camera_and_a_lidar_of_one_name() -> None:
    found = measured()
    frames = (FrameFigures("x", 4, psnr=20.0, ssim=0.8), FrameFigures("x", 9, lidar_median_abs_m=0.1))
    content = report(evaluation=replace(found, frames=frames))
    assert "x, PSNR" in page(content) and "x, median error" in page(content) and content.left_out.sentences == []


def test_equal_contents_make_equal_pages() -> None:
    assert page(report()) == page(report())


def test_what_comes_from_outside_is_escaped() -> None:
    found = measured()
    nasty = FrameFigures(NASTY, 4, psnr=1.0, ssim=1.0)
    images = tuple(replace(drawn, figures=nasty) for drawn in found.images)
    config = replace(tiny_config(), data=DataConfig(kind="pack", root=NASTY), out=NASTY)
    plain = report()
    metrics = plain.metrics | {"psnr_per_actor": {NASTY: 3.0}, "device": NASTY, "checkpoint": NASTY}
    content = report(
        capture=NASTY, config=config, metrics=metrics, environment={NASTY: NASTY}, commands=[Command(NASTY, NASTY)],
        evaluation=replace(found, images=images, frames=(nasty,)), history=[history(1)[0] | {NASTY: 1.0}],
    )  # fmt: skip
    parsed = assert_whole(page(content))
    assert not parsed.all("b")
    assert parsed.text.count(NASTY) > 10
    assert any(NASTY in (a["alt"] or "") for a in parsed.all("img"))
    assert NASTY in [text.strip() for text in parsed.texts]  # the heading


def test_what_is_odd_about_the_capture_comes_first() -> None:
    plain = report()
    parsed = assert_whole(page(replace(plain, metrics=plain.metrics | {"findings": [NASTY, "No lidar"]})))
    assert parsed.all("section")[0]["id"] == "findings" and not parsed.all("b")
    assert [text for text in parsed.texts if text in (NASTY, "No lidar")] == [NASTY, "No lidar"]
    assert not Page(page(replace(plain, metrics=plain.metrics | {"findings": []}))).all("section", id="findings")


def test_a_run_that_measured_nothing_has_a_page() -> None:
    parsed = assert_whole(page(report(evaluation=None)))
    ids = {a["id"] for a in parsed.all("section")}
    assert not ids & {"images", "lidar", "frames"} and "training" in ids
    assert not parsed.all("img") and not parsed.all("circle")
    assert "psnr" not in parsed.texts


def test_without_sweeps_and_history() -> None:
    found = measured()
    images = tuple(f for f in found.frames if f.psnr is not None)
    nothing = {key: math.nan for key in found.metrics if key.startswith(("lidar", "chamfer", "drop", "intensity"))}
    content = report(evaluation=replace(found, sweeps=(), frames=images), history=[])
    parsed = assert_whole(page(replace(content, metrics=content.metrics | nothing)))
    assert not {a["id"] for a in parsed.all("section")} & {"lidar", "training"}
    assert "–" in parsed.text and "nan" not in parsed.text
    assert "– m" not in parsed.text


@pytest.mark.parametrize("value", [math.nan, None, math.inf])
def test_any_metric_may_be_missing(value: float | None) -> None:
    content = report()
    numbers = {key for key, v in content.metrics.items() if isinstance(v, float)} - {"seconds_train"}
    text = page(replace(content, metrics=content.metrics | dict.fromkeys(numbers, value) | {"psnr_per_actor": {}}))
    parsed = assert_whole(text)
    assert "nan" not in parsed.text and "None" not in parsed.text
    assert ("∞" in parsed.text) == (value == math.inf)
    assert not parsed.all("circle", **{"class": "mark"}) and "NaN" not in text and 'y="nan"' not in text


@pytest.mark.parametrize("n", [1, 2, 400])
def test_a_history_of_any_length(n: int) -> None:
    parsed = assert_whole(page(report(history=history(n))))
    curves = parsed.all("polyline")
    assert len(curves) == 4 and all(len((c["points"] or "").split()) == n for c in curves)


def test_a_broken_loss_leaves_a_gap() -> None:
    rows = history(9)
    rows[3]["image"] = math.nan
    del rows[4]["image"]
    parsed = assert_whole(page(report(history=rows)))
    assert [len((c["points"] or "").split()) for c in parsed.all("polyline")] == [9, 7, 9, 9]


def test_the_wipe_shows_both_images_and_works_without_script() -> None:
    text = page(report())
    parsed = Page(text)
    assert len(parsed.all("input", type="range")) == len(measured().images) == 4
    assert all("hidden" in a and a["aria-label"] for a in parsed.all("input"))  # shown by the script
    for drawn in measured().images:
        name = f"{drawn.figures.sensor}, frame {drawn.figures.index}"
        for kind, expected in (("ground truth", drawn.truth), ("rendered", drawn.rendered)):
            (element,) = parsed.all("img", alt=f"{name}, {kind}")
            assert np.array_equal(decoded(element["src"]), expected)


# Pictures


def decoded(source: str | None) -> np.ndarray:
    assert source is not None
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(source.partition("base64,")[2]))))


def embedded(picture: np.ndarray, **options: Any) -> np.ndarray:
    return decoded(Page(image(picture, "a", **options)).all("img")[0]["src"])


def test_large_images_are_reduced_and_compressed_unless_they_are_exact() -> None:
    picture = np.random.default_rng(0).integers(0, 256, (31, 1600, 3), dtype=np.uint8)
    picture[:, ::2] = 128
    assert embedded(picture).shape == (25, MAX_WIDTH, 3)
    assert np.array_equal(embedded(picture, exact=True), picture)
    tall = np.zeros((400, 700, 3), np.uint8)
    assert 'src="data:image/jpeg' in image(tall, "a") and 'width="700" height="400"' in image(tall, "a")


def test_images_of_kitti_keep_the_page_below_10_mb() -> None:
    """Six of them at full size, with as much detail as a street has: noise of that size would be twice as large."""
    generator = np.random.default_rng(0)
    coarse = Image.fromarray(generator.integers(0, 256, (188, 621, 3), dtype=np.uint8))
    picture = np.asarray(coarse.resize((1242, 375), Image.Resampling.BILINEAR))
    drawn = replace(measured().images[0], truth=picture, rendered=np.roll(picture, 1, axis=1))
    assert len(page(report(evaluation=replace(measured(), images=(drawn,) * 6)))) < 10e6


def test_range_maps_show_what_the_picture_shows() -> None:
    drawn = measured().sweeps[0]
    picture = range_picture(drawn.sweep, drawn.returns, drawn.lidar)
    maps = range_maps(drawn)
    assert [m.title for m in maps] == ["measured range", "rendered range", "absolute error"]
    rows, columns = (size // part for size, part in zip(picture.shape[:2], maps[0].picture.shape[:2], strict=True))
    height = (picture.shape[0] - 2 * 3) // 3
    for k, shown in enumerate(maps):
        strip = picture[k * (height + 3) + 24 :][: height - 24]
        vertical = len(strip) // len(shown.picture)
        assert rows >= vertical and np.array_equal(strip[::vertical, ::columns], shown.picture)


def test_points_from_above() -> None:
    drawn = measured().sweeps[0]
    ahead, left = [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]
    three = torch.tensor([ahead, left, left])
    ring, hit = torch.zeros(3).long(), torch.tensor([True, True, False])
    sweep = replace(
        drawn.sweep, directions=three, ranges=torch.tensor([9.0, 5.0, 0.0]), intensities=torch.zeros(3),
        times=torch.zeros(3).double(), rings=ring, returned=hit,
    )  # fmt: skip
    median, zero = torch.tensor([9.02, 0.0, 7.0]), torch.zeros(3)
    returns = replace(drawn.returns, median=median, features=zero.expand(2, -1).T, transmittance=zero)
    picture, reach = from_above(replace(drawn, sweep=sweep, returns=returns))
    assert reach == 10
    cell = 2 * reach / CELLS

    def colour(x: float, y: float) -> tuple[int, ...]:
        return tuple(picture[int((reach - x) / cell), int((reach - y) / cell)].tolist())

    assert (colour(9.0, -0.01), colour(0, 5.0), colour(0, 7.0)) == (BOTH, MEASURED, RENDERED)


def test_a_sweep_in_which_nothing_returned() -> None:
    drawn = measured().sweeps[0]
    nothing = replace(drawn.sweep, returned=drawn.sweep.returned & False, ranges=drawn.sweep.ranges * 0)
    figures = replace(drawn.figures, lidar_median_abs_m=math.nan)
    empty = replace(drawn, sweep=nothing, figures=figures)
    parsed = assert_whole(page(report(evaluation=replace(measured(), sweeps=(empty,), frames=(figures,)))))
    assert "nothing returned" in parsed.text


# The configuration


def test_marked_lines_are_those_that_differ() -> None:
    config = composed("train", ["train.seconds=20", "data.frames=[0,20]", "out=x"])
    text = page(report(config=config))
    marked = re.findall(r"<mark>(.*?)</mark>", text)
    assert [line.strip() for line in marked] == ["frames:", "- 0", "- 20", "seconds: 20.0"]


def test_the_page_of_the_verb_evaluate() -> None:
    config = EvaluateConfig(checkpoint="runs/x/checkpoint.pt", subset="train", train=TrainConfig(steps=1))
    commands = commands_after_evaluate(config, ["checkpoint=runs/x/checkpoint.pt", "data.frames=[0,9]"])
    parsed = assert_whole(page(report(config=config, commands=commands)))
    assert "python -m nurec_lite.evaluate checkpoint=runs/x/checkpoint.pt 'data.frames=[0,9]'" in parsed.texts
    assert "training frames" in parsed.text and "held-out" not in parsed.text


def test_the_terminal_leaves_out_what_was_not_measured() -> None:
    text = table({"psnr": 20.0, "ssim": math.nan, "chamfer_m": None, "gaussians": 12345})
    assert [line.split() for line in text.splitlines()] == [["PSNR", "20.00", "dB"], ["Gaussians", "12", "345"]]
