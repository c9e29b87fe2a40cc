# SPDX-License-Identifier: Apache-2.0
"""Results of processes in shared memory: the same as those of the jobs, in order, of any size; errors and dead processes as elsewhere."""

import os
import signal
from functools import partial

import numpy as np
import pytest
import torch

from nurec_lite.base.errors import UserError
from nurec_lite.base.shared_results import shared_results
from nurec_lite.geometry.lidar import Sweep


def made(n: int) -> tuple[torch.Tensor, np.ndarray, str]:
    return torch.arange(n * 100, dtype=torch.float32), np.full((3, n), n, np.uint8), f"job {n}"


def test_results_are_those_of_the_jobs_in_order():
    found = [
        (tensor.clone(), array.copy(), text) for tensor, array, text in shared_results(_jobs(made, 23), 3, 23 * 500)
    ]
    for n, (tensor, array, text) in enumerate(found):
        expected = made(n)
        assert torch.equal(tensor, expected[0]) and np.array_equal(array, expected[1]) and text == expected[2]
    assert len(found) == 23


def test_arrays_that_find_no_room_arrive_too():
    sums = [float(tensor.sum()) for tensor, _, _ in shared_results(_jobs(made, 30), 2, 5000)]
    assert sums == [float(made(n)[0].sum()) for n in range(30)]


def test_a_result_stays_until_the_next_is_asked_for():
    results = shared_results(_jobs(made, 12), 2, 20_000)
    for n in range(12):
        tensor, _, _ = next(results)
        before = tensor.clone()
        assert torch.equal(before, made(n)[0]) and torch.equal(tensor, before)


def test_records_of_tensors_arrive():
    rays = torch.rand(50, 3)
    values = dict.fromkeys(Sweep.__dataclass_fields__, rays[:, 0]) | {"directions": rays, "returned": rays[:, 1] > 0.5}
    sweep = Sweep(**values)
    (found,) = (arrived.select(torch.arange(50)) for arrived in shared_results([lambda: sweep], 4, 10_000))
    assert all(torch.equal(getattr(found, f), getattr(sweep, f)) for f in Sweep.__dataclass_fields__)


def test_an_error_stands_where_its_result_would():
    def picky(n: int) -> int:
        if n == 4:
            raise UserError("the fifth is damaged")
        return n

    results, seen = shared_results(_jobs(picky, 9), 2, 0), []
    with pytest.raises(UserError, match="the fifth is damaged"):
        seen.extend(iter(results))
    assert seen == [0, 1, 2, 3]


def test_the_work_of_a_killed_process_is_done_by_another(tmp_path):
    here, mark = os.getpid(), tmp_path / "killed"

    def deadly(n: int) -> int:
        if n == 3 and os.getpid() != here and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return n

    assert list(shared_results(_jobs(deadly, 8), 2, 0)) == list(range(8))
    assert mark.exists()


def test_no_jobs_have_no_results():
    assert list(shared_results([], 3, 100)) == []


def _jobs(work, count):
    return [partial(work, n) for n in range(count)]
