# SPDX-License-Identifier: Apache-2.0
"""Boxes of KITTI-360 that move: an XML file of objects with a frame each, in the world of the poses.

A box is a transform of a unit cube; its columns hold the size, too. Objects that stand still have no frame, and are left out.
"""

import io
import os
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from nurec_lite.base.names import label_flaw
from nurec_lite.capture.files import has_folder, natural, numbers, read_bytes, short
from nurec_lite.capture.kitti.tracks import check_markup
from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.tracks import Tracks, joined, single_track

FOLDERS = ("data_3d_bboxes/train_full", "data_3d_bboxes/train", "data_3d_bboxes")
MARGIN = 0.06  # seconds, a little more than half a turn
MOVED = 0.75  # metres
LARGEST = 1 << 27  # bytes of a file; the largest drive has about 30 MB
MOST_ELEMENTS, MOST_ATTRIBUTES = 4_000_000, 1_000_000
WIDEST = 100.0  # metres of a box
REMEDY = "download data_3d_bboxes again, or remove the file"


@dataclass(frozen=True)
class Box:
    """One object in one frame."""

    track: str
    label: str
    frame: int
    T_world_box: Tensor  # [4, 4]
    size: Tensor  # [3] metres, along the axes of the box


def boxes_file(root: Path, drive: str) -> Path | None:
    has_folder(root / FOLDERS[-1])
    return next((path for folder in FOLDERS if os.path.lexists(path := root / folder / f"{drive}.xml")), None)


def read_boxes(path: Path) -> list[Box]:
    data = read_bytes(path, REMEDY, LARGEST)
    try:
        check_markup(data.decode(), MOST_ELEMENTS, MOST_ATTRIBUTES)
        return [box for item in _objects(data) if (box := _box(item)) is not None]
    except (ElementTree.ParseError, ValueError) as error:
        raise CaptureError(f"{path} is no file of boxes of KITTI-360 ({short(error)}); {REMEDY}") from error


def _objects(data: bytes) -> Iterator[ElementTree.Element]:
    """Yields each object, and forgets it afterwards."""
    depth, root = 0, None
    for event, element in ElementTree.iterparse(io.BytesIO(data), ("start", "end")):
        depth += 1 if event == "start" else -1
        root = element if root is None else root
        if event == "end" and depth == 1:
            if element.find("transform") is not None:
                yield element
            root.clear()
    if root is None or root.tag != "opencv_storage":
        raise ValueError("it is no opencv_storage")


def _text(item: ElementTree.Element, key: str) -> str:
    found = item.findtext(key)
    if found is None:
        raise ValueError(f"an object has no '{key}'")
    return " ".join(found.split())


def _box(item: ElementTree.Element) -> Box | None:
    """Returns None for a static object."""
    stamp = _text(item, "timestamp")
    if stamp == "-1":
        return None
    transform = torch.tensor(_matrix(item, "transform", 16), dtype=torch.float64).view(4, 4)
    corners = torch.tensor(_matrix(item, "vertices", 24), dtype=torch.float64).view(8, 3)
    low, high = corners.amin(dim=0), corners.amax(dim=0)
    axes = transform[:3, :3]
    size = axes.norm(dim=0) * (high - low)
    if not bool(((size > 0.001) & (size < WIDEST)).all()):
        raise ValueError(f"a box has {short(size.tolist())} metres")
    T = torch.eye(4, dtype=torch.float64)
    T[:3, :3] = _upright(axes / axes.norm(dim=0))
    T[:3, 3] = axes @ (0.5 * (low + high)) + transform[:3, 3]
    label = _text(item, "label")
    if flaw := label_flaw(label):
        raise ValueError(f"the class '{short(label)}' {flaw}")
    return Box(f"{label.replace('/', '-')}-{natural(_text(item, _number_of(item)))}", label, natural(stamp), T, size)


def _number_of(item: ElementTree.Element) -> str:
    """Returns the field with the number of an object: boxes of train_full, as of drive 0004, have no instanceId."""
    return "instanceId" if item.find("instanceId") is not None or item.find("dynamicSeq") is None else "dynamicSeq"


def _matrix(item: ElementTree.Element, key: str, count: int) -> list[float]:
    element = item.find(key)
    values = [] if element is None else numbers(" ".join(_text(element, "data").split()))
    if len(values) != count:
        raise ValueError(f"'{key}' has {len(values)} numbers, not {count}")
    return values


def _upright(R: Tensor) -> Tensor:  # [3, 3]
    """Returns a rotation with the axes of the box; a mirrored box is the same box with y the other way round."""
    if float(torch.linalg.det(R)) < 0:
        R = R * torch.tensor([1.0, -1.0, 1.0], dtype=R.dtype)
    if float((R @ R.T - torch.eye(3, dtype=R.dtype)).abs().max()) > 1e-2:
        raise ValueError("a box is no box: its edges stand at no right angles")
    U, _, V = torch.linalg.svd(R)
    return U @ V


def tracks_of(
    boxes: list[Box],
    seen: Callable[[Box], float | None],  # seconds when a box holds; None: its frame was not recorded
) -> tuple[Tracks, int]:
    """Returns the moving objects, each with its side along the motion as its length, and the number of boxes that repeat another one."""
    found: dict[
        tuple[str, int], Box
    ] = {}  # two boxes of one frame have different times where they lie in different directions
    for box in boxes:
        found.setdefault((box.track, box.frame), box)
    tracks: dict[str, dict[float, Box]] = {}
    for box in found.values():
        time = seen(box)
        if time is not None:
            tracks.setdefault(box.track, {})[time] = box
    moving = [track for own in tracks.values() if (track := _track(own)) is not None]
    return joined(moving, MARGIN), len(boxes) - len(found)


def _track(own: dict[float, Box]) -> Tracks | None:
    boxes = [own[time] for time in sorted(own)]
    poses, sizes = torch.stack([box.T_world_box for box in boxes]), torch.stack([box.size for box in boxes])
    way = (poses[-1] - poses[0])[:3, 3]
    if float((poses[:, :3, 3] - poses[0, :3, 3]).norm(dim=1).max()) < MOVED:
        return None
    axes = _axes((poses[:, :3, :3].transpose(1, 2) @ way).abs().mean(dim=0), poses[:, 2, :3].abs().mean(dim=0))
    poses[:, :3, :3] = torch.stack([_facing(R[:, axes], way) for R in poses[:, :3, :3]])
    return single_track(boxes[0].track, boxes[0].label, sizes[:, axes], torch.tensor(sorted(own)).double(), poses)


def _axes(along: Tensor, upward: Tensor) -> list[int]:  # [3], [3] -> places of length, width and height
    up = int(upward.argmax())
    first, second = (k for k in range(3) if k != up)
    return [first, second, up] if float(along[first]) >= float(along[second]) else [second, first, up]


def _facing(R: Tensor, way: Tensor) -> Tensor:  # [3, 3] x ahead along the way, z up
    x, z = R[:, 0], R[:, 2]
    x = x if float(x @ way) >= 0 else -x
    z = z if float(z[2]) >= 0 else -z
    return torch.stack([x, torch.linalg.cross(z, x), z], dim=1)
