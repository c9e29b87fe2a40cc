# SPDX-License-Identifier: Apache-2.0
"""Each call over the wire: answers equal the renderer's output, by either name of the service."""

import io
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import grpc
import numpy as np
import pytest
import torch
from PIL import Image
from served import JPEG, PLANAR, PNG, TIME, image_request, on_path, service_of
from tiny_capture import tiny_capture, tiny_scene

from nurec_lite.capture.trajectory import frame_at, trajectory_of
from nurec_lite.capture.types import Capture
from nurec_lite.evaluation.measure import image_of
from nurec_lite.evaluation.pictures import to_picture
from nurec_lite.geometry.se3 import matrix_to_quat
from nurec_lite.output.sensors import with_sensor
from nurec_lite.scene.scene import Scene
from nurec_lite.service.cameras import spec_of
from nurec_lite.service.client import Sensorsim
from nurec_lite.service.health import HEALTH, MOST_WATCHERS
from nurec_lite.service.messages import METHODS, SERVICES, message
from nurec_lite.service.service import Service
from nurec_lite.training.baseline import reference_stages

FEW = {"lidar_type": 100}


def picture(data: bytes) -> np.ndarray:  # [H, W, 3]
    return np.array(Image.open(io.BytesIO(data)).convert("RGB"))


def expected(scene: Scene, camera: str = "camera_0", time: float = TIME, capture: Capture | None = None) -> np.ndarray:
    """The renderer's image from the driven path, with an exposure that takes no time."""
    capture = capture or tiny_capture()
    frame = frame_at([f for f in capture.images if f.sensor == camera], trajectory_of(capture), time)
    still = {"time_start": time, "time_end": time} | {
        f"T_world_rig_{end}": trajectory_of(capture).at(time) for end in ("start", "end")
    }
    return to_picture(image_of(reference_stages(), scene, capture, type(frame)(**(vars(frame) | still))))


def assert_shows(data: bytes, wanted: np.ndarray) -> None:
    """Poses travel in single precision, which may turn a level."""
    found = picture(data)
    assert found.shape == wanted.shape and np.abs(found.astype(int) - wanted).max() <= 2


def refused(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as error:
        call()
    return error.value.code(), error.value.details()


@pytest.mark.parametrize("name", SERVICES)
def test_each_call_is_served_by_both_names(service: Service, name: str) -> None:
    lidar = {
        "scene_id": "mine",
        "lidar_config": FEW,
        "frame_end_us": 100_000,
        "sensor_pose": {"start_pose": on_path("camera_0", 0.0)},
    }
    given: dict[str, dict[str, Any]] = {
        "get_available_cameras": {"scene_id": "mine"}, "get_available_trajectories": {"scene_id": "mine"},
        "batch_render_rgb": {"items": [{"camera_name": "a", "request": image_request()}]},
        "render_aggregated": {"rgb_requests": [image_request()]}, "render_lidar": lidar,
    }  # fmt: skip
    with Sensorsim(f"127.0.0.1:{service.port}", name) as client:
        for call, (_, reply) in METHODS.items():
            found = (
                client.render_rgb(image_request())
                if call == "render_rgb"
                else getattr(client, call)(**given.get(call, {}))
            )
            assert isinstance(found, message(reply)), call


def test_version_and_scenes(client: Sensorsim) -> None:
    version = client.get_version()
    assert version.version_id == "1.2.3" and version.git_hash and version.grpc_api_version.patch == 5
    assert list(client.get_available_scenes().scene_ids) == ["mine"]
    assert [one.scene_id for one in client.get_loaded_scenes().scenes] == ["mine"]


def test_cameras_are_those_of_the_capture(client: Sensorsim) -> None:
    cameras = client.get_available_cameras(scene_id="mine").available_cameras
    assert [one.logical_id for one in cameras] == ["camera_0", "camera_1"]
    own, one = tiny_capture().camera("camera_1"), cameras[1]
    assert (one.intrinsics.resolution_h, one.intrinsics.resolution_w) == (own.height, own.width)
    assert one.intrinsics.opencv_pinhole_param.focal_length_x == own.fx
    q, t = matrix_to_quat(own.T_rig_cam[:3, :3]), own.T_rig_cam[:3, 3]
    found = torch.tensor(
        [getattr(one.rig_to_camera.quat, k) for k in "wxyz"] + [getattr(one.rig_to_camera.vec, k) for k in "xyz"]
    )
    torch.testing.assert_close(found, torch.cat([q, t]).float())


def test_the_trajectory_is_the_path_that_was_driven(client: Sensorsim) -> None:
    (one,) = client.get_available_trajectories(scene_id="mine").available_trajectories
    times, path = [pose.timestamp_us for pose in one.trajectory.poses], trajectory_of(tiny_capture())
    assert times == sorted(times) and len(times) > 5
    middle = one.trajectory.poses[len(times) // 2]
    place = torch.tensor([middle.pose.vec.x, middle.pose.vec.y, middle.pose.vec.z])
    torch.testing.assert_close(place, path.at(1e-6 * middle.timestamp_us)[:3, 3].float(), atol=1e-4, rtol=0)


# ---- images


@pytest.mark.parametrize("camera", ["camera_0", "camera_1"])
def test_an_image_from_the_path_is_what_the_renderer_shows(client: Sensorsim, camera: str) -> None:
    assert_shows(client.render_rgb(image_request(camera)).image_bytes, expected(tiny_scene(), camera))


def test_an_image_through_a_fisheye_lens(client: Sensorsim) -> None:
    own = tiny_capture().camera("camera_0")
    camera = replace(own, lens="fisheye", fx=0.6 * own.fx, fy=0.6 * own.fy, distortion=(0.05, -0.01, 0.0, 0.0))
    wanted = expected(tiny_scene(), capture=with_sensor(tiny_capture(), camera))
    assert np.abs(wanted.astype(int) - expected(tiny_scene())).mean() > 5
    assert_shows(client.render_rgb(image_request(camera_intrinsics=spec_of(camera))).image_bytes, wanted)


def test_pixels_beyond_the_lens_are_black(client: Sensorsim) -> None:
    lens = {"focal_length_x": 9, "focal_length_y": 9, "principal_point_x": 20, "principal_point_y": 12}
    spec = {"logical_id": "camera_0", "resolution_h": 24, "resolution_w": 40, "shutter_type": 5}
    shown = {}
    for widest in (0.0, 1.2):
        asked = spec | {"opencv_fisheye_param": lens | {"max_angle": widest}}
        shown[widest] = picture(client.render_rgb(image_request(camera_intrinsics=asked)).image_bytes)
    v, u = np.mgrid[:24, :40] + 0.5
    beyond = np.hypot(u - 20, v - 12) / 9 > 1.2
    assert beyond.any() and not shown[1.2][beyond].any() and shown[0.0][beyond].any()
    assert np.array_equal(shown[1.2][~beyond], shown[0.0][~beyond])


def test_formats_hold_the_same_image(client: Sensorsim) -> None:
    wanted = expected(tiny_scene())
    planar = client.render_rgb(image_request(image_format=PLANAR)).image_bytes
    assert (
        np.abs(
            np.frombuffer(planar, np.uint8).reshape(3, *wanted.shape[:2]).transpose(1, 2, 0).astype(int) - wanted
        ).max()
        <= 2
    )
    fine, coarse = (client.render_rgb(image_request(image_format=JPEG, image_quality=q)).image_bytes for q in (95, 10))
    assert fine[:2] == coarse[:2] == b"\xff\xd8" and len(coarse) < len(fine)
    assert np.abs(picture(fine).astype(int) - wanted).mean() < 12


def test_another_size_is_the_same_view(client: Sensorsim) -> None:
    """A block of 2 x 2 pixels has about the mean of the small image's pixel."""
    large = picture(client.render_rgb(image_request(resolution_h=48, resolution_w=80)).image_bytes)
    blocks = large.reshape(24, 2, 40, 2, 3).mean((1, 3))
    assert large.shape == (48, 80, 3) and np.abs(blocks - expected(tiny_scene())).mean() < 8


def test_a_batch_says_of_each_item_whether_it_was_rendered(client: Sensorsim) -> None:
    items = [
        {"camera_name": "front", "request": image_request()},
        {"camera_name": "nowhere", "request": image_request(scene_id="other")},
        {"camera_name": "right", "request": image_request("camera_1")},
    ]
    found = client.batch_render_rgb(items=items).items
    assert [one.camera_name for one in found] == ["front", "nowhere", "right"]
    assert [one.success for one in found] == [True, False, True]
    assert found[1].error_message == "scene_id is 'other', but the scenes are mine" and not found[1].HasField("result")
    for one, camera in ((found[0], "camera_0"), (found[2], "camera_1")):
        assert_shows(one.result.image_bytes, expected(tiny_scene(), camera))


def test_images_and_sweeps_in_one_request(client: Sensorsim) -> None:
    lidar = {
        "scene_id": "mine",
        "lidar_config": FEW,
        "frame_end_us": 100_000,
        "sensor_pose": {"start_pose": on_path("camera_0", 0.0)},
    }
    found = client.render_aggregated(rgb_requests=[image_request(), image_request("camera_1")], lidar_requests=[lidar])
    assert_shows(found.rgb_returns[1].image_bytes, expected(tiny_scene(), "camera_1"))
    assert found.lidar_returns[0] == client.render_lidar(**lidar) and found.lidar_returns[0].num_points > 0


# ---- sweeps


def test_points_are_in_the_lidar_s_axes_at_the_end_of_the_revolution(client: Sensorsim) -> None:
    """A lidar that has driven on sees the surfaces behind the place where it would have been."""

    def nearest(end: float) -> np.ndarray:
        poses = {f"{k}_pose": {"vec": {"x": x, "z": 1.8}, "quat": {"w": 1}} for k, x in (("start", 0.0), ("end", end))}
        found = client.render_lidar(scene_id="mine", lidar_config=FEW, frame_end_us=100_000, sensor_pose=poses)
        assert len(found.point_xyzs) == 3 * found.num_points == 3 * len(found.point_intensities) > 0
        assert all(0 <= value <= 1 for value in found.point_intensities)
        return np.array(found.point_xyzs).reshape(-1, 3)

    still, moved = nearest(0.0), nearest(2.0)
    ground = [points[np.abs(points[:, 2] + 1.8) < 0.3] for points in (still, moved)]
    assert all(len(points) > 5 for points in ground)
    azimuth = np.arctan2(ground[1][:, 1], ground[1][:, 0])
    first = ground[1][np.abs(azimuth) > 2.8]  # the surfaces behind are seen first and last
    assert len(first) and first[:, 0].min() < ground[0][:, 0].min() - 0.5


# ---- other requests


def test_health_is_reported_by_the_standard_service(service: Service) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{service.port}") as channel:
        check = channel.unary_unary(f"/{HEALTH}/Check")
        assert check(b"") == check(b"\x0a" + bytes([len(SERVICES[1])]) + SERVICES[1].encode()) == b"\x08\x01"
        assert refused(lambda: check(b"\x0a\x05other"))[0] is grpc.StatusCode.NOT_FOUND


def test_a_watch_sends_the_health_and_its_changes(run: Path) -> None:
    """SERVING, NOT_SERVING once the GPU fails, then the end of the service; an unknown service is a status of its own."""
    with service_of(run) as service:
        channel = grpc.insecure_channel(f"127.0.0.1:{service.port}")
        watch = channel.unary_stream(f"/{HEALTH}/Watch")
        watches = [watch(b"", timeout=60) for _ in range(MOST_WATCHERS)]
        assert [next(one) for one in watches] == [b"\x08\x01"] * MOST_WATCHERS
        code, said = refused(lambda: next(watch(b"", timeout=60)))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED and said == "16 calls watch the health already; use Check"
        watches.pop().cancel()
        found = None
        while found != b"\x08\x03":
            with suppress(grpc.RpcError):  # the place of the cancelled call is not free yet
                other = watch(b"\x0a\x05other", timeout=60)
                found = next(other)
        other.cancel()
        service.failed.set()
        assert [next(one) for one in watches] == [b"\x08\x02"] * len(watches)
    assert [list(one) for one in watches] == [[]] * len(watches)
    channel.close()


def test_figures_are_text_that_prometheus_reads(service: Service, client: Sensorsim) -> None:
    client.render_rgb(image_request())
    text = urlopen(f"http://127.0.0.1:{service.metrics_port}/metrics").read().decode()
    assert re.search(r'^nurec_lite_requests_total\{method="render_rgb",status="OK"\} [1-9]', text, re.M)
    assert all(
        re.fullmatch(r'(# (HELP|TYPE) .*|[a-z_]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? [\d.e+inf]+)', line)
        for line in text.splitlines()
    )
    counts = [int(n) for n in re.findall(r'request_seconds_bucket\{method="render_rgb".*\} (\d+)', text)]
    assert counts == sorted(counts) and f'request_seconds_count{{method="render_rgb"}} {counts[-1]}' in text
    assert urlopen(f"http://127.0.0.1:{service.metrics_port}/healthz").status == 200


MISTAKES: list[tuple[dict[str, Any], str, str]] = [
    ({"scene_id": ""}, "NOT_FOUND", "scene_id is '', but the scenes are mine"),
    ({"scene_id": "a\nb\x1b"}, "NOT_FOUND", "^scene_id is 'a.*b.*', but the scenes are mine$"),
    ({"image_format": 0}, "UNIMPLEMENTED", r"image_format is 0 \(UNDEFINED\); use 1"),
    ({"image_format": 5}, "UNIMPLEMENTED", r"image_format is 5 \(AVC\); use 1"),
    ({"image_quality": float("nan")}, "INVALID_ARGUMENT", "image_quality is nan, but must lie between 1 and 100"),
    ({"resolution_h": 1 << 31, "resolution_w": 1 << 31}, "RESOURCE_EXHAUSTED", "is more than 100000 in all; ask for fewer"),
    ({"resolution_h": 1, "resolution_w": 70_000}, "INVALID_ARGUMENT", "resolution_h and resolution_w are 1 and 70000, but may be 65500"),
    ({"resolution_h": 0, "resolution_w": 9}, "INVALID_ARGUMENT", "must be 1 pixel at least"),
    ({"frame_end_us": 5}, "INVALID_ARGUMENT", "frame_end_us is 5, before frame_start_us 430000; exchange them"),
    ({"frame_start_us": 1 << 63, "frame_end_us": 1 << 63}, "INVALID_ARGUMENT", "is far from the drive, 0 to 1000000 us"),
    ({"frame_end_us": 90_000_000}, "INVALID_ARGUMENT", "the frame lasts 89.57 s, but may last 10 s"),
    ({"sensor_pose": {}}, "INVALID_ARGUMENT", "sensor_pose.start_pose is missing"),
    ({"sensor_pose": {"start_pose": {}}}, "INVALID_ARGUMENT", "start_pose.quat has length 0, but must be a unit quaternion"),
    ({"sensor_pose": {"start_pose": {"vec": {"x": float("nan")}, "quat": {"w": 1}}}}, "INVALID_ARGUMENT", "not within 1e\\+06 m"),
    ({"dynamic_objects": [{"track_id": "car"}]}, "INVALID_ARGUMENT", "pose_pair of 'car'.start_pose is missing"),
    ({"dynamic_objects": [{"track_id": "x@car", "pose_pair": {"start_pose": {"quat": {"w": 1}}}}]}, "NOT_FOUND",
     "dynamic_objects names 'x@car', but the tracks are .*; NAME@TRACK inserts a copy"),
    ({"dynamic_objects": [{"track_id": "car", "pose_pair": {"start_pose": {"quat": {"w": 1}}}}] * 2}, "INVALID_ARGUMENT",
     "dynamic_objects names 'car' twice"),
    ({"insert_ego_mask": True, "ego_mask_id": {"camera_logical_id": "x"}}, "NOT_FOUND",
     "ego_mask_id names camera 'x', but there are no masks; leave insert_ego_mask out"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "status", "sentence"), MISTAKES, ids=range(len(MISTAKES)))
def test_a_mistake_is_one_sentence_with_its_status(
    client: Sensorsim, changes: dict[str, Any], status: str, sentence: str
) -> None:
    code, said = refused(lambda: client.render_rgb(image_request(**changes)))
    assert code is grpc.StatusCode[status] and re.search(sentence, said) and "\n" not in said


def test_an_actor_of_the_traffic_alone_is_not_drawn(client: Sensorsim) -> None:
    """AlpaSim ends a drive at the first frame that fails."""
    car = {"track_id": "traffic 7", "pose_pair": {"start_pose": {"quat": {"w": 1}}}}
    plain, among = (client.render_rgb(image_request(dynamic_objects=objects)) for objects in ([], [car]))
    assert among == plain


def test_other_mistakes(service: Service, client: Sensorsim) -> None:
    lidar = {"scene_id": "mine", "sensor_pose": {"start_pose": {"quat": {"w": 1}}}, "lidar_config": {"lidar_type": 7}}
    code, said = refused(lambda: client.render_lidar(**lidar))
    assert (
        code is grpc.StatusCode.NOT_FOUND
        and said == "lidar_type is 7, but must be one of 0 PANDAR128, 1 AT128, 100 few"
    )
    code, said = refused(client.batch_render_rgb)
    assert code is grpc.StatusCode.INVALID_ARGUMENT and said == "the request asks for 0 frames, but may ask for 1 to 64"
    with grpc.insecure_channel(f"127.0.0.1:{service.port}") as channel:
        assert (
            refused(lambda: channel.unary_unary(f"/{SERVICES[0]}/render_radar")(b""))[0]
            is grpc.StatusCode.UNIMPLEMENTED
        )
        large = channel.unary_unary(f"/{SERVICES[0]}/render_rgb")
        assert refused(lambda: large(bytes(65 << 20)))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_line_of_pixels_as_long_as_any_image_is_rendered(client: Sensorsim) -> None:
    for kind in (PNG, JPEG, PLANAR):
        shown = client.render_rgb(image_request(resolution_h=1, resolution_w=65_500, image_format=kind)).image_bytes
        assert kind == PLANAR or Image.open(io.BytesIO(shown)).size == (65_500, 1)


def test_a_reply_larger_than_a_message_is_a_sentence(run: Path) -> None:
    with service_of(run, max_message_mb=1) as service, Sensorsim(f"127.0.0.1:{service.port}") as client:
        items = [{"request": image_request(resolution_h=300, resolution_w=330, image_format=PLANAR)}] * 4
        code, said = refused(lambda: client.batch_render_rgb(items=items))
        text = service.figures.text()
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert re.fullmatch(
        r"the reply has 1\d{6} bytes, but may have 1 MiB; ask for less at a time, or raise max_message_mb", said
    )
    assert 'requests_total{method="batch_render_rgb",status="RESOURCE_EXHAUSTED"} 1' in text
