# SPDX-License-Identifier: Apache-2.0
"""A small segment in the layout of the Waymo Open Dataset, version 2: a street between walls, the upper lidar and one at the rear, two
cameras, a car that drives and one that is parked."""

import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from nurec_lite.geometry.lidar import unit_directions
from nurec_lite.geometry.se3 import invert

SEGMENT, SIZE = "1002394760240072_1120_000_1140_000", (48, 32)
START, FRAMES, TURN, SPEED = 1_552_440_195_362_591, 4, 0.1, 9.0  # microseconds, frames, seconds, metres a second
LATE, MOMENT = (
    0.016,
    0.044,
)  # seconds from a frame's stamp to the first column of the upper lidar, and to the frame's pose
TOP, REAR, COLUMNS = torch.deg2rad(torch.linspace(-17.6, 2.4, 12)).double(), (-0.6, 0.2), {"TOP": 90, "REAR": 30}
LASERS, CAMERAS = (
    {1: "TOP", 5: "REAR"},
    {1: ("FRONT", 0.0, 4), 4: ("SIDE_LEFT", 0.5 * math.pi, 1)},
)  # name, azimuth, readout
EXPOSED = (-0.011, 0.009)  # seconds of the first and of the last column or row, about the time of an image's pose
CAR, PARKED = "-aQ_car", "parked"


def rig_at(seconds: Tensor) -> Tensor:  # [n] since the first frame -> [n, 4, 4]; the vehicle drives along the world's y
    T = torch.eye(4, dtype=torch.float64).repeat(len(seconds), 1, 1)
    T[:, :3, :3] = torch.tensor([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])
    T[:, :3, 3] = torch.stack([0 * seconds + 860, SPEED * seconds + 1568, 0 * seconds - 65], dim=1)
    return T


def at(seconds: float) -> Tensor:  # [4, 4]
    return rig_at(torch.tensor([seconds], dtype=torch.float64))[0]


def mounted(lidar: str) -> Tensor:  # [4, 4] T_rig_lidar
    angle = 2.58 if lidar == "TOP" else math.pi
    T = torch.eye(4, dtype=torch.float64)
    T[:2, :2] = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    T[:3, 3] = torch.tensor([1.4, 0.0, 2.2] if lidar == "TOP" else [-1.1, 0.0, 0.8])
    return T


def camera(name: str) -> Tensor:  # [4, 4] T_rig_cam with x right and y down
    angle = next(a for n, a, _ in CAMERAS.values() if n == name)
    c, s = math.cos(angle), math.sin(angle)
    T = torch.eye(4, dtype=torch.float64)
    T[:3, :3] = (
        torch.tensor([[c, -s, 0], [s, c, 0], [0, 0, 1.0]]).double()
        @ torch.tensor([[0, 0, 1.0], [-1, 0, 0], [0, -1, 0]]).double()
    )
    T[:3, 3] = torch.tensor([1.5, 0.0, 2.1])
    return T


def car_at(seconds: Tensor) -> Tensor:  # [n] -> [n, 3] world, metres: ahead of the rig on its right
    return torch.stack([0 * seconds + 862, 5 * seconds + 1580, 0 * seconds - 64.2], dim=1)


def column_times(frame: int) -> Tensor:  # [W] seconds of the upper lidar
    return TURN * (frame + (torch.arange(COLUMNS["TOP"]) + 0.5) / COLUMNS["TOP"]).double() + LATE


def pose_time(number: int, frame: int) -> float:  # seconds of an image
    return TURN * frame + 0.01 * number + 0.02


def range_image(lidar: str, frame: int) -> Tensor:  # [H, W, 4]
    """Ground, and walls 12 m to the sides; points farther than 60 m do not return."""
    inclinations = TOP.flip(0) if lidar == "TOP" else torch.linspace(*REAR, 17).double()[1::2].flip(0)
    width, T = COLUMNS[lidar], mounted(lidar)
    turned = (
        math.pi
        - 2 * math.pi * (torch.arange(width).double() + 0.5) / width
        - math.atan2(float(T[1, 0]), float(T[0, 0]))
    )
    angles = torch.stack(torch.broadcast_tensors(turned, inclinations[:, None]), dim=-1)
    ways = unit_directions(angles) @ T[:3, :3].T
    far = torch.minimum(
        torch.where(ways[..., 2] < 0, -T[2, 3] / ways[..., 2], torch.inf), (12 - T[1, 3]) / ways[..., 1].abs()
    )
    there = far < 60
    values = torch.where(there, far, -1.0)
    return torch.stack([values, torch.where(there, 0.3, -1.0), 0 * values, 0 * values - 1], dim=-1)


def pixel_poses(frame: int) -> Tensor:  # [H, W, 6] roll, pitch, yaw, x, y, z
    T = rig_at(column_times(frame))
    yaw = torch.atan2(T[:, 1, 0], T[:, 0, 0])
    row = torch.cat([torch.stack([0 * yaw, 0 * yaw, yaw], dim=1), T[:, :3, 3]], dim=1)
    return row.expand(len(TOP), -1, -1)


def write_segment(root: Path, names: bool = False, group: int = 3) -> Path:
    """`names`: cameras and lidars by their names in place of numbers, as version 2.0.0 has them; `group`: rows of a row group."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    for component, columns in tables(names).items():
        path = root / component / f"{SEGMENT}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        table = {"key.segment_context_name": [SEGMENT] * len(next(iter(columns.values()))), **columns}
        parquet.write_table(pa.table(table), path, row_group_size=group)
    return root


def tables(names: bool = False) -> dict[str, dict[str, Any]]:
    return {
        "vehicle_pose": {
            "key.frame_timestamp_micros": [micros(TURN * k) for k in range(FRAMES)],
            "[VehiclePoseComponent].world_from_vehicle.transform": _lists([at(TURN * k + MOMENT) for k in range(FRAMES)]),
        },
        "camera_calibration": _camera_calibration(names), "camera_image": _camera_image(names),
        "lidar_calibration": _lidar_calibration(names), "lidar": _lidar(names), "lidar_pose": _lidar_pose(names), "lidar_box": _boxes(),
    }  # fmt: skip


def micros(seconds: float) -> int:
    return START + round(seconds * 1e6)


def _lists(poses: list[Tensor]) -> Any:
    import pyarrow as pa

    return pa.FixedSizeListArray.from_arrays(pa.array(torch.stack(poses).flatten().numpy()), 16)


def _named(numbers: list[int], names: dict[int, Any], by_name: bool) -> Any:
    if by_name:
        return [name if isinstance(name := names[n], str) else name[0] for n in numbers]
    return np.array(numbers, np.int8)


def _camera_calibration(by_name: bool) -> dict[str, Any]:
    prefix = "[CameraCalibrationComponent]."
    lens = {
        "f_u": 40.0,
        "f_v": 40.0,
        "c_u": 24.0,
        "c_v": 16.0,
        "k1": 0.03,
        "k2": -0.02,
        "p1": 0.0,
        "p2": 0.0,
        "k3": 0.0,
    }
    axes = torch.tensor([[0, -1, 0, 0], [0, 0, -1, 0], [1, 0, 0, 0], [0, 0, 0, 1]], dtype=torch.float64)
    return {
        "key.camera_name": _named(list(CAMERAS), CAMERAS, by_name), **{f"{prefix}intrinsic.{k}": [v] * 2 for k, v in lens.items()},
        f"{prefix}extrinsic.transform": _lists([camera(name) @ axes for name, _, _ in CAMERAS.values()]),
        f"{prefix}width": np.full(2, SIZE[0], np.int32), f"{prefix}height": np.full(2, SIZE[1], np.int32),
        f"{prefix}rolling_shutter_direction": np.array([d for _, _, d in CAMERAS.values()], np.int8),
    }  # fmt: skip


def _camera_image(by_name: bool) -> dict[str, Any]:
    prefix, rows = "[CameraImageComponent].", [(k, number) for k in range(FRAMES) for number in CAMERAS]
    times, shutter = [pose_time(number, k) for k, number in rows], 0.004
    unix = np.array(times) + START * 1e-6
    return {
        "key.frame_timestamp_micros": [micros(TURN * k) for k, _ in rows],
        "key.camera_name": _named([n for _, n in rows], CAMERAS, by_name),
        f"{prefix}image": [_jpeg(10 * number + k) for k, number in rows], f"{prefix}pose.transform": _lists([at(t) for t in times]),
        f"{prefix}pose_timestamp": unix, f"{prefix}rolling_shutter_params.shutter": np.full(len(rows), shutter),
        f"{prefix}rolling_shutter_params.camera_trigger_time": unix + EXPOSED[0] - 0.5 * shutter,
        f"{prefix}rolling_shutter_params.camera_readout_done_time": unix + EXPOSED[1] + 0.5 * shutter,
    }  # fmt: skip


def _jpeg(seed: int) -> bytes:
    data = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (SIZE[1], SIZE[0], 3), dtype=np.uint8)).save(
        data, "jpeg"
    )
    return data.getvalue()


def _lidar_calibration(by_name: bool) -> dict[str, Any]:
    prefix = "[LiDARCalibrationComponent]."
    return {
        "key.laser_name": _named(list(LASERS), LASERS, by_name),
        f"{prefix}extrinsic.transform": _lists([mounted(n) for n in LASERS.values()]),
        f"{prefix}beam_inclination.min": [float(TOP[0]), REAR[0]], f"{prefix}beam_inclination.max": [float(TOP[-1]), REAR[1]],
        f"{prefix}beam_inclination.values": [TOP.tolist(), None],
    }  # fmt: skip


def _lidar(by_name: bool) -> dict[str, Any]:
    rows = [(k, number) for k in range(FRAMES) for number in LASERS]
    images = [range_image(LASERS[number], k) for k, number in rows]
    return {
        "key.frame_timestamp_micros": [micros(TURN * k) for k, _ in rows],
        "key.laser_name": _named([n for _, n in rows], LASERS, by_name),
        **_images("[LiDARComponent].range_image_return1.", images),
    }  # fmt: skip


def _lidar_pose(by_name: bool) -> dict[str, Any]:
    return {
        "key.frame_timestamp_micros": [micros(TURN * k) for k in range(FRAMES)],
        "key.laser_name": _named([1] * FRAMES, LASERS, by_name),
        **_images("[LiDARPoseComponent].range_image_return1.", [pixel_poses(k) for k in range(FRAMES)]),
    }  # fmt: skip


def _images(prefix: str, images: list[Tensor]) -> dict[str, Any]:
    import pyarrow as pa

    values = pa.array([image.flatten().float().numpy() for image in images], pa.list_(pa.float32()))
    shapes = pa.FixedSizeListArray.from_arrays(
        pa.array(np.array([image.shape for image in images], np.int32).ravel()), 3
    )
    return {f"{prefix}values": values, f"{prefix}shape": shapes}


def _boxes() -> dict[str, Any]:
    """Boxes in the vehicle's frame at the frame's pose; the car is where it is when the upper lidar passes it."""
    prefix, rows = "[LiDARBoxComponent].", list[tuple[int, str, int, Tensor]]()
    for k in range(FRAMES):
        T = invert(at(TURN * k + MOMENT))
        for name, kind, place in (
            (CAR, 1, car_at(torch.tensor([seen(k)]).double())[0]),
            (PARKED, 1, torch.tensor([855.0, 1585, -64]).double()),
        ):
            rows.append((micros(TURN * k), name, kind, T[:3, :3] @ place + T[:3, 3]))
    columns = torch.stack([row[3] for row in rows]).T.tolist()
    return {
        "key.frame_timestamp_micros": [row[0] for row in rows], "key.laser_object_id": [row[1] for row in rows],
        **{f"{prefix}box.center.{k}": v for k, v in zip("xyz", columns, strict=True)},
        **{f"{prefix}box.size.{k}": [v] * len(rows) for k, v in (("x", 4.4), ("y", 1.9), ("z", 1.5))},
        f"{prefix}box.heading": [0.0] * len(rows), f"{prefix}type": np.array([row[2] for row in rows], np.int8),
    }  # fmt: skip


def seen(frame: int) -> float:
    """Seconds when the upper lidar looks at the car, by its place at the frame's pose."""
    t = TURN * frame + LATE + 0.5 * TURN
    T = invert(at(TURN * frame + MOMENT))
    place = T[:3, :3] @ car_at(torch.tensor([t]).double())[0] + T[:3, 3]
    return TURN * frame + LATE + TURN * (math.pi - math.atan2(float(place[1]), float(place[0]))) / (2 * math.pi)
