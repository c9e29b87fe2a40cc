# SPDX-License-Identifier: Apache-2.0
"""Reads the slice of PandaSet that lies beside the checkout, as docs/your-data.md describes for a drive of one's own.

The rig is the Pandar64: its pose is that of the front camera times the camera's extrinsic calibration, since `lidar/poses.json` is
another place. Points lie in the world at their own times; a ray is what the rig saw at that time. Times are seconds since the first
sweep begins.
"""

import gzip
import json
import math
import os
import pickle
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from torch import Tensor

from nurec_lite.capture.kitti.sweeps import missing_angles
from nurec_lite.capture.trajectory import Trajectory
from nurec_lite.capture.types import Capture, ImageFrame, SweepFrame
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lidar import Lidar, Sweep, azimuth_elevation, unit_directions
from nurec_lite.geometry.se3 import interpolate_trajectory, invert, pose_matrix, transform
from nurec_lite.geometry.tracks import Tracks

FOLDER = Path(__file__).resolve().parents[2].parent / "shared/data/pandaset/002"
needs_pandaset = pytest.mark.skipif(
    not FOLDER.is_dir() and not os.environ.get("CI"), reason="PandaSet is not here, and CI is not set"
)
CAMERAS = ("front_camera", "front_left_camera", "front_right_camera", "left_camera", "right_camera", "back_camera")
BEAMS, STEPS = 64, 1800
SHUTTER = (-0.03, 0.01)  # seconds from an image's stamp to its first and last row, as NeuRAD has it
FARTHEST = 200.0  # metres
SURVEYED = 6  # sweeps that say where the beams lie
# the rig looks along -y of the Pandar64, whose x points left
T_PANDAR_RIG = torch.tensor([[0, 1, 0, 0], [-1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], dtype=torch.float64)


class _Frame:
    """Stands for a pickled DataFrame: keeps the state, from which columns are read."""

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Unpickler(pickle.Unpickler):
    """Admits numpy's arrays, and stand-ins for pandas' own classes."""

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("pandas."):
            return (lambda kind, fields: fields) if name == "_new_Index" else _Frame
        if (module, name) == ("builtins", "slice"):
            return slice
        module = module.replace("numpy.core", "numpy._core")
        if (module, name) in (("numpy._core.multiarray", "_reconstruct"), ("numpy", "ndarray"), ("numpy", "dtype")):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a table")


def read_table(path: Path) -> dict[str, np.ndarray]:
    """Columns of a pickled DataFrame of pandas 1.0."""
    with gzip.open(path) as file:
        manager = _Unpickler(file).load().state["_data"]
    parts = manager.state[3]["0.14.1"]
    names, columns = parts["axes"][0]["data"], {}
    for block in parts["blocks"]:
        where = block["mgr_locs"]
        columns.update(zip(names[where], block["values"], strict=True))
    return columns


def read_pandaset(
    folder: Path = FOLDER,
    cameras: tuple[str, ...] = CAMERAS,
    downscale: int = 1,
) -> Capture:
    """The slice with its moving objects as tracks."""
    drive = _drive(folder)
    return Capture(
        name=f"pandaset_{folder.name}",
        cameras=tuple(_camera(folder, name).downscaled(downscale) for name in cameras),
        lidars=(_lidar(drive),),
        images=tuple(f for name in cameras for f in _images(drive, name, downscale)),
        sweeps=tuple(_sweeps(drive)),
        tracks=_tracks(drive),
    )


@dataclass(frozen=True, eq=False)
class Drive:
    folder: Path
    start: float  # Unix seconds
    path: Trajectory  # of the rig
    stamps: list[float]  # seconds, ends of the sweeps
    elevations: Tensor  # [B] radians


def _json(path: Path) -> Any:
    return json.loads(path.read_text())


def _extrinsic(folder: Path, name: str) -> Tensor:  # [4, 4] T_cam_pandar
    known = yaml.safe_load((folder.parent / "static_extrinsic_calibration.yaml").read_text())
    return _pose(known[name]["extrinsic"]["transform"], "rotation", "translation")


def _pose(values: dict[str, dict[str, float]], turn: str, place: str) -> Tensor:  # [4, 4]
    q = torch.tensor([values[turn][k] for k in "wxyz"], dtype=torch.float64)
    return pose_matrix(q / q.norm(), torch.tensor([values[place][k] for k in "xyz"], dtype=torch.float64))


def _rig_cam(folder: Path, name: str) -> Tensor:  # [4, 4]
    return invert(T_PANDAR_RIG) @ invert(_extrinsic(folder, name))


@lru_cache(maxsize=4)
def _drive(folder: Path) -> Drive:
    ends = _json(folder / "lidar/timestamps.json")
    start, front = ends[0] - 0.1, folder / "camera/front_camera"
    T_cam_rig = invert(_rig_cam(folder, "front_camera"))
    poses = torch.stack([_pose(row, "heading", "position") @ T_cam_rig for row in _json(front / "poses.json")])
    times = torch.tensor([t - start for t in _json(front / "timestamps.json")], dtype=torch.float64)
    path, stamps = Trajectory(times, poses), [t - start for t in ends]
    return Drive(folder, start, path, stamps, _beams(folder, start, path, len(stamps)))


def _beams(folder: Path, start: float, path: Trajectory, n: int) -> Tensor:  # [B] radians, the lowest first
    """Peaks of the histogram of elevations, the highest first. Beams are 0.17 degrees apart near the horizon and 0.9 elsewhere."""
    some = [_angles(folder, start, path, i)[0][:, 1] for i in range(0, n, max(1, n // SURVEYED))]
    bins = torch.histc(torch.rad2deg(torch.cat(some)), 5000, -30, 20)
    counts, found = bins.clone(), list[float]()
    while len(found) < BEAMS:
        i = int(counts.argmax())
        apart = 13 if 2380 < i < 3220 else 50
        near = slice(max(0, i - 3), i + 4)
        found.append(float((bins[near] * torch.arange(5000)[near]).sum() / bins[near].sum()))
        counts[max(0, i - apart) : i + apart + 1] = 0
    return torch.deg2rad(torch.tensor(sorted(found), dtype=torch.float64) * 0.01 - 29.995)


def _points(folder: Path, start: float, i: int) -> tuple[Tensor, Tensor, Tensor]:
    """Of the Pandar64: world [n, 3] metres, seconds [n], intensity [n] 0 to 1."""
    table = read_table(folder / f"lidar/{i:02d}.pkl.gz")
    own = table["d"] == 0
    world = torch.from_numpy(np.stack([table[k][own] for k in "xyz"], axis=1))
    return world, torch.from_numpy(table["t"][own] - start), torch.from_numpy(table["i"][own] / 255).float()


def _angles(folder: Path, start: float, path: Trajectory, i: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Azimuth and elevation [n, 2], ranges [n], times [n], intensities [n] of the points of sweep i."""
    world, times, intensities = _points(folder, start, i)
    T = invert(path_at(path, times))
    local = (T[:, :3, :3] @ world[:, :, None])[..., 0] + T[:, :3, 3]
    return azimuth_elevation(local), local.norm(dim=1), times, intensities


def path_at(path: Trajectory, times: Tensor) -> Tensor:  # [n, 4, 4]
    return interpolate_trajectory(path.times, path.poses, times)


def _lidar(drive: Drive) -> Lidar:
    return Lidar("pandar64", torch.eye(4, dtype=torch.float64), drive.elevations, FARTHEST, STEPS)


def _load(drive: Drive, i: int) -> Sweep:
    """Rays that returned, and those missing in each beam."""
    angles, ranges, times, intensities = _angles(drive.folder, drive.start, drive.path, i)
    edges = 0.5 * (drive.elevations[1:] + drive.elevations[:-1])
    rings = torch.bucketize(angles[:, 1].contiguous(), edges)
    order = torch.argsort(rings * 8 + angles[:, 0] % (2 * math.pi), stable=True)
    angles, ranges, times, intensities, rings = (v[order] for v in (angles, ranges, times, intensities, rings))
    more, more_rings = missing_angles(angles, rings)
    fraction = torch.remainder((math.pi - more[:, 0]) / (2 * math.pi), 1)
    zeros = torch.zeros(len(more))
    return Sweep(
        directions=torch.cat([unit_directions(angles), unit_directions(more)]).float(),
        ranges=torch.cat([ranges.float(), zeros]),
        intensities=torch.cat([intensities, zeros]),
        times=torch.cat([times, drive.stamps[i] - 0.1 + 0.1 * fraction]),
        rings=torch.cat([rings, more_rings]),
        returned=torch.arange(len(ranges) + len(more)) < len(ranges),
    )


def _sweeps(drive: Drive) -> list[SweepFrame]:
    ends = torch.tensor(drive.stamps, dtype=torch.float64)
    first, last = path_at(drive.path, ends - 0.1), path_at(drive.path, ends)
    return [
        SweepFrame("pandar64", i, end - 0.1, end, first[i], last[i], partial(_load, drive, i))
        for i, end in enumerate(drive.stamps)
    ]


# ---- cameras


def _camera(folder: Path, name: str) -> Camera:
    known = _json(folder / f"camera/{name}/intrinsics.json")
    inner = (known["fx"], known["fy"], known["cx"], known["cy"])
    return Camera(name, 1920, 1080, *inner, T_rig_cam=_rig_cam(folder, name), shutter="top_to_bottom")


def _images(drive: Drive, name: str, downscale: int) -> list[ImageFrame]:
    folder = drive.folder / f"camera/{name}"
    stamps = torch.tensor(_json(folder / "timestamps.json"), dtype=torch.float64) - drive.start
    first, last = (stamps + d for d in SHUTTER)
    rows = zip(first.tolist(), last.tolist(), path_at(drive.path, first), path_at(drive.path, last), strict=True)
    return [
        ImageFrame(name, i, *row, partial(_image, folder / f"{i:02d}.jpg", downscale)) for i, row in enumerate(rows)
    ]


def _image(path: Path, downscale: int) -> Tensor:  # [H, W, 3] uint8
    with Image.open(path) as image:
        whole = image.reduce(downscale) if downscale > 1 else image
        return torch.from_numpy(np.asarray(whole.convert("RGB")).copy())


# ---- tracks


def _tracks(drive: Drive) -> Tracks:
    """Of what moves. A box holds at the time at which the sweep passes its middle."""
    keys: dict[str, list[tuple[float, np.ndarray, np.ndarray, float]]] = {}
    classes: dict[str, str] = {}
    for i in range(len(drive.stamps)):
        table = read_table(drive.folder / f"annotations/cuboids/{i:02d}.pkl.gz")
        places = np.stack([table[f"position.{k}"] for k in "xyz"], axis=1).astype(float)
        sizes = np.stack([table[f"dimensions.{k}"] for k in "yxz"], axis=1).astype(float)
        used = ~table["stationary"].astype(bool) & (table["cuboids.sensor_id"].astype(int) != 1)
        for row in np.flatnonzero(used):
            name = str(table["uuid"][row])
            time = _passed(drive, i, torch.from_numpy(places[row]))
            keys.setdefault(name, []).append((time, places[row], sizes[row], float(table["yaw"][row])))
            classes[name] = str(table["label"][row])
    if not keys:
        return Tracks.empty()
    rows = [key for name in keys for key in keys[name]]
    yaw = (
        torch.tensor([key[3] for key in rows], dtype=torch.float64) + math.pi / 2
    )  # of the y axis, which is the length
    turn = torch.stack([(yaw / 2).cos(), 0 * yaw, 0 * yaw, (yaw / 2).sin()], dim=1)
    sizes = [np.median([key[2] for key in keys[name]], axis=0) for name in keys]
    return Tracks(
        ids=tuple(keys),
        classes=tuple(classes[name] for name in keys),
        sizes=torch.tensor(np.array(sizes)),
        offsets=tuple(np.cumsum([0, *(len(keys[name]) for name in keys)]).tolist()),
        times=torch.tensor([key[0] for key in rows], dtype=torch.float64),
        translations=torch.tensor(np.array([key[1] for key in rows])),
        quaternions=turn,
        margin=0.05,
    )


def _passed(drive: Drive, i: int, place: Tensor) -> float:
    end = drive.stamps[i]
    middle = path_at(drive.path, torch.tensor([end - 0.05], dtype=torch.float64))[0]
    azimuth = float(azimuth_elevation(transform(invert(middle), place[None]))[0, 0])
    return end - 0.1 + 0.1 * ((math.pi - azimuth) / (2 * math.pi) % 1)
