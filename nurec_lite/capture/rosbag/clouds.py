# SPDX-License-Identifier: Apache-2.0
"""Points of a message: PointCloud2 with the fields that drivers write, and Livox's CustomMsg."""

from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nurec_lite.capture.rosbag.library import LIVOX
from nurec_lite.capture.rosbag.mapping import LidarEntry
from nurec_lite.capture.types import CaptureError

# names of the fields, those of usual drivers first: Velodyne and Hesai write ring, Livox line, others channel
RINGS = ("ring", "line", "channel", "laser_id", "laser_ring", "beam", "row")
TIMES = (
    "time",
    "t",
    "timestamp",
    "offset_time",
    "time_offset",
    "timestamp_offset",
    "time_stamp",
    "timeoffset",
    "stamp",
)
INTENSITIES = ("intensity", "reflectivity", "i", "reflectance", "intensities", "signal")
_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 8: "f8"}  # of sensor_msgs/PointField
_PLACES = ("x", "y", "z")
_NEAREST, _FARTHEST = 0.05, 10_000.0  # metres: points outside did not return, or are damaged
MOST_POINTS = 1 << 23


@dataclass(frozen=True)
class Fields:
    """Names of the fields of a lidar's points; None: it has none of the kind."""

    ring: str | None
    time: str | None
    intensity: str | None


@dataclass(frozen=True)
class Cloud:
    """Points that returned, in the order of the message."""

    points: Tensor  # [n, 3] float64, metres
    intensities: Tensor | None  # [n] float64, as the driver writes them
    rings: Tensor | None  # [n] int64, as the driver counts them
    times: Tensor | None  # [n] float64, as the driver writes them

    def __len__(self) -> int:
        return len(self.points)


def find_fields(message: Any, kind: str, entry: LidarEntry, where: str) -> Fields:
    """Fields that the mapping names, else those of usual drivers in the message."""
    names = table(message, kind, where).dtype.names or ()
    wanted = {"ring": entry.ring, "time": entry.time, "intensity": entry.intensity}
    for key, name in wanted.items():
        if name is not None and name not in names:
            raise CaptureError(
                f"{where} has the fields {', '.join(names)}, but lidars.{entry.name}.{key} is '{name}'; choose one of them"
            )
    usual = {"ring": RINGS, "time": TIMES, "intensity": INTENSITIES}
    folded = {name.lower(): name for name in reversed(names)}
    found = {key: wanted[key] or next((folded[n] for n in usual[key] if n in folded), None) for key in wanted}
    return Fields(**found)


def read_cloud(message: Any, kind: str, fields: Fields, where: str) -> Cloud:
    values = table(message, kind, where)
    for name in (*_PLACES, fields.ring, fields.time, fields.intensity):
        if name is not None and name not in (values.dtype.names or ()):
            raise CaptureError(
                f"{where} lacks the field '{name}', which other messages have; leave them out by seconds"
            )
    with np.errstate(invalid="ignore", over="ignore"):  # points that did not return may hold anything
        places = np.stack([values[name].astype("f8") for name in _PLACES], axis=1) if len(values) else np.zeros((0, 3))
        square = np.square(places).sum(axis=1)
        kept = (square > _NEAREST**2) & (square < _FARTHEST**2)  # NaN is neither
        rest = (
            _column(values[kept], name, kind) for name, kind in zip(astuple(fields), ("i8", "f8", "f8"), strict=True)
        )
        rings, times, intensities = rest
        return Cloud(torch.from_numpy(places[kept]), intensities, rings, times)


def _column(values: np.ndarray, name: str | None, kind: str) -> Tensor | None:  # [n]
    return None if name is None else torch.from_numpy(np.nan_to_num(values[name].astype(kind)))


def table(
    message: Any, kind: str, where: str
) -> np.ndarray:  # [n] records with the message's fields, in its order, without the padding of its rows
    if kind in LIVOX:
        return np.asarray(message.points)
    layout = _layout(message, where)
    height, width, data = int(message.height), int(message.width), np.asarray(message.data, dtype=np.uint8)
    packed = width * int(message.point_step)
    row = (
        packed if height < 2 or len(data) == height * packed else int(message.row_step)
    )  # some drivers write no row_step
    if (
        height * width > MOST_POINTS
        or row < width * layout.itemsize
        or (height - 1) * row + width * layout.itemsize > len(data)
    ):
        raise CaptureError(
            f"{where} claims {height} rows of {width} points of {layout.itemsize} bytes, but holds {len(data)} bytes; "
            "leave the damaged message out by seconds in data.mapping"
        )
    if height * width == 0:
        return np.zeros(0, dtype=layout)
    return np.ndarray((height, width), layout, data.tobytes(), 0, (row, layout.itemsize)).reshape(-1)


def _layout(message: Any, where: str) -> np.dtype:
    order, step = (">" if message.is_bigendian else "<"), int(message.point_step)
    fields: dict[str, Any] = {}
    for f in message.fields:
        if f.datatype in _TYPES and f.name:
            fields.setdefault(f.name, f)
    missing = [name for name in _PLACES if name not in fields]
    if missing:
        have = ", ".join(sorted(fields)[:12])
        raise CaptureError(
            f"{where} has no field '{missing[0]}' (it has {have}); choose a topic of points with x, y and z"
        )
    kinds = {name: np.dtype(order + _TYPES[f.datatype]) for name, f in fields.items()}
    wide = [name for name, f in fields.items() if f.offset + kinds[name].itemsize > step]
    if wide:
        raise CaptureError(
            f"{where}: the field '{wide[0]}' ends beyond the point's {step} bytes; leave the damaged message out by seconds "
            "in data.mapping"
        )
    return np.dtype(
        {
            "names": list(fields),
            "formats": list(kinds.values()),
            "offsets": [int(f.offset) for f in fields.values()],
            "itemsize": step,
        }
    )
