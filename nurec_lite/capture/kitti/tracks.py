# SPDX-License-Identifier: Apache-2.0
"""Tracks of KITTI: the label file of the tracking benchmark, or a drive's `tracklet_labels.xml`.

Both were drawn on the uncompensated points of single sweeps. A box therefore lies where the lidar saw the object, at the time
when the lidar faced the box's centre, and goes to the world with the rig's pose at that time.
"""

import math
import re
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nurec_lite.base.names import label_flaw
from nurec_lite.capture.files import natural, numbers, read_lines, read_text, short
from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.se3 import matrix_to_quat, pose_matrix, quat_normalize, rotvec_to_quat
from nurec_lite.geometry.tracks import Tracks, joined, single_track

MARGIN = 0.06  # seconds, a little more than half a turn: until the first and from the last turn's edge
PARKED_M = 0.75  # an object with keyframes closer together stands still: labels scatter by up to 0.4 m
TURN = 2 * math.pi
LARGEST = 100.0  # metres, a train
FARTHEST = 1000.0  # metres from the sensor
FEW = 2  # frames, which do not tell a thinned drive from one that lacks a frame
SIZES = "hwl"  # columns 11 to 13 of the tracking benchmark's files
ORDERS = (SIZES, "lwh", "wlh", "hlw", "whl", "lhw")  # the usual ones first
PAUSE = 300  # frames, half a minute without a single object
MOST_ELEMENTS, MOST_ATTRIBUTES = 1_000_000, 10_000  # of tracklets: a box in a sweep has 15 elements, each with an end
_DEFINES = re.compile(r"<!(?!--|\[CDATA\[|DOCTYPE\s+[\w.:-]+\s*>)")  # other declarations than DOCTYPE NAME
OTHER_LABELS = "give the file label_02/NNNN.txt of the tracking benchmark by data.tracks.file"
OTHER_TRACKLETS = "download it again or remove it"


@dataclass(frozen=True)
class Box:
    """One object in one sweep."""

    track: int
    label: str  # Car, Van, Pedestrian, ...
    frame: int
    size: tuple[float, float, float]  # length, width, height in metres
    T_lidar_object: Tensor  # [4, 4] float64; origin in the centre, x forward, y left, z up


@dataclass(frozen=True)
class LabelFormat:
    """Reading of a label file."""

    sizes: str = SIZES  # order of the columns height, width and length, by their first letters
    first_frame: int = 0  # the number that the file gives the drive's frame 0
    in_lidar: bool = False  # x, y and z of the bottom are in the lidar's axes


def read_label_file(
    path: Path,
    T_lidar_rect: Tensor,  # [4, 4] from the rectified frame of camera 0, that of the labels
    form: LabelFormat = LabelFormat(),
) -> list[Box]:
    rows = ((number, line.split()) for number, line in enumerate(read_lines(path, OTHER_LABELS), start=1))
    chosen = [(number, row) for number, row in rows if row and row[2:3] != ["DontCare"]]
    labels = [_label(path, number, row, form) for number, row in chosen]
    if not labels:
        return []
    frames, tracks, classes, sizes, bottoms, yaws = zip(*labels, strict=True)
    height, bottom = (torch.tensor(values, dtype=torch.float64) for values in ([size[2] for size in sizes], bottoms))
    poses = T_lidar_rect @ _camera_boxes(bottom - 0.5 * height[:, None] * torch.tensor([0.0, 1.0, 0.0]), yaws)
    if form.in_lidar:
        poses[:, :3, 3] = bottom + 0.5 * height[:, None] * torch.tensor([0.0, 0.0, 1.0])
    return list(map(Box, tracks, classes, frames, sizes, poses))


Label = tuple[
    int, int, str, tuple[float, float, float], tuple[float, float, float], float
]  # frame, track, class, length, width and height, middle of the bottom, yaw


def _label(path: Path, number: int, fields: list[str], form: LabelFormat) -> Label:
    try:
        frame, track, label = natural(fields[0]), natural(fields[1]), fields[2]
        *sizes, x, y, z, yaw = numbers(" ".join(fields[10:17]))
        height, width, length = (sizes[form.sizes.index(letter)] for letter in SIZES)
        _check_box(label, (length, width, height), (x, y, z), yaw)
    except (ValueError, IndexError) as error:
        raise CaptureError(
            f"{path} line {number} is not a KITTI tracking label of 17 fields: frame, track, class, ... ({short(error)}); "
            f"{OTHER_LABELS}"
        ) from error
    return frame - form.first_frame, track, label, (length, width, height), (x, y, z), yaw


def _check_box(label: str, size: tuple[float, ...], centre: tuple[float, ...], yaw: float) -> None:
    if flaw := label_flaw(label):
        raise ValueError(f"the class '{short(label)}' {flaw}")
    if not 0.001 <= min(size) <= max(size) <= LARGEST:
        raise ValueError(f"a size is not 0.001 to {LARGEST:g} m")
    if max(map(abs, centre)) > FARTHEST or abs(yaw) > TURN:
        raise ValueError(f"a box is farther than {FARTHEST:g} m or turned by more than 2 pi")


def _camera_boxes(
    centres: Tensor,  # [n, 3]
    yaws: Sequence[float],  # n, about the camera's y, which points down
) -> Tensor:  # [n, 4, 4] T_rect_object
    turns = torch.zeros_like(centres)
    turns[:, 1] = torch.tensor(yaws, dtype=torch.float64)
    axes = torch.tensor([[1, 0, 0, 0], [0, 0, -1, 0], [0, 1, 0, 0], [0, 0, 0, 1]], dtype=torch.float64)
    return (
        pose_matrix(rotvec_to_quat(turns), centres) @ axes
    )  # an object at yaw 0 faces along x, its left is z, its up is -y


def read_tracklets(path: Path) -> list[Box]:
    """`tracklet_labels.xml`: an object's pose in the lidar frame for each frame from `first_frame`, at the bottom's centre."""
    text = read_text(path, OTHER_TRACKLETS)
    try:
        check_markup(text)
        tracklets = ElementTree.fromstring(text).find("tracklets")
        if tracklets is None:
            raise ValueError("it lacks the element 'tracklets'")
        return [box for track, item in enumerate(_items(tracklets)) for box in _tracklet_boxes(track, item)]
    except (ElementTree.ParseError, ValueError) as error:
        raise CaptureError(f"{path} is not a KITTI tracklet file ({short(error)}); {OTHER_TRACKLETS}") from error


def check_markup(
    text: str,
    elements: int = MOST_ELEMENTS,
    attributes: int = MOST_ATTRIBUTES,
) -> None:
    """Refuses markup that multiplies few bytes: a document type of its own may define entities and attributes, and elements take memory."""
    if _DEFINES.search(text):
        raise ValueError("it defines entities or a document type, which KITTI's files never do")
    if text.count("<") > elements or text.count("=") > attributes:
        raise ValueError("it has more elements or attributes than any drive")


def _items(parent: ElementTree.Element) -> list[ElementTree.Element]:
    """Returns the items; ValueError unless they are as many as the parent states: a lost one would give later ones a wrong frame."""
    items = parent.findall("item")
    if natural(_text(parent, "count")) != len(items):
        raise ValueError(f"'{parent.tag}' counts {short(_text(parent, 'count'))} items and holds {len(items)}")
    return items


def _text(element: ElementTree.Element, key: str) -> str:
    found = element.findall(key)
    if len(found) != 1:
        raise ValueError(f"an element has '{key}' {len(found)} times")
    return found[0].text or ""


def _number(element: ElementTree.Element, key: str) -> float:
    values = numbers(_text(element, key))
    if len(values) != 1:
        raise ValueError(f"'{key}' is no number")
    return values[0]


def _tracklet_boxes(track: int, item: ElementTree.Element) -> list[Box]:
    label = " ".join(_text(item, "objectType").split())
    size = (_number(item, "l"), _number(item, "w"), _number(item, "h"))
    first, poses = natural(_text(item, "first_frame")), item.find("poses")
    if poses is None:
        raise ValueError(f"tracklet {track} lacks 'poses'")
    rows = [[_number(pose, key) for key in ("tx", "ty", "tz", "rz")] for pose in _items(poses)]
    for x, y, z, yaw in rows:
        _check_box(label, size, (x, y, z), yaw)
    places = torch.tensor(rows, dtype=torch.float64).view(-1, 4)
    turns = places[:, 3:] * torch.tensor([0.0, 0.0, 1.0])
    centres = places[:, :3] + torch.tensor([0.0, 0.0, size[2] / 2], dtype=torch.float64)
    found = pose_matrix(rotvec_to_quat(turns), centres)
    return [Box(track, label, first + offset, size, T) for offset, T in enumerate(found)]


def check_frames(
    path: Path,
    boxes: list[Box],
    drive: Collection[int],  # frames that the drive holds
) -> None:
    """Checks that every track has a box in the drive, unless the drive was cut: tracks before its first and after its last frame
    are left out, as far as the file's frames run on from the drive's without a pause of more than PAUSE."""
    frames_of: dict[int, set[int]] = defaultdict(set)
    for box in boxes:
        if box.frame in frames_of[box.track]:
            raise CaptureError(f"{path} has track {box.track} twice in frame {box.frame}; remove one of the boxes")
        frames_of[box.track].add(box.frame)
    around = _frames_around(drive, {box.frame for box in boxes})
    lost = [track for track, frames in frames_of.items() if frames.isdisjoint(drive)]
    if lost and len(lost) < len(frames_of):
        lost = [track for track in lost if not frames_of[track] <= around]
    if lost:
        raise CaptureError(
            f"{path}: track {lost[0]} refers to no frame of the drive, which has frames {min(drive)} to {max(drive)}; "
            "use the tracks of this drive, or remove that track from the file"
        )


def _frames_around(drive: Collection[int], named: set[int]) -> set[int]:
    """Frames of the file before or after the drive, and not beyond a long pause; of a thinned drive also those between its frames. Frames
    in other holes are none."""
    own = np.array(sorted(drive))
    known = np.array(sorted(named.union(drive)))
    run = np.cumsum(np.diff(known, prepend=known[0]) > PAUSE)
    near = known[np.isin(run, run[np.isin(known, own)])]
    thinned = np.zeros(len(near), dtype=bool)
    if len(own) > FEW:
        holes, after = np.diff(own), np.searchsorted(own, near, side="right").clip(1, len(own) - 1)
        thinned = (holes[after - 1] <= np.median(holes)) & ~np.isin(near, own)
    return set(near[(near < own[0]) | (near > own[-1]) | thinned].tolist())


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
    span = min(t - p / 2 for t, p in sweeps.values()), max(t + p / 2 for t, p in sweeps.values())
    return joined([_track(by_track[number], sweeps, T_world_lidar, span) for number in sorted(by_track)], MARGIN)


def _track(
    boxes: list[Box],  # one object
    sweeps: dict[int, tuple[float, float]],
    T_world_lidar: Callable[[Tensor], Tensor],
    span: tuple[float, float],
) -> Tracks:
    times, T_lidar_object = _track_keys(boxes, sweeps)
    times, poses = _parked_throughout(times, T_world_lidar(times) @ T_lidar_object, span)
    sizes = torch.tensor([box.size for box in boxes], dtype=torch.float64)
    return single_track(str(boxes[0].track), boxes[0].label, sizes, times, poses)


def _parked_throughout(
    times: Tensor,  # [n] seconds
    poses: Tensor,  # [n, 4, 4] T_world_object
    span: tuple[float, float],  # seconds of the whole drive
) -> tuple[Tensor, Tensor]:
    """Places an object that never moves while it is labelled at the median of its places, from the first sweep to the last.

    Labels of parked objects scatter by 13 cm, and those of held-out moments are never corrected by training.
    KITTI labels objects only where camera 2 sees them, the lidar sees them all around: without this, a parked object would be an actor
    for a while and a part of the background before and after, and would remain as a ghost when the actor is removed.
    """
    if float(torch.cdist(poses[:, :3, 3], poses[:, :3, 3]).max()) > PARKED_M:
        return times, poses
    q = matrix_to_quat(poses[:, :3, :3])
    q = torch.where((q * q[:1]).sum(-1, keepdim=True) < 0, -q, q)  # q and -q are one rotation
    pose = pose_matrix(quat_normalize(q.median(0).values), poses[:, :3, 3].median(0).values)
    before, after = (times.new_tensor([s]) for s in span)
    times = torch.cat([before[: int(before < times[0])], times, after[: int(after > times[-1])]])
    return times, pose.expand(len(times), 4, 4)


def _track_keys(
    boxes: list[Box],
    sweeps: dict[int, tuple[float, float]],
) -> tuple[Tensor, Tensor]:  # times [n], T_lidar_object [n, 4, 4], in time order
    """Keyframes of a track. A box that crosses the seam behind the sensor is seen twice within a moment: the second one is dropped."""
    keys: list[tuple[float, Tensor]] = []
    for box in sorted(boxes, key=lambda b: b.frame):
        forward_time, period = sweeps[box.frame]
        x, y = box.T_lidar_object[:2, 3].tolist()
        time = forward_time - math.atan2(y, x) / TURN * period
        if not keys or time - keys[-1][0] > period / 2:
            keys.append((time, box.T_lidar_object))
    return torch.tensor([k[0] for k in keys], dtype=torch.float64), torch.stack([k[1] for k in keys])
