# SPDX-License-Identifier: Apache-2.0
"""A long drive made of a short one: its frames to and fro by links, with time stamps and poses to match."""

import os
from pathlib import Path

import numpy as np

STEP_S = 0.1035  # between frames, as KITTI has them
SHIFTS = {  # seconds between a sensor's stamps and the lidar's
    "velodyne_points/timestamps": 0.0, "velodyne_points/timestamps_start": -0.0517, "velodyne_points/timestamps_end": 0.0517,
    "image_02/timestamps": 0.0105, "image_03/timestamps": 0.0105,
}  # fmt: skip


def to_and_fro(n: int, there: int) -> list[int]:
    """Frames 0 .. there - 1, back to 0, and so on: n of them."""
    turn = [*range(there), *range(there - 2, 0, -1)]
    return [turn[k % len(turn)] for k in range(n)]


def stamp(seconds: float) -> str:
    return str(np.datetime64("2030-01-02T10:00:30", "ns") + np.timedelta64(round(1e9 * seconds), "ns")).replace(
        "T", " "
    )


def long_drive(
    source: Path,  # folder that holds one date with one drive
    poses: Path,  # T_world_velo, a row for each frame
    target: Path,
    n: int,
) -> Path:  # the poses of the long drive
    (drive,) = source.glob("*/*_sync")
    new = target / drive.parent.name / drive.name
    new.mkdir(parents=True)
    for path in drive.parent.glob("calib_*.txt"):
        (new.parent / path.name).symlink_to(path.resolve())
    there = len(list((drive / "velodyne_points/data").glob("*.bin")))
    order = to_and_fro(n, there)
    for name, shift in SHIFTS.items():
        (new / name).parent.joinpath("data").mkdir(parents=True, exist_ok=True)
        (new / f"{name}.txt").write_text("".join(stamp(STEP_S * i + shift) + "\n" for i in range(n)))
    for sensor in ("velodyne_points", "image_02", "image_03"):
        files = sorted((drive / sensor / "data").iterdir())
        for i, k in enumerate(order):
            os.symlink(files[k].resolve(), new / sensor / "data" / f"{i:010d}{files[k].suffix}")
    rows = poses.read_text().splitlines()
    path = target / "poses.txt"
    path.write_text("".join(rows[k] + "\n" for k in order))
    return path
