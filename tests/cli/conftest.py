# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the command line's tests: a shell, a small pack, and a checkpoint trained on it."""

import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from shell import FAST, Shell, Train
from strangers import save
from tiny_capture import tiny_capture, tiny_state

from nurec_lite.capture.pack import write_pack
from nurec_lite.config import DataConfig
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.step import step


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Shell]:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    yield Shell(monkeypatch, capsys)
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small pack. Tests only read it."""
    path = tmp_path_factory.mktemp("original") / "tiny.pack"
    write_pack(tiny_capture(), path, image_format="png")
    return path


@pytest.fixture
def tiny_pack(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(original, tmp_path))


@pytest.fixture
def train(shell: Shell, tiny_pack: Path) -> Train:
    return Train(tiny_pack, shell)


@pytest.fixture
def first_run(shell: Shell, original: Path) -> Path:
    """The folder of a run of two steps on the small pack, made once; nobody may write into it."""
    out = original.parent / "run"
    if not out.exists():
        ended = shell("train", "data=pack", f"data.root={original}", f"out={out}", *FAST, "train.steps=2")
        assert ended.code == 0, ended.error
    return out


@pytest.fixture
def trained(first_run: Path, tmp_path: Path) -> Path:
    return shutil.copytree(first_run, tmp_path / "run") / "checkpoint.pt"


@pytest.fixture(scope="session")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of the tiny capture after one step, next to its pack. Tests only read them."""
    folder, (state, stages) = tmp_path_factory.mktemp("quick"), (tiny_state(), reference_stages())
    step(stages, state)
    write_pack(tiny_capture(), folder / "tiny.pack", image_format="png")
    state.config = replace(state.config, data=DataConfig(kind="pack", root=str(folder / "tiny.pack")), ops="reference")
    save(state, folder / "checkpoint.pt")
    return folder / "checkpoint.pt"
