# SPDX-License-Identifier: Apache-2.0
"""Processes that wait for a capture search and check it. This process does the work that they cannot do."""

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from threading import get_ident
from time import sleep

import pytest
import torch

from nurec_lite.base import processes, waiting
from nurec_lite.base.pool import in_threads
from nurec_lite.base.processes import Kind
from nurec_lite.base.waiting import done_apart
from nurec_lite.capture.checks.begun import CHECKER, begin_checker, begin_checks
from nurec_lite.capture.odometry.apart import POSER, begin_poses, end_poses
from nurec_lite.capture.odometry.choose import posed
from nurec_lite.capture.tracking.found import find_tracks
from nurec_lite.capture.tracking.source import SEARCHER, begin_search, end_search, with_tracks
from nurec_lite.capture.types import ESTIMATED, Capture
from nurec_lite.config import DataConfig
from nurec_lite.readers import open_capture, read_capture


@pytest.fixture(autouse=True)
def helper(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(waiting, "cores", lambda: 8)
    begin_poses()
    begin_search()
    begin_checker()
    yield
    end_poses()
    end_search()
    waiting.end(CHECKER)


@pytest.fixture(scope="module")
def street() -> Capture:
    return open_capture(DataConfig(frames=[0, 12]))


def threads_of_a_pool() -> tuple[int, int, int]:
    """The process, its pools' workers, and torch's threads."""
    return os.getpid(), len({*in_threads(slow_thread, range(40))}), torch.get_num_threads()


def slow_thread(_: int) -> int:
    sleep(0.01)
    return get_ident()


def failing(parent: int) -> int:
    if os.getpid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
    return 7


def test_tracks_of_another_process_are_those_of_this_one(street: Capture) -> None:
    there = with_tracks(street, "lidar").tracks
    here = find_tracks(street)
    assert len(here) and there.ids == here.ids and torch.equal(there.translations, here.translations)
    checks = begin_checks(street, "street", False, apart=True)
    assert checks.doubts() == [] and set(waiting._waiting) == {POSER}


def test_poses_of_another_process_are_those_of_this_one(street: Capture) -> None:
    there, here = posed(street, "lidar"), posed(street, "lidar")
    assert POSER not in waiting._waiting and there.poses_from == here.poses_from == ESTIMATED
    for mine, other in zip((*here.images, *here.sweeps), (*there.images, *there.sweeps), strict=True):
        assert mine.load is other.load and torch.equal(mine.T_world_rig_end, other.T_world_rig_end)


def test_a_search_uses_threads_of_its_own_process() -> None:
    process, workers, threads = done_apart(SEARCHER, partial(threads_of_a_pool))
    assert process != os.getpid() and (workers, threads) == (3, 1)


def test_a_process_that_dies_costs_neither_search_nor_checks(street: Capture) -> None:
    assert done_apart(SEARCHER, partial(failing, os.getpid())) == 7
    assert begin_checks(street, "street", False, apart=True).doubts() == []


def test_a_process_that_is_stopped_takes_a_large_call_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "WAIT", 0.05)
    os.kill(process_of(SEARCHER), signal.SIGSTOP)
    assert done_apart(SEARCHER, partial(len, bytes(1 << 22))) == 1 << 22


def process_of(kind: Kind) -> int:
    pid = waiting._waiting[kind]._process.members[0].process.pid
    assert pid is not None
    return pid


def test_a_drive_with_tracks_needs_no_search(street: Capture) -> None:
    with_tracks(street, "capture")
    assert set(waiting._waiting) == {POSER, SEARCHER, CHECKER}
    end_search()
    end_search()
    assert set(waiting._waiting) == {POSER, CHECKER}


def test_a_search_that_cannot_be_sent_is_made_here(street: Capture) -> None:
    here = os.getpid()
    assert done_apart(SEARCHER, partial(lambda: os.getpid())) == here
    assert done_apart(SEARCHER, partial(os.getpid)) == here, "no process waits any more"


class Load:
    """Gives the capture its moments while it is pickled, as another thread may."""

    capture: Capture

    def __call__(self) -> torch.Tensor:
        return torch.zeros(4, 4, 3, dtype=torch.uint8)

    def __reduce__(self) -> tuple[object, ...]:
        assert self.capture.moments.images
        return Load, ()


def test_a_capture_that_gets_its_moments_meanwhile_can_be_sent() -> None:
    load, capture = Load(), read_capture(DataConfig(frames=[0, 2]))
    load.capture = replace(capture, images=tuple(replace(frame, load=load) for frame in capture.images))
    assert "moments" not in load.capture.__dict__
    process, images = done_apart(SEARCHER, partial(process_and_images, load.capture))
    assert process != os.getpid() and images == len(capture.images)


def process_and_images(capture: Capture) -> tuple[int, int]:
    return os.getpid(), len(capture.images)
