# SPDX-License-Identifier: Apache-2.0
"""The messages that AlpaSim publishes, compiled from its protos, are ours by number and type, and each call answers them."""

import io
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("carla_driver_interface")
import grpc
import numpy as np
from carla_driver_interface._proto import sensorsim_pb2 as published
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass
from PIL import Image
from served import image_request, on_path
from test_calls import expected
from tiny_capture import tiny_scene

from nurec_lite.service.messages import METHODS, SERVICES, message
from nurec_lite.service.service import Service

SERVICE = published.DESCRIPTOR.services_by_name["SensorsimService"]
LEFT_OUT = {"temporary_camera_spec"}  # deprecated
Field = tuple[Any, ...]


def fields(kind: Descriptor) -> dict[str, Field]:
    """Number, type, repetition, and values of an enum, by the names of the fields."""
    return {f.name: (f.number, f.type, f.is_repeated, values(f)) for f in kind.fields if f.name not in LEFT_OUT}


def values(field: FieldDescriptor) -> tuple[int, ...] | None:
    return None if field.enum_type is None else tuple(sorted(value.number for value in field.enum_type.values))


def pairs(ours: Descriptor, theirs: Descriptor) -> Iterator[tuple[Descriptor, Descriptor]]:
    """Messages of both sides, and those that they hold."""
    yield ours, theirs
    for field in theirs.fields:
        if field.message_type is not None and field.name in ours.fields_by_name:
            yield from pairs(ours.fields_by_name[field.name].message_type, field.message_type)


def test_methods_are_those_that_are_published() -> None:
    assert SERVICE.full_name in SERVICES and {method.name for method in SERVICE.methods} == METHODS.keys()


@pytest.mark.parametrize("name", list(METHODS))
def test_messages_are_those_that_are_published(name: str) -> None:
    method, own = SERVICE.methods_by_name[name], [message(kind).DESCRIPTOR for kind in METHODS[name]]
    for ends in zip(own, (method.input_type, method.output_type), strict=True):
        for ours, theirs in pairs(*ends):
            assert fields(ours) == fields(theirs), theirs.full_name


def call(service: Service, name: str, **given: Any) -> Any:
    """The reply to a published request."""
    method = SERVICE.methods_by_name[name]
    request, reply = (GetMessageClass(kind) for kind in (method.input_type, method.output_type))
    with grpc.insecure_channel(f"127.0.0.1:{service.port}") as channel:
        over = channel.unary_unary(f"/{SERVICE.full_name}/{name}", request.SerializeToString, reply.FromString)
        return over(request(**given), timeout=60)


def test_published_messages_drive_a_scene(service: Service) -> None:
    assert call(service, "get_version").version_id == "1.2.3"
    (scene,) = call(service, "get_available_scenes").scene_ids
    (entry,) = call(service, "get_loaded_scenes").scenes
    assert (entry.scene_id, entry.loaded_instance_count, entry.reusable_instance_count) == (scene, 1, 1)
    assert call(service, "get_loaded_scenes").loaded_instance_capacity == 100
    cameras = call(service, "get_available_cameras", scene_id=scene).available_cameras
    assert [camera.logical_id for camera in cameras] == ["camera_0", "camera_1"]
    (driven,) = call(service, "get_available_trajectories", scene_id=scene).available_trajectories
    assert len(driven.trajectory.poses) > 5
    assert len(call(service, "get_available_ego_masks").ego_mask_metadata) == 0


def test_published_requests_are_rendered(service: Service) -> None:
    wanted = expected(tiny_scene())
    request = published.RGBRenderRequest.FromString(image_request().SerializeToString())
    pose = published.PosePair.FromString(message("PosePair")(start_pose=on_path("camera_0", 0.0)).SerializeToString())
    sweep = published.LidarRenderRequest(
        scene_id="mine", lidar_config={"lidar_type": 100}, frame_end_us=100_000, sensor_pose=pose
    )
    item = published.BatchRGBRenderRequestItem(camera_name="front", request=request)
    both = call(service, "render_aggregated", rgb_requests=[request], lidar_requests=[sweep])
    batch = call(service, "batch_render_rgb", items=[item]).items
    given = {field.name: value for field, value in sweep.ListFields()}
    for found in (both.rgb_returns[0], batch[0].result):
        shown = np.array(Image.open(io.BytesIO(found.image_bytes)))
        assert np.abs(shown.astype(int) - wanted).max() <= 2
    assert [(one.camera_name, one.success) for one in batch] == [("front", True)]
    assert both.lidar_returns[0] == call(service, "render_lidar", **given) and both.lidar_returns[0].num_points > 0
