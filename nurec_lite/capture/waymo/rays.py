# SPDX-License-Identifier: Apache-2.0
"""Rays of Waymo's lidars: each pixel of a range image is a ray, also one that did not return.

Columns of the upper lidar follow its turn, clockwise from behind. Its pixels lie in the vehicle's frame at their own times. The four short
lidars have no times: their points are those of one moment, that of the frame's pose.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nurec_lite.capture.arrow.library import REMEDY, check_once, damaged
from nurec_lite.capture.arrow.parquet import Row, read_columns
from nurec_lite.capture.files import mark_of_file
from nurec_lite.capture.types import CaptureError, SweepFrame
from nurec_lite.capture.waymo.segment import LASER, LASERS, STAMP, TURN, VEHICLE, Segment, clock_of, named, poses_of
from nurec_lite.geometry.lidar import Lidar, Sweep, unit_directions

TOP = "TOP"
CALIBRATION, POSE = "[LiDARCalibrationComponent].", "[LiDARPoseComponent].range_image_return1."
RANGES = "[LiDARComponent].range_image_return1."
MOST = 1 << 20  # pixels of a range image
FARTHEST = {TOP: 75.0}  # metres, cut there by Waymo; others see 20 m
NEAR = 20.0
FARTHEST_RETURN = 1e4  # metres: from here on, a file is damaged
# sweeps that show the directions which the vehicle blocks; columns of their poses that are compared
SURVEYED, COLUMNS = 6, 8
GROUND = math.radians(-8)  # rays below reach the ground within 15 m, so nearly all return


@dataclass(frozen=True)
class Beams:
    """One lidar: where its pixels look. Plain data, so that it pickles."""

    lidar: Lidar
    columns: int
    blocked: Tensor  # [H, W] bool: the vehicle stands in the way

    def azimuths(self) -> Tensor:  # [W] radians in the lidar's axes
        return (
            self.lidar.azimuth_start - math.tau * (torch.arange(self.columns, dtype=torch.float64) + 0.5) / self.columns
        )


@dataclass(frozen=True)
class SweepLoad:
    """Loads the rays of one range image. It pickles."""

    row: Row
    beams: Beams
    start: float  # seconds
    end: float  # of the turn; equal to start where all rays are of one moment

    def __call__(self) -> Sweep:
        beams = self.beams
        image = range_image(self.row, (len(beams.lidar.elevations), beams.columns))
        height, width = image.shape[:2]
        angles = torch.stack(torch.broadcast_tensors(beams.azimuths(), beams.lidar.elevations[:, None]), dim=-1).view(
            -1, 2
        )
        share = ((torch.arange(width, dtype=torch.float64) + 0.5) / width).expand(height, width).reshape(-1)
        ranges = image[..., 0].reshape(-1)
        returned = ranges > 0
        sweep = Sweep(
            directions=unit_directions(angles).float(), ranges=torch.where(returned, ranges, 0),
            intensities=torch.where(returned, image[..., 1].reshape(-1).clamp(min=0).tanh(), 0),
            times=self.start + (self.end - self.start) * share, rings=torch.arange(height).repeat_interleave(width), returned=returned,
        )  # fmt: skip
        return sweep.select(returned | ~beams.blocked.view(-1))

    def mark(self, thorough: bool) -> tuple[int, int]:
        return mark_of_file(self.row.path, thorough)


def range_image(
    row: Row, size: tuple[int, int] | None = None
) -> Tensor:  # [H, W, 4] range, intensity, elongation, zone
    image = _image(row, RANGES, 4, size)
    if not bool((image[..., 0] < FARTHEST_RETURN).all()):
        raise CaptureError(f"{row.path} row {row.number} holds returns beyond 10 km; {REMEDY}")
    return image


def _image(row: Row, prefix: str, channels: int, size: tuple[int, int] | None) -> Tensor:  # [H, W, channels] float32
    found = row.read((f"{prefix}values", f"{prefix}shape"))
    with damaged(row.path):
        shape = tuple(int(v) for v in found[f"{prefix}shape"].as_py() or ())
        values = found[f"{prefix}values"].values
        whole = len(shape) == 3 and shape[2] == channels and 0 < shape[0] <= 1024 and 0 < shape[0] * shape[1] <= MOST
        if not whole or values is None or len(values) != math.prod(shape) or (size and shape[:2] != size):
            wanted = f" of {size[0]}x{size[1]}" if size else ""
            raise CaptureError(
                f"{row.path} row {row.number} holds no image{wanted} of {channels} values a pixel; {REMEDY}"
            )
        array = np.asarray(values.to_numpy(zero_copy_only=False), np.float32).reshape(shape)
    if not np.isfinite(array).all():
        raise CaptureError(f"{row.path} row {row.number} holds values that are not finite; {REMEDY}")
    return torch.from_numpy(array.copy())


def rows_of(segment: Segment, component: str) -> dict[str, dict[int, Row]]:  # by lidar, by microseconds in time order
    path = segment.file(component)
    table = read_columns(path, {STAMP: int, LASER: object})
    found: dict[str, dict[int, Row]] = {}
    frames = list(zip(table[STAMP].tolist(), named(table[LASER], LASERS), strict=True))
    check_once(frames, path)
    for number, (stamp, name) in enumerate(frames):
        found.setdefault(name, {})[stamp] = Row(path, number)
    return {name: dict(sorted(own.items())) for name, own in found.items()}


def beams_of(segment: Segment, name: str, rows: Sequence[Row]) -> Beams:
    T, inclinations, limits = _calibration(segment, name)
    image = range_image(rows[0])
    height, width = image.shape[:2]
    if inclinations is None:  # rows are evenly spread
        share = (torch.arange(height, dtype=torch.float64) + 0.5) / height
        inclinations = limits[0] + share * (limits[1] - limits[0])
    if len(inclinations) != height:
        raise CaptureError(
            f"{segment.file('lidar_calibration')}: {name} has {len(inclinations)} beams, but its range images {height} rows; {REMEDY}"
        )
    start = math.pi - math.atan2(float(T[1, 0]), float(T[0, 0]))  # behind the vehicle
    lidar = Lidar(name, T, inclinations.flip(0), FARTHEST.get(name, NEAR), width, azimuth_start=start)
    some = [range_image(row, (height, width)) for row in rows[:: -(-len(rows) // SURVEYED)]]
    never = ~torch.stack([image[..., 0] > 0 for image in some]).any(dim=0)
    return Beams(lidar, width, never & (lidar.elevations < GROUND)[:, None])


def _calibration(segment: Segment, name: str) -> tuple[Tensor, Tensor | None, tuple[float, float]]:
    """Mounting [4, 4]; inclinations [H] from the lowest, or None; and the lowest and the highest one."""
    path = segment.file("lidar_calibration")
    pose, low, high = (
        f"{CALIBRATION}extrinsic.transform",
        *(f"{CALIBRATION}beam_inclination.{k}" for k in ("min", "max")),
    )
    table = read_columns(path, {LASER: object, pose: list, low: float, high: float})
    names = named(table[LASER], LASERS)
    check_once(names, path)
    if name not in names:
        raise CaptureError(f"{path} has no row of {name}; {REMEDY}")
    k = names.index(name)
    limits = float(table[low][k]), float(table[high][k])
    values = Row(path, k).read((f"{CALIBRATION}beam_inclination.values",))[f"{CALIBRATION}beam_inclination.values"]
    with damaged(path):
        given = values.as_py()
        inclinations = None if not given else torch.tensor(given, dtype=torch.float64)
    good = limits[0] < limits[1] if inclinations is None else bool((inclinations.diff() > 0).all())
    if not good or not max(map(abs, limits)) < math.pi / 2:
        raise CaptureError(f"{path}: the inclinations of {name} do not rise; {REMEDY}")
    return poses_of(table, pose, path)[k], inclinations, limits


def late_by(segment: Segment, beams: Beams) -> float:
    """Seconds between stamps and turns on the clock of the path, from the poses of the upper lidar's pixels."""
    rows = rows_of(segment, "lidar_pose").get(TOP, {}) if segment.has("lidar_pose") else {}
    chosen = list(rows.items())[:: -(-len(rows) // SURVEYED)] if rows else []
    size = (len(beams.lidar.elevations), beams.columns)
    columns = torch.linspace(0, beams.columns - 1, COLUMNS).long()
    times, places = [torch.zeros(0, dtype=torch.float64)], [torch.zeros(0, 3, dtype=torch.float64)]
    for stamp, row in chosen:
        image = _image(row, POSE, 6, size)
        times.append((stamp - segment.start) * 1e-6 + TURN * (columns.double() + 0.5) / beams.columns)
        places.append(image[:, columns, 3:].double().median(dim=0).values)
    return clock_of(segment.path, torch.cat(times), torch.cat(places))


def frame_poses(segment: Segment) -> tuple[dict[int, Tensor], float]:
    """Poses of the frames [4, 4] by microseconds, and how much later than the stamps they hold."""
    path = segment.file("vehicle_pose")
    table = read_columns(path, {STAMP: int, VEHICLE: list})
    poses = poses_of(table, VEHICLE, path)
    late = clock_of(segment.path, torch.from_numpy(segment.seconds(table[STAMP])), poses[:, :3, 3])
    return dict(zip(table[STAMP].tolist(), poses, strict=True)), late


def sweep_frames(
    segment: Segment,
    rows: dict[int, Row],  # by microseconds
    beams: Beams,
    late: float,  # seconds after the stamp, of the begin of a turn or of the one moment
) -> list[SweepFrame]:
    stamps = np.array(list(rows), dtype=np.int64)
    turn = TURN if beams.lidar.name == TOP else 0.0
    starts = segment.seconds(stamps) + late
    if not segment.path.reaches(torch.from_numpy(starts)):
        raise CaptureError(f"{segment.file('lidar')} has sweeps at other times than the poses of its frames; {REMEDY}")
    first, last = (segment.path.at(torch.from_numpy(times)) for times in (starts, starts + turn))
    parts: Any = zip(segment.number(stamps).tolist(), starts.tolist(), rows.values(), strict=True)
    return [
        SweepFrame(
            beams.lidar.name, k, start, start + turn, first[i], last[i], SweepLoad(row, beams, start, start + turn)
        )
        for i, (k, start, row) in enumerate(parts)
    ]
