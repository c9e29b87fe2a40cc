# SPDX-License-Identifier: Apache-2.0
"""`train`, `load` and `read` do the same as the commands."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from shell import FAST, Shell
from tiny_capture import tiny_capture

import nurec_lite
from nurec_lite.training.checkpoint import load_checkpoint

BUDGET = ("train.steps", "train.seconds")
GIVEN = [argument for argument in FAST if not argument.startswith(BUDGET)]
KEYS: dict[str, Any] = {key: yaml.safe_load(value) for key, _, value in (a.partition("=") for a in GIVEN)}


def tensors(value: Any) -> list[torch.Tensor]:
    """All that a checkpoint holds, in order."""
    if isinstance(value, dict):
        return [one for key in value for one in tensors(value[key])]
    return [value] if isinstance(value, torch.Tensor) else []


@pytest.fixture(scope="module")
def trained(pack: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps by Python."""
    out = tmp_path_factory.mktemp("run") / "python"
    nurec_lite.train(pack, out=out, steps=2, seed=3, **KEYS).close()
    return out


def test_python_trains_what_the_command_trains(
    pack: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["data=pack", f"data.root={pack}", f"out={tmp_path / 'command'}", "train.steps=2", "seed=3", *GIVEN]
    assert Shell(monkeypatch, capsys)("train", *line).code == 0
    here, there = (load_checkpoint(folder / "checkpoint.pt", "cpu") for folder in (trained, tmp_path / "command"))
    assert here["config"] | {"out": ""} == there["config"] | {"out": ""}
    for part in ("scene", "optimizer", "generator"):
        mine, theirs = tensors({part: here[part]}), tensors({part: there[part]})
        assert len(mine) == len(theirs) > 0 and all(map(torch.equal, mine, theirs)), part


def test_a_run_is_loaded_from_its_folder_or_its_checkpoint(trained: Path) -> None:
    by_folder, by_file = (
        nurec_lite.load(trained, device="cpu"),
        nurec_lite.load(trained / "checkpoint.pt", device="cpu"),
    )
    images = [scene.render("camera_0", time=0.5).colour for scene in (by_folder, by_file)]
    assert torch.equal(*images) and by_folder.metrics["steps"] == 2
    assert list(by_folder.cameras) == ["camera_0", "camera_1"] and repr(by_folder).startswith("<TrainedScene ")


@pytest.mark.slow
def test_a_capture_in_memory_trains_as_the_pack_that_it_came_from(pack: Path, trained: Path, tmp_path: Path) -> None:
    capture = replace(nurec_lite.read("pack", pack))  # another object, which nobody knows the file of
    scene = nurec_lite.train(capture, out=tmp_path / "memory", steps=2, seed=3, **KEYS)
    here, there = (load_checkpoint(folder / "checkpoint.pt", "cpu") for folder in (tmp_path / "memory", trained))
    assert all(map(torch.equal, tensors(here["scene"]), tensors(there["scene"])))
    with pytest.raises(nurec_lite.UserError, match="was trained on a capture in memory; give it, as in load"):
        nurec_lite.load(tmp_path / "memory")
    assert nurec_lite.load(tmp_path / "memory", capture=capture, device="cpu").span == scene.span


@pytest.mark.slow
def test_a_capture_that_was_read_smaller_is_loaded_as_it_is(pack: Path, tmp_path: Path) -> None:
    capture = nurec_lite.read("pack", pack, downscale=2)
    scene = nurec_lite.train(capture, out=tmp_path / "run", steps=1, **KEYS)
    assert nurec_lite.load(tmp_path / "run", capture=replace(capture), device="cpu").span == scene.span
    cameras = tuple(replace(camera, fx=1.3 * camera.fx) for camera in capture.cameras)
    with pytest.raises(nurec_lite.UserError, match=r"has fx .*; give the capture that was trained on, or leave"):
        nurec_lite.load(tmp_path / "run", capture=replace(capture, cameras=cameras), device="cpu")


@pytest.mark.slow
def test_a_capture_that_was_read_is_named_in_the_run(pack: Path, tmp_path: Path) -> None:
    capture = nurec_lite.read("pack", pack, frames=[0, 8], cameras=["camera_1"])
    assert [camera.name for camera in capture.cameras] == ["camera_1"] and len(capture.images) == 8
    scene = nurec_lite.train(capture, out=tmp_path / "run", steps=1, **KEYS)
    stored = load_checkpoint(tmp_path / "run/checkpoint.pt", "cpu")["config"]["data"]
    assert (stored["root"], stored["frames"], stored["cameras"]) == (str(pack), [0, 8], ["camera_1"])
    assert list(scene.cameras) == ["camera_1"]


@pytest.mark.parametrize(
    "keys, sentence",
    [
        ({"stepz": 3}, "key 'stepz' is unknown; did you mean train.steps?"),
        ({"model": {"pionts": 3}}, "did you mean model.points?"),
        ({"steps": -1}, "train.steps is -1, but must lie between"),
        ({"model": {"points": [torch.ones(1)]}}, "model.points is a Tensor, but must be a number"),
        ({"recipe": "quick"}, "recipe=quick: there is no 'quick'; there is best, realtime"),
        ({"opt": "speed"}, "speed"),
        ({"opt": 3}, "opt is an int, but must name options"),
        ({"model": 3}, "model=3: model is a group of keys; give one of them, as in model.points=VALUE"),
        ({"out": ""}, "out is empty, but must be a path"),
        ({"capture": tiny_capture(), "data": {"root": "a.pack"}}, "data holds a root, but the capture is in memory"),
        ({"data": {"frames": np.array([0.5, 2])}}, "data.frames"),
        ({"opt": [3]}, "opt holds an int, but must name options"),
        ({"out": 3.5}, "out is a float, but must be a path"),
        ({"device": torch.device("cpu"), "seed": -1}, "seed is -1, but must lie between"),
        ({"capture": 3}, "capture is an int, but must be a pack's path or a Capture"),
        ({"capture": "."}, "is a folder; read it first, as in train\\(read\\('kitti_raw'"),
        ({"train": {"resume": "auto"}}, "name its folder by out=FOLDER"),
        ({"data": "kitty"}, "data=kitty: there is no 'kitty'"),
    ],
)
def test_mistakes_are_sentences(keys: dict[str, Any], sentence: str) -> None:
    with pytest.raises(nurec_lite.UserError, match=sentence):
        nurec_lite.train(**keys)


def test_a_program_that_uses_hydra_itself_reads_and_loads(pack: Path, trained: Path, tmp_path: Path) -> None:
    with initialize_config_dir(str(tmp_path), version_base="1.3"):
        assert nurec_lite.read("pack", pack).name == "street_0"
        assert nurec_lite.load(trained, device="cpu").metrics["steps"] == 2
        with pytest.raises(nurec_lite.UserError, match="there is no 'kitty'"):
            nurec_lite.read("kitty")
        assert GlobalHydra.instance().is_initialized()
    assert not GlobalHydra.instance().is_initialized()


def test_a_missing_run_and_an_unknown_kind_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(nurec_lite.UserError, match=r"checkpoint.pt does not exist"):
        nurec_lite.load(tmp_path)
    with pytest.raises(nurec_lite.ConfigError, match="capture is a str, but must be a Capture"):
        nurec_lite.load(tmp_path, capture="a.pack")  # type: ignore[arg-type]
    for odd in (None, 3, b"x"):
        with pytest.raises(nurec_lite.ConfigError, match=r"run is an? .*, but must be a path"):
            nurec_lite.load(odd)  # type: ignore[arg-type]
    with pytest.raises(nurec_lite.UserError, match=r"does not exist"):
        nurec_lite.load("long" * 2000)
    with pytest.raises(nurec_lite.UserError, match="data=kitty: there is no 'kitty'"):
        nurec_lite.read("kitty")
    with pytest.raises(nurec_lite.CaptureError, match=r"data\.root is missing"):
        nurec_lite.read("pack")


@pytest.mark.parametrize("options", ["all", ["fused_interp", "no_sync"], {"batch": {"images": 2}, "workers": None}])
def test_options_are_written_as_a_command_line_does(options: Any) -> None:
    from nurec_lite.api.keys import options as written

    expected = {"all": "+opt=[all]", "fused_interp,no_sync": "+opt=[fused_interp,no_sync]"}
    names = options if isinstance(options, str) else ",".join(options)
    assert written(options) == (
        [expected[names]] if names in expected else ["+opt=[batch,workers]", "opt.batch.images=2"]
    )
