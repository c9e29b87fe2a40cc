# SPDX-License-Identifier: Apache-2.0
"""Parts that fail: no finding about a capture, and no drawing of one, costs metrics, report or exit status."""

import json
import logging
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from shell import Ended, Shell, Train
from torch import Tensor

from nurec_lite.base.left_out import LeftOut
from nurec_lite.capture.checks import run, trust
from nurec_lite.capture.types import CaptureError
from nurec_lite.evaluation import each_frame
from nurec_lite.evaluation.ahead import IMAGE, DecodedAhead

BROKEN = "a fault on purpose"
# where the fault is, and how the sentence begins
MEASURING = {
    "evaluation.metrics.ssim": "SSIM failed",
    "evaluation.metrics.actor_crops": "PSNR of moving actors failed",
    "evaluation.metrics.chamfer": "The Chamfer distance failed",
    "evaluation.measure.corrections": "A summary of the figures failed",
    "evaluation.measure._drawn": "The choice of images that are drawn failed",
    "evaluation.measure.to_picture": "A picture of an image failed",
    "evaluation.drawing.comparison": "A picture of an image failed",
    "evaluation.drawing.range_picture": "A picture of a sweep failed",
}
FINDINGS = {
    "capture.checks.alignment.image_edges": "The check of cameras and sweeps failed",
    "evaluation.findings._lacking": "The search for missing parts of the capture failed",
    "evaluation.findings._dark": "The search for dark images failed",
    "evaluation.findings.findings": "The search for oddities of the capture failed",
}
REPORT = {
    "report.charts.line_chart": "The section training of the report failed",
    "report.views._image": "The section images of the report failed",
    "report.views._sweep": "The section sweeps of the report failed",
    "report.sections.frame_chart": "The section frames of the report failed",
    "report.sections.changes": "The section configuration of the report failed",
    "report.sections._tile": "The head of the report failed",
    "report.sections._actors": "The section summary of the report failed",
    "report.page.document": "The report failed",
    "report.page.write_frames": "The table frames.csv failed",
}


def break_(monkeypatch: pytest.MonkeyPatch, places: list[str], error: Exception | None = None) -> None:
    def fails(*args: Any, **keys: Any) -> Any:
        raise error or RuntimeError(BROKEN)

    for place in places:
        module, _, name = place.rpartition(".")
        monkeypatch.setattr(import_module(f"nurec_lite.{module}"), name, fails)
        if place == "report.charts.line_chart":
            monkeypatch.setattr(import_module("nurec_lite.report.views"), name, fails)
    monkeypatch.setattr(trust, "verdicts", run.verdicts)  # not those that this process remembers


def assert_said(ended: Ended, out: Path, sentences: set[str]) -> dict[str, Any]:
    """Code 0, metrics that hold the sentences, which were printed."""
    assert ended.code == 0, ended.error
    metrics: dict[str, Any] = json.loads((out / "metrics.json").read_text())
    assert metrics["psnr"] > 5 and metrics["lidar_median_abs_m"] > 0
    for sentence in sentences:
        assert [found for found in metrics["findings"] if found.startswith(sentence) and BROKEN in found], sentence
        assert sentence in ended.out
    return metrics


@pytest.mark.parametrize(
    "part", ["evaluation.findings.findings", "capture.checks.alignment.image_edges", "report.page.document"]
)
def test_one_part_of_a_training(part: str, train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, sentence = tmp_path / "out", (MEASURING | FINDINGS | REPORT)[part]
    break_(monkeypatch, [part])
    ended = train(f"out={out}", "train.steps=1", "train.evaluate=true")
    metrics = assert_said(ended, out, {sentence})
    assert metrics["ssim"] > 0 and metrics["chamfer_m"] > 0 and len(list((out / "pictures").iterdir())) > 3
    assert (out / "report.html").exists() == (part != "report.page.document")


# faults that hide others where all fail at once
HIDING = {
    "evaluation.findings.findings",
    "report.page.document",
    "evaluation.measure._drawn",
    "evaluation.drawing.comparison",
}
MOST = [place for place in (*MEASURING, *FINDINGS, *REPORT) if place not in HIDING]
HIDDEN = {"report.views._image", "report.views._sweep"}  # where others fail
SAID = {
    sentence for place, sentence in (MEASURING | FINDINGS | REPORT).items() if place in MOST and place not in HIDDEN
}


def test_every_part_of_a_training(train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    break_(monkeypatch, MOST)
    ended = train(f"out={out}", "train.steps=1", "train.evaluate=true")
    metrics = assert_said(ended, out, SAID)
    assert metrics["ssim"] is metrics["chamfer_m"] is None and metrics["psnr_per_actor"] == {}
    page = (out / "report.html").read_text()
    assert page.count(BROKEN) >= len(SAID) - 1 and 'id="environment"' in page


def test_every_part_of_an_evaluation(shell: Shell, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = trained.parent / "e"
    break_(monkeypatch, [*MOST, "evaluate.trained_on"])
    ended = shell("evaluate", f"checkpoint={trained}", f"out={out}")
    assert_said(ended, out, {*SAID, "The search for frames that were trained on failed"})


@pytest.mark.parametrize(
    "error", [KeyError("k"), CaptureError(BROKEN), MemoryError(), torch.OutOfMemoryError(BROKEN), ZeroDivisionError()]
)
def test_whatever_the_error_is(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    left_out = LeftOut()

    def fails() -> int:
        raise error

    assert left_out.tried("A part", fails) is None
    (sentence,) = left_out.sentences
    assert sentence.startswith("A part failed: ") and sentence.endswith(".") and "\n" not in sentence


def test_a_part_that_fails_again_and_again_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    left_out = LeftOut()
    with caplog.at_level(logging.WARNING):
        for k in range(3):
            assert left_out.tried("The Chamfer distance", lambda: 1 / 0) is None
            assert left_out.tried("SSIM", lambda k=k: k) == k  # type: ignore[misc]
    assert left_out.sentences == ["The Chamfer distance failed 3 times, at first: ZeroDivisionError: division by zero."]
    assert len(caplog.records) == 1


def test_an_interrupt_is_no_failure_of_a_part() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        LeftOut().tried("A part", interrupted)


# ---- frames


def decoded_badly(monkeypatch: pytest.MonkeyPatch, sensor: str, moment: int) -> None:
    """A frame cannot be decoded once training is through."""
    inner = DecodedAhead._content

    def content(self: DecodedAhead, key: tuple[str, int]) -> Any:
        kind, i = key
        frame = (self._capture.images if kind == IMAGE else self._capture.sweeps)[i]
        if (frame.sensor, frame.index) == (sensor, moment):
            return CaptureError(f"image {moment} of {sensor} is {BROKEN}")
        return inner(self, key)

    monkeypatch.setattr(DecodedAhead, "_content", content)


@pytest.mark.parametrize("sensor", ["camera_1", "lidar"])
def test_a_frame_that_cannot_be_measured_costs_no_other(
    sensor: str, train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    decoded_badly(monkeypatch, sensor, 4)
    ended = train(f"out={out}", "train.steps=1", "train.evaluate=true")
    metrics = assert_said(ended, out, {f"Measuring {sensor} frame 4 failed: image 4 of {sensor} is"})
    rows = [line.split(",")[:2] for line in (out / "frames.csv").read_text().splitlines()[1:]]
    wanted = {(name, str(k)) for name in ("camera_0", "camera_1", "lidar") for k in (4, 9)} - {(sensor, "4")}
    assert {tuple(row) for row in rows} == wanted and metrics["psnr"] > 5


def test_a_view_that_cannot_be_rendered_costs_no_other(
    shell: Shell, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launch of several views fails; the others are then rendered one by one."""
    inner, calls = each_frame.render_views_in_batches, list[int]()

    def render_views_in_batches(stages: Any, scene: Any, shots: Any) -> Any:
        some = list(shots)
        calls.append(len(some))
        if any(i == 9 and isinstance(content, Tensor) for (i, content), _ in some):  # an image
            raise RuntimeError(BROKEN)
        return inner(stages, scene, some)

    monkeypatch.setattr(each_frame, "render_views_in_batches", render_views_in_batches)
    out = trained.parent / "e"
    ended = shell("evaluate", f"checkpoint={trained}", f"out={out}")
    failed = [f for f in json.loads((out / "metrics.json").read_text())["findings"] if BROKEN in f]
    assert ended.code == 0 and len(failed) == 1 and failed[0].startswith("Measuring ")
    assert max(calls) > 1 and calls.count(1) >= 3


def test_without_any_frame_the_run_says_so_and_leaves_a_report(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    break_(monkeypatch, ["evaluation.measure._exposure", "evaluation.measure._revolution"])
    ended = train(f"out={out}", "train.steps=1", "train.evaluate=true")
    assert ended.code == 2 and BROKEN in ended.error and "checkpoint.pt is saved" in ended.error
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["steps"] == 1 and "psnr" not in metrics
    assert len([f for f in metrics["findings"] if f.startswith("Measuring ") and " frame " in f and BROKEN in f]) == 6
    assert (out / "report.html").exists()


# ---- render


def test_pictures_of_a_render(
    shell: Shell, trained: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    out = trained.parent / "r"
    break_(monkeypatch, ["render.pair", "render.birds_eye"])
    given = "subset=test", "compare=true", "formats=[png,gif]", f"out={out}"
    ended = shell("render", f"checkpoint={trained}", *given)
    assert ended.code == 0, ended.error
    names = {path.name for path in out.iterdir()}
    assert {"camera_0_0004.png", "camera_1.gif", "lidar_0009.png", "lidar.gif"} <= names
    assert not [name for name in names if "above" in name]
    assert "The comparison of camera_0 0004 failed: RuntimeError" in caplog.text
    assert "The picture of points from above, lidar 0009, failed" in caplog.text


# ---- TensorBoard, options


def test_scalars(train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboard")
    out = tmp_path / "out"
    break_(monkeypatch, ["report.tensorboard._numbers"])
    ended = train(f"out={out}", "train.steps=1", "train.evaluate=true", "train.tensorboard=true")
    assert_said(ended, out, {"Writing scalars for TensorBoard failed"})
    shutil.rmtree(out)
    break_(monkeypatch, ["report.tensorboard.Scalars"])
    ended = train(f"out={out}", "train.steps=1", "train.tensorboard=true")
    assert ended.code == 0 and f"no scalars for TensorBoard: {BROKEN}" in ended.out
