# SPDX-License-Identifier: Apache-2.0
"""Stands in for CUDA's streams and events: notes the order of their calls."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, count
from typing import Any

import pytest
import torch


class RecordedStream:
    def __init__(self, name: str, notes: list[str]) -> None:
        self.name, self.notes, self.device = name, notes, torch.device("cuda")

    def record_event(self) -> str:
        self.notes.append(f"{self.name} records")
        return f"event of {self.name}"

    def wait_event(self, event: str) -> None:
        self.notes.append(f"{self.name} waits for {event}")

    def synchronize(self) -> None:
        self.notes.append(f"the host waits for {self.name}")


class RecordedTensor:
    """A tensor that says that it lies on a GPU, and notes the streams that use it."""

    is_cuda = True

    def __init__(self, notes: list[str]) -> None:
        self.notes = notes

    def record_stream(self, stream: RecordedStream) -> None:
        self.notes.append(f"a tensor is used on {stream.name}")


def recorded_streams(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Notes of later events; torch.cuda knows the stream `step`, and makes `side`, `side 2` and so on."""
    notes: list[str] = []
    names = chain(["side"], map("side {}".format, count(2)))
    entered = [RecordedStream("step", notes)]

    @contextmanager
    def inside(stream: RecordedStream) -> Iterator[None]:
        notes.append(f"into {stream.name}")
        entered.append(stream)
        try:
            yield
        finally:
            entered.pop()
        notes.append(f"out of {stream.name}")

    fakes: dict[str, Any] = {
        "Stream": lambda device, priority: RecordedStream(next(names), notes),
        "current_stream": lambda device: entered[-1],
        "stream": inside,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    return notes
