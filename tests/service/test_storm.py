# SPDX-License-Identifier: Apache-2.0
"""Many clients at a time. Some cut their connections, send nonsense or ask for things that are not there: each request gets one answer,
an error is one sentence, and threads, files and memory stay bounded."""

import gc
import io
import os
import random
import socket
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from PIL import Image
from served import PLANAR, image_request, on_path, service_of
from test_calls import expected
from tiny_capture import tiny_scene

from nurec_lite.service.figures import resident_bytes
from nurec_lite.service.messages import SERVICES, message
from nurec_lite.service.service import Service

RENDER, BATCH, LIDAR = (f"/{SERVICES[0]}/{name}" for name in ("render_rgb", "batch_render_rgb", "render_lidar"))
STILL = {"start_pose": {"quat": {"w": 1}}}
Asked = tuple[str, str, bytes]  # statuses that it may have, path, request


def bad_pose(rng: random.Random) -> Any:
    number = rng.choice([float("nan"), float("inf"), -float("inf"), 1e30])
    return {"start_pose": {"vec": {rng.choice("xyz"): number}, "quat": {"w": 1}}}


def lidar(**changes: Any) -> bytes:
    given = {
        "scene_id": "mine",
        "frame_end_us": 100_000,
        "sensor_pose": {"start_pose": on_path("camera_0", 0.0)},
        "lidar_config": {"lidar_type": 100},
    }
    return message("LidarRenderRequest")(**(given | changes)).SerializeToString()


def image(**changes: Any) -> bytes:
    return image_request(**changes).SerializeToString()


KINDS: dict[str, Callable[[random.Random], Asked]] = {
    "good": lambda rng: ("OK", RENDER, image(image_format=PLANAR)),
    "good sweep": lambda rng: ("OK", LIDAR, lidar()),
    "batch": lambda rng: ("OK", BATCH, message("BatchRGBRenderRequest")(
        items=[{"camera_name": str(k), "request": image_request(scene_id=rng.choice(["mine", "other"]))} for k in range(rng.randint(1, 3))]
    ).SerializeToString()),
    "nonsense": lambda rng: ("INVALID_ARGUMENT", rng.choice([RENDER, BATCH, LIDAR]), b"\xff" + rng.randbytes(rng.randint(0, 300))),
    "empty": lambda rng: ("INVALID_ARGUMENT UNIMPLEMENTED NOT_FOUND", rng.choice([RENDER, BATCH, LIDAR]), b""),
    "no number": lambda rng: ("INVALID_ARGUMENT", RENDER, image(sensor_pose=bad_pose(rng))),
    "no number of a lidar": lambda rng: ("INVALID_ARGUMENT", LIDAR, lidar(sensor_pose=bad_pose(rng))),
    "huge image": lambda rng: ("RESOURCE_EXHAUSTED", RENDER, image(
        resolution_h=rng.randint(9000, 1 << 31), resolution_w=rng.randint(9000, 1 << 31))),
    "huge message": lambda rng: ("RESOURCE_EXHAUSTED", RENDER, image() + bytes(2 << 20)),
    "no scene": lambda rng: ("NOT_FOUND", RENDER, image(scene_id=rng.choice(["other", "x" * 5000, "\n", ""]))),
    "no actor": lambda rng: ("NOT_FOUND", RENDER, image(dynamic_objects=[{"track_id": "copy@car", "pose_pair": STILL}])),
    "good, of traffic": lambda rng: ("OK", RENDER, image(
        image_format=PLANAR, dynamic_objects=[{"track_id": f"car {rng.randint(0, 99)}", "pose_pair": STILL}])),
    "no lidar": lambda rng: ("NOT_FOUND", LIDAR, lidar(lidar_config={"lidar_type": rng.randint(2, 99)})),
    "no call": lambda rng: ("UNIMPLEMENTED", f"/{SERVICES[0]}/{rng.randint(0, 9)}", b""),
    "another lens": lambda rng: ("INVALID_ARGUMENT", RENDER, image(camera_intrinsics={
        "resolution_h": 4, "resolution_w": 4, "ftheta_param": {"max_angle": rng.random()}})),
}  # fmt: skip
CUT = ("cut call", "cut connection")  # which get no answer


class Storm:
    """Requests of several clients; `answers` counts the outcomes."""

    def __init__(self, port: int) -> None:
        self.port, self.answers, self.flaws = port, Counter[str](), list[str]()
        self._lock, self._wanted = threading.Lock(), expected(tiny_scene())

    def client(self, seed: int, requests: int) -> None:
        rng, channel = random.Random(seed), grpc.insecure_channel(f"127.0.0.1:{self.port}")
        for _ in range(requests):
            kind = rng.choice([*KINDS, *CUT, "good", "good"])
            if kind == "cut connection":
                self._cut(rng)
            elif kind == "cut call":
                call = channel.unary_unary(RENDER).future(image())
                threading.Event().wait(rng.random() * 0.02)
                call.cancel()
            else:
                self._asked(channel, kind, rng)
            with self._lock:
                self.answers[kind] += 1
            if rng.random() < 0.1:
                channel.close()
                channel = grpc.insecure_channel(f"127.0.0.1:{self.port}")
        channel.close()

    def _cut(self, rng: random.Random) -> None:
        """Sends a part of a connection's beginning, or nonsense, and goes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as wire:
            wire.sendall(
                rng.choice([b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b""])
                + rng.randbytes(rng.randint(0, 200))
            )

    def _asked(self, channel: Any, kind: str, rng: random.Random) -> None:
        statuses, path, data = KINDS[kind](rng)
        try:
            reply = channel.unary_unary(path)(data, timeout=120)
            status, said = "OK", ""
        except grpc.RpcError as error:
            reply, status, said = b"", error.code().name, error.details()
        flaw = None
        if status not in statuses.split() and status != "RESOURCE_EXHAUSTED":  # too many at a time is an answer, too
            flaw = f"{kind}: {status} {said}"
        elif status != "OK" and (not said or "\n" in said or "Traceback" in said or "Exception" in said):
            flaw = f"{kind}: no sentence: {said}"
        elif kind in ("good", "good, of traffic") and status == "OK":
            (pixels,) = [message("RGBRenderReturn").FromString(reply).image_bytes]
            found = np.frombuffer(pixels, np.uint8).reshape(3, *self._wanted.shape[:2]).transpose(1, 2, 0)
            if np.abs(found.astype(int) - self._wanted).max() > 2:
                flaw = "good: another image"
        if flaw:
            with self._lock:
                self.flaws.append(flaw)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def storm(service: Service, clients: int, requests: int, seed: int) -> Storm:
    made = Storm(service.port)
    with ThreadPoolExecutor(clients) as pool:
        for done in [pool.submit(made.client, seed + k, requests) for k in range(clients)]:
            done.result()
    return made


def unpooled_threads() -> int:
    """The number of threads apart from those of gRPC's pool, which has a bound and grows up to it."""
    return sum(not thread.name.startswith("request") for thread in threading.enumerate())


def assert_weathered(run: Path, clients: int, requests: int, megabytes: float) -> Storm:
    limits = {
        "max_message_mb": 1,
        "max_pixels": 100_000,
        "max_requests": 8,
        "patterns": [str(run.parent / "few.yaml")],
        "unlisted": "recorded",
    }
    others = set(threading.enumerate())
    with service_of(run, **limits) as service:
        storm(service, clients, 4, seed=1000)  # threads and caches are as large as they become
        gc.collect()
        before = resident_bytes(), descriptors(), unpooled_threads()
        found = storm(service, clients, requests, seed=1)
        assert found.flaws == [] and sum(found.answers.values()) == clients * requests
        with grpc.insecure_channel(f"127.0.0.1:{service.port}") as channel:
            reply = message("RGBRenderReturn").FromString(channel.unary_unary(RENDER)(image()))
        assert (
            np.abs(np.array(Image.open(io.BytesIO(reply.image_bytes))).astype(int) - expected(tiny_scene())).max() <= 2
        )
        gc.collect()
        after = resident_bytes(), descriptors(), unpooled_threads()
        assert after[0] - before[0] < megabytes * 1e6, f"{(after[0] - before[0]) / 1e6:.0f} MB more"
        assert after[1] <= before[1] + 4 and after[2] <= before[2] + 2
        assert service.healthy() and not service.scenes.device.locked()
    left = {thread.name for thread in set(threading.enumerate()) - others}
    assert not {name for name in left if name.startswith(("renderer", "figures", "request", "encoder"))}
    return found


def test_a_short_storm(run: Path) -> None:
    assert_weathered(run, clients=4, requests=25, megabytes=100)


@pytest.mark.slow
def test_a_thousand_requests_of_sixteen_clients(run: Path) -> None:
    found = assert_weathered(run, clients=16, requests=63, megabytes=150)
    assert set(found.answers) == {*KINDS, *CUT}
