# SPDX-License-Identifier: Apache-2.0
"""The run that is shown: it is waited for, loaded again as training writes it, and shown without its drive's files."""

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_capture import tiny_capture, tiny_config, tiny_state

from nurec_lite.base.errors import ConfigError, UserError
from nurec_lite.base.folders import LOCK
from nurec_lite.capture.digest import digest_of
from nurec_lite.config import DataConfig
from nurec_lite.training.loop import save
from nurec_lite.training.state import TrainState
from nurec_lite.viewer.opened import Run, with_run
from nurec_lite.viewer.painter import Painter
from nurec_lite.viewer.request import FrameView, Request
from nurec_lite.viewer.sweeps import POINTS, clouds_of, sweep_at


def state(step: int = 0, data: DataConfig | None = None) -> TrainState:
    found = tiny_state() if data is None else tiny_state(tiny_config(data=data))
    found.step, found.digest = step, digest_of(tiny_capture(), {})
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("nurec_lite.cli.reconstruction.open_capture", lambda config, origin, known: tiny_capture())
    save(state(), tmp_path / "run/checkpoint.pt")
    return tmp_path / "run"


def opened(folder: Path, *arguments: str) -> Run:
    return Run([str(folder), "device=cpu", "ops=reference", *arguments])


def test_a_run_stands_without_a_key() -> None:
    assert with_run(["runs/mine", "port=9", "data.root=x"]) == ['checkpoint="runs/mine"', "port=9", "data.root=x"]
    assert with_run(["a=b/run"]) == ['checkpoint="a=b/run"']
    assert with_run(["hieght=3", "dta.root=a/b"]) == [
        "hieght=3",
        "dta.root=a/b",
    ]  # refused later, with the key that is meant
    assert with_run(["wrong=1"]) == ["wrong=1"]


@pytest.mark.parametrize("second", ["runs/b", "checkpoint=runs/b"])
def test_two_runs_are_refused(second: str) -> None:
    with pytest.raises(ConfigError, match="runs/a and runs/b are 2 runs, but the viewer shows one"):
        with_run(["runs/a", second])


def test_a_newer_checkpoint_is_loaded_once(folder: Path) -> None:
    run = opened(folder)
    assert run.missing is None and run.shown.counters["step"] == 0 and not run.newer()
    later = state(9)
    later.scene.gaussians.means.data += 1
    save(later, folder / "checkpoint.pt")
    capture = run.shown.capture
    assert run.newer() and not run.newer()
    assert run.shown.counters["step"] == 9 and run.shown.capture is capture
    torch.testing.assert_close(run.shown.scene.gaussians.means, later.scene.gaussians.means.detach())


def test_a_checkpoint_of_another_drive_is_refused_once(folder: Path) -> None:
    run, other = opened(folder), state(9)
    other.scene.origin = (1.0, 2.0, 3.0)
    save(other, folder / "checkpoint.pt")
    with pytest.raises(UserError, match="is now of another drive; start the viewer again"):
        run.newer()
    assert not run.newer() and run.shown.counters["step"] == 0


def test_a_drive_with_the_same_names_and_other_frames_is_another_one(folder: Path) -> None:
    """Its photos would stand beside the pictures of another street."""
    run, again, other = (
        opened(folder),
        state(8, DataConfig(downscale=2)),
        state(9, DataConfig(kind="pack", root="b.pack")),
    )
    save(again, folder / "checkpoint.pt")
    assert run.newer(), "another run on this drive"
    other.digest = digest_of(replace(tiny_capture(), images=tiny_capture().images[2:]), {})
    save(other, folder / "checkpoint.pt")
    with pytest.raises(UserError, match="is now of another drive; start the viewer again"):
        run.newer()
    assert run.shown.counters["step"] == 8


def test_a_broken_checkpoint_or_none_leaves_what_is_shown(folder: Path) -> None:
    run = opened(folder)
    (folder / "checkpoint.pt").write_bytes(b"torn")
    with pytest.raises(UserError, match="is not a whole checkpoint"):
        run.newer()
    (folder / "checkpoint.pt").unlink()
    assert not run.newer() and run.shown.counters["step"] == 0


def test_the_first_checkpoint_of_a_training_is_waited_for(folder: Path) -> None:
    (folder / "checkpoint.pt").unlink()
    (folder / LOCK).write_text(f"process {os.getpid()} on {socket.gethostname()}")
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            save(state(5), folder / "checkpoint.pt")

    run = Run([str(folder), "device=cpu", "ops=reference"], wait)
    assert len(waited) == 3 and run.shown.counters["step"] == 5


@pytest.mark.parametrize("lock", [None, "", f"process 4194305 on {socket.gethostname()}", "something else"])
def test_without_a_training_there_is_nothing_to_wait_for(folder: Path, lock: str | None) -> None:
    (folder / "checkpoint.pt").unlink()
    if lock is not None:
        (folder / LOCK).write_text(lock)
    with pytest.raises(UserError, match=r"holds no checkpoint.pt; name the folder of a run"):
        opened(folder)


def test_a_run_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        opened(tmp_path / "none")


# ---- without the drive's files


@pytest.fixture
def moved(tmp_path: Path) -> Run:
    """A run whose pack is gone."""
    save(state(data=DataConfig(kind="pack", root=str(tmp_path / "gone.pack"))), tmp_path / "run/checkpoint.pt")
    return opened(tmp_path / "run")


def test_a_moved_drive_is_left_out_with_its_reason(moved: Run) -> None:
    assert moved.missing is not None and moved.missing.startswith("Photos and measured sweeps are left out")
    assert "gone.pack" in moved.missing and "data.root" in moved.missing


def test_the_drive_is_as_the_checkpoint_remembers_it(moved: Run) -> None:
    found, expected = moved.shown.capture, tiny_capture()
    assert [(f.sensor, f.index) for f in found.images] == [(f.sensor, f.index) for f in expected.images]
    for one, other in zip((*found.images, *found.sweeps), (*expected.images, *expected.sweeps), strict=True):
        assert (one.time_start, one.time_end) == (other.time_start, other.time_end)
        for end in ("T_world_rig_start", "T_world_rig_end"):
            torch.testing.assert_close(getattr(one, end), getattr(other, end).double(), rtol=0, atol=1e-6)


def test_it_is_flown_through_all_the_same(moved: Run) -> None:
    painter, run = Painter(moved.shown), moved.shown
    frame = run.capture.images[0]
    T = frame.T_world_rig_start @ run.capture.cameras[0].T_rig_cam.double()
    assert painter.paint(Request(T, 1.0, 1.5, 0.4), 12).image.std() > 1
    beside = painter.paint(Request(T, 1.0, 1.5, 0.4, frame=FrameView("camera_0", 0, "photo")), 24)
    assert "left out" in beside.text and beside.image.std() > 1
    for shown in POINTS:
        clouds = clouds_of(run, run.scene, sweep_at(run.capture, "lidar", 0.4), shown, measured=False)
        assert clouds.measured is None and (clouds.rendered is not None) == (shown not in POINTS[:2])


def test_a_checkpoint_that_remembers_nothing_says_which_file_is_missing(tmp_path: Path) -> None:
    old = state(data=DataConfig(kind="pack", root=str(tmp_path / "gone.pack")))
    old.digest = None
    save(old, tmp_path / "run/checkpoint.pt")
    with pytest.raises(UserError, match=r"gone.pack, which does not exist"):
        opened(tmp_path / "run")
