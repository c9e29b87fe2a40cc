# SPDX-License-Identifier: Apache-2.0
"""Launches that fail, memory that runs out, and more requests than may be in progress."""

import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from served import JPEG, image_request, service_of, tiny_run
from test_calls import refused

from nurec_lite.base.memory import MemoryShortError
from nurec_lite.service.client import Sensorsim
from nurec_lite.service.health import HEALTH
from nurec_lite.service.scenes import Scenes
from nurec_lite.service.worker import Worker

GONE = grpc.StatusCode.DEADLINE_EXCEEDED
SHORT = [
    RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: ..."),
    RuntimeError("CUDA error: out of memory"),
    MemoryShortError("there is not enough memory on the GPU to render; use device=cpu"),
    MemoryError(),
]


def test_scenes_free_memory_for_each_other(run: Path, tmp_path: Path) -> None:
    other = tiny_run(tmp_path / "other")
    with service_of(run, other, loaded=1) as service, Sensorsim(f"127.0.0.1:{service.port}") as client:
        assert list(client.get_available_scenes().scene_ids) == ["mine", "other"]
        for name in ("mine", "other", "mine"):
            assert client.render_rgb(image_request(scene_id=name)).image_bytes
            assert [one.scene_id for one in client.get_loaded_scenes().scenes] == [name]


@pytest.mark.parametrize("k", range(len(SHORT)))
def test_a_scene_that_lacks_memory_takes_the_place_of_another(
    k: int, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, errors = Scenes._open, [SHORT[k]]

    def lacks(scenes: Scenes, name: str) -> Any:
        if name == "other" and errors:
            raise errors.pop()
        return opened(scenes, name)

    monkeypatch.setattr(Scenes, "_open", lacks)
    with service_of(run, tiny_run(tmp_path / "other"), loaded=2) as service:
        service.scenes.get("other")
        assert service.scenes.loaded() == ("other",) and not errors


def test_no_scene_is_loaded_for_callers_that_have_gone(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They waited while another scene was loaded: each would take the place of a scene that is asked for."""
    begun, go, loaded, opened = threading.Event(), threading.Event(), [], Scenes._open

    def waits(scenes: Scenes, name: str) -> Any:
        loaded.append(name)
        if name == "other":
            begun.set()
            go.wait(60)
        return opened(scenes, name)

    monkeypatch.setattr(Scenes, "_open", waits)
    with (
        service_of(run, tiny_run(tmp_path / "other"), loaded=1) as service,
        ThreadPoolExecutor(1) as pool,
        Sensorsim(f"127.0.0.1:{service.port}") as client,
    ):
        first = pool.submit(client.get_available_cameras, scene_id="other")
        assert begun.wait(60)
        for call in (client.get_available_cameras, client.get_available_trajectories):
            assert refused(lambda call=call: call(scene_id="mine", timeout=0.3))[0] is GONE
        assert refused(lambda: client.render_rgb(image_request(), timeout=0.3))[0] is GONE
        go.set()
        assert first.result().available_cameras
        while service.figures.requests() < 4:
            time.sleep(0.01)
        assert loaded == ["mine", "other"]


def test_a_scene_that_lacks_memory_waits_for_the_frames_of_the_one_before(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dropped scene holds its memory until its waiting frames are rendered."""
    begun, go, lacked, answered, opened = (*(threading.Event() for _ in range(3)), Worker._answer, Scenes._open)

    def waits(worker: Worker, group: list[Any]) -> None:
        begun.set()
        go.wait(60)
        answered(worker, group)

    def lacks(scenes: Scenes, name: str) -> Any:
        if name == "other" and mine() is not None:
            lacked.set()
            raise MemoryError
        return opened(scenes, name)

    monkeypatch.setattr(Scenes, "_open", lacks)
    with service_of(run, tiny_run(tmp_path / "other")) as service:
        mine = weakref.ref(service.scenes.get("mine"))
        monkeypatch.setattr(Worker, "_answer", waits)
        with Sensorsim(f"127.0.0.1:{service.port}") as client, ThreadPoolExecutor(2) as pool:
            first = pool.submit(client.render_rgb, image_request())
            assert begun.wait(60)
            second = pool.submit(client.render_rgb, image_request(scene_id="other"))
            assert lacked.wait(60)
            go.set()
            assert first.result().image_bytes == second.result().image_bytes != b""
            assert service.scenes.loaded() == ("other",)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Exception]]:
    """Errors that the next launches raise."""
    errors: list[Exception] = []
    rendered = Worker._rendered

    def fails(worker: Worker, group: list[Any]) -> list[Any]:
        if errors:
            raise errors.pop(0)
        return rendered(worker, group)

    monkeypatch.setattr(Worker, "_rendered", fails)
    yield errors


def test_a_defect_costs_one_request_and_a_broken_gpu_the_service(run: Path, failing: list[Exception]) -> None:
    with service_of(run) as service, Sensorsim(f"127.0.0.1:{service.port}") as client:
        failing.append(RuntimeError("a defect"))
        code, said = refused(lambda: client.render_rgb(image_request()))
        assert (
            code is grpc.StatusCode.INTERNAL
            and said == "render_rgb failed in the service (RuntimeError); its log has the trace"
        )
        assert client.render_rgb(image_request(image_format=JPEG)).image_bytes and service.healthy()
        failing.append(RuntimeError("CUDA error: an illegal memory access was encountered"))
        assert refused(lambda: client.render_rgb(image_request()))[0] is grpc.StatusCode.INTERNAL
        assert refused(lambda: client.render_rgb(image_request())) == (
            grpc.StatusCode.UNAVAILABLE,
            "the service is stopping; ask another replica",
        )
        assert not service.healthy()


@pytest.mark.parametrize("error", SHORT, ids=["torch on a CPU", "CUDA", "ours", "Python"])
def test_a_request_without_memory_is_refused_and_the_service_goes_on(
    error: Exception, run: Path, failing: list[Exception]
) -> None:
    with service_of(run) as service, Sensorsim(f"127.0.0.1:{service.port}") as client:
        failing.append(error)
        assert refused(lambda: client.render_rgb(image_request())) == (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "there is not enough memory for this request; ask for a smaller image, or for fewer",
        )
        assert client.render_rgb(image_request()).image_bytes and service.healthy()


def test_too_many_requests_are_turned_away_and_health_still_answers(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go, rendered = threading.Event(), threading.Event(), Worker._rendered

    def waits(worker: Worker, group: list[Any]) -> list[Any]:
        begun.set()
        go.wait(60)
        return rendered(worker, group)

    monkeypatch.setattr(Worker, "_rendered", waits)
    with service_of(run, max_requests=1) as service, Sensorsim(f"127.0.0.1:{service.port}") as client:
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(client.render_rgb, image_request())
            assert begun.wait(60)
            busy = (
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                "1 requests are in progress, and no more may be; try again later",
            )
            assert refused(lambda: client.render_rgb(image_request())) == busy
            assert client.channel.unary_unary(f"/{HEALTH}/Check")(b"") == b"\x08\x01"
            go.set()
            assert first.result().image_bytes
        assert client.render_rgb(image_request()).image_bytes


def test_requests_that_are_cut_off_are_not_rendered(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go, sizes, rendered = threading.Event(), threading.Event(), list[int](), Worker._rendered

    def waits(worker: Worker, group: list[Any]) -> list[Any]:
        begun.set()
        go.wait(60)
        sizes.append(len(group))
        return rendered(worker, group)

    monkeypatch.setattr(Worker, "_rendered", waits)
    with service_of(run, unlisted="recorded") as service, Sensorsim(f"127.0.0.1:{service.port}") as client:
        path, data = "/nre.grpc.protos.sensorsim.SensorsimService/render_rgb", image_request().SerializeToString()
        first = client.channel.unary_unary(path).future(data)
        assert begun.wait(60)
        others = [client.channel.unary_unary(path).future(data) for _ in range(3)]
        waited = threading.Event()
        while service._worker.waiting() < 3:
            waited.wait(0.01)
        others[1].cancel()
        while not any(job.result.cancelled() for job in list(service._worker._waiting)):
            waited.wait(0.01)
        go.set()
        assert first.result() and others[0].result() and others[2].result()
    assert sizes == [1, 2]
