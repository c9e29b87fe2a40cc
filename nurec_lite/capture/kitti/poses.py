# SPDX-License-Identifier: Apache-2.0
"""Time stamps and poses of a KITTI raw drive.

The capture's clock starts at the first forward time of the drive's lidar, and its world is the rig's frame at the first pose,
whichever frames are read. Without a lidar, forward times follow from the stamps of a camera.
"""

import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nurec_lite.capture.files import LARGEST_TEXT, numbered_files, numbers, read_lines, read_text, short
from nurec_lite.capture.kitti.calibration import is_rotation
from nurec_lite.capture.kitti.conventions import LIDAR, rig_poses
from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.se3 import interpolate_trajectory, invert

EARTH_RADIUS = 6378137.0  # metres, as KITTI's development kit has it
SECOND = np.timedelta64(1, "s")
OTHER_POSES = "restore it, or give other poses by data.poses.file"
OR_SWEEPS = "restore or remove it (the sweeps show poses, too), or give others by data.poses.file"
NO_POSES = "restore the folder, or give the poses by data.poses.file: a row for each frame, the 3x4 matrix T_world_velo"
FORWARD_TO_STAMP = 0.0105  # seconds from the lidar's facing forward to the stamp of an image, on drive 0009
FARTHEST = 1e8  # metres from the origin; UTM coordinates fit
LARGEST_ROW = 1 << 16  # bytes of a file of oxts, which has 30 numbers
LONGEST_TURN, USUAL_TURN = 1.0, 0.1  # seconds that a lidar takes at most, and KITTI's
MAX_OFFSET = 1.0  # seconds between the stamps that two sensors give one frame
_OXTS_LIMITS = np.array([89.9, 180.0, 1e5, 2 * math.pi, 2 * math.pi, 2 * math.pi])  # degrees, metres, radians
_STAMP = re.compile(r"((19|20|21)[0-9]{2}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?)?")


@dataclass(frozen=True)
class Clock:
    """Times of all sweeps of the drive in seconds of the capture, NaN where there is none; row i belongs to frame i."""

    forward: np.ndarray  # [n] when the lidar faces forward
    period: np.ndarray  # [n] duration of a turn
    origin: np.datetime64  # zero of the capture's clock
    source: str  # file that the times come from, for messages

    @property
    def frames(self) -> list[int]:
        """Numbers of the frames that have a time."""
        return [int(n) for n in np.flatnonzero(np.isfinite(self.forward))]

    def stamped(self, path: Path) -> set[int]:
        """Numbers of the frames that have a time in the time stamp file of another sensor."""
        return {int(n) for n in np.flatnonzero(~np.isnat(read_times(path)))}

    def seconds(self, path: Path, frames: list[int]) -> Tensor:  # [len(frames)] of a time stamp file
        """Times of these frames in the time stamp file of another sensor, which looks at the same moments."""
        times = (read_times(path) - self.origin) / SECOND
        n = min(len(times), len(self.forward))
        apart = np.nan_to_num(times[:n] - self.forward[:n])
        worst = int(np.abs(apart).argmax())
        if abs(apart[worst]) > MAX_OFFSET:
            raise CaptureError(
                f"{path} stamps frame {worst} {apart[worst]:.3g} s after {self.source}; restore the drive's time stamps"
            )
        return _rows(path, times, frames)


@dataclass(frozen=True)
class Trajectory:
    times: Tensor  # [n] seconds, increasing
    poses: Tensor  # [n, 4, 4] T_world_rig

    def at(self, times: Tensor) -> Tensor:  # [...] seconds -> [..., 4, 4]
        return interpolate_trajectory(self.times, self.poses, times)


def read_times(
    path: Path,
) -> np.ndarray:  # [n] datetime64[ns]; line i belongs to frame i, NaT where the line is blank
    lines = [line.strip() for line in read_lines(path, "restore the drive's time stamps", LARGEST_TEXT)]
    times = np.array([_parse_stamp(path, number, line) for number, line in enumerate(lines, start=1)])
    known = np.flatnonzero(~np.isnat(times))
    late = known[1:][np.diff(times[known]) <= np.timedelta64(0, "ns")]
    if len(late):
        raise CaptureError(
            f"{path} line {late[0] + 1} is not later than the stamp before; restore the drive's time stamps"
        )
    return times


def _parse_stamp(path: Path, number: int, line: str) -> np.datetime64:
    """Parses a stamp, more strictly than numpy: it takes `now`, a year without a month, and years beyond its nanoseconds."""
    try:
        if _STAMP.fullmatch(line):
            return np.datetime64(line, "ns")
    except ValueError:  # 30 February
        pass
    raise CaptureError(f"{path} line {number} is no time stamp ('{short(line)}'); restore the drive's time stamps")


def oxts_rows(
    folder: Path,
) -> Iterator[tuple[int, str]]:  # frame number, text
    """Numbers of every row; none where there is no folder."""
    paths = numbered_files(folder / "data", "*.txt", NO_POSES) if os.path.isdir(folder / "data") else {}
    for frame, path in paths.items():
        yield frame, read_text(path, OTHER_POSES, LARGEST_ROW)


def read_oxts(
    folder: Path,
    remedy: str = OTHER_POSES,
) -> tuple[list[int], Tensor]:  # frame numbers, T_map_rig [n, 4, 4]: east, north, up on a Mercator map
    paths = numbered_files(folder, "*.txt", NO_POSES if remedy == OTHER_POSES else remedy)
    rows = [_read_oxts_row(path, remedy) for path in paths.values()]
    values = torch.tensor(rows, dtype=torch.float64)
    poses = torch.eye(4, dtype=torch.float64).repeat(len(rows), 1, 1)
    poses[:, :3, :3] = euler_matrix(*values[:, 3:6].unbind(1))
    poses[:, :3, 3] = map_positions(values[:, :3])
    return list(paths), poses


def map_positions(
    places: Tensor,  # [n, 3] latitude and longitude in degrees, altitude in metres
) -> Tensor:  # [n, 3] metres east, north and up on a Mercator map that is true to scale at the first place
    scale = math.cos(math.radians(float(places[0, 0]))) * EARTH_RADIUS
    latitude, longitude = torch.deg2rad(places[:, 0]), torch.deg2rad(places[:, 1])
    return torch.stack(
        [scale * longitude, scale * torch.log(torch.tan(math.pi / 4 + latitude / 2)), places[:, 2]], dim=1
    )


def _read_oxts_row(
    path: Path,
    remedy: str,
) -> list[float]:  # latitude, longitude in degrees, altitude in metres, roll, pitch, yaw in radians
    fields = read_text(path, remedy, LARGEST_ROW).split()[:6]
    try:
        row = numbers(" ".join(fields))
    except ValueError:
        row = []
    if len(row) < 6:
        raise CaptureError(f"{path} does not begin with 6 finite numbers; {remedy}")
    if (np.abs(row) > _OXTS_LIMITS).any():
        raise CaptureError(
            f"{path} does not begin with latitude, longitude, altitude, roll, pitch and yaw that a vehicle can have; {remedy}"
        )
    return row


def euler_matrix(roll: Tensor, pitch: Tensor, yaw: Tensor) -> Tensor:  # [n, 3, 3] = Rz(yaw) Ry(pitch) Rx(roll)
    (sr, sp, sy), (cr, cp, cy) = (tuple(map(f, (roll, pitch, yaw))) for f in (torch.sin, torch.cos))
    rows = [
        cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr,
        sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr,
        -sp, cp * sr, cp * cr,
    ]  # fmt: skip
    return torch.stack(rows, dim=-1).unflatten(-1, (3, 3))


def read_poses_file(
    path: Path,
    n_needed: int,
) -> Tensor:  # [n, 4, 4] T_world_velo, row i for frame i
    lines = read_lines(path, "name an existing poses_file (data.poses.file)")
    rows = [_parse_pose(path, number, line) for number, line in enumerate(lines, start=1)]
    if len(rows) < n_needed:
        raise CaptureError(f"{path} has {len(rows)} rows, but {n_needed} are needed; write one row for each frame")
    poses = torch.eye(4, dtype=torch.float64).repeat(len(rows), 1, 1)
    poses[:, :3] = torch.tensor(rows, dtype=torch.float64).view(-1, 3, 4)
    if not is_rotation(poses[:, :3, :3]):
        raise CaptureError(f"{path} holds a matrix that is not a rotation; each row must be a rigid T_world_velo")
    return poses


def _parse_pose(path: Path, number: int, line: str) -> list[float]:
    try:
        row = numbers(line)
    except ValueError:
        row = []
    if len(row) != 12 or max(map(abs, row)) > FARTHEST:
        raise CaptureError(
            f"{path} line {number} is not 12 finite numbers of at most {FARTHEST:g}; each row must be a 3x4 matrix T_world_velo"
        )
    return row


def read_clock(
    folder: Path,  # velodyne_points
) -> Clock:
    paths = [folder / f"timestamps{part}.txt" for part in ("", "_start", "_end")]
    forward, start, end = (read_times(path) for path in paths)
    for path, times in ((paths[1], start), (paths[2], end)):
        if len(times) != len(forward) or (np.isnat(times) & ~np.isnat(forward)).any():
            raise CaptureError(
                f"{path} and timestamps.txt do not stamp the same frames; restore the drive's time stamps"
            )
    known = ~np.isnat(forward)
    odd = known & ~((start < forward) & (forward < end) & (end - start <= LONGEST_TURN * SECOND))
    if odd.any():
        raise CaptureError(
            f"{paths[0]} line {odd.argmax() + 1} does not lie within a turn of at most {LONGEST_TURN:g} s, from timestamps_start.txt "
            "to timestamps_end.txt; restore the three files"
        )
    origin = forward[known][0]
    return Clock((forward - origin) / SECOND, (end - start) / SECOND, origin, "velodyne_points/timestamps.txt")


def read_camera_clock(
    folder: Path,  # image_0X
) -> Clock:
    """The clock of a drive without a lidar, by the triggers of a camera: a lidar would have faced forward then."""
    path = folder / "timestamps.txt"
    times = read_times(path)
    known = ~np.isnat(times)
    if not known.any():
        raise CaptureError(f"{path} holds no time stamp; restore the drive's time stamps")
    forward = (times - times[known][0]) / SECOND
    period = float(np.median(np.diff(forward[known]))) if known.sum() > 1 else USUAL_TURN
    origin = times[known][0] - np.timedelta64(round(1e9 * FORWARD_TO_STAMP), "ns")
    return Clock(forward, np.full_like(forward, period), origin, f"{folder.name}/timestamps.txt")


def sweep_times(
    clock: Clock,
    path: Path,  # velodyne_points/timestamps.txt, for messages
    frames: list[int],
) -> tuple[Tensor, Tensor]:  # forward time [n], period [n] in seconds
    return _rows(path, clock.forward, frames), _rows(path, clock.period, frames)


def _rows(path: Path, times: np.ndarray, frames: list[int]) -> Tensor:
    unknown = [frame for frame in frames if frame >= len(times) or not np.isfinite(times[frame])]
    if unknown:
        raise CaptureError(f"{path} has no time stamp for frame {unknown[0]}; restore it, or read fewer frames")
    return torch.from_numpy(times[frames])


@dataclass(frozen=True)
class PosesFile:
    """A file of poses at the lidar's forward times, and the meaning of its rows."""

    path: Path
    convention: str = LIDAR


def read_trajectory(
    folder: Path,  # of the drive
    clock: Clock,
    file: PosesFile | None,  # None: oxts
    T_rig_lidar: Tensor,  # [4, 4]
    T_rig_rect: Tensor,  # [4, 4]
    frames: set[int],  # that need a pose
    needed: bool = True,  # false: without oxts all poses are the identity, and frames without one get that of their neighbours
) -> Trajectory:
    if file is None and not needed and not os.path.isdir(folder / "oxts" / "data"):
        return Trajectory(torch.zeros(1, dtype=torch.float64), torch.eye(4, dtype=torch.float64)[None])
    if file is None:
        posed, poses = read_oxts(folder / "oxts" / "data", OTHER_POSES if needed else OR_SWEEPS)
        lacking = sorted(frames.difference(posed))
        if lacking and needed:
            raise CaptureError(f"{folder}/oxts/data has no pose of frame {lacking[0]}; {OTHER_POSES}")
        times = clock.seconds(folder / "oxts" / "timestamps.txt", posed)
    else:
        rows = read_poses_file(file.path, 1 + max(frames))[: len(clock.forward)]
        known = torch.from_numpy(np.isfinite(clock.forward[: len(rows)]))
        times = torch.from_numpy(clock.forward[: len(rows)])[known]
        poses = rig_poses(rows, file.convention, T_rig_lidar, T_rig_rect)[known]
    return Trajectory(times, invert(poses[0]) @ poses)
