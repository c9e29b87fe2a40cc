# SPDX-License-Identifier: Apache-2.0
"""The library `rosbags` and the message types that this reader knows. It is an extra: its absence is one sentence.

Messages are decoded by the definitions that ROS publishes, not by those in the bag: text of a bag never becomes code.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nurec_lite.capture.files import short
from nurec_lite.capture.packages import check_package
from nurec_lite.capture.rosbag.livox import decode_livox
from nurec_lite.capture.types import CaptureError

if TYPE_CHECKING:
    from rosbags.typesys.store import Typestore

IMAGE, COMPRESSED = "sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage"
INFO, CLOUD = "sensor_msgs/msg/CameraInfo", "sensor_msgs/msg/PointCloud2"
LIVOX = ("livox_ros_driver/msg/CustomMsg", "livox_ros_driver2/msg/CustomMsg")
ODOMETRY = "nav_msgs/msg/Odometry"
POSE, POSE_COVARIANCE = "geometry_msgs/msg/PoseStamped", "geometry_msgs/msg/PoseWithCovarianceStamped"
TRANSFORMS = ("tf2_msgs/msg/TFMessage", "tf/msg/tfMessage")
FIX, IMU = "sensor_msgs/msg/NavSatFix", "sensor_msgs/msg/Imu"
KNOWN = (
    IMAGE, COMPRESSED, INFO, CLOUD, *LIVOX, ODOMETRY, POSE, POSE_COVARIANCE, *TRANSFORMS, FIX, IMU,
)  # fmt: skip
_TRANSFORM = "geometry_msgs/TransformStamped[] transforms\n"
_LIVOX = (
    "std_msgs/Header header\nuint64 timebase\nuint32 point_num\nuint8 lidar_id\nuint8[3] rsvd\nCustomPoint[] points\n"
)
_LIVOX_POINT = "uint32 offset_time\nfloat32 x\nfloat32 y\nfloat32 z\nuint8 reflectivity\nuint8 tag\nuint8 line\n"


@contextmanager
def damaged(
    what: str,  # file or message, for the sentence
    remedy: str,
) -> Iterator[None]:
    """Turns any error of the library about a damaged file into one sentence: it documents a part of that only, and a size that a
    file claims may be beyond all memory."""
    try:
        yield
    except CaptureError:
        raise
    except Exception as error:
        raise CaptureError(f"{what} cannot be read ({short(str(error) or type(error).__name__)}); {remedy}") from error


def check_installed(path: Path) -> None:
    check_package("rosbags", "rosbags", path)


@lru_cache(maxsize=2)
def typestore(ros1: bool) -> "Typestore":
    from rosbags.typesys import Stores, get_types_from_msg, get_typestore

    store = get_typestore(Stores.ROS1_NOETIC if ros1 else Stores.ROS2_HUMBLE)
    for name in TRANSFORMS:
        if name not in store.fielddefs:
            store.register(get_types_from_msg(_TRANSFORM, name))
    for name in LIVOX:
        package = name.split("/")[0]
        store.register(get_types_from_msg(_LIVOX_POINT, f"{package}/msg/CustomPoint"))
        store.register(get_types_from_msg(_LIVOX, name))
    return store


def other_definition(
    kind: str,  # of KNOWN
    digest: str,  # of a ROS 1 connection
) -> bool:
    """Whether the bag was recorded with another definition of the message."""
    return digest not in ("", "*", typestore(True).generate_msgdef(kind)[1])


def decode(data: bytes, kind: str, ros1: bool) -> Any:
    """A message with the fields that ROS names."""
    if kind in LIVOX:
        return decode_livox(data, ros1)
    store = typestore(ros1)
    return store.deserialize_ros1(data, kind) if ros1 else store.deserialize_cdr(data, kind)
