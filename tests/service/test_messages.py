# SPDX-License-Identifier: Apache-2.0
"""Messages on the wire: messages agree with bytes written by hand from names, types and numbers."""

import struct

import numpy as np
import pytest

from nurec_lite.service.calls import _lidar_bytes
from nurec_lite.service.errors import RequestError
from nurec_lite.service.messages import ENUMS, MESSAGES, METHODS, message, parsed

# A tag is number << 3 | wire type: 0 varint, 1 fixed64, 2 of a length, 5 fixed32.
VEC = b"\x0d" + struct.pack("<f", 1.5) + b"\x15" + struct.pack("<f", -2.0) + b"\x1d" + struct.pack("<f", 0.25)
QUAT = b"\x0d" + struct.pack("<f", 0.5) + b"\x25" + struct.pack("<f", -0.5)  # w and z; x and y are zero
POSE = b"\x0a" + bytes([len(VEC)]) + VEC + b"\x12" + bytes([len(QUAT)]) + QUAT
PAIR = b"\x0a" + bytes([len(POSE)]) + POSE
OBJECT = b"\x0a\x03007\x12" + bytes([len(PAIR)]) + PAIR


def of_length(number: int, data: bytes) -> bytes:
    assert len(data) < 128
    return bytes([number << 3 | 2, len(data)]) + data


def test_a_pose_is_a_place_and_a_quaternion_with_w_first() -> None:
    pose = parsed("Pose", POSE)
    assert (pose.vec.x, pose.vec.y, pose.vec.z) == (1.5, -2.0, 0.25)
    assert (pose.quat.w, pose.quat.x, pose.quat.y, pose.quat.z) == (0.5, 0.0, 0.0, -0.5)
    assert pose.SerializeToString() == POSE


def test_an_image_request_has_its_fields_by_number() -> None:
    pinhole = b"".join(
        bytes([k << 3 | 1]) + struct.pack("<d", value) for k, value in ((1, 20.0), (2, 12.5), (3, 26.0), (4, 27.0))
    )
    pinhole += of_length(5, struct.pack("<6d", 0.1, 0.2, 0.3, 0, 0, 0)) + of_length(6, struct.pack("<2d", 0.01, 0.02))
    camera = b"\x1a" + bytes([len(pinhole)]) + pinhole + of_length(5, b"front") + b"\x38\x18\x40\x28\x48\x03"
    data = of_length(1, b"mine") + b"\x10\xb8\x08\x18\x80\x0f"  # 1080 rows, 1920 columns
    data += b"\x22" + bytes([len(camera) & 127 | 128, len(camera) >> 7]) + camera
    data += b"\x29" + struct.pack("<Q", 1_700_000_000_000_000) + b"\x31" + struct.pack("<Q", 1_700_000_000_030_000)
    data += of_length(7, PAIR) + of_length(8, OBJECT) + b"\x48\x02" + b"\x55" + struct.pack("<f", 95.0) + b"\x58\x01"
    data += of_length(12, of_length(1, b"front") + of_length(2, b"rig"))
    one = parsed("RGBRenderRequest", data)
    assert (one.scene_id, one.resolution_h, one.resolution_w) == ("mine", 1080, 1920)
    spec = one.camera_intrinsics
    assert spec.WhichOneof("one_of") == "opencv_pinhole_param"
    assert (spec.logical_id, spec.resolution_h, spec.resolution_w, spec.shutter_type) == ("front", 24, 40, 3)
    assert spec.opencv_pinhole_param.focal_length_y == 27.0 and list(spec.opencv_pinhole_param.tangential_coeffs) == [
        0.01,
        0.02,
    ]
    assert (one.frame_start_us, one.frame_end_us) == (1_700_000_000_000_000, 1_700_000_000_030_000)
    assert one.sensor_pose.start_pose.vec.x == 1.5 and one.dynamic_objects[0].track_id == "007"
    assert (one.image_format, one.image_quality, one.insert_ego_mask) == (2, 95.0, True)
    assert (one.ego_mask_id.camera_logical_id, one.ego_mask_id.rig_config_id) == ("front", "rig")


def test_a_lidar_request_has_its_fields_by_number() -> None:
    data = (
        of_length(1, b"mine")
        + of_length(2, b"\x10\x01")
        + b"\x19"
        + struct.pack("<Q", 7)
        + b"\x21"
        + struct.pack("<Q", 9)
    )
    one = parsed("LidarRenderRequest", data + of_length(5, PAIR) + of_length(6, OBJECT))
    assert (one.lidar_config.lidar_type, one.frame_start_us, one.frame_end_us) == (1, 7, 9)
    assert one.sensor_pose.HasField("start_pose") and not one.sensor_pose.HasField("end_pose")


def test_a_lidar_reply_that_is_written_by_hand_is_the_message() -> None:
    points, intensities = np.arange(300, dtype=np.float32).reshape(100, 3), np.linspace(0, 1, 100, dtype=np.float32)
    whole = message("LidarRenderReturn")(
        point_xyzs=points.flatten().tolist(), point_intensities=intensities.tolist(), num_points=100
    )
    assert _lidar_bytes(points, intensities) == whole.SerializeToString()
    none = parsed("LidarRenderReturn", _lidar_bytes(points[:0], intensities[:0]))
    assert none.num_points == 0 and not none.point_xyzs


def test_images_of_an_aggregated_reply_are_field_1_whatever_it_is_called() -> None:
    """A client reads rgb_responses where the messages say rgb_returns: names do not reach the wire."""
    image = of_length(1, b"JPEG")
    reply = message("AggregatedRenderReturn")(rgb_returns=[{"image_bytes": b"JPEG"}], lidar_returns=[{"num_points": 3}])
    assert reply.SerializeToString() == of_length(1, image) + of_length(2, b"\x18\x03")


@pytest.mark.parametrize("data", [b"\xff", b"\x0a\x7fshort", b"\x0a\x01\xff", b"nonsense" * 9])
def test_bytes_that_are_no_message_are_a_sentence(data: bytes) -> None:
    with pytest.raises(
        RequestError, match=rf"^the request of {len(data)} bytes is no RGBRenderRequest; send one of that message$"
    ):
        parsed("RGBRenderRequest", data)


def test_numbers_of_a_message_differ_and_kinds_are_known() -> None:
    scalars = {"float", "double", "uint32", "uint64", "fixed64", "string", "bytes", "bool"}
    for name, text in MESSAGES.items():
        fields = [field.split(" ") for field in text.split(", ") if field]
        assert len({number for *_, number in fields}) == len(fields), name
        assert {kind.rstrip("*?") for kind, *_ in fields} <= scalars | MESSAGES.keys() | ENUMS.keys()
    assert {kind for pair in METHODS.values() for kind in pair} <= MESSAGES.keys()
