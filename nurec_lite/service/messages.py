# SPDX-License-Identifier: Apache-2.0
"""Messages of SensorsimService, from a table of names, types and numbers.

The table is all that both ends must agree on. Descriptors are built from it when this file is imported, in a pool of their own: nobody
needs protoc, and generated modules of the same messages may be loaded in one process.
"""

from functools import lru_cache
from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from nurec_lite.service.errors import RequestError

PACKAGE = "nurec_lite.sensorsim"  # of the descriptors alone: it does not reach the wire
# Names of the service since October 2026, and as AlpaSim pins it
SERVICES = ("nurec.grpc.protos.sensorsim.SensorsimService", "nre.grpc.protos.sensorsim.SensorsimService")
ENUMS = {
    "ImageFormat": ("UNDEFINED", "PNG", "JPEG", "JPEG2000", "RGB_UINT8_PLANAR", "AVC", "AV1"),
    "ShutterType": (
        "UNKNOWN", "ROLLING_TOP_TO_BOTTOM", "ROLLING_LEFT_TO_RIGHT", "ROLLING_BOTTOM_TO_TOP", "ROLLING_RIGHT_TO_LEFT", "GLOBAL",
    ),
    "LidarType": ("PANDAR128", "AT128"),
    "FthetaPolynomial": ("FTHETA_UNKNOWN", "PIXELDIST_TO_ANGLE", "ANGLE_TO_PIXELDIST"),
    "WindshieldPolynomial": ("FORWARD", "BACKWARD"),
    "ServingStatus": ("HEALTH_UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"),
}  # fmt: skip
# Fields as "type name number": `*` repeats one, a message holds at most one of the fields marked `?`.
MESSAGES = {
    "Empty": "",
    "Vec3": "float x 1, float y 2, float z 3",
    "Quat": "float w 1, float x 2, float y 3, float z 4",
    "Pose": "Vec3 vec 1, Quat quat 2",
    "PoseAtTime": "Pose pose 1, fixed64 timestamp_us 2",
    "Trajectory": "PoseAtTime* poses 1",
    "ApiVersion": "uint32 major 1, uint32 minor 2, uint32 patch 3",
    "VersionId": "string version_id 1, string git_hash 2, ApiVersion grpc_api_version 3",
    "SceneRequest": "string scene_id 1",
    "AvailableScenesReturn": "string* scene_ids 1",
    "LoadedSceneEntry": "string scene_id 1, uint64 loaded_instance_count 2, uint64 reusable_instance_count 3",
    "LoadedScenesReturn": "LoadedSceneEntry* scenes 1, uint64 loaded_instance_capacity 2",
    "PosePair": "Pose start_pose 1, Pose end_pose 2",
    "DynamicObject": "string track_id 1, PosePair pose_pair 2",
    "LinearCde": "double linear_c 1, double linear_d 2, double linear_e 3",
    "FthetaParam":
        "double principal_point_x 1, double principal_point_y 2, FthetaPolynomial reference_poly 3, double* pixeldist_to_angle_poly 4, "
        "double* angle_to_pixeldist_poly 5, double max_angle 6, LinearCde linear_cde 7",
    "OpenCVPinholeParam":
        "double principal_point_x 1, double principal_point_y 2, double focal_length_x 3, double focal_length_y 4, "
        "double* radial_coeffs 5, double* tangential_coeffs 6, double* thin_prism_coeffs 7",
    "OpenCVFisheyeParam":
        "double principal_point_x 1, double principal_point_y 2, double focal_length_x 3, double focal_length_y 4, "
        "double* radial_coeffs 5, double max_angle 6",
    "WindshieldModel":
        "WindshieldPolynomial reference_poly 1, double* horizontal_poly 2, double* vertical_poly 3, "
        "double* horizontal_poly_inverse 4, double* vertical_poly_inverse 5",
    "CameraSpec":
        "FthetaParam? ftheta_param 2, OpenCVPinholeParam? opencv_pinhole_param 3, OpenCVFisheyeParam? opencv_fisheye_param 4, "
        "string logical_id 5, uint32 resolution_h 7, uint32 resolution_w 8, ShutterType shutter_type 9, "
        "WindshieldModel bivariate_windshield_model_param 10",
    "EgoMaskId": "string camera_logical_id 1, string rig_config_id 2",
    "EgoMaskMetadata": "EgoMaskId ego_mask_id 1",
    "AvailableEgoMasksReturn": "EgoMaskMetadata* ego_mask_metadata 1",
    "AvailableCamera": "CameraSpec intrinsics 1, Pose rig_to_camera 2, string logical_id 3",
    "AvailableCamerasReturn": "AvailableCamera* available_cameras 1",
    "AvailableTrajectory": "Trajectory trajectory 2",
    "AvailableTrajectoriesReturn": "AvailableTrajectory* available_trajectories 1",
    "RGBRenderRequest":
        "string scene_id 1, uint32 resolution_h 2, uint32 resolution_w 3, CameraSpec camera_intrinsics 4, fixed64 frame_start_us 5, "
        "fixed64 frame_end_us 6, PosePair sensor_pose 7, DynamicObject* dynamic_objects 8, ImageFormat image_format 9, "
        "float image_quality 10, bool insert_ego_mask 11, EgoMaskId ego_mask_id 12",
    "RGBRenderReturn": "bytes image_bytes 1",
    "BatchRGBRenderItem": "string camera_name 1, RGBRenderRequest request 2",
    "BatchRGBRenderRequest": "BatchRGBRenderItem* items 1",
    "BatchRGBRenderResult": "string camera_name 1, RGBRenderReturn result 2, bool success 3, string error_message 4",
    "BatchRGBRenderReturn": "BatchRGBRenderResult* items 1",
    "LidarConfig": "LidarType lidar_type 2",
    "LidarRenderRequest":
        "string scene_id 1, LidarConfig lidar_config 2, fixed64 frame_start_us 3, fixed64 frame_end_us 4, PosePair sensor_pose 5, "
        "DynamicObject* dynamic_objects 6",
    "LidarRenderReturn": "float* point_xyzs 1, float* point_intensities 2, uint32 num_points 3, bytes point_xyzs_buffer 4, "
        "bytes point_intensities_buffer 5",
    "AggregatedRenderRequest": "RGBRenderRequest* rgb_requests 1, LidarRenderRequest* lidar_requests 2",
    "AggregatedRenderReturn": "RGBRenderReturn* rgb_returns 1, LidarRenderReturn* lidar_returns 2, bytes driver_data 3",
    "HealthCheckRequest": "string service 1",
    "HealthCheckResponse": "ServingStatus status 1",
}  # fmt: skip
METHODS = {  # of the service: request and reply
    "get_version": ("Empty", "VersionId"),
    "get_available_scenes": ("Empty", "AvailableScenesReturn"),
    "get_loaded_scenes": ("Empty", "LoadedScenesReturn"),
    "get_available_cameras": ("SceneRequest", "AvailableCamerasReturn"),
    "get_available_trajectories": ("SceneRequest", "AvailableTrajectoriesReturn"),
    "get_available_ego_masks": ("Empty", "AvailableEgoMasksReturn"),
    "render_rgb": ("RGBRenderRequest", "RGBRenderReturn"),
    "batch_render_rgb": ("BatchRGBRenderRequest", "BatchRGBRenderReturn"),
    "render_aggregated": ("AggregatedRenderRequest", "AggregatedRenderReturn"),
    "render_lidar": ("LidarRenderRequest", "LidarRenderReturn"),
}


def message(name: str) -> Any:
    """The class of that message."""
    return _classes()[name]


def number_of(enum: str, value: str) -> int:
    return ENUMS[enum].index(value)


def name_of(enum: str, number: int) -> str | None:
    """The value's name; None for a number that the enum lacks."""
    return ENUMS[enum][number] if 0 <= number < len(ENUMS[enum]) else None


def parsed(name: str, data: bytes) -> Any:
    """The message that the bytes hold; RequestError if they hold none."""
    try:
        return message(name).FromString(data)
    except DecodeError:
        raise RequestError(f"the request of {len(data)} bytes is no {name}; send one of that message") from None


@lru_cache(maxsize=1)
def _classes() -> dict[str, Any]:
    pool = DescriptorPool()
    pool.Add(_file())
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in MESSAGES}


def _file() -> FileDescriptorProto:
    file = FileDescriptorProto(name="nurec_lite/sensorsim.proto", package=PACKAGE, syntax="proto3")
    for name, values in ENUMS.items():
        enum = file.enum_type.add(name=name)
        for number, value in enumerate(values):
            enum.value.add(name=f"{name}_{value}", number=number)
    for name, text in MESSAGES.items():
        described = file.message_type.add(name=name)
        for field in filter(None, text.split(", ")):
            _add_field(described, *field.split(" "))
    return file


def _add_field(described: Any, kind: str, name: str, number: str) -> None:
    plain = kind.rstrip("*?")
    label = FieldDescriptorProto.LABEL_REPEATED if kind.endswith("*") else FieldDescriptorProto.LABEL_OPTIONAL
    field = described.field.add(name=name, number=int(number), label=label)
    if plain in MESSAGES or plain in ENUMS:
        field.type = FieldDescriptorProto.TYPE_ENUM if plain in ENUMS else FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f".{PACKAGE}.{plain}"
    else:
        field.type = getattr(FieldDescriptorProto, f"TYPE_{plain.upper()}")
    if kind.endswith("?"):
        if not described.oneof_decl:
            described.oneof_decl.add(name="one_of")
        field.oneof_index = 0
