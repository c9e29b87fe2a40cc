# SPDX-License-Identifier: Apache-2.0
"""The GPU's context is begun for commands that use a GPU, and nothing happens without a driver."""

import ctypes
import os
from types import SimpleNamespace
from typing import Any

import pytest

from nurec_lite.base import early_device
from nurec_lite.base.early_device import begin_device

QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS"
TRAIN = ["python", "-m", "nurec_lite.train"]


class Driver:
    """A driver that keeps the requests."""

    def __init__(self, status: int = 0) -> None:
        self.asked, self.retained = list[int](), 0
        functions = {"cuInit": lambda flags: status, "cuDeviceGet": self._get, "cuDevicePrimaryCtxRetain": self._retain}
        self.library = SimpleNamespace(**functions)

    def _get(self, device: Any, ordinal: int) -> int:
        self.asked.append(ordinal)
        return 0

    def _retain(self, context: Any, device: Any) -> int:
        self.retained += 1
        return 0


def begun(words: list[str], driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Driver:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver.library)
    thread = begin_device(words)
    if thread is not None:
        thread.join()
    return driver


@pytest.mark.parametrize(
    ("more", "asked"),
    [
        ([], [0]), (["device=cuda"], [0]), (["device=cuda:3"], [3]), (["device=cpu"], []), (["device=cuda:1", "device=cpu"], []),
        (["--help"], []), (["device=cuda:x"], [0]),
    ],
)  # fmt: skip
def test_the_device_of_the_command_is_begun(more: list[str], asked: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    found = begun([*TRAIN, *more], Driver(), monkeypatch)
    assert found.asked == asked and found.retained == len(asked)


def test_a_rank_begins_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "2")
    assert begun(TRAIN, Driver(), monkeypatch).asked == [2]


@pytest.mark.parametrize(("ranks", "before", "after"), [("1", None, None), ("2", None, "32"), ("2", "8", "8")])
def test_a_rank_has_a_queue_for_each_stream(
    ranks: str, before: str | None, after: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = {"WORLD_SIZE": ranks} | ({} if before is None else {QUEUES: before})
    monkeypatch.setattr(os, "environ", environ)
    assert begun(TRAIN, Driver(), monkeypatch).asked == [0]
    assert environ.get(QUEUES) == after


def test_other_commands_and_a_driver_that_fails_begin_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert begun(["python", "-m", "nurec_lite.compare", "a", "b"], Driver(), monkeypatch).asked == []
    assert begun(TRAIN, Driver(status=100), monkeypatch).retained == 0


def test_without_a_driver_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_device, "LIBRARY", "no such library")
    thread = begin_device(TRAIN)
    assert thread is not None
    thread.join()
