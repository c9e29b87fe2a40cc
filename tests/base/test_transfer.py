# SPDX-License-Identifier: Apache-2.0
"""Copies on a stream of their own: waits between streams, and memory that counts as in use."""

from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from recorded_streams import RecordedStream, RecordedTensor, recorded_streams

from nurec_lite.base.transfer import HostFuture, SideStream, locked, page_locked, tensors_of, upload
from nurec_lite.native import ops
from nurec_lite.splat.tiles import PairList

CUDA, CPU = torch.device("cuda"), torch.device("cpu")


def test_the_step_s_stream_waits_once_and_holds_every_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = recorded_streams(monkeypatch)
    side = SideStream(CUDA)
    with side.inside():
        made = side.mark()
    side.hand_over([RecordedTensor(notes), RecordedTensor(notes)], made)  # type: ignore[list-item]
    used = "a tensor is used on step"
    assert notes == ["into side", "side records", "out of side", "step waits for event of side", used, used]


def test_tensors_of_the_host_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = recorded_streams(monkeypatch)
    side = SideStream(CUDA)
    side.hand_over([torch.zeros(2)], side.mark())  # record_stream would refuse it
    assert notes == ["side records", "step waits for event of side"]


def test_what_it_takes_waits_for_the_step_s_stream_and_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = recorded_streams(monkeypatch)
    SideStream(CUDA).take([RecordedTensor(notes), torch.zeros(2)])  # type: ignore[list-item]
    assert notes == ["step records", "side waits for event of step", "a tensor is used on side"]


def test_finishing_waits_for_that_stream_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = recorded_streams(monkeypatch)
    SideStream(CUDA).finish()
    assert notes == ["the host waits for side"]


def test_on_a_cpu_there_is_no_stream() -> None:
    side = SideStream(CPU)
    with side.inside():
        made = side.mark()
    assert made is None
    side.finish()
    side.take([torch.zeros(2)])
    side.hand_over([torch.zeros(2)], made)


def test_tensors_of_records_rows_and_mappings_one_within_another() -> None:
    a, b, c, d = torch.zeros(4, 1).unbind()
    record = PairList(rays=a, offsets=b, gaussians=c)
    found = list(tensors_of(({"one": record, "other": [d, 2.0]}, "text", None, PairList)))
    assert [id(t) for t in found] == [id(t) for t in (a, b, c, d)]


def test_on_a_cpu_a_tensor_is_there_already() -> None:
    tensor = torch.rand(3)
    assert upload(tensor, CPU) is tensor


@pytest.mark.gpu
def test_what_is_on_the_gpu_stays_there() -> None:
    tensor = torch.rand(3, device="cuda")
    assert upload(tensor, "cuda") is tensor


@pytest.mark.gpu
def test_memory_is_not_written_again_while_the_step_reads_it() -> None:
    """A tensor of the side stream is freed while a long queue of the step still has to read it, and the side stream asks for as much."""
    side, size = SideStream(CUDA), 1 << 22
    slow = torch.rand(4096, 4096, device="cuda")
    for turn in range(20):
        with side.inside():
            tensor, made = torch.full((size,), float(turn), device="cuda"), side.mark()
        side.hand_over([tensor], made)
        for _ in range(10):
            slow = slow @ slow / 4096
        whole = (tensor == turn).all()
        del tensor
        with side.inside():
            torch.full((size,), -1.0, device="cuda")
        assert bool(whole)


# ---- numbers on their way to the host


def test_what_other_work_writes_is_there_when_that_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    notes, done = recorded_streams(monkeypatch), [False, False, True]

    class Event:
        def record(self, stream: RecordedStream) -> None:
            notes.append(f"an event behind what {stream.name} has")

        def query(self) -> bool:
            return done.pop(0)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    host = torch.zeros(2)
    arrival = HostFuture.of_pending(host, CUDA)
    assert notes == ["an event behind what step has"] and not arrival.done()
    host.copy_(torch.tensor([3.0, 4.0]))
    assert arrival.result() == [3, 4] and not done  # having waited once


def test_on_a_cpu_what_other_work_wrote_is_there() -> None:
    values = torch.arange(3)
    host = locked(values)
    host.copy_(values)
    arrival = HostFuture.of_pending(host, CPU)
    assert arrival.done() and arrival.result() == [0, 1, 2] and host.dtype == values.dtype


@pytest.mark.gpu
def test_what_a_kernel_writes_arrives_though_other_references_were_dropped() -> None:
    """Numbers of several launches under way; half of them are no longer wanted."""
    ops.load()
    kept = []
    for turn in range(40):
        values = torch.full((5,), float(turn), device="cuda")
        torch.cuda._sleep(1_000_000)
        host = locked(values)
        assert host.is_pinned()
        torch.ops.nurec_lite.multi_tensor_copy([host], [values])
        arrival = HostFuture.of_pending(host, CUDA)
        if turn % 2:
            kept.append((turn, arrival))
        del arrival, host
    assert all(arrival.result() == [turn] * 5 for turn, arrival in kept)


@pytest.mark.parametrize(("status", "calls"), [(0, ["lock", "free"]), (2, ["lock"])])
def test_memory_is_locked_while_the_block_lasts(monkeypatch: pytest.MonkeyPatch, status: int, calls: list[str]) -> None:
    memory, said = np.zeros(8, np.uint8), list[tuple[str, int]]()
    runtime = SimpleNamespace(  # with the calls of CUDA's
        cudaHostRegister=lambda address, size, flags: (said.append(("lock", address)), status)[1],
        cudaHostUnregister=lambda address: said.append(("free", address)),
    )
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    with suppress(KeyError), page_locked(memory):
        assert len(said) == 1
        raise KeyError
    assert said == [(name, memory.ctypes.data) for name in calls]
    with page_locked(memory, wanted=False):
        assert len(said) == len(calls)
