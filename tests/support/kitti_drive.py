# SPDX-License-Identifier: Apache-2.0
"""A tiny drive in the layout of KITTI raw: three frames, 0.1 s apart, of a rig that drives east at 10 m/s."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from nurec_lite.geometry.lidar import unit_directions

N_FRAMES, N_BEAMS, STEPS = 3, 64, 120  # rays every 3 degrees
TIMES = {  # seconds between a sensor's stamps and the lidar's
    "velodyne_points/timestamps": 0.0, "velodyne_points/timestamps_start": -0.05, "velodyne_points/timestamps_end": 0.05,
    "oxts/timestamps": 0.012, "image_02/timestamps": 0.0105, "image_03/timestamps": 0.0105,
}  # fmt: skip
DRIVE = "2030_01_02/2030_01_02_drive_0007_sync"

CALIBRATION = {
    "calib_imu_to_velo.txt": "R: 1 0 0 0 1 0 0 0 1\nT: -0.5 0.25 -1.0\n",
    "calib_velo_to_cam.txt": "calib_time: today\nR: 0 -1 0 0 0 -1 1 0 0\nT: 0 -0.125 -0.25\n",
    "calib_cam_to_cam.txt": (
        "R_rect_00: 1 0 0 0 1 0 0 0 1\n"
        "S_rect_02: 12 8\nP_rect_02: 10 0 6 5 0 10 4 0 0 0 1 0\n"
        "S_rect_03: 12 8\nP_rect_03: 10 0 6 -5 0 10 4 0 0 0 1 0\n"
    ),
}


def ring_angles(
    skip: Callable[[Tensor, int], Tensor] | None = None, n_beams: int = N_BEAMS, steps: int = STEPS
) -> tuple[Tensor, Tensor]:
    """Angles [n, 2] of rays as a file stores them, and their rings [n]; `skip(azimuth in degrees, ring)` leaves some out."""
    angles, rings = [], []
    for ring in range(n_beams):
        degrees = torch.arange(steps, dtype=torch.float64) * 360 / steps + 0.5
        if skip is not None:
            degrees = degrees[~skip(degrees, ring)]
        azimuth = torch.deg2rad((degrees + 180) % 360 - 180)
        angles.append(torch.stack([azimuth, torch.full_like(azimuth, math.radians(2 - 0.4 * ring))], dim=1))
        rings.append(torch.full((len(azimuth),), ring))
    return torch.cat(angles), torch.cat(rings)


def points_of(angles: Tensor, distance: float = 20.0) -> Tensor:  # [n, 4]
    return torch.cat([unit_directions(angles) * distance, torch.full((len(angles), 1), 0.5)], dim=1).double()


def stamp(seconds: float) -> str:
    return f"2030-01-02 10:00:{30 + seconds:012.9f}"


def write_drive(root: Path, n_beams: int = N_BEAMS, steps: int = STEPS) -> Path:
    drive = root / DRIVE
    for name, shift in TIMES.items():
        (drive / name).parent.joinpath("data").mkdir(parents=True, exist_ok=True)
        (drive / f"{name}.txt").write_text("".join(stamp(0.1 * i + shift) + "\n" for i in range(N_FRAMES)))
    for name, text in CALIBRATION.items():
        (drive.parent / name).write_text(text)
    angles = ring_angles(lambda azimuth, ring: (azimuth > 100) & (azimuth < 110), n_beams, steps)[0]
    rng = np.random.default_rng(0)
    for i in range(N_FRAMES):
        (drive / f"velodyne_points/data/{i:010d}.bin").write_bytes(points_of(angles).numpy().astype("<f4").tobytes())
        longitude = math.degrees((10 * 0.1 * i) / 6378137.0 / math.cos(math.radians(49)))
        (drive / f"oxts/data/{i:010d}.txt").write_text(f"49 {8 + longitude:.14f} 100 0 0 0 1 2 3\n")
        for camera in ("image_02", "image_03"):
            pixels = rng.integers(0, 256, (8, 12, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(drive / f"{camera}/data/{i:010d}.png")
    return root


def label(frame: int, x: float, y: float, z: float, yaw: float, kind: str = "Car", track: int = 3) -> str:
    """A label of an object 1.5 m high, 1.8 m wide and 4.2 m long."""
    return f"{frame} {track} {kind} 0 0 -1 0 0 9 9 1.5 1.8 4.2 {x} {y} {z} {yaw}\n"


def tracklet(poses: str, first_frame: int = 1, size: str = "<h>1.5</h><w>1.8</w><l>4.2</l>") -> str:
    """A tracklet of such an object; `poses` is one x, y, z, yaw a line, of the bottom's centre in the lidar's frame."""
    rows = [line.split() for line in poses.splitlines()]
    items = "".join(
        f"<item><tx>{x}</tx><ty>{y}</ty><tz>{z}</tz><rx>0</rx><ry>0</ry><rz>{yaw}</rz></item>\n"
        for x, y, z, yaw in rows
    )
    return (
        f"<item><objectType>Car</objectType>{size}<first_frame>{first_frame}</first_frame>\n"
        f"<poses><count>{len(rows)}</count>\n{items}</poses></item>\n"
    )


def tracklet_file(*tracklets: str) -> str:
    return (
        '<?xml version="1.0" encoding="UTF-8" standalone="yes" ?>\n<!DOCTYPE boost_serialization>\n<boost_serialization>'
        f"<tracklets>\n<count>{len(tracklets)}</count>{''.join(tracklets)}</tracklets></boost_serialization>\n"
    )


TRACKLETS = tracklet_file(tracklet("10 5 -1.6 0.3\n11 5 -1.6 0.2"), tracklet("20 -5 -1.5 -0.3", first_frame=0))
