# SPDX-License-Identifier: Apache-2.0
"""A small sequence of NCore v4 as other converters write it, by the format's own library: returns alone, a lidar model of rows and columns
with an offset a row, poses in single precision, boxes in the frames of sensors, sensors in stores of their own, and a mask."""

import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ncore.data import (
    BBox3,
    CuboidTrackObservation,
    FThetaCameraModelParameters,
    LabelSource,
    OpenCVFisheyeCameraModelParameters,
    OpenCVPinholeCameraModelParameters,
    RowOffsetStructuredSpinningLidarModelParameters,
    ShutterType,
)
from ncore.data.v4 import (
    CameraSensorComponent,
    CuboidsComponent,
    IntrinsicsComponent,
    LidarSensorComponent,
    MasksComponent,
    PosesComponent,
    SequenceComponentGroupsWriter,
)
from ncore.impl.common.transformations import HalfClosedInterval
from PIL import Image
from torch import Tensor
from upath import UPath

from nurec_lite.geometry.lidar import unit_directions

NAME = "drive-7"
START, PERIOD, FRAMES = 1_700_000_000_000_000, 100_000, 3  # microseconds
ROWS, COLUMNS = 8, 60
SPEED = 10.0  # metres a second, along the world's x
SIZE = (48, 32)
WALL = 8.0  # metres to either side of the street; the ground is at 0
ELEVATIONS = torch.deg2rad(torch.linspace(4, -24, ROWS)).double()
OFFSETS = torch.deg2rad(torch.tensor([0.0, 1.0] * (ROWS // 2))).double()
CAR, PARKED = "car/7:a", "parked"  # the first is no name of a file


def lidar_pose() -> Tensor:
    T = torch.eye(4, dtype=torch.float64)
    c, s = math.cos(0.3), math.sin(0.3)
    T[:2, :2] = torch.tensor([[c, -s], [s, c]])
    T[:3, 3] = torch.tensor([0.8, 0.1, 1.9])
    return T


def front_pose() -> Tensor:
    T = torch.eye(4, dtype=torch.float64)
    T[:3, :3] = torch.tensor([[0, 0, 1.0], [-1, 0, 0], [0, -1, 0]])
    T[:3, 3] = torch.tensor([1.5, 0.0, 1.4])
    return T


def rig_at(seconds: Tensor) -> Tensor:  # [n] -> [n, 4, 4] T_world_rig
    T = torch.eye(4, dtype=torch.float64).repeat(len(seconds), 1, 1)
    T[:, 0, 3] = SPEED * seconds
    return T


def azimuths(turn: str) -> Tensor:  # [columns] radians
    part = (torch.arange(COLUMNS, dtype=torch.float64) + 0.5) / COLUMNS
    return torch.remainder((-1 if turn == "cw" else 1) * 2 * math.pi * part, 2 * math.pi) - math.pi


def scan(frame: int, turn: str, reach: float = 60.0) -> dict[str, Any]:
    """Returns of one revolution within reach: of the ground and of walls on both sides."""
    row, column = (x.flatten() for x in torch.meshgrid(torch.arange(ROWS), torch.arange(COLUMNS), indexing="ij"))
    directions = unit_directions(torch.stack([azimuths(turn)[column] + OFFSETS[row], ELEVATIONS[row]], dim=1))
    seconds = 1e-6 * PERIOD * (frame + (column + 0.5) / COLUMNS)
    T = rig_at(seconds) @ lidar_pose()
    world = (T[:, :3, :3] @ directions[..., None])[..., 0]
    ground = torch.where(world[:, 2] < 0, -T[:, 2, 3] / world[:, 2], torch.inf)
    wall = (torch.sign(world[:, 1]) * WALL - T[:, 1, 3]) / world[:, 1]
    ranges = torch.minimum(ground, torch.where(world[:, 1] == 0, torch.inf, wall))
    kept = ranges < reach
    stamps = START + (seconds[kept] * 1e6).round().long()
    distances = ranges[kept].float().numpy()
    return {
        "direction": directions[kept].float().numpy(), "timestamp_us": stamps.numpy().astype(np.uint64),
        "model_element": torch.stack([row, column], dim=1)[kept].numpy().astype(np.uint16),
        "distance_m": np.stack([distances, np.full_like(distances, np.nan)]),
        "intensity": np.stack([0.5 + 0 * distances, np.nan * distances]),
    }  # fmt: skip


def lens(**changes: Any) -> Any:
    known = {
        "resolution": np.array(SIZE, np.uint64), "shutter_type": ShutterType.ROLLING_BOTTOM_TO_TOP,
        "principal_point": np.array([24, 16], np.float32), "focal_length": np.array([40, 41], np.float32),
        "radial_coeffs": np.array([0.1, -0.02, 0.001, 0, 0, 0], np.float32), "tangential_coeffs": np.array([1e-3, 2e-3], np.float32),
        "thin_prism_coeffs": np.zeros(4, np.float32),
    }  # fmt: skip
    return OpenCVPinholeCameraModelParameters(**known | changes)


def ftheta(**changes: Any) -> Any:
    known = {
        "resolution": np.array(SIZE, np.uint64), "shutter_type": ShutterType.GLOBAL,
        "principal_point": np.array([24, 16], np.float32),
        "reference_poly": FThetaCameraModelParameters.PolynomialType.ANGLE_TO_PIXELDIST,
        "pixeldist_to_angle_poly": np.array([0, 0.025], np.float32),
        "angle_to_pixeldist_poly": np.array([0, 40], np.float32), "max_angle": 1.0,
    }  # fmt: skip
    return FThetaCameraModelParameters(**known | changes)


def fisheye(**changes: Any) -> Any:
    known = {
        "resolution": np.array(SIZE, np.uint64), "shutter_type": ShutterType.GLOBAL,
        "principal_point": np.array([24, 16], np.float32), "focal_length": np.array([20, 21], np.float32),
        "radial_coeffs": np.array([0.02, -0.004, 0.0006, -0.00005], np.float32), "max_angle": 1.6,
    }  # fmt: skip
    return OpenCVFisheyeCameraModelParameters(**known | changes)


def image(seed: int) -> bytes:
    buffer = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (SIZE[1], SIZE[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(buffer, format="png")
    return buffer.getvalue()


def write_sequence(
    folder: Path,
    *,
    store: str = "itar",  # or directory
    turn: str = "cw",
    camera: Any = None,  # its model
    masks: dict[str, Image.Image] | None = None,
    elements: bool = True,  # whether rays know their row and column
    reach: float = 60.0,  # metres of the lidar
    boxes: list[CuboidTrackObservation] | None = None,
    groups: tuple[str, ...] = ("default",),  # of boxes
) -> list[Path]:
    """Returns the stores."""
    span = HalfClosedInterval(START, START + PERIOD * FRAMES + 1)
    writer = SequenceComponentGroupsWriter(UPath(folder), NAME, NAME, span, {"source": "made"}, store)  # type: ignore[arg-type]
    poses = writer.register_component_writer(PosesComponent.Writer, "default")
    stamps = np.arange(START, span.stop, PERIOD // 2).astype(np.uint64)
    path = rig_at(torch.from_numpy((stamps - START).astype(np.float64) * 1e-6))
    poses.store_dynamic_pose("rig", "world", path.numpy().astype(np.float32), stamps)
    poses.store_static_pose("top", "rig", lidar_pose().numpy())
    poses.store_static_pose("rig", "front", torch.linalg.inv(front_pose()).numpy())  # the other way round
    lenses = writer.register_component_writer(IntrinsicsComponent.Writer, "default")
    lenses.store_camera_intrinsics("front", camera or lens())
    if elements:
        lenses.store_lidar_intrinsics("top", RowOffsetStructuredSpinningLidarModelParameters(
            10.0, turn, ROWS, COLUMNS, ELEVATIONS.float().numpy(), azimuths(turn).float().numpy(), OFFSETS.float().numpy(),  # type: ignore[arg-type]
        ))  # fmt: skip
    own = writer.register_component_writer(MasksComponent.Writer, "default")
    own.store_camera_masks("front", masks or {})
    for group in groups:
        cuboids = writer.register_component_writer(CuboidsComponent.Writer, group)
        cuboids.store_observations(usual_boxes() if boxes is None else boxes)
    images = writer.register_component_writer(CameraSensorComponent.Writer, "front", "front")
    lidar = writer.register_component_writer(LidarSensorComponent.Writer, "top", "top")
    for k in range(FRAMES):
        begin = START + k * PERIOD
        images.store_frame(image(k), "png", np.array([begin + 40_000, begin + 60_000], np.uint64), {}, {})
        rays = scan(k, turn, reach)
        if not elements:
            rays["model_element"] = None
        lidar.store_frame(
            **rays,
            frame_timestamps_us=np.array([begin, begin + PERIOD], np.uint64),
            generic_data={},
            generic_meta_data={},
        )
    return [Path(str(path)) for path in writer.finalize()]


def usual_boxes() -> list[CuboidTrackObservation]:
    """The car drives at 12 m/s beside the rig, seen by the lidar; the parked one is seen by the rig."""
    found = []
    for k in range(FRAMES):
        t = START + k * PERIOD + 30_000
        seen = torch.tensor([(t - START) * 1e-6], dtype=torch.float64)
        world = torch.tensor([12 * float(seen) + 5, 3.0, 0.75, 1.0], dtype=torch.float64)
        T = rig_at(seen)[0]
        local, parked = (
            torch.linalg.inv(T @ lidar_pose()) @ world,
            torch.linalg.inv(T) @ torch.tensor([20.0, -4, 0.75, 1]).double(),
        )
        for name, frame, place, yaw in ((CAR, "top", local, -0.3), (PARKED, "rig", parked, 0.0)):
            box = BBox3((*place[:3].tolist(),), (4.4, 1.9, 1.5), (0.0, 0.0, yaw))  # type: ignore[arg-type]
            found.append(CuboidTrackObservation(name, "automobile", t, frame, t, box, LabelSource.EXTERNAL))
    return found
