# SPDX-License-Identifier: Apache-2.0
"""A small drive in KITTI-360's layout: the car drives along a street between walls, stands for half a second without poses, and
drives on; one car ahead, one lorry on the left whose length lies along y, and one that is parked."""

import math
from pathlib import Path

import numpy as np
import torch
from kitti_drive import ring_angles
from PIL import Image
from torch import Tensor

from nurec_lite.geometry.lidar import unit_directions
from nurec_lite.geometry.se3 import invert, pose_matrix, rotvec_to_quat

NAME, OTHER = "2013_05_28_drive_0007_sync", "2013_05_28_drive_0010_sync"
FRAMES, POSED = 12, (1, 2, 3, 4, 9, 10, 11)  # the car stands from frame 5 to frame 8; frame 0 has no pose
SIZE = (48, 24)
SPEED, WALL, BEAMS, STEPS = 8.0, 9.0, 6, 180
IMAGE_DELAY = 0.004  # seconds from the lidar's stamp to that of an image
CAR, LORRY = "car-3", "truck-1"


def rotation(*v: float) -> Tensor:  # [3] radians -> [4, 4]
    return pose_matrix(rotvec_to_quat(torch.tensor(v, dtype=torch.float64)), torch.zeros(3, dtype=torch.float64))


def placed(T: Tensor, *t: float) -> Tensor:
    T = T.clone()
    T[:3, 3] = torch.tensor(t, dtype=torch.float64)
    return T


OPTICAL = torch.tensor([[0, 0, 1, 0], [-1, 0, 0, 0], [0, -1, 0, 0], [0, 0, 0, 1]], dtype=torch.float64)
T_VELO_CAM0 = placed(OPTICAL @ rotation(0.02, -0.01, 0.015), 0.8, 0.3, -0.2)
T_POSE_VELO = placed(rotation(math.pi, 0, 0), 0.7, 0.1, -1.4)  # the unit's z points down
T_POSE_CAM = {
    "image_00": T_POSE_VELO @ T_VELO_CAM0,
    "image_01": T_POSE_VELO @ T_VELO_CAM0 @ placed(rotation(0.001, 0.03, -0.002), 0.6, 0.01, 0),
}
T_POSE_FISHEYE = {"image_02": T_POSE_VELO @ placed(rotation(0, 0, 1.5) @ OPTICAL, 0.2, 0.9, -0.1)}
MEI = {
    "xi": 2.2134, "k1": 0.0168, "k2": 1.6549, "p1": 4.2e-4, "p2": -4.2e-4,
    "gamma1": 22.9, "gamma2": 22.8, "u0": 12.3, "v0": 11.8,
}  # fmt: skip
FISHEYE_SIZE = 24
R_RECT = {"image_00": rotation(0.01, 0.002, -0.003), "image_01": rotation(-0.004, 0.02, 0.001)}


def rectified(name: str) -> Tensor:  # [4, 4] T_velo_rect
    return invert(T_POSE_VELO) @ T_POSE_CAM[name] @ invert(R_RECT[name])


def rig_at(times: Tensor) -> Tensor:  # [n] seconds of the lidar's clock -> [n, 4, 4] T_world_velo
    way = SPEED * (times.clamp(max=0.45) + (times - 0.85).clamp(min=0))
    T = placed(rotation(0, 0, 0.4), 1000, 3000, 115).repeat(len(times), 1, 1)
    T[:, :3, 3] += way[:, None] * T[:, :3, 0]
    return T


def scan(frame: int) -> Tensor:  # [n, 4] points of the walls within 70 m
    angles, _ = ring_angles(lambda degrees, ring: (ring < 3) & (degrees > 100) & (degrees < 110), BEAMS, STEPS)
    times = 0.1 * frame - 0.1 * angles[:, 0] / (2 * math.pi)
    street = invert(placed(rotation(0, 0, 0.4), 1000, 3000, 115)) @ rig_at(times)
    directions = unit_directions(angles)
    along = (street[:, :3, :3] @ directions[..., None])[..., 0]
    ranges = (torch.sign(along[:, 1]) * WALL - street[:, 1, 3]) / along[:, 1]
    kept = ranges < 70
    return torch.cat([directions[kept] * ranges[kept, None], torch.full((int(kept.sum()), 1), 0.4).double()], dim=1)


def stamp(seconds: float) -> str:
    return f"2013-05-28 08:46:{2 + seconds:012.9f}"


def write_drive(root: Path) -> Path:
    calibration = root / "calibration"
    calibration.mkdir(parents=True)
    (calibration / "calib_cam_to_velo.txt").write_text(_row(T_VELO_CAM0[:3]))
    mounted = T_POSE_CAM | T_POSE_FISHEYE
    (calibration / "calib_cam_to_pose.txt").write_text("".join(f"{k}: {_row(T[:3])}" for k, T in mounted.items()))
    (calibration / "image_02.yaml").write_text(_mei_yaml("image_02"))
    (calibration / "perspective.txt").write_text("calib_time: 15-May-2013\n" + "".join(_lens(k) for k in T_POSE_CAM))
    images, sweeps, poses = (root / group / NAME for group in ("data_2d_raw", "data_3d_raw", "data_poses"))
    (root / "data_2d_raw" / OTHER / "image_00/data_rect").mkdir(parents=True)
    for name in T_POSE_CAM:
        _stamps(images / name, IMAGE_DELAY)
        (images / name / "data_rect").mkdir()
        for k in range(FRAMES):
            pixels = np.random.default_rng(k).integers(0, 256, (SIZE[1], SIZE[0], 3), dtype=np.uint8)
            Image.fromarray(pixels).save(images / name / f"data_rect/{k:010d}.png")
    _stamps(images / "image_02", IMAGE_DELAY)
    (images / "image_02/data_rgb").mkdir()
    for k in range(FRAMES):
        Image.fromarray(np.full((FISHEYE_SIZE, FISHEYE_SIZE, 3), 9 * k, np.uint8)).save(
            images / f"image_02/data_rgb/{k:010d}.png"
        )
    _stamps(sweeps / "velodyne_points", 0)
    (sweeps / "velodyne_points/data").mkdir()
    for k in range(FRAMES):
        (sweeps / f"velodyne_points/data/{k:010d}.bin").write_bytes(scan(k).numpy().astype("<f4").tobytes())
    poses.mkdir(parents=True)
    T = rig_at(0.1 * torch.tensor(POSED).double() + IMAGE_DELAY) @ rectified("image_00")
    (poses / "cam0_to_world.txt").write_text("".join(f"{k} {_row(pose)}" for k, pose in zip(POSED, T, strict=True)))
    boxes = root / "data_3d_bboxes/train"
    boxes.mkdir(parents=True)
    (boxes / f"{NAME}.xml").write_text(boxes_xml())
    return root


def _row(T: Tensor) -> str:
    return " ".join(f"{v:.12g}" for v in T.flatten().tolist()) + "\n"


def _lens(name: str) -> str:
    number = name[-2:]
    return (
        f"S_rect_{number}: {SIZE[0]}.000000 {SIZE[1]}.000000\nR_rect_{number}: {_row(R_RECT[name][:3, :3])}"
        f"P_rect_{number}: 40 0 23.5 {-24 if number == '01' else 0} 0 41 11.5 0 0 0 1 0\n"
    )


def _mei_yaml(name: str) -> str:
    """The text of such a file; no YAML reader takes its first line."""
    groups = {"mirror": ("xi",), "distortion": ("k1", "k2", "p1", "p2"), "projection": ("gamma1", "gamma2", "u0", "v0")}
    size = f"image_width: {FISHEYE_SIZE}\nimage_height: {FISHEYE_SIZE}\n"
    parts = [f"{k}_parameters:\n" + "".join(f"   {n}: {MEI[n]:.16e}\n" for n in names) for k, names in groups.items()]
    return f"%YAML:1.0\n---\nmodel_type: MEI\ncamera_name: {name}\n{size}{''.join(parts)}"


def _stamps(folder: Path, delay: float) -> None:
    folder.mkdir(parents=True)
    (folder / "timestamps.txt").write_text("".join(stamp(0.1 * k + delay) + "\n" for k in range(FRAMES)))


# ---- boxes


def box_at(track: str, frame: int) -> Tensor:  # [4, 4] T_world_box, x ahead
    """10 m ahead, or 6 m on the left, of where the rig is as the lidar faces forward."""
    T = rig_at(torch.tensor([0.1 * frame]).double())[0]
    return T @ placed(torch.eye(4).double(), *((10 + 0.4 * frame, 0, -1) if track == CAR else (0, 6, -0.5)))


def boxes_xml() -> str:
    lorry = rotation(0, 0, -0.5 * math.pi)  # x of the file points right, y ahead
    objects = [_object("car", 26, 3, k, box_at(CAR, k), (4.4, 1.9, 1.5)) for k in range(1, 5)]
    objects += [_object("truck", 27, 1, k, box_at(LORRY, k) @ lorry, (2.5, 9.0, 3.0)) for k in range(1, 5)]
    objects.append(_object("car", 26, 8, -1, box_at(CAR, 3), (4.0, 1.8, 1.4)))
    body = "".join(f"<object{k}>{text}</object{k}>\n" for k, text in enumerate(objects, start=1))
    return f'<?xml version="1.0"?>\n<opencv_storage>\n{body}</opencv_storage>\n'


def _object(label: str, kind: int, instance: int, frame: int, pose: Tensor, size: tuple[float, float, float]) -> str:
    corners = 0.5 * torch.tensor([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]).double()
    scaled = pose @ torch.diag(torch.tensor([*size, 1.0], dtype=torch.float64))
    return (
        f"<label>{label}</label><timestamp>{frame}</timestamp><dynamic>{int(frame >= 0)}</dynamic><index>{frame}</index>"
        f"<semanticId>{kind}</semanticId><instanceId>{instance}</instanceId>{_opencv('transform', scaled)}{_opencv('vertices', corners)}"
    )


def _opencv(name: str, values: Tensor) -> str:
    rows, columns = values.shape
    data = "\n".join(_row(row) for row in values)
    return f'<{name} type_id="opencv-matrix"><rows>{rows}</rows><cols>{columns}</cols><dt>f</dt><data>\n{data}</data></{name}>\n'
