# SPDX-License-Identifier: Apache-2.0
"""Threads of several processes at once."""

import os

import pytest

from nurec_lite.threads import share


@pytest.mark.parametrize(
    ("cores", "processes", "expected"), [(64, 6, "10"), (64, 64, "1"), (2, 1, "2"), (2, 2, "1"), (2, 5, "1")]
)
def test_each_gets_an_equal_part_of_the_cores(
    monkeypatch: pytest.MonkeyPatch, cores: int, processes: int, expected: str
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(100, 100 + cores)))
    assert share(processes) == {"OMP_NUM_THREADS": expected}


def test_what_the_user_has_set_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert share(100) == {"OMP_NUM_THREADS": "3"}
