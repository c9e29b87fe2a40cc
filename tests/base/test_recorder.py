# SPDX-License-Identifier: Apache-2.0
"""The order of a recording, the work that is queued before it and its launches; with streams that only take notes."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch

from nurec_lite.base.graphs import Recorder
from nurec_lite.base.transfer import HostFuture

Notes = list[str]


class Stream:
    def __init__(self, name: str, notes: Notes) -> None:
        self.name, self.notes = name, notes

    def wait_stream(self, other: "Stream") -> None:
        self.notes.append(f"{self.name} waits for {other.name}")


class Graph:
    """Its end fails where something in it has failed, as CUDA's does."""

    def __init__(self, notes: Notes) -> None:
        self.notes, self.broken = notes, False

    def register_generator_state(self, generator: torch.Generator) -> None: ...

    def capture_begin(self, **given: Any) -> None:
        self.notes.append("it begins")

    def capture_end(self) -> None:
        self.notes.append("it ends")
        if "something fails" in self.notes:
            raise RuntimeError("operation failed due to a previous error during capture")


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> Notes:
    """Notes of all events from a test's first recording on."""
    found: Notes = []
    monkeypatch.setattr(torch.cuda, "Stream", lambda device, priority: Stream("recorder", found))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream("step", found))
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: Graph(found))
    return found


def recorder(notes: Notes) -> Recorder:
    made = Recorder(torch.device("cpu"))
    notes.clear()
    return made


def test_a_recording_begins_after_queued_work_and_its_launches_come_after_it(notes: Notes) -> None:
    recorder(notes).record(lambda: notes.append("work"), ())
    assert notes == ["recorder waits for step", "it begins", "work", "it ends", "step waits for recorder"]


def test_an_error_of_what_is_recorded_is_reported_and_not_what_follows_from_it(notes: Notes) -> None:
    def fails() -> None:
        notes.append("something fails")
        raise RuntimeError("operation not permitted when an event was last recorded in a capturing stream")

    with pytest.raises(RuntimeError, match="not permitted"):
        recorder(notes).record(fails, ())
    assert notes[-2:] == ["it ends", "step waits for recorder"]


def test_nobody_asks_the_gpu_while_it_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    class Event:
        def query(self) -> bool:
            assert not torch.cuda.is_current_stream_capturing(), "CUDA ends the recording"
            return True

    arrival = HostFuture(torch.zeros(1))
    arrival._event = Event()  # type: ignore[assignment]
    for recording in (True, False):
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda now=recording: now)
        assert arrival.done() is not recording
