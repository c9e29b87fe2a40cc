# SPDX-License-Identifier: Apache-2.0
"""A small scene in nuScenes' layout: a street between walls, a car that drives and one that is parked, key frames and sweeps between."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from nurec_lite.capture.nuscenes.rays import NOMINAL, T_FILE_LIDAR
from nurec_lite.geometry.lidar import unit_directions
from nurec_lite.geometry.se3 import invert, matrix_to_quat

NAME, SIZE = "scene-0007", (48, 32)
START = 1_533_000_000_000_000  # microseconds
SWEEPS, COLUMNS, TURN = 11, 90, 0.05  # sweeps, columns of one, seconds
SPEED = 9.0  # metres a second
CAMERAS = {"CAM_FRONT": 0.0, "CAM_BACK": math.pi}
T_RIG_LIDAR = torch.eye(4, dtype=torch.float64)  # as this project has it: x forward
T_RIG_LIDAR[:3, 3] = torch.tensor([0.9, 0.0, 1.8])
CAR, PARKED = "11aa", "22bb"


def rig_at(seconds: Tensor) -> Tensor:  # [n] since START -> [n, 4, 4]; the vehicle drives along the world's y
    T = torch.eye(4, dtype=torch.float64).repeat(len(seconds), 1, 1)
    T[:, :3, :3] = torch.tensor([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])
    T[:, :3, 3] = torch.stack([0 * seconds + 600, SPEED * seconds + 100, 0 * seconds], dim=1)
    return T


def sweep(end: float) -> Tensor:  # [COLUMNS * 32, 5] float32, as a file holds it
    """Ground 1.8 m below the lidar and walls 12 m beside it; rays without a return have range 0. All is moved to the end."""
    share = (torch.arange(COLUMNS, dtype=torch.float64) + 0.5) / COLUMNS
    azimuth = 0.5 * math.pi - 2 * math.pi * share
    angles = torch.stack(torch.meshgrid(azimuth, NOMINAL, indexing="ij"), dim=-1).reshape(-1, 2)
    times = (end - TURN + TURN * share).repeat_interleave(32)
    ways = unit_directions(angles)
    far = torch.minimum(torch.where(ways[:, 2] < 0, -1.8 / ways[:, 2], torch.inf), 12 / ways[:, 1].abs())
    T = invert(rig_at(torch.tensor([end]).double())[0] @ T_RIG_LIDAR) @ rig_at(times) @ T_RIG_LIDAR
    moved = (T[:, :3, :3] @ (far[:, None] * ways)[..., None])[..., 0] + T[:, :3, 3]
    moved = torch.where((far < 90)[:, None], moved, 0.0)
    values = torch.cat(
        [moved @ T_FILE_LIDAR[:3, :3].T, torch.full((len(far), 1), 51.0), (torch.arange(len(far)) % 32)[:, None]], dim=1
    )
    return values.float()


def write_scene(root: Path, sweeps: bool = True, annotated: bool = True) -> Path:
    """`sweeps`: also the files between key frames."""
    tables: dict[str, list[dict[str, Any]]] = {
        name: [] for name in ("sample", "sample_data", "ego_pose", "sample_annotation")
    }
    tables["scene"] = [
        {"token": "s1", "name": NAME, "description": "{made}"},
        {"token": "s2", "name": "scene-0009", "description": ""},
    ]
    tables["sensor"] = [
        {"token": f"sensor {name}", "channel": name, "modality": ""} for name in ("LIDAR_TOP", *CAMERAS)
    ]
    tables["calibrated_sensor"] = [
        _mounting("LIDAR_TOP", T_RIG_LIDAR @ invert(T_FILE_LIDAR)),
        *(_mounting(c, camera(c)) for c in CAMERAS),
    ]
    tables["category"] = [{"token": "c1", "name": "vehicle.car"}]
    tables["instance"] = [{"token": name, "category_token": "c1"} for name in (CAR, PARKED)]
    for k in range(SWEEPS):
        end, key = 0.1 + TURN * k, k % 5 == 0
        if key:
            tables["sample"].append({"token": f"sample {k}", "timestamp": stamp(end), "scene_token": "s1"})
            tables["sample_annotation"] += _annotations(k, end)
        if key or sweeps:
            name = f"{'samples' if key else 'sweeps'}/LIDAR_TOP/{k}.pcd.bin"
            _put(root / name, sweep(end).numpy().tobytes())
            _add(tables, name, "LIDAR_TOP", end, -(-k // 5) * 5, key)
        for channel in CAMERAS if key else ():
            name = f"samples/{channel}/{k}.jpg"
            _image(root / name, k)
            _add(tables, name, channel, end - 0.02, k, key)
    if not annotated:
        del tables["sample_annotation"], tables["instance"]
    for name, rows in tables.items():
        _put(root / f"v1.0-mini/{name}.json", json.dumps(rows, indent=1).encode())
    return root


def stamp(seconds: float) -> int:
    return START + round(seconds * 1e6)


def _add(tables: dict[str, list[dict[str, Any]]], name: str, channel: str, time: float, sample: int, key: bool) -> None:
    (pose,), token = rig_at(torch.tensor([time]).double()), f"d{len(tables['sample_data'])}"
    tables["ego_pose"].append({"token": token, "timestamp": stamp(time), **_pose(pose)})
    tables["sample_data"].append({
        "token": token, "sample_token": f"sample {sample}", "ego_pose_token": token, "calibrated_sensor_token": f"mounted {channel}",
        "filename": name, "timestamp": stamp(time), "is_key_frame": key, "width": SIZE[0], "height": SIZE[1],
    })  # fmt: skip


def _annotations(k: int, time: float) -> list[dict[str, Any]]:
    """The size is width, length, height. Both look along the world's y."""
    places = {CAR: [601.5, 112 + 6 * time, 0.75], PARKED: [604.0, 115, 0.75]}
    turn = [math.sqrt(0.5), 0, 0, math.sqrt(0.5)]
    like = {"sample_token": f"sample {k}", "size": [1.9, 4.4, 1.5], "rotation": turn}
    return [
        {"token": f"{name} {k}", "instance_token": name, "translation": place} | like for name, place in places.items()
    ]


def camera(channel: str) -> Tensor:  # [4, 4] T_rig_cam
    c, s = math.cos(CAMERAS[channel]), math.sin(CAMERAS[channel])
    T = torch.eye(4, dtype=torch.float64)
    T[:3, :3] = torch.tensor([[c, -s, 0], [s, c, 0], [0, 0, 1.0]]) @ torch.tensor([[0, 0, 1.0], [-1, 0, 0], [0, -1, 0]])
    T[:3, 3] = torch.tensor([1.5, 0.0, 1.5])
    return T


def _mounting(channel: str, T_rig_sensor: Tensor) -> dict[str, Any]:
    lens = [[40.0, 0, 24], [0, 40.0, 16], [0, 0, 1]] if channel in CAMERAS else []
    return {
        "token": f"mounted {channel}",
        "sensor_token": f"sensor {channel}",
        "camera_intrinsic": lens,
        **_pose(T_rig_sensor),
    }


def _pose(T: Tensor) -> dict[str, Any]:
    return {"translation": T[:3, 3].tolist(), "rotation": matrix_to_quat(T[:3, :3]).tolist()}


def _image(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (SIZE[1], SIZE[0], 3), dtype=np.uint8)).save(path)


def _put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
