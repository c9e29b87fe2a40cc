# SPDX-License-Identifier: Apache-2.0
"""What tests of the command line share: a shell, a small pack, and a checkpoint trained on it."""

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


@pytest.fixture
def tiny_pack(tmp_path: Path) -> Path:
    write_pack(tiny_capture(), tmp_path / "tiny.pack", image_format="png")
    return tmp_path / "tiny.pack"


@pytest.fixture
def train(shell: Shell, tiny_pack: Path) -> Train:
    return Train(tiny_pack, shell)


@pytest.fixture
def trained(shell: Shell, tiny_pack: Path, tmp_path: Path) -> Path:
    ended = shell("train", "data=pack", f"data.root={tiny_pack}", f"out={tmp_path / 'run'}", *FAST)
    assert ended.code == 0, ended.error
    return tmp_path / "run/checkpoint.pt"


@pytest.fixture(scope="session")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of the tiny capture after one step, which nobody may write into; its pack lies beside it."""
    folder, (state, stages) = tmp_path_factory.mktemp("quick"), (tiny_state(), reference_stages())
    step(stages, state)
    write_pack(tiny_capture(), folder / "tiny.pack", image_format="png")
    state.config = replace(state.config, data=DataConfig(kind="pack", root=str(folder / "tiny.pack")), ops="reference")
    save(state, folder / "checkpoint.pt")
    return folder / "checkpoint.pt"
