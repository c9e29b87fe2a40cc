# SPDX-License-Identifier: Apache-2.0
"""A drive of a fleet ended before only if its folder was made with the same settings; another run there is a sentence."""

import json
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.core.hydra_config import HydraConfig
from kitti_drive import DRIVE, write_drive
from omegaconf import OmegaConf
from other_captures import OTHER
from tiny_capture import tiny_capture, tiny_config

from nurec_lite.base.errors import ConfigError, UserError
from nurec_lite.base.folders import MARKER
from nurec_lite.capture.pack import write_pack
from nurec_lite.capture.types import Capture
from nurec_lite.cli import fleet
from nurec_lite.cli.fleet import FORMER, Drive, Fleet, Seats, attempted, drives, launched
from nurec_lite.cli.same_run import check_same, last_change
from nurec_lite.config import Config, to_yaml
from nurec_lite.readers import open_capture
from nurec_lite.training.saving import write_checkpoint
from nurec_lite.training.start import make_state

MADE = ["data=pack", 'data.root="/drives/a.pack"', "train.seconds=null", "train.steps=20", "+opt=[workers]"]


def made(folder: Path, words: list[str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metrics.json").write_text("{}")
    (folder / "config.yaml").write_text(to_yaml(fleet._asked(words)))
    return folder


def changed(*words: str) -> list[str]:
    """Arguments of the run, some of them with other values."""
    keys = {word.partition("=")[0] for word in words}
    return [*(word for word in MADE if word.partition("=")[0] not in keys), *words]


@pytest.mark.parametrize(
    "words",
    [[], ["train.timing=true"], ["out=elsewhere"], ["train.resume=auto"], ["device=cpu"], ["measure.seconds=0"],
     ["data.trust=true"], ['data.root="/drives/../drives/a.pack"'], ["train.tensorboard=true"]],
)  # fmt: skip
def test_the_same_settings_are_the_same_run(tmp_path: Path, words: list[str]) -> None:
    check_same(made(tmp_path / "0", MADE), fleet._asked(changed(*words)), known=False)


@pytest.mark.parametrize(
    "word, was, now",
    [
        ('data.root="/drives/b.pack"', "data.root=/drives/a.pack", "data.root=/drives/b.pack"),
        ("train.steps=30", "train.steps=20", "train.steps=30"),
        ("data.frames=[0,3]", "data.frames=null", "'data.frames=[0,3]'"),
        ("+opt=[]", "opt.workers=true", "no opt.workers"),
        ("+opt=[workers,resident]", "no opt.resident", "opt.resident=true"),
        ("density.cap=90000", "density.cap=80000", "density.cap=90000"),
        ("train.evaluate=false", "train.evaluate=true", "train.evaluate=false"),
    ],
)
def test_another_setting_is_named_with_both_values(tmp_path: Path, word: str, was: str, now: str) -> None:
    with pytest.raises(ConfigError) as error:
        check_same(made(tmp_path / "0", MADE), fleet._asked(changed(word)), known=False)
    assert str(error.value) == (
        f"{tmp_path / '0'} holds a run with {was}, but {now} is asked for; give another out=FOLDER, or train all drives anew by "
        "train.overwrite=true"
    )


def test_values_that_a_run_lowers_for_memory_are_no_other_settings(tmp_path: Path) -> None:
    """Only where the command was the same: else a user asks for more."""
    folder, asked = made(tmp_path / "0", changed("density.cap=260", "model.points=200")), fleet._asked(MADE)
    check_same(folder, asked, known=True)
    with pytest.raises(ConfigError, match=r"model\.points=200, but model\.points=60000 is asked for"):
        check_same(folder, asked, known=False)
    with pytest.raises(ConfigError, match=r"density\.cap=260, but density\.cap=100 is"):
        check_same(folder, fleet._asked(changed("density.cap=100")), known=True)


@pytest.mark.parametrize("text", [None, "", "[1]", "{", "other: 1\n"])
def test_a_run_without_settings_is_a_sentence(tmp_path: Path, text: str | None) -> None:
    folder = made(tmp_path / "0", MADE)
    (folder / "config.yaml").unlink() if text is None else (folder / "config.yaml").write_text(text)
    with pytest.raises(UserError, match=r"config\.yaml .*; give another out=FOLDER, or train all drives anew"):
        check_same(folder, fleet._asked(MADE), known=True)


# ---- a pack that was replaced


def run_of(root: Path, folder: Path, words: Sequence[str] = MADE[:1]) -> Config:
    """A run that ended; its configuration."""
    asked = fleet._asked([*words, f'data.root="{root}"', *MADE[2:]])
    tiny = tiny_config()
    config = replace(tiny, data=asked.data)
    state = make_state(config, open_capture(asked.data), torch.device("cpu"))
    folder.mkdir()
    write_checkpoint(state, folder / "checkpoint.pt")
    (folder / "metrics.json").write_text("{}")
    return config


def packed(pack: Path, capture: Capture, seconds: int) -> None:
    """Writes a pack so many seconds after now."""
    write_pack(capture, pack, image_format="png")
    os.utime(pack, (time.time() + seconds,) * 2)


def test_a_pack_of_another_capture_under_the_same_name_is_named(tmp_path: Path) -> None:
    pack, folder, (change, pattern) = tmp_path / "a.pack", tmp_path / "0", OTHER["images of cameras exchanged"]
    packed(pack, tiny_capture(), -60)
    config = run_of(pack, folder)
    check_same(folder, config, known=True)
    packed(pack, tiny_capture(), 60)
    check_same(folder, config, known=True)
    packed(pack, change(tiny_capture()), 60)
    with pytest.raises(ConfigError, match=rf"a\.pack has changed since its run: .*{pattern}.*train\.overwrite=true"):
        check_same(folder, config, known=True)


def test_a_pack_that_keeps_its_time_is_read(tmp_path: Path) -> None:
    """`cp -p` and `mv` leave such a pack."""
    pack, folder, (change, _) = tmp_path / "a.pack", tmp_path / "0", OTHER["images of cameras exchanged"]
    packed(pack, tiny_capture(), -60)
    config = run_of(pack, folder)
    packed(tmp_path / "b.pack", change(tiny_capture()), -60)
    os.utime(folder / "metrics.json", (time.time() - 10,) * 2)
    (tmp_path / "b.pack").replace(pack)
    with pytest.raises(ConfigError, match=r"a\.pack has changed since its run: "):
        check_same(folder, config, known=True)


def test_the_last_change_of_a_folder_is_that_of_all_in_it_but_runs(tmp_path: Path) -> None:
    drive, run = tmp_path / "2011/drive", tmp_path / "2011/runs/0"
    drive.mkdir(parents=True)
    run.mkdir(parents=True)
    (drive / "0.bin").touch()
    (run / MARKER).touch()
    begun = last_change(str(tmp_path))
    for path, later in (
        (run / "checkpoint.pt", 0),
        (drive / "0.bin", 60),
        (drive / "1.bin", 120),
        (tmp_path / "2011", 180),
    ):
        path.touch()
        os.utime(path, (time.time() + later,) * 2)
        found = last_change(str(tmp_path))
        assert found == begun if not later else found - begun > 50e9
        begun = found
    assert last_change(str(tmp_path / "none")) == 0


def test_a_folder_of_a_drive_that_changed_is_named(tmp_path: Path) -> None:
    root, folder = write_drive(tmp_path / "kitti"), tmp_path / "0"
    config = run_of(root, folder, ["data=kitti_raw", "data.split=half"])
    os.utime(folder / "metrics.json", (time.time() - 10,) * 2)
    check_same(folder, config, known=True)  # it is read, and the same
    images = sorted((root / DRIVE / "image_02/data").glob("*.png"))
    for image in images:
        image.write_bytes(images[0].read_bytes() + bytes(9))
    with pytest.raises(ConfigError, match=r"kitti has changed since its run: .*train\.overwrite=true"):
        check_same(folder, config, known=True)


def test_a_drive_without_its_files_keeps_its_figures(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root, folder = write_drive(tmp_path / "kitti"), tmp_path / "0"
    config = run_of(root, folder, ["data=kitti_raw", "data.split=half"])
    os.utime(folder / "metrics.json", (time.time() - 10,) * 2)
    (root / DRIVE).with_name("calib_velo_to_cam.txt").unlink()
    check_same(folder, config, known=True)
    assert "holds the figures of its run, and cannot be compared with" in caplog.text
    caplog.clear()
    shutil.rmtree(root)
    check_same(folder, config, known=True)
    assert not caplog.text


def test_older_packs_are_not_read(tmp_path: Path) -> None:
    pack = tmp_path / "a.pack"
    pack.write_text("no pack")
    os.utime(pack, (0, 0))
    folder = made(tmp_path / "0", changed(f'data.root="{pack}"'))
    (folder / "checkpoint.pt").touch()
    check_same(folder, fleet._asked(changed(f'data.root="{pack}"')), known=True)


# ---- in a fleet


def swept(place: Path) -> Any:
    overrides = {"task": [f"out='{place}'"]}
    return OmegaConf.create(
        {"hydra": {"hydra_logging": None, "verbose": False, "overrides": overrides, "sweep": {"dir": "elsewhere"}}}
    )


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders of runs that a fleet starts."""
    found: list[str] = []

    def run(seats: Seats, command: list[str], environment: dict[str, str], output: Path) -> int:
        output.touch()
        found.append(command[-1])
        return 0

    monkeypatch.setattr(Seats, "run", run)
    monkeypatch.setattr(fleet, "configure_log", lambda *given: None)
    return found


def test_drives_in_another_order_end_before_anything_trains(tmp_path: Path, started: list[str]) -> None:
    jobs = [changed(f'data.root="/drives/{name}.pack"') for name in "abc"]
    made(tmp_path / "1", jobs[1])
    fleet.places.append(tmp_path)
    with pytest.raises(
        ConfigError, match=f"{tmp_path}/1 holds a run with data.root=/drives/b.pack, but data.root=/drives/a.pack"
    ):
        launched(swept(tmp_path), [jobs[1], jobs[0]], 0, 1)
    assert not started and not fleet.places and not (tmp_path / "fleet").exists()
    launched(swept(tmp_path), jobs, 0, 1)
    assert started == [f"out={tmp_path}/0", f"out={tmp_path}/2"]
    launched(swept(tmp_path), [[*words, "train.overwrite=true"] for words in (jobs[1], jobs[0])], 0, 1)
    assert started[2:] == [f"out={tmp_path}/0", f"out={tmp_path}/1"]


def test_no_table_is_left_where_nothing_began(tmp_path: Path) -> None:
    fleet.places.append(tmp_path)
    with pytest.raises(ConfigError):
        launched(swept(tmp_path), [MADE], 0, 0)
    assert not fleet.places


def test_a_wrong_command_leaves_the_records_of_the_one_before(tmp_path: Path, started: list[str]) -> None:
    launched(swept(tmp_path), [MADE], 0, 1)
    before = drives(tmp_path)
    Fleet().on_multirun_start(swept(tmp_path))
    assert [drive.state for drive in drives(tmp_path)] == [FORMER]
    with pytest.raises(ConfigError, match="at_once"):
        launched(swept(tmp_path), [MADE], 0, 0)
    assert drives(tmp_path) == before and FORMER not in {drive.state for drive in before}


def test_the_same_command_skips_a_drive_that_had_too_little_memory(tmp_path: Path, started: list[str]) -> None:
    made(tmp_path / "0", changed("density.cap=260"))
    Drive(0, ["+sweep=fleet", *MADE, "train.overwrite=true"], str(tmp_path / "0"), fleet.DONE).write(tmp_path)
    launched(swept(tmp_path), [["+sweep=fleet", *MADE]], 0, 1)
    assert not started and json.loads((tmp_path / "fleet/0.json").read_text())["state"] == fleet.SKIPPED


def test_a_job_of_a_cluster_does_not_take_another_run_for_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hydra = swept(tmp_path).hydra
    hydra.callbacks, hydra.job = {"fleet": None}, {"num": 0}
    monkeypatch.setattr(HydraConfig, "get", lambda: hydra)
    made(tmp_path / "0", MADE)
    asked = fleet._asked([*changed("train.steps=30"), f"out={tmp_path}/0"])
    asked.out = str(tmp_path / "0")
    with pytest.raises(ConfigError, match=r"train\.steps=20, but train\.steps=30 is asked for"):
        attempted(asked, lambda config: {})
