# SPDX-License-Identifier: Apache-2.0
"""Tracks of KITTI: the label file of the tracking benchmark, or a drive's `tracklet_labels.xml`.

Both were drawn on the uncompensated points of single sweeps. A box therefore lies where the lidar saw the object, at the time
at which the lidar faced the box's centre, and goes to the world with the rig's pose at that time.
"""

import math
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.se3 import matrix_to_quat, pose_matrix, rotvec_to_quat
from nurec_lite.geometry.tracks import Tracks

MARGIN = 0.06  # seconds, a little more than half a turn: until the first and from the last turn's edge
TURN = 2 * math.pi


@dataclass(frozen=True)
class Box:
    """One object in one sweep."""

    track: int
    label: str  # Car, Van, Pedestrian, ...
    frame: int
    size: tuple[float, float, float]  # length, width, height in metres
    T_lidar_object: Tensor  # [4, 4] float64; origin in the centre, x forward, y left, z up


def read_label_file(
    path: Path,
    T_lidar_rect: Tensor,  # [4, 4] from the rectified frame of camera 0, in which the labels are written
) -> list[Box]:
    boxes = []
    for number, line in enumerate(_read_text(path).splitlines(), start=1):
        fields = line.split()
        if not fields or "DontCare" in fields:
            continue
        try:
            frame, track, label = int(fields[0]), int(fields[1]), fields[2]
            height, width, length, x, y, z, yaw = (float(field) for field in fields[10:17])
        except (ValueError, IndexError) as error:
            raise CaptureError(
                f"{path} line {number} is not a KITTI tracking label (17 fields: frame, track, class, ...); "
                "give the file label_02/NNNN.txt of the tracking benchmark as tracks_file"
            ) from error
        T_rect_object = _camera_box(torch.tensor([x, y - height / 2, z], dtype=torch.float64), yaw)
        boxes.append(Box(track, label, frame, (length, width, height), T_lidar_rect @ T_rect_object))
    return boxes


def _camera_box(
    centre: Tensor, yaw: float
) -> Tensor:  # T_rect_object [4, 4]; yaw about the camera's y, which points down
    turn = pose_matrix(rotvec_to_quat(torch.tensor([0.0, yaw, 0.0], dtype=torch.float64)), centre)
    axes = torch.tensor([[1, 0, 0, 0], [0, 0, -1, 0], [0, 1, 0, 0], [0, 0, 0, 1]], dtype=torch.float64)
    return turn @ axes  # an object at yaw 0 faces along x, its left is z, its up is -y


def read_tracklets(path: Path) -> list[Box]:
    """`tracklet_labels.xml`: an object's pose in the lidar frame for each frame from `first_frame`, at the bottom's centre."""
    try:
        root = ElementTree.fromstring(_read_text(path))
        items = root.findall("tracklets/item")
        return [box for track, item in enumerate(items) for box in _tracklet_boxes(track, item)]
    except (ElementTree.ParseError, ValueError, TypeError) as error:
        raise CaptureError(f"{path} is not a KITTI tracklet file ({error}); download it again or remove it") from error


def _tracklet_boxes(track: int, item: ElementTree.Element) -> list[Box]:
    def number(element: ElementTree.Element, key: str) -> float:
        text = element.findtext(key)
        if text is None:
            raise ValueError(f"tracklet {track} lacks {key}")
        return float(text)

    label = (item.findtext("objectType") or "unknown").strip()
    size = (number(item, "l"), number(item, "w"), number(item, "h"))
    first = int(number(item, "first_frame"))
    boxes = []
    for offset, pose in enumerate(item.findall("poses/item")):
        x, y, z, yaw = (number(pose, key) for key in ("tx", "ty", "tz", "rz"))
        q = rotvec_to_quat(torch.tensor([0.0, 0.0, yaw], dtype=torch.float64))
        centre = torch.tensor([x, y, z + size[2] / 2], dtype=torch.float64)
        boxes.append(Box(track, label, first + offset, size, pose_matrix(q, centre)))
    return boxes


def world_tracks(
    boxes: list[Box],
    sweeps: dict[int, tuple[float, float]],  # frame number -> forward time and period in seconds
    T_world_lidar: Callable[[Tensor], Tensor],  # times [n] -> poses [n, 4, 4]
) -> Tracks:
    """Packs the boxes of the frames that are present into tracks of world poses."""
    by_track: dict[int, list[Box]] = defaultdict(list)
    for box in boxes:
        if box.frame in sweeps:
            by_track[box.track].append(box)
    if not by_track:
        return Tracks.empty()
    rows = [_track_keys(by_track[track], sweeps) for track in sorted(by_track)]
    times = torch.cat([row[0] for row in rows])
    poses = T_world_lidar(times) @ torch.cat([row[1] for row in rows])
    sizes = [
        torch.tensor([b.size for b in by_track[t]], dtype=torch.float64).median(0).values for t in sorted(by_track)
    ]
    return Tracks(
        ids=tuple(str(track) for track in sorted(by_track)),
        classes=tuple(by_track[track][0].label for track in sorted(by_track)),
        sizes=torch.stack(sizes),
        offsets=(0, *torch.tensor([len(row[0]) for row in rows]).cumsum(0).tolist()),
        times=times,
        translations=poses[:, :3, 3].contiguous(),
        quaternions=matrix_to_quat(poses[:, :3, :3]),
        margin=MARGIN,
    )


def _track_keys(
    boxes: list[Box],
    sweeps: dict[int, tuple[float, float]],
) -> tuple[Tensor, Tensor]:  # times [n], T_lidar_object [n, 4, 4], in time order
    """A box that crosses the seam behind the sensor is seen twice within a moment: the second of such a pair is dropped."""
    keys: list[tuple[float, Tensor]] = []
    for box in sorted(boxes, key=lambda b: b.frame):
        forward_time, period = sweeps[box.frame]
        x, y = box.T_lidar_object[:2, 3].tolist()
        time = forward_time - math.atan2(y, x) / TURN * period
        if not keys or time - keys[-1][0] > period / 2:
            keys.append((time, box.T_lidar_object))
    return torch.tensor([k[0] for k in keys], dtype=torch.float64), torch.stack([k[1] for k in keys])


def _read_text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CaptureError(f"{path} cannot be read ({error}); name an existing track file") from error
