# SPDX-License-Identifier: Apache-2.0
"""Livox's CustomMsg as an array: the library makes an object of each of its 20 000 points, which takes a hundred times as long."""

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

_FIELDS = [
    ("offset_time", "u4"),
    ("x", "f4"),
    ("y", "f4"),
    ("z", "f4"),
    ("reflectivity", "u1"),
    ("tag", "u1"),
    ("line", "u1"),
]
_BYTES = 19  # of a point
_AFTER = 20  # bytes from timebase to the first point: timebase, a count, the number of the lidar, three reserved ones, a count again


@dataclass(frozen=True)
class Time:
    sec: int
    nanosec: int


@dataclass(frozen=True)
class Header:
    stamp: Time
    frame_id: str


@dataclass(frozen=True)
class Sweep:
    header: Header
    point_num: int
    points: np.ndarray  # [n] records of _FIELDS


def decode_livox(data: bytes, ros1: bool) -> Sweep:
    """Decodes a message; ValueError or struct.error where it is cut off."""
    order, stride = "<", _BYTES
    if not ros1:  # CDR begins with four bytes; the second gives the byte order, and the rest is aligned from there
        order, stride, data = ("<" if data[1] & 1 else ">"), _BYTES + 1, data[4:]
    at = 4 if ros1 else 0  # ROS 1 counts headers
    sec, nanosec, length = struct.unpack_from(f"{order}III", data, at)
    at += 12
    frame = bytes(data[at : at + length]).rstrip(b"\0").decode()
    at += length if ros1 else length + -(at + length) % 8
    (count,) = struct.unpack_from(f"{order}I", data, at + _AFTER - 4)
    body = data[at + _AFTER :]
    if count and len(body) < (count - 1) * stride + _BYTES:
        raise ValueError(f"it claims {count} points, but holds {len(body)} bytes")
    return Sweep(Header(Time(sec, nanosec), frame), count, _records(body, count, stride, order))


def _records(body: bytes, count: int, stride: int, order: str) -> np.ndarray:
    kinds: list[Any] = [order + kind for _, kind in _FIELDS]
    offsets = np.cumsum([0, *(np.dtype(kind).itemsize for kind in kinds[:-1])]).tolist()
    layout = np.dtype(
        {"names": [name for name, _ in _FIELDS], "formats": kinds, "offsets": offsets, "itemsize": stride}
    )
    return np.frombuffer(body.ljust(count * stride, b"\0")[: count * stride], dtype=layout)
