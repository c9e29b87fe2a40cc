# SPDX-License-Identifier: Apache-2.0
"""Copies on a stream of their own: who waits for whom, and which memory is known to be in use."""

import pytest
import torch
from recorded_streams import RecordedTensor, recorded_streams

from nurec_lite.base.transfer import SideStream, tensors_of, upload
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


def test_who_finishes_waits_for_that_stream_alone(monkeypatch: pytest.MonkeyPatch) -> None:
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
