# SPDX-License-Identifier: Apache-2.0
"""Threads of several processes at once, and of the host with a GPU."""

import os
import subprocess
import sys

import pytest
import torch

from nurec_lite.base import environment, threads
from nurec_lite.base.environment import choose_device
from nurec_lite.base.threads import share


@pytest.mark.parametrize(
    ("cores", "processes", "expected"), [(64, 6, "10"), (64, 64, "1"), (2, 1, "2"), (2, 2, "1"), (2, 5, "1")]
)
def test_each_gets_an_equal_part_of_the_cores(
    monkeypatch: pytest.MonkeyPatch, cores: int, processes: int, expected: str
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(100, 100 + cores)))
    monkeypatch.setattr(threads, "cores_allowed", lambda: None)
    assert share(processes) == {"OMP_NUM_THREADS": expected}


def test_what_the_user_has_set_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert share(100) == {"OMP_NUM_THREADS": "3"}


@pytest.mark.parametrize(
    ("device", "given", "had", "expected"),
    [("cuda", None, 7, 5), ("auto", None, 7, 5), ("cuda", None, 3, 3), ("cuda", "7", 7, 7), ("cpu", None, 7, 7)],
)
def test_the_host_with_a_gpu(
    monkeypatch: pytest.MonkeyPatch, device: str, given: str | None, had: int, expected: int
) -> None:
    """At most 5 threads here, wherever a GPU does the work and the user has said nothing."""
    monkeypatch.setattr(environment, "HOST_THREADS", 5)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if given:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(had)
        choose_device(device)
        assert torch.get_num_threads() == expected
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("argv", "threads"), [(["-m"], "1"), (["script.py"], "None")])
def test_numpy_multiplies_with_one_thread_in_commands_alone(argv: list[str], threads: str) -> None:
    """An own program that imports the package keeps its threads."""
    code = f"import os, sys; sys.argv = {argv}; import nurec_lite; print(os.environ.get('OPENBLAS_NUM_THREADS'))"
    bare = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run([sys.executable, "-c", code], env=bare, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == threads
