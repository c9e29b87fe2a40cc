# SPDX-License-Identifier: Apache-2.0
"""Scalars for TensorBoard: entries, continued runs, and the message without the package."""

import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorboard")
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer import event_file_writer
from tiny_capture import tiny_capture, tiny_config

import nurec_lite.report.tensorboard
from nurec_lite.base.errors import ConfigError
from nurec_lite.capture.pack import write_pack
from nurec_lite.config import Config, DataConfig, TrainConfig
from nurec_lite.report.tensorboard import tensorboard
from nurec_lite.train import run
from nurec_lite.training.history import Figures, History, Row

Scalars = dict[str, dict[int, float]]


def row(step: int) -> Row:
    return {"step": step, "seconds": 2.0 * step, "gaussians": 100.0, "psnr": 10.0 + step, "image": 1 / step}


def config_of(out: Path) -> Config:
    return Config(out=str(out), train=TrainConfig(steps=1, tensorboard=True))


def read_back(out: Path) -> Scalars:  # tag -> step -> value
    events = EventAccumulator(str(out / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    return {tag: {e.step: e.value for e in events.Scalars(tag)} for tag in events.Tags()["scalars"]}


@pytest.fixture(autouse=True)
def first_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files are read in the order of their names. These end in a number of the process, and 10 would come before 9."""
    monkeypatch.setattr(event_file_writer, "_global_uid", event_file_writer.AtomicCounter(0))


def write(out: Path, history: History, rows: list[Row], metrics: dict[str, Any] | None = None) -> None:
    with tensorboard(config_of(out), history) as held_out:
        for r in rows:
            history.rows.append(r)
            for listener in history.listeners:
                listener(r)
        held_out(int(rows[-1]["step"]), metrics or {})


@pytest.fixture
def without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)  # as an import then finds it


def test_rows_and_held_out_metrics_are_read_back(tmp_path: Path) -> None:
    metrics = {"psnr": 20.5, "chamfer_m": float("nan"), "ssim": float("inf"), "psnr_per_actor": {"7": 18.0}}
    write(tmp_path, History(), [row(1), row(3)], metrics)
    found = read_back(tmp_path)
    assert set(found) == {
        "train/psnr", "train/gaussians", "loss/image", "held_out/psnr", "held_out/psnr_per_actor/7"
    }  # fmt: skip
    assert found["train/psnr"] == {1: 11, 3: 13} and found["train/gaussians"] == {1: 100, 3: 100}
    assert found["loss/image"][3] == pytest.approx(1 / 3)
    assert found["held_out/psnr"] == {3: 20.5} and found["held_out/psnr_per_actor/7"] == {3: 18}


def test_relative_time_is_that_of_training(tmp_path: Path) -> None:
    write(tmp_path, History(), [row(1), row(31)])
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    first, last = events.Scalars("train/psnr")
    assert last.wall_time - first.wall_time == pytest.approx(60, abs=1e-3)


def test_a_run_that_goes_on_elsewhere_writes_its_past_too(tmp_path: Path) -> None:
    write(tmp_path, History([row(1), row(2)]), [row(3)])
    assert read_back(tmp_path)["train/psnr"] == {1: 11, 2: 12, 3: 13}


def test_a_run_that_goes_on_in_its_folder_replaces_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    write(tmp_path, History(), [row(1), row(2), row(3), row(4)])
    better = row(3) | {"psnr": 99.0}
    write(tmp_path, History([row(1), row(2)]), [better])
    assert read_back(tmp_path)["train/psnr"] == {1: 11, 2: 12, 3: 99}


def test_a_fresh_run_in_an_old_folder_hides_the_old_one(tmp_path: Path) -> None:
    write(tmp_path, History(), [row(1), row(2), row(3)])
    write(tmp_path, History(), [row(1)])
    assert read_back(tmp_path)["train/psnr"] == {1: 11}


def test_the_file_is_closed_and_complete_when_a_run_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []
    close = nurec_lite.report.tensorboard.Scalars.close

    def noted(self: nurec_lite.report.tensorboard.Scalars) -> None:
        close(self)
        closed.append(True)

    monkeypatch.setattr(nurec_lite.report.tensorboard.Scalars, "close", noted)
    history = History()
    with pytest.raises(ZeroDivisionError), tensorboard(config_of(tmp_path), history):
        history.listeners[0](row(5))
        raise ZeroDivisionError
    assert closed == [True]
    assert read_back(tmp_path)["train/psnr"] == {5: 15}


def test_a_run_writes_every_row_of_its_history(tmp_path: Path) -> None:
    write_pack(tiny_capture(), tmp_path / "tiny.pack", image_format="png")
    out = tmp_path / "out"
    config = tiny_config(out=str(out), data=DataConfig(kind="pack", root=str(tmp_path / "tiny.pack")))
    config.train = TrainConfig(steps=2, lidar_rays=128, tensorboard=True)
    metrics, found = run(config), read_back(out)
    header, *lines = (out / "history.csv").read_text().splitlines()
    steps = {int(line.split(",")[0]) for line in lines}
    terms = set(header.split(",")) - {"step", "seconds", "psnr", "gaussians"}
    assert {tag for tag in found if tag.startswith("loss/")} == {f"loss/{term}" for term in terms}
    assert all(set(found[tag]) == steps for tag in found if not tag.startswith("held_out/"))
    assert found["held_out/psnr"] == {2: pytest.approx(metrics["psnr"])}
    assert found["held_out/lidar_median_abs_m"][2] == pytest.approx(metrics["lidar_median_abs_m"])


def test_without_the_package_a_run_fails_before_anything_is_read(
    tmp_path: Path, without_the_package: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        sys.modules["nurec_lite.train"], "open_capture", lambda data: pytest.fail("the capture was read")
    )
    monkeypatch.setattr(
        sys.modules["nurec_lite.train"], "build_stages", lambda options: pytest.fail("options were applied")
    )
    with pytest.raises(ConfigError, match=r"needs the package tensorboard; pip install tensorboard$"):
        run(config_of(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_without_the_key_the_package_is_not_asked_for(tmp_path: Path, without_the_package: None) -> None:
    config, history = Config(out=str(tmp_path / "out")), History()
    nurec_lite.report.tensorboard.check_tensorboard(config)
    with tensorboard(config, history) as held_out:
        held_out(1, {"psnr": 1.0})
    assert history.listeners == () and not (tmp_path / "out").exists()


def test_curves_that_cannot_be_written_cost_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **keys: Any) -> None:
        raise OSError(28, "No space left on device")

    config, history = config_of(tmp_path / "out"), History()
    with tensorboard(config, history) as scalars:
        monkeypatch.setattr("torch.utils.tensorboard.SummaryWriter.add_scalar", full)
        history.add(1, 0.0, 5, Figures.of({"range": torch.tensor(2.0)}, torch.tensor(0.1)))
        history.read()
        scalars(1, {"psnr": 20.0})
    assert [row["step"] for row in history.rows] == [1]
