# SPDX-License-Identifier: Apache-2.0
"""Captures that a user may bring, from a pack to the report: each ends with finite numbers, and the report names its oddities."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from html_page import Page
from odd_captures import (
    at_night,
    with_a_camera_turned,
    with_a_late_camera,
    with_late_images,
    with_one_camera,
    with_the_lidar_turned,
    without_lidar,
    without_tracks,
)
from tiny_capture import TINY, tiny_capture, tiny_config, tiny_scene

from nurec_lite.capture.checks.agreement import Agreement
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.pack import write_pack
from nurec_lite.capture.types import Capture
from nurec_lite.config import Config, DataConfig, DensityConfig, LearningRates, ModelConfig, TrainConfig
from nurec_lite.evaluation import corrected_sensors as search
from nurec_lite.evaluation.findings import findings
from nurec_lite.evaluation.results import table
from nurec_lite.scene.calibration import none_known
from nurec_lite.train import run
from nurec_lite.training.checkpoint import load_checkpoint

pytestmark = pytest.mark.slow
Odd = Callable[[Capture], Capture]
LONG = replace(TINY, frames=20)  # as many moments as are not few
FINER = replace(TINY, frames=16, width=96, height=48, beams=16, azimuth_steps=128)
STEPS = 60  # that find out where a camera of FINER sits, at rates for so few


def as_it_is(capture: Capture) -> Capture:
    return capture


def config_of(steps: int = 6) -> Config:
    config = tiny_config(train=TrainConfig(steps=steps, lidar_rays=128))
    return replace(config, model=replace(config.model, calibrate=True, knot_seconds=0.2))


def finer() -> Config:
    model = ModelConfig(points=5000, actor_points=100, raised_points=600, far_points=400, sky_height=16, calibrate=True)
    rates = LearningRates(camera_offsets=5e-4, camera_rotations=1e-4)
    train, density = TrainConfig(steps=STEPS, lidar_rays=512), DensityConfig(every=50, cap=8000)
    return tiny_config(model=model, train=train, density=density, lr=rates)


def said(capture: Capture, config: Config, folder: Path) -> list[str]:
    """Sentences of the report about the capture, from a run on a pack of it, once everything was found finite."""
    write_pack(capture, folder / "odd.pack", image_format="png")
    out, data = folder / "run", DataConfig(kind="pack", root=str(folder / "odd.pack"))
    metrics = run(replace(config, out=str(out), data=data))
    content = load_checkpoint(out / "checkpoint.pt", "cpu")
    broken = [name for name, number in numbers(content) if not number]
    assert not broken and content["counters"]["step"] == config.train.steps
    found = metrics["findings"]
    assert isinstance(found, list) and found == json.loads((out / "metrics.json").read_text())["findings"]
    page = Page((out / "report.html").read_text())
    assert bool(page.all("section", id="findings")) == bool(found)
    assert all(sentence in page.texts and sentence in table(metrics) for sentence in found)
    assert float(str(metrics["psnr"])) > 10
    return found


def numbers(part: object, name: str = "") -> Iterator[tuple[str, bool]]:
    """Whether they are finite: all tensors and floats of a checkpoint."""
    if isinstance(part, torch.Tensor | float):
        yield name, bool(torch.as_tensor(part).isfinite().all())
    elif isinstance(part, Mapping):
        for key, value in part.items():
            yield from numbers(value, f"{name}.{key}")
    elif isinstance(part, list | tuple):
        for k, value in enumerate(part):
            yield from numbers(value, f"{name}[{k}]")


@pytest.mark.parametrize(
    ("odd", "sentences"),
    [
        (as_it_is, []),
        (without_lidar, ["No lidar"]),
        (without_tracks, ["No tracks"]),
        (with_one_camera, ["One camera, camera_0"]),
        (at_night, ["Dark images, 0.0"]),
        (with_the_lidar_turned, []),  # only many steps find the error
        (with_late_images, []),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_is_odd_is_said(odd: Odd, sentences: list[str], tmp_path: Path) -> None:
    found = said(odd(tiny_capture(LONG)), config_of(), tmp_path)
    assert len(found) == len(sentences)
    assert all(sentence.startswith(start) for sentence, start in zip(found, sentences, strict=True))


@pytest.mark.parametrize("moments", [10, 5])
def test_few_moments_are_said(moments: int, tmp_path: Path) -> None:
    capture = tiny_capture(replace(TINY, frames=moments))
    (sentence,) = said(capture, config_of(), tmp_path)
    assert sentence.startswith(f"Few moments, {moments}: ")


def test_lidar_rays_that_nobody_asks_for_are_said(tmp_path: Path) -> None:
    config = config_of()
    found = said(tiny_capture(LONG), replace(config, train=replace(config.train, lidar_rays=0)), tmp_path)
    assert [sentence for sentence in found if "train.lidar_rays=0" in sentence] == found and len(found) == 1


def test_the_barest_capture(tmp_path: Path) -> None:
    """One camera at night, without lidar and tracks."""
    capture = at_night(with_one_camera(without_tracks(without_lidar(tiny_capture()))))
    assert [sentence.split()[0] for sentence in said(capture, config_of(), tmp_path)] == [
        "No",
        "No",
        "One",
        "Few",
        "Dark",
    ]


@pytest.mark.parametrize(
    ("odd", "start"),
    [
        (with_a_camera_turned, "camera_0 and camera_1 are turned against each other by "),
        (with_a_late_camera, "The clock of camera_0 is "),
    ],
    ids=["turned by 0.3 degrees", "late by 20 ms"],
)
def test_what_cameras_disagree_by_is_found(odd: Odd, start: str, tmp_path: Path) -> None:
    few, *found = said(odd(tiny_capture(FINER)), finer(), tmp_path)
    assert few.startswith("Few") and [sentence.startswith(start) for sentence in found] == [True]


# ---- sentences on sensors


def result(capture: Capture, degrees: list[float], milliseconds: list[float], steps: int = 10**6) -> list[str]:
    """Result of cameras that were turned about their x axes, and whose clocks are behind."""
    known = none_known(capture, 0.5, "cpu")
    known.camera_rotations[:, 0] = torch.deg2rad(torch.tensor(degrees))
    known.camera_offsets[:] = torch.tensor(milliseconds) / 1000
    known.vignetting[:] = 0.1  # something was learned of each
    return findings(capture, replace(tiny_scene(), calibration=known), config_of(), steps, None)


@pytest.mark.parametrize(
    ("degrees", "milliseconds", "sentences"),
    [
        ([0.04, -0.04], [1.0, -1.0], []),
        ([0.15, -0.15], [0.0, 0.0], ["camera_0 and camera_1 are turned against each other by 0.30°."]),
        ([0.3, 0.3], [0.0, 0.0], ["All cameras are turned against the lidar by at least 0.30°."]),
        ([0.0, 0.0], [-11.0, 9.0], ["The clock of camera_1 is 20 ms behind that of camera_0."]),
        ([0.0, 0.0], [20.0, 19.0], ["The clocks of all cameras are at least 20 ms behind that of the lidar."]),
        ([0.0, 0.0], [-20.0, -19.0], ["The clocks of all cameras are at least 20 ms ahead of that of the lidar."]),
    ],
)
def test_what_sensors_disagree_by(degrees: list[float], milliseconds: list[float], sentences: list[str]) -> None:
    assert result(tiny_capture(LONG), degrees, milliseconds) == sentences


def test_a_short_run_says_that_there_may_be_more() -> None:
    capture = tiny_capture(LONG)
    assert result(capture, [0.1, -0.1], [-10.0, 10.0], steps=100) == [
        "camera_0 and camera_1 are turned against each other by at least 0.20°.",
        "The clock of camera_1 is at least 20 ms behind that of camera_0.",
    ]


@pytest.mark.parametrize(("error", "said"), [(0.02, True), (0.11, False)])
def test_a_turn_that_edges_do_not_tell_is_not_said(error: float, said: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """0.3 degrees lie within three standard errors of the drive's evidence about two cameras."""
    monkeypatch.setattr(search, "agreement", lambda *args: Agreement(0.0, error, 0.0, 0.001))
    sentences = result(tiny_capture(LONG), [0.15, -0.15], [0.0, 0.0])
    assert any("are turned against each other" in sentence for sentence in sentences) == said


def test_one_camera_disagrees_with_the_lidar_or_else_with_the_poses() -> None:
    capture = with_one_camera(tiny_capture(LONG))
    assert result(capture, [0.3], [20.0])[1:] == [
        "camera_0 is turned against the lidar by at least 0.30°.",
        "The clock of camera_0 is at least 20 ms behind that of the lidar.",
    ]
    assert "camera_0 is turned against the poses by at least 0.30°." in result(without_lidar(capture), [0.3], [0.0])


def test_sensors_are_not_blamed_for_what_wrong_poses_do() -> None:
    capture = tiny_capture(LONG)
    known = none_known(capture, 0.5, "cpu")
    known.camera_offsets[:] = 0.02
    known.vignetting[:] = 0.1
    scene = replace(tiny_scene(), calibration=known)
    wrong = Verdict("poses and sweeps", "street", Level.CERTAIN, "The poses are inverted.")
    said_of = [findings(capture, scene, config_of(), 10**6, None, None, doubts) for doubts in ((), (wrong,))]
    assert len(said_of[0]) == 1 and said_of[1] == []
