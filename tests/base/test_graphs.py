# SPDX-License-Identifier: Apache-2.0
"""A capture does not touch queued work, and draws the same random numbers."""

import pytest
import torch
from torch import Tensor

from nurec_lite.base.graphs import Recorder
from nurec_lite.base.transfer import HostFuture

pytestmark = pytest.mark.gpu
SEED, BEHIND = 7, 200_000_000  # cycles: the GPU is a tenth of a second behind the host


def _generator() -> torch.Generator:
    return torch.Generator("cuda").manual_seed(SEED)


def _drawn(generator: torch.Generator) -> Tensor:
    return torch.rand(1000, generator=generator, device="cuda")


def test_memory_that_is_free_again_may_still_be_in_use() -> None:
    """torch writes a generator's seed when a recording begins: behind the queued work, whose memory it may get."""
    recorder, generator = Recorder(torch.device("cuda")), _generator()
    recorder.record(lambda: _drawn(generator), (generator,)).launch()  # given up; loading it waits once for the GPU
    zeros = [torch.zeros(1, dtype=torch.int64, device="cuda") for _ in range(1000)]
    before = torch.cat(zeros[::2])  # likewise
    torch.cuda.synchronize()
    torch.cuda._sleep(BEHIND)
    kept = torch.cat(zeros[::2])
    del zeros[::2]  # each between two that stay: places for one number, which torch prefers to larger ones
    recording = recorder.record(lambda: _drawn(generator), (generator,))
    assert torch.equal(kept, before)
    recording.launch()


def test_launches_draw_what_plain_work_draws() -> None:
    recorder, recorded, plain = Recorder(torch.device("cuda")), _generator(), _generator()
    for _ in range(3):
        torch.cuda._sleep(BEHIND)
        assert torch.equal(_drawn(recorded), _drawn(plain))
        torch.cuda._sleep(BEHIND)
        recording = recorder.record(lambda: _drawn(recorded), (recorded,))
        for _ in range(3):
            assert torch.equal(recording.launch().clone(), _drawn(plain))


def test_what_is_on_its_way_is_not_asked_for_by_what_is_recorded() -> None:
    recorder, numbers = Recorder(torch.device("cuda")), torch.arange(3.0, device="cuda")
    torch.cuda._sleep(BEHIND)
    arrival, found = HostFuture(numbers), []
    recording = recorder.record(lambda: (found.append(arrival.done()), numbers + 1)[1], ())
    assert found == [False]
    assert recording.launch().tolist() == [1, 2, 3]
    assert arrival.done() and arrival.result() == [0, 1, 2]


def test_an_error_of_what_is_recorded_is_reported_as_it_is() -> None:
    recorder, numbers = Recorder(torch.device("cuda")), torch.arange(3.0, device="cuda")
    with pytest.raises(ZeroDivisionError):
        recorder.record(lambda: 1 // 0, ())
    assert recorder.record(lambda: numbers + 1, ()).launch().tolist() == [1, 2, 3]
