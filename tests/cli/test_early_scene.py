# SPDX-License-Identifier: Apache-2.0
"""A tiny scene is made early for commands that use a GPU; it leaves nothing behind, and its failures are silent."""

import sys

import pytest
import torch

from nurec_lite.base.phases import phases
from nurec_lite.base.ranges import span
from nurec_lite.base.waiting import await_first_threads
from nurec_lite.cli import early_scene
from nurec_lite.cli.early_scene import (
    begin_first_scene,
    end_first_scene,
    load_largest,
    load_step,
    make_tiny_scene,
    tiny_scene,
)
from nurec_lite.scene.gaussians import BACKGROUND

TRAIN = ["python", "-m", "nurec_lite.train"]


def test_a_tiny_scene_leaves_the_process_as_it_was(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    before = sys.getswitchinterval(), torch.get_num_threads(), torch.random.get_rng_state().tolist()
    with caplog.at_level("INFO"), phases(True), span("first scene"):
        make_tiny_scene(torch.device("cpu"))
    assert (sys.getswitchinterval(), torch.get_num_threads(), torch.random.get_rng_state().tolist()) == before
    assert "no kernels" not in caplog.text and "moments" not in caplog.text and "first scene" in caplog.text


def test_the_scene_has_all_parts_of_a_drive_with_a_lidar() -> None:
    scene = tiny_scene(torch.device("cpu"))  # an error would load no kernels, in silence
    assert len(scene.gaussians) > 1000 and len(scene.tracks)
    assert set(scene.gaussians.node.tolist()) >= {BACKGROUND, BACKGROUND + 1}


def test_operators_are_loaded_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG"):
        load_largest(torch.device("cpu"))
        load_step(torch.device("cpu"))
    assert not caplog.text


def test_a_device_that_fails_is_left_to_the_run(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG"):
        make_tiny_scene(torch.device("cuda", 99))
        load_largest(torch.device("cuda", 99))
        load_step(torch.device("cuda", 99))
    assert "no kernels were loaded early" in caplog.text and "no library was loaded early" in caplog.text
    assert "no kernel of a step was loaded early" in caplog.text


def test_it_is_made_once_on_the_device_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    made, loaded = list[torch.device](), list[torch.device]()
    monkeypatch.setattr(early_scene, "make_tiny_scene", made.append)
    monkeypatch.setattr(early_scene, "load_largest", loaded.append)
    monkeypatch.setattr(early_scene, "load_step", loaded.append)
    monkeypatch.setattr(early_scene, "choose_device", torch.device)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for words in (["device=cpu"], ["device=cuda:2"], ["--help"]):
        begin_first_scene([*TRAIN, *words])
        end_first_scene()
        await_first_threads()
    assert made == [torch.device("cuda:2")] and loaded == 2 * made and not (early_scene._begun or early_scene._later)
