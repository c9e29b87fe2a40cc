# SPDX-License-Identifier: Apache-2.0
"""Checkpoints are whole, come back as they were, and execute nothing."""

import os
import pickle
from dataclasses import fields, replace
from pathlib import Path
from threading import Event
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import settings as trials
from hypothesis import strategies as st
from mutations import mutated
from strangers import small_checkpoint
from tiny_capture import tiny_capture, tiny_config, tiny_state

from nurec_lite.base.files import OutputError
from nurec_lite.base.memory import is_out_of_memory
from nurec_lite.config import Config, to_dict
from nurec_lite.geometry.tracks import Tracks
from nurec_lite.scene.calibration import OFFSETS
from nurec_lite.scene.gaussians import Gaussians
from nurec_lite.training import checkpoint, torch_file_write
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.checkpoint import CheckpointError, load_checkpoint, save_checkpoint, scene_from_dict, scene_to
from nurec_lite.training.optim import make_optimizer
from nurec_lite.training.start import make_state
from nurec_lite.training.state import TrainState
from nurec_lite.training.step import step
from nurec_lite.training.torch_file_write import write_torch_file

HISTORY = [{"step": 1, "seconds": 0.5, "gaussians": 400, "psnr": 12.5}]


def trained(config: Config | None = None) -> TrainState:
    state, stages = tiny_state(config), reference_stages()
    step(stages, state)
    return state


def save(state: TrainState, path: Path, step: int = 1) -> None:
    counters = {"step": step, "seconds": 2.5}
    save_checkpoint(path, state.scene, state.optimizer, state.generator, state.config, counters, HISTORY)


def test_everything_comes_back(tmp_path: Path) -> None:
    state, path = trained(), tmp_path / "deep" / "folder" / "checkpoint.pt"
    save(state, path)
    content = load_checkpoint(path, "cpu")
    scene = scene_from_dict(content["scene"])
    for name, value in state.scene.parameters().items():
        assert torch.equal(scene.parameters()[name], value) and scene.parameters()[name].dtype == value.dtype
        assert not scene.parameters()[name].requires_grad
    assert torch.equal(scene.gaussians.node, state.scene.gaussians.node)
    for f in fields(Tracks):
        old, new = getattr(state.scene.tracks, f.name), getattr(scene.tracks, f.name)
        assert torch.equal(old, new) if isinstance(old, torch.Tensor) else old == new
    assert scene.tracks.times.dtype == torch.float64
    optimizer = make_optimizer(scene, state.config.lr)
    optimizer.load_state_dict(content["optimizer"])
    for name, parameter in scene.parameters().items():
        for key, value in state.optimizer.state[state.scene.parameters()[name]].items():
            assert torch.equal(optimizer.state[parameter][key], value)
    assert torch.equal(content["generator"], state.generator.get_state())
    assert content["config"] == to_dict(tiny_config())
    assert content["counters"] == {"step": 1, "seconds": 2.5}


def test_words_of_export_that_older_checkpoints_have_as_names(tmp_path: Path) -> None:
    state, path = trained(), tmp_path / "checkpoint.pt"
    ids = state.scene.tracks.ids
    state.scene = replace(state.scene, tracks=replace(state.scene.tracks, ids=("each", *ids[1:-1], "Actors")))
    save(state, path)
    found = scene_from_dict(load_checkpoint(path, "cpu")["scene"]).tracks.ids
    assert found == ("track-each", *ids[1:-1], "track-Actors")


def test_what_was_found_about_the_sensors_comes_back(tmp_path: Path) -> None:
    config, path = tiny_config(), tmp_path / "checkpoint.pt"
    config.model.calibrate = True
    state = trained(config)
    save(state, path)
    content = load_checkpoint(path, "cpu")
    known, found = state.scene.calibration, scene_to(scene_from_dict(content["scene"]), "cpu").calibration
    assert known is not None and found is not None and found.cameras == known.cameras
    assert torch.equal(found.knots, known.knots) and known.rig_translations.any()
    assert all(torch.equal(value, found.parameters()[name]) for name, value in known.parameters().items())
    resumed = make_state(
        replace(config, train=replace(config.train, resume=str(path))), tiny_capture(), torch.device("cpu")
    )
    assert resumed.scene.calibration is not None
    step(reference_stages(), resumed)
    content["scene"]["calibration"]["knots"] = known.knots[:1].clone()
    torch.save(content, path)
    with pytest.raises(CheckpointError, match="two rising times or more"):
        load_checkpoint(path, "cpu")


@pytest.mark.parametrize("grid", [None, [3, 2, 2]])
def test_one_from_before_clocks_were_corrected_goes_on(grid: list[int] | None, tmp_path: Path) -> None:
    """With clocks taken at their word, and with the moments of all that it knows."""
    config, path = tiny_config(), tmp_path / "checkpoint.pt"
    config.model.calibrate, config.model.bilateral_grid = True, grid
    save(trained(config), path)
    content = load_checkpoint(path, "cpu")
    names = list(content["scene"]["parameters"])
    assert names[-1] == OFFSETS
    del content["scene"]["parameters"][OFFSETS], content["optimizer"]["param_groups"][-1]
    del content["optimizer"]["state"][len(names) - 1]
    torch.save(content, path)
    resume = replace(config, train=replace(config.train, resume=str(path)))
    resumed = make_state(resume, tiny_capture(), torch.device("cpu"))
    assert resumed.scene.calibration is not None
    offsets = resumed.scene.calibration.camera_offsets
    assert offsets.tolist() == [0, 0] and offsets not in resumed.optimizer.state
    for k, (name, value) in enumerate(resumed.scene.parameters().items()):
        moments = resumed.optimizer.state.get(value, {})
        assert name == names[k] and all(
            torch.equal(v, moments[key]) for key, v in content["optimizer"]["state"].get(k, {}).items()
        )
    step(reference_stages(), resumed)
    assert resumed.optimizer.state[offsets]["step"] == 1 and offsets.isfinite().all() and offsets.any()


def test_only_the_file_itself_is_left(tmp_path: Path) -> None:
    state, path = trained(), tmp_path / "checkpoint.pt"
    save(state, path, 1)
    save(state, path, 2)
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint.pt"]
    assert load_checkpoint(path, "cpu")["counters"]["step"] == 2


@pytest.mark.parametrize("moment", ["writing", "flushing", "renaming"])
@pytest.mark.parametrize("before", [True, False])
def test_a_failure_while_saving_keeps_the_previous_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, before: bool
) -> None:
    state, path = trained(), tmp_path / "checkpoint.pt"
    if before:
        save(state, path, 1)

    def half(file: int, data: Any, place: int) -> None:
        os.write(file, b"half of it")
        raise OSError("disk full")

    def fail(*args: Any) -> None:
        raise OSError("disk full")

    owner, name, stub = {
        "writing": (os, "pwrite", half), "flushing": (os, "fsync", fail), "renaming": (Path, "replace", fail)
    }[moment]  # fmt: skip
    with monkeypatch.context() as patch, pytest.raises(OutputError, match="disk full"):
        patch.setattr(owner, name, stub)
        save(state, path, 2)
    assert [p.name for p in tmp_path.iterdir()] == (["checkpoint.pt"] if before else [])
    if before:
        assert load_checkpoint(path, "cpu")["counters"]["step"] == 1


def test_the_file_is_flushed_before_it_takes_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    fsync, rename = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (events.append("flush"), fsync(fd))[1])
    monkeypatch.setattr(Path, "replace", lambda a, b: (events.append("rename"), rename(a, b))[1])
    save(trained(), tmp_path / "checkpoint.pt")
    assert events == ["flush", "rename"]


def test_an_error_that_the_disk_tells_once_while_the_file_is_written_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, path, told = trained(), tmp_path / "checkpoint.pt", Event()
    save(state, path, 1)

    def slowly(content: Any, file: Any) -> None:
        write_torch_file(content, file)
        assert told.wait(60)

    def fail(*args: Any) -> None:
        told.set()
        raise OSError("bad block")

    monkeypatch.setattr(checkpoint, "write_torch_file", slowly)
    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(OutputError, match="bad block"):
        save(state, path, 2)
    assert load_checkpoint(path, "cpu")["counters"]["step"] == 1 and len(list(tmp_path.iterdir())) == 1


def test_a_system_that_locks_too_little_memory_gets_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tensors of the host stand for those of a GPU."""
    state, asked = trained(), []

    def locks_nothing(like: torch.Tensor) -> torch.Tensor:
        asked.append(like)
        raise RuntimeError("CUDA error: out of memory")

    save(state, tmp_path / "plain.pt")
    monkeypatch.setattr(torch_file_write, "_is_elsewhere", lambda values: True)
    monkeypatch.setattr(torch_file_write, "locked", locks_nothing)
    save(state, tmp_path / "copied.pt")
    assert asked and (tmp_path / "copied.pt").read_bytes() == (tmp_path / "plain.pt").read_bytes()


class Malicious:
    """Unpickling this creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.path),))


@pytest.mark.parametrize("form", ["torch", "pickle"])
def test_nothing_in_a_file_is_executed(tmp_path: Path, form: str) -> None:
    path, mark = tmp_path / "evil.pt", tmp_path / "executed"
    content = {"format": 1, "scene": Malicious(mark)}
    if form == "torch":
        torch.save(content, path)
    else:
        path.write_bytes(pickle.dumps(content, protocol=2))
    with pytest.raises(CheckpointError, match=r"evil\.pt"):
        load_checkpoint(path, "cpu")
    assert not mark.exists()


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.99])
def test_a_truncated_file_is_an_error_that_names_it(tmp_path: Path, keep: float) -> None:
    path = tmp_path / "cut.pt"
    save(trained(), path)
    data = path.read_bytes()
    path.write_bytes(data[: int(keep * len(data))])
    with pytest.raises(CheckpointError, match=r"cut\.pt is not a whole checkpoint"):
        load_checkpoint(path, "cpu")


def test_memory_that_runs_out_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "large.pt"
    save(trained(), path)
    for error in (MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")):
        monkeypatch.setattr("nurec_lite.training.checkpoint.read_torch_file", Mock(side_effect=error))
        with pytest.raises(
            CheckpointError, match=r"not enough memory to read .*large\.pt; end other programs"
        ) as found:
            load_checkpoint(path, "cpu")
        assert is_out_of_memory(found.value)


@pytest.mark.parametrize("content", [{"format": 99}, {}, [1, 2], torch.zeros(3)])
def test_a_file_of_another_format_is_an_error_that_names_it(tmp_path: Path, content: Any) -> None:
    path = tmp_path / "other.pt"
    torch.save(content, path)
    with pytest.raises(CheckpointError, match=r"other\.pt is not a checkpoint of this version"):
        load_checkpoint(path, "cpu")


def test_something_else_altogether_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "text.pt"
    path.write_text("hello")
    with pytest.raises(CheckpointError, match=r"text\.pt"):
        load_checkpoint(path, "cpu")
    with pytest.raises(CheckpointError, match=r"absent\.pt does not exist"):
        load_checkpoint(tmp_path / "absent.pt", "cpu")
    with pytest.raises(CheckpointError, match="is no file; give the path of a checkpoint"):
        load_checkpoint(tmp_path, "cpu")


def test_a_saved_scene_holds_every_gaussian(tmp_path: Path) -> None:
    state = trained()
    save(state, tmp_path / "checkpoint.pt")
    scene = scene_from_dict(load_checkpoint(tmp_path / "checkpoint.pt", "cpu")["scene"])
    for f in fields(Gaussians):
        assert torch.equal(getattr(scene.gaussians, f.name), getattr(state.scene.gaussians, f.name))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return small_checkpoint(tmp_path_factory.mktemp("whole") / "small.pt")


def assert_equal_content(a: Any, b: Any) -> None:
    assert type(a) is type(b)
    if isinstance(a, torch.Tensor):
        assert torch.equal(a, b)
    elif isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_equal_content(a[key], b[key])
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_equal_content(x, y)
    else:
        assert a == b


@pytest.mark.slow
@trials(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_mutated_file_is_refused_or_reads_the_same(tmp_path: Path, whole: bytes, data: st.DataObject) -> None:
    path, damaged = tmp_path / "damaged.pt", tmp_path / "whole.pt"
    path.write_bytes(data.draw(mutated(whole)))
    damaged.write_bytes(whole)
    try:
        found = load_checkpoint(path, "cpu")
    except CheckpointError as error:
        assert "damaged.pt is not a" in str(error) and "\n" not in str(error) and len(str(error)) < 600
        return
    assert_equal_content(found, load_checkpoint(damaged, "cpu"))


def test_places_before_the_file_are_damage(tmp_path: Path, whole: bytes) -> None:
    """The system's error of such a place is none of rights."""
    path, at = tmp_path / "damaged.pt", whole.rindex(b"PK\6\6") + 48  # of the list of records
    place = int.from_bytes(whole[at : at + 8], "little") + (1 << 20)
    path.write_bytes(whole[:at] + place.to_bytes(8, "little") + whole[at + 8 :])
    with pytest.raises(CheckpointError, match=r"damaged.pt is not a whole checkpoint \(OSError\)"):
        load_checkpoint(path, "cpu")


def test_a_checkpoint_without_rights_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root has all rights, so that the system's answer is made."""

    def refused(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    (tmp_path / "c.pt").touch()
    monkeypatch.setattr("nurec_lite.training.checkpoint.read_torch_file", refused)
    with pytest.raises(CheckpointError, match=r"c\.pt cannot be read \(Permission denied\); change its rights"):
        load_checkpoint(tmp_path / "c.pt", "cpu")
