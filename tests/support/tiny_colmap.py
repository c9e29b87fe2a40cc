# SPDX-License-Identifier: Apache-2.0
"""A small reconstruction in COLMAP's layout, binary or text: two cameras of a rig that drives, in a world that is turned, shifted and
scaled, and points on walls."""

import math
import struct
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from nurec_lite.capture.colmap.model import MODELS
from nurec_lite.geometry.se3 import invert, matrix_to_quat, quat_to_matrix, rotvec_to_quat

SIZE, FRAMES, RATE, SPEED = (48, 32), 6, 5.0, 4.0  # pixels, images of a camera, images a second, metres a second
UNIT = 2.5  # metres of a unit of the reconstruction
LENSES = {
    1: ("OPENCV", (40.0, 41.0, 24.0, 16.0, -0.1, 0.02, 0.001, -0.002)),
    7: ("SIMPLE_RADIAL", (39.0, 24.0, 16.0, 0.05)),
}
CAMERAS = {"front": (1, 0.0), "left": (7, 0.5 * math.pi)}  # lens, and the angle about z of its view
T_BODY = torch.tensor([[0, 0, 1, 0], [-1, 0, 0, 0], [0, -1, 0, 0], [0, 0, 0, 1]], dtype=torch.float64)


def world_turn() -> Tensor:  # [4, 4] from metres with z up to the reconstruction's axes, without its scale
    T = torch.eye(4, dtype=torch.float64)
    T[:3, :3] = quat_to_matrix(rotvec_to_quat(torch.tensor([1.2, -0.4, 2.0], dtype=torch.float64)))
    T[:3, 3] = torch.tensor([3.0, -8.0, 5.0])
    return T


def camera(name: str) -> Tensor:  # [4, 4] T_rig_cam, of a rig with the axes of the front camera
    angle = CAMERAS[name][1]
    c, s = math.cos(angle), math.sin(angle)
    T = torch.eye(4, dtype=torch.float64)
    T[:3, :3] = torch.tensor([[c, -s, 0], [s, c, 0], [0, 0, 1.0]]) @ T_BODY[:3, :3].float()
    T[:3, 3] = torch.tensor([0.0, 0, 0] if name == "front" else [-0.4, 0.5, 0.1])
    return T


def rig_at(seconds: float) -> Tensor:  # [4, 4] z up; along x, a little to the left over time
    T = torch.eye(4, dtype=torch.float64)
    T[:3, 3] = torch.tensor([SPEED * seconds, 0.0, 0.0])
    return T


def points() -> Tensor:  # [n, 3] metres, world with z up: walls beside the way, and the ground
    x = torch.linspace(-5, 30, 36).double()
    wall = torch.stack([x, 0 * x + 8, 0.1 * x], dim=1)
    ground = torch.stack([x, 0.2 * x, 0 * x - 1.5], dim=1)
    return torch.cat([wall, wall * torch.tensor([1.0, -1, 1]), ground])


def poses() -> dict[str, Tensor]:  # [4, 4] T_cam_world of the reconstruction by the names of images
    found = {}
    for name in CAMERAS:
        for k in range(FRAMES):
            T = invert(world_turn() @ rig_at(k / RATE) @ camera(name))
            T[:3, 3] /= UNIT
            found[f"{name}/{k:04d}.jpg"] = T
    return found


def write_project(root: Path, text: bool = False, rename: bool = False) -> Path:
    """`rename`: names of images are microseconds, and those of both cameras lie in one folder."""
    rng = np.random.default_rng(3)
    shots = []
    for k, (name, T) in enumerate(poses().items()):
        lens = CAMERAS[name.split("/")[0]][0]
        if rename:
            sensor, number = name.removesuffix(".jpg").split("/")
            name = f"{sensor}_{1_600_000_000_000_000 + int(number) * 200_000 + 3 * (sensor == 'left')}.jpg"
        path = root / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (SIZE[1], SIZE[0], 3), dtype=np.uint8)).save(path)
        shots.append((k + 1, *matrix_to_quat(T[:3, :3]).tolist(), *T[:3, 3].tolist(), lens, name))
    folder = root / "sparse/0"
    folder.mkdir(parents=True)
    turned = (points() @ world_turn()[:3, :3].T + world_turn()[:3, 3]) / UNIT
    (write_text if text else write_binary)(folder, shots, turned.tolist())
    return root


def write_binary(folder: Path, shots: list[tuple[object, ...]], places: list[list[float]]) -> None:
    numbers = {name: number for number, (name, _) in MODELS.items()}
    cameras = [struct.pack("<Q", len(LENSES))]
    for number, (model, params) in LENSES.items():
        cameras.append(struct.pack(f"<iiQQ{len(params)}d", number, numbers[model], *SIZE, *params))
    (folder / "cameras.bin").write_bytes(b"".join(cameras))
    images = [struct.pack("<Q", len(shots))]
    for *values, name in shots:
        images.append(
            struct.pack("<I7dI", *values) + str(name).encode() + b"\0" + struct.pack("<Q2dq2dq", 2, 1, 2, 3, 4, 5, -1)
        )
    (folder / "images.bin").write_bytes(b"".join(images))
    rows = [struct.pack("<Q", len(places))]
    for k, place in enumerate(places):
        rows.append(struct.pack("<Q3d3BdQ2I", k, *place, 9, 8, 7, 0.5, 1, 1, 0))
    (folder / "points3D.bin").write_bytes(b"".join(rows))


def write_text(folder: Path, shots: list[tuple[object, ...]], places: list[list[float]]) -> None:
    """The second line of each image, its key points, is empty or long."""
    lenses = [f"{n} {model} {SIZE[0]} {SIZE[1]} {' '.join(map(repr, params))}" for n, (model, params) in LENSES.items()]
    (folder / "cameras.txt").write_text("\n".join(["# Camera list", *lenses]) + "\n")
    keys = ["", "1.5 2.5 7 " * 2000]
    images = [f"{' '.join(map(str, shot))}\n{keys[k % 2]}" for k, shot in enumerate(shots)]
    (folder / "images.txt").write_text("\n".join(["# Image list", *images]) + "\n")
    rows = [f"{k} {' '.join(map(repr, place))} 9 8 7 0.5 1 0 2 0" for k, place in enumerate(places)]
    (folder / "points3D.txt").write_text("\n".join(["# 3D points", *rows]) + "\n")
