# SPDX-License-Identifier: Apache-2.0
"""Measuring: the figures of `evaluate`, and the command from the outside."""

import csv
import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_capture import ROOT, TINY, tiny_capture, tiny_config, tiny_scene

import nurec_lite.evaluate
from nurec_lite.base.errors import ConfigError, OutputError
from nurec_lite.base.folders import MARKER
from nurec_lite.capture.pack import write_pack
from nurec_lite.capture.types import Capture
from nurec_lite.config import DataConfig
from nurec_lite.evaluation.measure import PICTURES, _drawn, evaluate, frames_of, held_out, image_of
from nurec_lite.evaluation.metrics import psnr, range_errors, to_json
from nurec_lite.evaluation.trained import trained_on
from nurec_lite.train import run
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.stages import Stages

IMAGE_KEYS = {"psnr", "ssim", "psnr_actors", "psnr_per_actor"}
LIDAR_KEYS = {
    "lidar_median_abs_m", "lidar_mean_abs_m", "lidar_median_sq_m2", "lidar_opacity_half", "intensity_rmse",
    "drop_accuracy", "chamfer_m",
}  # fmt: skip
MIXED = frozenset({"trained_split", "trained_on", "trained_frames"})
COUNTERS = {"gaussians", "steps", "seconds_train", "device", "commit", "split", "subset", "checkpoint", "findings"}


# Figures


def test_frames_of_a_subset() -> None:
    capture = tiny_capture()
    test, train, everything = (frames_of(capture, subset) for subset in ("test", "train", "all"))
    assert test == held_out(capture) and len(test.images) == 4 and len(test.sweeps) == 2
    for kind in ("images", "sweeps"):
        a, b, c = (getattr(frames, kind) for frames in (test, train, everything))
        assert sorted((*a, *b)) == list(c) and not set(a) & set(b)


def test_every_frame_has_its_figures_and_their_mean_is_the_metric() -> None:
    capture = tiny_capture()
    found = evaluate(reference_stages(), tiny_scene(), capture, held_out(capture))
    images, sweeps = [f for f in found.frames if f.psnr is not None], [f for f in found.frames if f.psnr is None]
    assert [(f.sensor, f.index) for f in sweeps] == [("lidar", 4), ("lidar", 9)]
    assert {(f.sensor, f.index) for f in images} == {(c, i) for c in ("camera_0", "camera_1") for i in (4, 9)}
    assert np.mean([f.psnr for f in images]) == pytest.approx(found.metrics["psnr"])
    assert np.mean([f.ssim for f in images]) == pytest.approx(found.metrics["ssim"])
    assert all(f.lidar_median_abs_m is None and f.ssim is not None for f in images)
    low, high = sorted(f.lidar_median_abs_m for f in sweeps)  # type: ignore[type-var]
    assert low <= found.metrics["lidar_median_abs_m"] <= high  # type: ignore[operator]


def test_what_is_drawn_is_what_was_measured() -> None:
    capture, scene = tiny_capture(), tiny_scene()
    found = evaluate(reference_stages(), scene, capture, held_out(capture))
    assert len(found.images) == 4 and len(found.sweeps) == 2
    for drawn, i in zip(found.images, held_out(capture).images, strict=True):
        frame = capture.images[i]
        assert (drawn.figures.sensor, drawn.figures.index) == (frame.sensor, frame.index)
        assert np.array_equal(drawn.truth, frame.load().numpy())
        rendered = image_of(reference_stages(), scene, capture, frame)
        assert np.abs(drawn.rendered / 255 - rendered.numpy()).max() <= 0.5 / 255 + 1e-6
        assert drawn.figures.psnr == pytest.approx(psnr(rendered, frame.load()))


@pytest.mark.parametrize(("cameras", "moments"), [(1, 31), (2, 2), (3, 33), (7, 5), (1, 1)])
def test_whole_moments_that_spread_over_the_drive_are_drawn(cameras: int, moments: int) -> None:
    frame = tiny_capture().images[0]
    frames = [replace(frame, sensor=f"c{c}", index=5 * k + 4) for k in range(moments) for c in range(cameras)]
    shown = [frames[i] for i in _drawn(frames, [f.index for f in frames], tuple(range(len(frames))), PICTURES)]
    indices = {f.index for f in shown}
    assert len(shown) == len(indices) * cameras <= max(PICTURES, cameras)
    assert len(indices) == min(moments, max(1, PICTURES // cameras))
    assert min(indices) == 4 and (len(indices) == 1 or max(indices) == 5 * moments - 1)


def test_nothing_is_drawn_of_nothing() -> None:
    assert _drawn(tiny_capture().images, tiny_capture().moments.images, (), PICTURES) == set()


def test_a_ray_that_meets_nothing_counts_as_80_m() -> None:
    assert range_errors(torch.tensor([0.0, 5.0]), torch.tensor([30.0, 6.0])).tolist() == [50, 1]


def test_no_frames_give_nan() -> None:
    capture = tiny_capture()
    found = evaluate(reference_stages(), tiny_scene(), capture, replace(held_out(capture), images=(), sweeps=()))
    assert found.frames == found.images == found.sweeps == ()
    assert found.metrics.pop("psnr_per_actor") == {}
    assert all(math.isnan(value) for value in found.metrics.values())  # type: ignore[arg-type]


# The command


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Checkpoint of a run of two steps, and its metrics."""
    folder = tmp_path_factory.mktemp("evaluate")
    write_pack(tiny_capture(), folder / "tiny.pack", image_format="png")
    data = DataConfig(kind="pack", root=str(folder / "tiny.pack"))
    metrics = run(tiny_config(steps=2, out=str(folder / "run"), data=data))
    return folder / "run" / "checkpoint.pt", metrics


def measured(checkpoint: Path, folder: str, *arguments: str, more: frozenset[str] = frozenset()) -> dict[str, Any]:
    nurec_lite.evaluate.work([f"checkpoint={checkpoint}", "device=cpu", *arguments])
    metrics = json.loads((checkpoint.parent / folder / "metrics.json").read_text())
    assert set(metrics) == IMAGE_KEYS | LIDAR_KEYS | COUNTERS | more
    return metrics


def figures(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "frames.csv").read_text().splitlines()))


def test_the_verb_measures_what_the_run_measured(
    trained: tuple[Path, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint, before = trained
    metrics = measured(checkpoint, "evaluate-interp-test-step2")
    out, printed = checkpoint.parent / "evaluate-interp-test-step2", capsys.readouterr().out
    same = IMAGE_KEYS | LIDAR_KEYS | {"gaussians", "steps", "seconds_train", "device"}
    assert {key: metrics[key] for key in same} == to_json({key: before[key] for key in same})
    assert (metrics["split"], metrics["subset"], metrics["checkpoint"]) == ("interp", "test", str(checkpoint))
    assert f"results in {out}: metrics.json, frames.csv, report.html, pictures/" in printed
    assert f"{metrics['psnr']:.2f} dB" in printed and f"{metrics['chamfer_m']:.3f} m" in printed
    pictures = {p.name: p.read_bytes() for p in (out / "pictures").iterdir()}
    assert pictures == {p.name: p.read_bytes() for p in (checkpoint.parent / "pictures").iterdir()}
    assert len(pictures) == 6
    assert (out / "frames.csv").read_bytes() == (checkpoint.parent / "frames.csv").read_bytes()
    assert (out / "report.html").read_text().startswith("<!DOCTYPE html>")


def test_a_split_without_sweeps(trained: tuple[Path, dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    metrics = measured(trained[0], "evaluate-side-test-step2", "data.split=side", more=MIXED)
    printed, out = capsys.readouterr().out, trained[0].parent / "evaluate-side-test-step2"
    assert all(metrics[key] is None for key in LIDAR_KEYS) and metrics["psnr"] > 5
    assert "Lidar" not in printed and "–" not in printed and "nan" not in printed
    rows = figures(out)
    assert [(r["sensor"], int(r["index"])) for r in rows] == [("camera_1", i) for i in range(TINY.frames)]
    assert all(r["lidar_median_abs_m"] == "" and float(r["psnr"]) > 0 for r in rows)
    assert 'id="lidar"' not in (out / "report.html").read_text()
    assert len(list((out / "pictures").iterdir())) == PICTURES


def test_another_split_than_the_run_s_says_which_frames_were_trained_on(
    trained: tuple[Path, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = measured(trained[0], "evaluate-side-test-step2", "data.split=side", more=MIXED)
    assert TINY.frames == 10, "4 and 9 of them are held out"
    result = {"trained_split": "interp", "trained_on": "8 of 10 images", "trained_frames": "camera_1 0-3, 5-8"}
    assert {key: metrics[key] for key in MIXED} == result
    printed = capsys.readouterr().out
    assert all(text in printed for text in result.values())
    page = (trained[0].parent / "evaluate-side-test-step2/report.html").read_text()
    assert "8 of 10 images of them trained on" in page and "held-out frames" not in page


def part(capture: Capture, *moments: int) -> Capture:
    """The capture with these moments alone; numbers of its frames are those of its moments."""
    images, sweeps = (tuple(f for f in frames if f.index in moments) for frames in (capture.images, capture.sweeps))
    return replace(capture, images=images, sweeps=sweeps, split=None)


def test_the_run_s_own_split_needs_no_such_words() -> None:
    capture = tiny_capture().with_split("interp")
    assert trained_on(capture, held_out(capture), {"split": "interp"}, capture) is None
    side = capture.with_split("side")
    result = trained_on(side, frames_of(side, "all"), {"split": "interp"}, part(capture, 6, 7, 8))
    assert result is not None and result["trained_frames"] == "camera_0 6-8; camera_1 6-8; lidar 6-8"
    none = trained_on(side, frames_of(side, "test"), {"split": "interp"}, part(capture, 4))
    assert none == {"trained_split": "interp", "trained_on": "0 of 10 images", "trained_frames": "none"}


def test_other_frames_than_the_run_s_may_be_split_otherwise() -> None:
    """Both hold out the fifth of their moments, which is moment 8 for one and moment 4 for the other."""
    capture = tiny_capture().with_split("interp")
    thin = part(capture, 0, 2, 4, 6, 8).with_split("interp")
    result = trained_on(thin, held_out(thin), {"split": "interp"}, capture)
    assert result is not None and result["trained_frames"] == "camera_0 8; camera_1 8; lidar 8"
    late = part(capture, *range(3, 10)).with_split("interp")
    assert trained_on(late, held_out(late), {"split": "interp"}, capture) is None


def test_the_frames_of_training(trained: tuple[Path, dict[str, Any]]) -> None:
    measured(trained[0], "evaluate-interp-train-step2", "subset=train")
    rows = figures(trained[0].parent / "evaluate-interp-train-step2")
    assert len(rows) == 3 * 8 and all(int(r["index"]) % 5 != 4 for r in rows)


def test_all_frames_into_a_folder_that_is_named(trained: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    nurec_lite.evaluate.work([f"checkpoint={trained[0]}", "device=cpu", "subset=all", f"out={tmp_path / 'here'}"])
    found = {p.name for p in (tmp_path / "here").iterdir()}
    assert found == {"metrics.json", "frames.csv", "report.html", "pictures", MARKER}
    assert len(figures(tmp_path / "here")) == 30


def test_a_folder_that_cannot_be_written_is_told_before_the_frames_are_measured(
    trained: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nurec_lite.evaluate, "measure", lambda *given: pytest.fail("it was measured"))
    with pytest.raises(OutputError, match=r"/proc/nowhere cannot be written"):
        nurec_lite.evaluate.work([f"checkpoint={trained[0]}", "device=cpu", "out=/proc/nowhere"])


def test_an_unknown_subset_is_one_sentence(trained: tuple[Path, dict[str, Any]]) -> None:
    with pytest.raises(ConfigError, match="subset is 'some', but must be one of test, train, all"):
        nurec_lite.evaluate.work([f"checkpoint={trained[0]}", "subset=some"])


def test_what_options_started_ends_when_measuring_fails(
    trained: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[bool] = []
    monkeypatch.setattr(Stages, "close", lambda self: closed.append(True))
    monkeypatch.setattr("nurec_lite.evaluate.evaluate", lambda *a, **k: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        nurec_lite.evaluate.work([f"checkpoint={trained[0]}", "device=cpu"])
    assert closed == [True]


@pytest.mark.slow
def test_from_the_command_line(trained: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "nurec_lite.evaluate", *arguments]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=300)

    done = call(f"checkpoint={trained[0]}", f"out={tmp_path}")
    assert done.returncode == 0, done.stderr
    assert "PSNR" in done.stdout and "6/6 frames" in done.stderr
    assert (tmp_path / "report.html").is_file()
    failed = call("checkpoint=/nowhere/checkpoint.pt")
    assert failed.returncode == 2 and failed.stderr.startswith("error: /nowhere/checkpoint.pt does not exist;")
    assert failed.stderr.count("\n") == 1
