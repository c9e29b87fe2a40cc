# SPDX-License-Identifier: Apache-2.0
"""A small log in Argoverse 2's layout: a street between walls, two lidars, one of them upside down, a car that drives and one that is
parked."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from nurec_lite.capture.argoverse2.rays import NOMINAL
from nurec_lite.geometry.lidar import unit_directions
from nurec_lite.geometry.se3 import invert, matrix_to_quat

LOG, SIZE = "7fab-made", (48, 32)
START = 315_966_253_572_412_942  # nanoseconds of the first pose
SWEEPS, STEPS, TURN = 4, 90, 0.1  # sweeps, rays of a beam in a turn, seconds of it
FIRST = 0.2  # seconds from the first pose to the first sweep
SPEED = 9.0  # metres a second
CAMERAS = {"ring_front_center": 0.0, "ring_rear_left": math.radians(150), "stereo_front_left": 0.0}
CAR, PARKED = "11aa", "22bb"
PHASE = {"up_lidar": 0.3, "down_lidar": 0.8}  # turns from the stamp until a head looks along x
LEAD = (
    torch.deg2rad(torch.tensor([-4.2, -1.4, 1.4, 4.2])).double().repeat(8)
)  # azimuth of lasers from their head, seen from above


def rig_at(seconds: Tensor) -> Tensor:  # [n] since the first pose -> [n, 4, 4]; the vehicle drives along the world's y
    T = torch.eye(4, dtype=torch.float64).repeat(len(seconds), 1, 1)
    T[:, :3, :3] = torch.tensor([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])
    T[:, :3, 3] = torch.stack([0 * seconds + 5100, SPEED * seconds + 2400, 0 * seconds + 66], dim=1)
    return T


def mounted(lidar: str) -> Tensor:  # [4, 4] T_rig_lidar as calibrated
    T = torch.eye(4, dtype=torch.float64)
    if lidar == "down_lidar":
        T[:3, :3] = torch.diag(torch.tensor([1.0, -1, -1]))
    T[:3, 3] = torch.tensor([1.35, 0.0, 1.64 if lidar == "up_lidar" else 1.53])
    return T


def camera(name: str) -> Tensor:  # [4, 4] T_rig_cam
    c, s = math.cos(CAMERAS[name]), math.sin(CAMERAS[name])
    T = torch.eye(4, dtype=torch.float64)
    T[:3, :3] = torch.tensor([[c, -s, 0], [s, c, 0], [0, 0, 1.0]]) @ torch.tensor([[0, 0, 1.0], [-1, 0, 0], [0, -1, 0]])
    T[:3, 3] = torch.tensor([1.6, 0.0, 1.4])
    return T


def car_at(seconds: Tensor) -> Tensor:  # [n] -> [n, 3] world, metres: ahead of the rig on its right
    return torch.stack([0 * seconds + 5102, 6 * seconds + 2412, 0 * seconds + 66.75], dim=1)


def times_of(lidar: str, azimuth: Tensor, laser: Tensor) -> Tensor:  # in the vehicle's axes -> seconds since the stamp
    return TURN * ((PHASE[lidar] - (azimuth - LEAD[laser]) / (2 * math.pi)) % 1)


def lidar_points(
    lidar: str, stamp: float
) -> tuple[Tensor, Tensor, Tensor]:  # [n, 3] moved to the stamp, [n] lasers, [n] offsets
    """Ground, and walls 12 m to the sides; points farther than 90 m do not return."""
    azimuth = (torch.arange(STEPS, dtype=torch.float64) + 0.5) * 2 * math.pi / STEPS - math.pi
    beams = torch.deg2rad(torch.tensor(NOMINAL, dtype=torch.float64)) * (1 if lidar == "up_lidar" else -1)
    angles = torch.stack(torch.meshgrid(azimuth, beams, indexing="ij"), dim=-1).reshape(-1, 2)
    lasers = torch.arange(32).repeat(STEPS)
    offsets = times_of(lidar, angles[:, 0], lasers)
    ways, place = unit_directions(angles), mounted(lidar)[:3, 3]
    far = torch.minimum(torch.where(ways[:, 2] < 0, -place[2] / ways[:, 2], torch.inf), 12 / ways[:, 1].abs())
    near = far < 90
    T = invert(rig_at(torch.tensor([stamp]).double())[0]) @ rig_at(stamp + offsets[near])
    local = place + far[near, None] * ways[near]
    return (T[:, :3, :3] @ local[..., None])[..., 0] + T[:, :3, 3], lasers[near], offsets[near]


def write_log(root: Path, name: str = LOG, annotated: bool = True) -> Path:
    folder = root / name
    rows = [(lidar, mounted(lidar)) for lidar in PHASE] + [(c, camera(c)) for c in CAMERAS]
    write(
        folder / "calibration/egovehicle_SE3_sensor.feather",
        {"sensor_name": [n for n, _ in rows], **_poses([T for _, T in rows])},
    )
    write(folder / "calibration/intrinsics.feather", {
        "sensor_name": list(CAMERAS), **{k: [v] * 3 for k, v in {"fx_px": 40.0, "fy_px": 40.0, "cx_px": 24.0, "cy_px": 16.0}.items()},
        **{f"k{i}": [0.1 * i] * 3 for i in (1, 2, 3)}, "height_px": np.full(3, SIZE[1], np.uint16),
        "width_px": np.full(3, SIZE[0], np.uint16),
    })  # fmt: skip
    path = torch.arange(0, 0.9, 0.01).double()
    stamps = [stamp(float(t)) for t in path]
    write(folder / "city_SE3_egovehicle.feather", {  # the second pose again, a nanosecond later
        "timestamp_ns": [*stamps[:2], stamps[1] + 1, *stamps[2:]], **_poses(list(rig_at(torch.cat([path[:2], path[1:]]))))
    })  # fmt: skip
    for k in range(SWEEPS):
        write_sweep(folder, FIRST + TURN * k)
    for name in CAMERAS:
        for k in range(2 * SWEEPS):
            file = folder / f"sensors/cameras/{name}/{stamp(FIRST + 0.05 * k)}.jpg"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(
                np.random.default_rng(100 * len(name) + k).integers(0, 256, (SIZE[1], SIZE[0], 3), dtype=np.uint8)
            ).save(file)
    if annotated:
        write(folder / "annotations.feather", annotations())
    return folder


def stamp(seconds: float) -> int:
    return START + round(seconds * 1e9)


def write_sweep(folder: Path, seconds: float) -> None:
    both = [lidar_points(lidar, seconds) for lidar in PHASE]
    points, offsets = (torch.cat([found[k] for found in both]) for k in (0, 2))
    lasers = torch.cat([both[0][1], both[1][1] + 32])
    order = offsets.argsort(stable=True)
    write(folder / f"sensors/lidar/{stamp(seconds)}.feather", {
        **{k: v.numpy().astype(np.float16) for k, v in zip("xyz", points[order].T, strict=True)},
        "intensity": np.full(len(order), 51, np.uint8), "laser_number": lasers[order].numpy().astype(np.uint8),
        "offset_ns": (offsets[order] * 1e9).round().numpy().astype(np.int32),
    })  # fmt: skip


def annotations() -> dict[str, Any]:
    """Boxes in the vehicle's frame at the stamps of sweeps, the car where it is when up_lidar and down_lidar see it, on average."""
    rows: list[tuple[int, str, str, Tensor]] = []
    for k in range(SWEEPS):
        t = FIRST + TURN * k
        T = invert(rig_at(torch.tensor([t]).double())[0])
        for name, kind, seconds, place in (
            (CAR, "REGULAR_VEHICLE", seen(t), None),
            (PARKED, "BUS", t, [5097.0, 2418.0, 67.0]),
        ):
            where = car_at(torch.tensor([seconds]).double())[0] if place is None else torch.tensor(place).double()
            pose = torch.eye(4, dtype=torch.float64)
            pose[:3, 3] = T[:3, :3] @ where + T[:3, 3]
            rows.append((stamp(t), name, kind, pose))
    return {
        "timestamp_ns": [r[0] for r in rows], "track_uuid": [r[1] for r in rows], "category": [r[2] for r in rows],
        **{k: [v] * len(rows) for k, v in (("length_m", 4.4), ("width_m", 1.9), ("height_m", 1.5))}, **_poses([r[3] for r in rows]),
        "num_interior_pts": [5] * len(rows),
    }  # fmt: skip


def seen(t: float) -> float:
    """Mean of the seconds when the lidars' heads look at the car."""
    T = invert(rig_at(torch.tensor([t]).double())[0])
    place = T[:3, :3] @ car_at(torch.tensor([t + 0.05]).double())[0] + T[:3, 3] - torch.tensor([1.35, 0, 0]).double()
    azimuth = torch.atan2(place[1], place[0])
    return t + float(np.mean([float(TURN * ((phase - azimuth / (2 * math.pi)) % 1)) for phase in PHASE.values()]))


def write(path: Path, columns: dict[str, Any]) -> None:
    import pyarrow as pa
    import pyarrow.feather

    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.feather.write_feather(pa.table(columns), path, compression="lz4")


def _poses(poses: list[Tensor]) -> dict[str, list[float]]:
    stacked = torch.stack(poses)
    q, t = matrix_to_quat(stacked[:, :3, :3]), stacked[:, :3, 3]
    return {
        k: v.tolist()
        for k, v in zip(("qw", "qx", "qy", "qz", "tx_m", "ty_m", "tz_m"), torch.cat([q, t], dim=1).T, strict=True)
    }
