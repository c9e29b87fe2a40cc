# SPDX-License-Identifier: Apache-2.0
"""Work without poses goes on while they are estimated, and an error of either is the one that the user reads."""

from pathlib import Path
from threading import Event, active_count
from typing import Any

import pytest
import torch
from tiny_capture import tiny_capture

from nurec_lite import readers
from nurec_lite.backends import begin_stages
from nurec_lite.base.errors import UserError
from nurec_lite.capture.pack import write_pack
from nurec_lite.capture.types import Capture, CaptureError
from nurec_lite.config import DataConfig


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> DataConfig:
    path: Path = tmp_path_factory.mktemp("meanwhile") / "a.pack"
    write_pack(tiny_capture(), path)
    return DataConfig(kind="pack", root=str(path))


def test_both_run_at_once(packed: DataConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits for the other."""
    here, there = Event(), Event()

    def posed(capture: Capture, *_: Any) -> Capture:
        there.set()
        assert here.wait(10)
        return capture

    def meanwhile() -> None:
        assert there.wait(10)
        here.set()

    monkeypatch.setattr(readers, "posed", posed)
    assert len(readers.read_capture(packed, meanwhile=meanwhile).sweeps) == 10


def test_errors_come_out_and_no_thread_stays(packed: DataConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    before = active_count()

    def fails() -> None:
        raise UserError("no compiler")

    with pytest.raises(UserError, match="no compiler"):
        readers.read_capture(packed, meanwhile=fails)

    def unposed(*_: Any) -> Capture:
        raise CaptureError("no poses can be estimated")

    monkeypatch.setattr(readers, "posed", unposed)
    with pytest.raises(CaptureError, match="no poses can be estimated"):
        readers.read_capture(packed)
    assert active_count() == before


def test_errors_of_stages_are_left_to_their_builder() -> None:
    begin_stages("unknown", torch.device("cpu"), "own", {"unknown": {}, "all": {"cpu": ["no_sync", "unknown"]}})
    begin_stages("reference", torch.device("cpu"), "gsplat", {"all": None})
