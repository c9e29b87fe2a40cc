# SPDX-License-Identifier: Apache-2.0
"""Recordings of a capture, written by the library that reads them: ROS 1 bags, ROS 2 bags with sqlite3, and MCAP."""

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rosbags")
import numpy as np
import torch
from PIL import Image
from rosbags.rosbag1 import Writer as Writer1
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin
from rosbags.rosbag2 import Writer as Writer2
from torch import Tensor

from nurec_lite.capture.rosbag.library import (
    CLOUD,
    COMPRESSED,
    FIX,
    IMAGE,
    IMU,
    INFO,
    LIVOX,
    ODOMETRY,
    POSE,
    TRANSFORMS,
    typestore,
)
from nurec_lite.capture.types import Capture
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lidar import Sweep
from nurec_lite.geometry.se3 import matrix_to_quat

START = 1_700_000_000_000_000_000  # nanoseconds of the capture's second 0
LATE = 20_000_000  # nanoseconds from a message's stamp to its receipt
TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 8: "f8"}


@dataclass(frozen=True)
class Driver:
    """Layout of a sweep's points by a driver."""

    fields: tuple[tuple[str, int], ...]  # name and type of PointField
    time: (
        Callable[[np.ndarray, int], np.ndarray] | None
    )  # of nanoseconds and the stamp -> the values of the field of time
    scale: float = 255.0  # largest intensity
    padding: int = 0  # bytes after a point
    big: bool = False  # big endian
    rows: bool = False  # organised: a row a ring, with NaN where nothing returned
    zero: bool = False  # points without return are zeros


_XYZ = (("x", 7), ("y", 7), ("z", 7))
DRIVERS = {
    "velodyne": Driver((*_XYZ, ("intensity", 7), ("ring", 4), ("time", 7)), lambda t, stamp: (t - stamp) * 1e-9),
    "ouster": Driver(
        (*_XYZ, ("intensity", 7), ("t", 6), ("reflectivity", 4), ("ring", 4), ("ambient", 4), ("range", 6)),
        lambda t, stamp: t - stamp, scale=1800.0, padding=4, rows=True, zero=True,
    ),
    "hesai": Driver((*_XYZ, ("intensity", 7), ("timestamp", 8), ("ring", 4)), lambda t, stamp: t * 1e-9, padding=6, rows=True),
    "livox": Driver((*_XYZ, ("intensity", 7), ("tag", 2), ("line", 2), ("timestamp", 8)), lambda t, stamp: t.astype("f8")),
    "plain": Driver((*_XYZ, ("intensity", 7)), None, scale=1.0),
    "big": Driver((*_XYZ, ("intensity", 7), ("ring", 4), ("time", 7)), lambda t, stamp: (t - stamp) * 1e-9, padding=3, big=True),
}  # fmt: skip


@dataclass
class Recording:
    """Messages, in the order of their stamps once they are written."""

    capture: Capture
    ros1: bool = False
    rows: list[tuple[int, str, str, Any]] = field(default_factory=list)  # time of receipt, topic, type, message

    def __post_init__(self) -> None:
        self.store = typestore(self.ros1)

    def make(self, kind: str, **values: Any) -> Any:
        cls = self.store.types[kind]
        names = {name.lower(): name for name in cls.__dataclass_fields__}
        return cls(**{names[key]: value for key, value in values.items()})

    def header(self, stamp: int, frame: str) -> Any:
        time = self.make("builtin_interfaces/msg/Time", sec=stamp // 10**9, nanosec=stamp % 10**9)
        return self.make("std_msgs/msg/Header", stamp=time, frame_id=frame, **({"seq": 0} if self.ros1 else {}))

    def add(self, topic: str, kind: str, stamp: int, message: Any) -> None:
        self.rows.append((stamp + LATE, topic, kind, message))

    # ---- the capture

    def images(self, *, compressed: str | None = "png", info: bool = True, encoding: str = "rgb8") -> "Recording":
        for frame in self.capture.images:
            stamp, base = stamp_of(frame.time_mid), f"/{frame.sensor}"
            self.image(base, stamp, f"{frame.sensor}_optical", frame.load().numpy(), compressed, encoding)
            if info:
                self.info(f"{base}/camera_info", stamp, self.capture.camera(frame.sensor))
        return self

    def image(
        self, base: str, stamp: int, frame: str, pixels: np.ndarray, compressed: str | None, encoding: str = "rgb8"
    ) -> None:
        if compressed:
            data, header = encoded(pixels, compressed), self.header(stamp, frame)
            message = self.make(COMPRESSED, header=header, format=compressed, data=np.frombuffer(data, np.uint8))
            self.add(f"{base}/image_raw/compressed", COMPRESSED, stamp, message)
            return
        data = rows_of(pixels, encoding)
        message = self.make(
            IMAGE, header=self.header(stamp, frame), height=pixels.shape[0], width=pixels.shape[1], encoding=encoding,
            is_bigendian=0, step=data.shape[1], data=data.reshape(-1),
        )  # fmt: skip
        self.add(f"{base}/image_raw", IMAGE, stamp, message)

    def info(
        self, topic: str, stamp: int, camera: Camera, model: str = "plumb_bob", D: tuple[float, ...] | None = None
    ) -> None:
        roi = self.make("sensor_msgs/msg/RegionOfInterest", x_offset=0, y_offset=0, height=0, width=0, do_rectify=False)
        cx, cy = camera.cx - 0.5, camera.cy - 0.5
        K = np.array([camera.fx, 0, cx, 0, camera.fy, cy, 0, 0, 1.0])
        P = np.array([camera.fx, 0, cx, 0, 0, camera.fy, cy, 0, 0, 0, 1, 0.0])
        values = {
            "d": np.array(camera.distortion if D is None else D, dtype="f8"),
            "k": K,
            "r": np.eye(3).reshape(-1),
            "p": P,
        }
        message = self.make(
            INFO, header=self.header(stamp, f"{camera.name}_optical"), height=camera.height, width=camera.width,
            distortion_model=model, binning_x=0, binning_y=0, roi=roi, **values,
        )  # fmt: skip
        self.add(topic, INFO, stamp, message)

    def sweeps(self, driver: str = "velodyne", topic: str = "/points") -> "Recording":
        for frame in self.capture.sweeps:
            sweep, stamp = frame.load(), stamp_of(frame.time_start)
            self.add(topic, CLOUD, stamp, self.cloud(sweep, stamp, DRIVERS[driver]))
        return self

    def cloud(self, sweep: Sweep, stamp: int, driver: Driver) -> Any:
        table, height = points_of(sweep, stamp, driver)
        order, at, fields = (">" if driver.big else "<"), 0, []
        for name, kind in driver.fields:
            fields.append(self.make("sensor_msgs/msg/PointField", name=name, offset=at, datatype=kind, count=1))
            at += np.dtype(TYPES[kind]).itemsize
        layout = np.dtype({
            "names": [name for name, _ in driver.fields], "formats": [order + TYPES[kind] for _, kind in driver.fields],
            "offsets": [f.offset for f in fields], "itemsize": at + driver.padding,
        })  # fmt: skip
        packed = np.zeros(len(table), dtype=layout)
        for name, _ in driver.fields:
            packed[name] = table[name]
        width, pad = len(packed) // height, 8 if driver.rows else 0
        rows = np.zeros((height, width * layout.itemsize + pad), np.uint8)
        rows[:, : width * layout.itemsize] = np.frombuffer(packed.tobytes(), np.uint8).reshape(height, -1)
        return self.make(
            CLOUD, header=self.header(stamp, "lidar"), height=height, width=width, fields=fields, is_bigendian=driver.big,
            point_step=layout.itemsize, row_step=rows.shape[1], data=rows.reshape(-1), is_dense=False,
        )  # fmt: skip

    def livox(self, topic: str = "/livox/lidar") -> "Recording":
        """Livox's own message: lines instead of rings, nanoseconds since the first point."""
        for frame in self.capture.sweeps:
            sweep, stamp = frame.load(), stamp_of(frame.time_start)
            table, _ = points_of(sweep.select(sweep.returned), stamp, DRIVERS["velodyne"])
            make = self.store.types[LIVOX[1].replace("CustomMsg", "CustomPoint")]
            times = stamps_of(sweep.times[sweep.returned]) - stamp
            points = [
                make(offset_time=int(t), x=float(p["x"]), y=float(p["y"]), z=float(p["z"]), reflectivity=int(p["intensity"]), tag=0, line=0)
                for p, t in zip(table, times, strict=True)
            ]  # fmt: skip
            message = self.make(
                LIVOX[1], header=self.header(stamp, "lidar"), timebase=stamp, point_num=len(points), lidar_id=1,
                rsvd=np.zeros(3, np.uint8), points=points,
            )  # fmt: skip
            self.add(topic, LIVOX[1], stamp, message)
        return self

    def mountings(self, moving: bool = False) -> "Recording":
        """base_link -> chassis -> sensors; on /tf instead of /tf_static if they are published again and again."""
        half = torch.eye(4, dtype=torch.float64)
        half[:3, 3] = torch.tensor([0.5, 0.1, 0.3])
        edges = [("base_link", "chassis", half)]
        edges += [("chassis", f"{c.name}_optical", torch.linalg.inv(half) @ c.T_rig_cam) for c in self.capture.cameras]
        edges += [("chassis", "lidar", torch.linalg.inv(half) @ s.T_rig_lidar) for s in self.capture.lidars]
        for stamp in [START + k * 100_000_000 for k in range(3 if moving else 1)]:
            transforms = [self.transform(stamp, *edge) for edge in edges]
            message = self.make(TRANSFORMS[0], transforms=transforms)
            self.add("/tf" if moving else "/tf_static", TRANSFORMS[0], stamp, message)
        return self

    def transform(self, stamp: int, parent: str, child: str, T: Tensor) -> Any:
        x, y, z = T[:3, 3].tolist()
        place = self.make("geometry_msgs/msg/Vector3", x=x, y=y, z=z)
        turn = self.make("geometry_msgs/msg/Transform", translation=place, rotation=self.quaternion(T))
        return self.make(
            "geometry_msgs/msg/TransformStamped",
            header=self.header(stamp, parent),
            child_frame_id=child,
            transform=turn,
        )

    def quaternion(self, T: Tensor) -> Any:
        w, x, y, z = matrix_to_quat(T[:3, :3]).tolist()
        return self.make("geometry_msgs/msg/Quaternion", x=x, y=y, z=z, w=w)

    def path(self) -> Iterator[tuple[int, Tensor]]:
        """Stamps and poses of the rig, both ends of each frame, once each."""
        frames = (*self.capture.images, *self.capture.sweeps)
        rows = {
            stamp_of(t): T
            for f in frames
            for t, T in ((f.time_start, f.T_world_rig_start), (f.time_end, f.T_world_rig_end))
        }
        yield from sorted(rows.items())

    def pose(self, T: Tensor) -> Any:
        x, y, z = T[:3, 3].tolist()
        point = self.make("geometry_msgs/msg/Point", x=x, y=y, z=z)
        return self.make("geometry_msgs/msg/Pose", position=point, orientation=self.quaternion(T))

    def odometry(self, topic: str = "/odom", child: str = "base_link") -> "Recording":
        for stamp, T in self.path():
            way, turn = (self.make("geometry_msgs/msg/Vector3", x=0.0, y=0.0, z=0.0) for _ in range(2))
            twist = self.make("geometry_msgs/msg/Twist", linear=way, angular=turn)
            pose = self.make("geometry_msgs/msg/PoseWithCovariance", pose=self.pose(T), covariance=np.zeros(36))
            moves = self.make("geometry_msgs/msg/TwistWithCovariance", twist=twist, covariance=np.zeros(36))
            header = self.header(stamp, "odom")
            self.add(
                topic, ODOMETRY, stamp, self.make(ODOMETRY, header=header, child_frame_id=child, pose=pose, twist=moves)
            )
        return self

    def stamped(self, topic: str = "/pose", T_rig_frame: Tensor | None = None) -> "Recording":
        for stamp, T in self.path():
            pose = self.pose(T if T_rig_frame is None else T @ T_rig_frame)
            self.add(topic, POSE, stamp, self.make(POSE, header=self.header(stamp, "map"), pose=pose))
        return self

    def tf(self) -> "Recording":
        """A world that moves against the vehicle, in two steps."""
        still = torch.eye(4, dtype=torch.float64)
        for stamp, T in self.path():
            transforms = [self.transform(stamp, "odom", "base_link", T), self.transform(stamp, "map", "odom", still)]
            self.add("/tf", TRANSFORMS[0], stamp, self.make(TRANSFORMS[0], transforms=transforms))
        return self

    def satellites(self, imu: bool = True) -> "Recording":
        """Latitude and longitude near Karlsruhe; the antenna sits in the origin of the rig."""
        status = self.make("sensor_msgs/msg/NavSatStatus", status=0, service=1)
        zero = self.make("geometry_msgs/msg/Vector3", x=0.0, y=0.0, z=0.0)
        nine = np.zeros(9)
        for stamp, T in self.path():
            latitude, longitude, altitude = geodetic(T[:3, 3])
            fix = self.make(
                FIX, header=self.header(stamp, "base_link"), status=status, latitude=latitude, longitude=longitude,
                altitude=altitude, position_covariance=nine, position_covariance_type=0,
            )  # fmt: skip
            self.add("/gps/fix", FIX, stamp, fix)
            if imu:
                unit = self.make(
                    IMU, header=self.header(stamp, "base_link"), orientation=self.quaternion(T), orientation_covariance=nine,
                    angular_velocity=zero, angular_velocity_covariance=nine, linear_acceleration=zero,
                    linear_acceleration_covariance=nine,
                )  # fmt: skip
                self.add("/imu/data", IMU, stamp, unit)
        return self

    # ---- files

    def write(self, path: Path, storage: str = "sqlite3", compression: str = "") -> Path:
        """`path` is a file in ROS 1, a folder in ROS 2. Compression: message (ROS 2), storage (MCAP), bz2 or lz4 (ROS 1)."""
        writer = Writer1(path) if self.ros1 else Writer2(path, version=9, storage_plugin=StoragePlugin[storage.upper()])
        if compression and isinstance(writer, Writer1):
            writer.set_compression(Writer1.CompressionFormat[compression.upper()])
        elif compression:
            writer.set_compression(CompressionMode[compression.upper()], CompressionFormat.ZSTD)
        with writer:
            known: dict[str, Any] = {}
            for received, topic, kind, message in sorted(self.rows, key=lambda row: row[:2]):
                if topic not in known:
                    known[topic] = writer.add_connection(topic, kind, typestore=self.store)
                serialize = self.store.serialize_ros1 if self.ros1 else self.store.serialize_cdr
                writer.write(known[topic], received, serialize(message, kind))
        return path


def stamp_of(seconds: float) -> int:
    return START + round(seconds * 1e9)


def stamps_of(seconds: Tensor) -> np.ndarray:
    return START + np.round(seconds.double().numpy() * 1e9).astype(np.int64)


def encoded(pixels: np.ndarray, form: str) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, form.upper(), **({"quality": 95} if form == "jpeg" else {}))
    return buffer.getvalue()


def rows_of(pixels: np.ndarray, encoding: str) -> np.ndarray:  # [H, step] uint8, with six bytes after each row
    places = {"rgb8": [0, 1, 2], "bgr8": [2, 1, 0], "mono8": [1]}
    if encoding in places:
        rows = pixels[..., places[encoding]].reshape(len(pixels), -1)
    else:
        rows, colours = np.zeros(pixels.shape[:2], np.uint8), encoding.removeprefix("bayer_").removesuffix("8")
        for k, colour in enumerate(colours):
            rows[k // 2 :: 2, k % 2 :: 2] = pixels[k // 2 :: 2, k % 2 :: 2, "rgb".index(colour)]
    return np.pad(rows, ((0, 0), (0, 6)))


def points_of(sweep: Sweep, stamp: int, driver: Driver) -> tuple[np.ndarray, int]:  # records with all fields, rows
    """Points in the order of time; organised ones in the order of rings, with points that did not return."""
    if driver.rows:
        sweep = sweep.select(torch.argsort(sweep.rings, stable=True))
    elif driver.zero is False:
        sweep = sweep.select(sweep.returned)
    kinds = [(name, "f8") for name in ("x", "y", "z", "intensity", "time", "t", "timestamp")]
    kinds += [(name, "i8") for name in ("ring", "line", "tag", "reflectivity", "ambient", "range")]
    table = np.zeros(len(sweep), dtype=kinds)
    places = (sweep.directions.double() * sweep.ranges.double()[:, None]).numpy()
    places[~sweep.returned.numpy()] = 0.0 if driver.zero else np.nan
    for k, name in enumerate("xyz"):
        table[name] = places[:, k]
    table["intensity"] = sweep.intensities.numpy() * driver.scale
    table["ring"] = table["line"] = sweep.rings.numpy()
    if driver.time is not None:
        names = {name for name, _ in driver.fields} & {"time", "t", "timestamp"}
        table[names.pop()] = driver.time(stamps_of(sweep.times), stamp)
    return table, int(sweep.rings.max()) + 1 if driver.rows else 1


def geodetic(place: Tensor) -> tuple[float, float, float]:
    """Latitude, longitude and altitude of metres east, north and up of a point near Karlsruhe, by Newton's method."""
    from nurec_lite.capture.rosbag.poses import local_metres

    origin, found = torch.tensor([49.0, 8.4, 110.0]).double(), torch.tensor([49.0, 8.4, 110.0]).double()
    for _ in range(4):
        off = place - local_metres(torch.stack([origin, found]))[1]
        found = found + torch.tensor([off[1] / 111_200, off[0] / 73_100, off[2]]).double()
    return tuple(found.tolist())  # type: ignore[return-value]


def street(capture: Capture, **kinds: Any) -> Recording:
    """Images, sweeps, mountings and odometry of a capture."""
    driver = kinds.pop("driver", "velodyne")
    return Recording(capture, kinds.pop("ros1", False)).images(**kinds).sweeps(driver).mountings().odometry()
