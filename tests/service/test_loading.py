# SPDX-License-Identifier: Apache-2.0
"""Scenes that are loaded answer while another one is read from its files."""

from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from served import image_request, service_of, tiny_run

from nurec_lite.cli import reconstruction
from nurec_lite.service.client import Sensorsim
from nurec_lite.service.scenes import Scenes
from nurec_lite.service.service import Service

LONGEST_S = 60


class Gate:
    """Holds the reader of a capture until it is opened."""

    def __init__(self, inner: Callable[..., Any]) -> None:
        self.inner, self.reached, self.open = inner, Event(), Event()

    def __call__(self, *given: Any, **named: Any) -> Any:
        self.reached.set()
        assert self.open.wait(LONGEST_S)
        return self.inner(*given, **named)


@pytest.fixture
def two(run: Path, tmp_path: Path) -> Iterator[Service]:
    with service_of(run, tiny_run(tmp_path / "other")) as service:
        yield service


@pytest.fixture
def gate(two: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    held = Gate(reconstruction.open_capture)
    monkeypatch.setattr(reconstruction, "open_capture", held)
    yield held
    held.open.set()


def begun(threads: ThreadPoolExecutor, scenes: Scenes, gate: Gate, **how: Any) -> "Future[Any]":
    loading = threads.submit(scenes.get, "other", **how)
    assert gate.reached.wait(LONGEST_S)
    return loading


def test_the_others_render_meanwhile(two: Service, gate: Gate) -> None:
    with ThreadPoolExecutor(2) as threads, Sensorsim(f"127.0.0.1:{two.port}") as client:
        loading = begun(threads, two.scenes, gate)
        assert threads.submit(client.render_rgb, image_request()).result(LONGEST_S).image_bytes
        assert two.scenes.loaded() == ("mine",) and not loading.done()
        gate.open.set()
        assert loading.result(LONGEST_S).name == "other"
    assert two.scenes.loaded() == ("mine", "other")


def test_two_that_wait_for_one_scene_load_it_once(two: Service, gate: Gate) -> None:
    with ThreadPoolExecutor(3) as threads:
        first = begun(threads, two.scenes, gate)
        second, left = (threads.submit(two.scenes.get, "other", gone) for gone in (lambda: False, lambda: True))
        gate.open.set()
        assert first.result(LONGEST_S) is second.result(LONGEST_S) is left.result(LONGEST_S)


def test_a_scene_is_not_loaded_for_a_caller_that_has_gone(two: Service) -> None:
    with pytest.raises(CancelledError):
        two.scenes.get("other", lambda: True)
    assert two.scenes.loaded() == ("mine",)
