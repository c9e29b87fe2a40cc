# SPDX-License-Identifier: Apache-2.0
"""Jobs of browsers: the newest of each counts, none waits longer than the others take, and the end comes after the job at work."""

import threading
from collections.abc import Callable, Iterator

import pytest

from nurec_lite.viewer.worker import Worker


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker(lambda: None, 1e9)
    yield worker
    worker.stop()


def noted(done: list[str], name: str) -> Callable[[], None]:
    return lambda: done.append(name)


def finished(worker: Worker) -> None:
    """Starts the worker and waits for a last job."""
    end = threading.Event()
    worker.ask(("end", "end"), end.set, 0.01)
    worker.start()
    assert end.wait(60)


def test_the_newest_request_of_a_browser_wins_and_keeps_its_turn(worker: Worker) -> None:
    done: list[str] = []
    worker.ask((1, "picture"), noted(done, "old"))
    worker.ask((2, "picture"), noted(done, "other"))
    worker.ask((1, "picture"), noted(done, "new"))
    worker.ask((1, "sweep"), noted(done, "sweep"))
    finished(worker)
    assert done == ["new", "other", "sweep"]


def test_a_finer_picture_gives_way_to_a_request(worker: Worker) -> None:
    done: list[str] = []
    worker.ask((1, "picture"), noted(done, "asked"))
    worker.ask((1, "picture"), noted(done, "finer"), 5.0, yields=True)
    worker.ask((2, "picture"), noted(done, "finer too"), 0.005, yields=True)
    finished(worker)
    assert done == ["asked", "finer too"]


def test_a_request_does_not_wait_for_the_finer_picture_that_it_replaces(worker: Worker) -> None:
    done: list[str] = []
    worker.ask((1, "picture"), noted(done, "finer"), 60.0)
    worker.ask((1, "picture"), noted(done, "asked"))
    finished(worker)
    assert done == ["asked"]


def test_a_browser_that_floods_the_queue_gets_its_turns_only(worker: Worker) -> None:
    """Ten browsers: one asks again in each of its jobs."""
    done: list[int] = []

    def flood() -> None:
        done.append(0)
        if len(done) < 60:
            worker.ask((0, "picture"), flood)

    def calm(browser: int) -> None:
        done.append(browser)

    worker.ask((0, "picture"), flood)
    for browser in range(1, 10):
        worker.ask((browser, "picture"), lambda browser=browser: calm(browser))  # type: ignore[misc]
    finished(worker)
    assert done[:10] == list(range(10))


def test_a_job_that_fails_ends_nothing(worker: Worker) -> None:
    done: list[str] = []

    def fail() -> None:
        raise ValueError("a defect")

    worker.ask((1, "picture"), fail)
    worker.ask((2, "picture"), noted(done, "next"))
    finished(worker)
    assert done == ["next"]


def test_a_browser_that_has_gone_is_forgotten(worker: Worker) -> None:
    done: list[str] = []
    for part in ("picture", "sweep"):
        worker.ask((1, part), noted(done, part))
    worker.ask((2, "picture"), noted(done, "other"))
    worker.forget(1)
    finished(worker)
    assert done == ["other"]


def test_between_jobs_the_worker_looks_after_other_things() -> None:
    looked = threading.Event()
    worker = Worker(looked.set, 0.001)
    worker.start()
    assert looked.wait(60)
    worker.stop()
    worker.ask((1, "picture"), looked.clear)
    assert looked.is_set()
