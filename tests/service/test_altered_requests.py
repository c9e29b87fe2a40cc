# SPDX-License-Identifier: Apache-2.0
"""Right requests with some bytes changed: each gets an image, points or one sentence, and none meets a defect."""

import random
from typing import Any

import grpc
import pytest
from served import image_request, on_path
from test_calls import FEW

from nurec_lite.service.messages import SERVICES, message
from nurec_lite.service.service import Service

DOUBLES = (bytes(8), b"\xff" * 8, bytes(6) + b"\xf0\x7f", bytes(6) + b"\xf8\x7f", bytes(5) + b"\x01\0\0")
FTHETA = {"reference_poly": 2, "angle_to_pixeldist_poly": [0, 25, 0.1, 0.1], "max_angle": 1}
FISHEYE = {"focal_length_x": 20, "focal_length_y": 20, "radial_coeffs": [0.1, 0.01, 0.01, 0.001], "max_angle": 1.5}


def seeds() -> list[tuple[str, bytes]]:
    pose, centre = {"start_pose": on_path("camera_0", 0.1)}, {"principal_point_x": 20, "principal_point_y": 12}
    moved = [{"track_id": track, "pose_pair": pose} for track in ("a@000", "001")]
    lenses = {"ftheta_param": FTHETA | centre}, {"opencv_fisheye_param": FISHEYE | centre}
    specs = [message("CameraSpec")(resolution_h=24, resolution_w=40, **lens) for lens in lenses]
    images = [image_request(dynamic_objects=moved), *(image_request(camera_intrinsics=spec) for spec in specs)]
    sweep = message("LidarRenderRequest")(scene_id="mine", frame_end_us=100_000, sensor_pose=pose, lidar_config=FEW)
    batch = message("BatchRGBRenderRequest")(items=[{"request": image} for image in images])
    both = message("AggregatedRenderRequest")(rgb_requests=images[:1], lidar_requests=[sweep])
    whole = [*(("render_rgb", image) for image in images), ("render_lidar", sweep)]
    whole += [("batch_render_rgb", batch), ("render_aggregated", both)]
    return [(name, request.SerializeToString()) for name, request in whole]


def altered(data: bytes, rng: random.Random) -> bytes:
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        i, kind = rng.randrange(len(found)), rng.random()
        if kind < 0.6:
            found[i] ^= 1 << rng.randrange(8)
        elif kind < 0.8:
            found[i : i + 8] = rng.choice(DOUBLES)
        else:
            found[i : i + rng.randrange(9)] = rng.randbytes(rng.randrange(1, 5))
    return bytes(found)


def answer(channel: Any, name: str, data: bytes) -> tuple[str, str]:
    try:
        channel.unary_unary(f"/{SERVICES[0]}/{name}")(data, timeout=60)
    except grpc.RpcError as error:
        return error.code().name, error.details()
    return "OK", "."


@pytest.mark.parametrize("count", [200, pytest.param(2000, marks=pytest.mark.slow)])
def test_altered_requests_are_answered(count: int, service: Service) -> None:
    rng, requests = random.Random(count), seeds()
    seen = set()
    with grpc.insecure_channel(f"127.0.0.1:{service.port}") as channel:
        assert {answer(channel, *one) for one in requests} == {("OK", ".")}
        for _ in range(count):
            name, data = rng.choice(requests)
            data = altered(data, rng)
            status, said = answer(channel, name, data)
            assert status not in ("INTERNAL", "UNKNOWN") and said and "\n" not in said, (name, said, data.hex())
            seen.add(status)
    assert {"OK", "INVALID_ARGUMENT"} <= seen
