# SPDX-License-Identifier: Apache-2.0
"""Points of a file in KITTI's layout. A file of another layout is refused, and the message names that layout."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nurec_lite.capture.files import read_bytes
from nurec_lite.capture.types import CaptureError

_FARTHEST = 250.0  # metres, twice the sensor's range
_NEAREST = 0.1  # metres, of the usual point
_COUNTS = (255.0, 65535.0)  # largest reflectance in 8 and 16 bits
_FEW = 0.1  # share of odd points in a damaged file at most; beyond, it has another layout
_LAYOUTS = (  # that other programs write: values a point and their type; the ambiguous one comes last
    (5, "<f4"), (6, "<f4"), (7, "<f4"), (8, "<f4"), (4, "<f8"), (5, "<f8"), (6, "<f8"), (4, ">f4"), (3, "<f8"), (3, "<f4"),
)  # fmt: skip
_FOUR = "x, y, z in metres and a reflectance of 0 to 1 as float32"


def read_points(
    path: Path,
    every: int = 1,  # so many points, one is read
) -> Tensor:  # [n, 4] float64: x, y, z in metres, lidar frame, and reflectance
    data = read_bytes(path, "restore the file")
    whole = len(data) // 16 * 16
    values = np.frombuffer(data, dtype="<f4", count=whole // 4).reshape(-1, 4)
    points = torch.from_numpy(values[::every].astype("f4")).double()
    square = points[:, :3].square().sum(dim=1)
    odd = ~((square <= _FARTHEST**2) & (points[:, 3] >= 0) & (points[:, 3] <= 1))  # NaN is odd, too
    if every > 1 and (odd.any() or whole < len(data)):
        return read_points(path)[::every]  # raises an error that names the first odd point
    if odd.any() or whole < len(data):
        raise CaptureError(f"{path} {_flaw(data, points, odd)}")
    away = square > 0
    points = points if bool(away.all()) else points[away]
    if not len(points):
        raise CaptureError(f"{path} holds no point but the origin; copy it again, or remove the file")
    return points


def _flaw(
    data: bytes,
    points: Tensor,  # [n, 4]
    odd: Tensor,  # [n] bool
) -> str:
    many = bool(odd.any()) and float(odd.double().mean()) > _FEW
    if many and len(data) % 16 == 0 and _is_bright(points.numpy()) and not _alternates(points):
        brightest = float(points[:, 3].max())
        most = next(most for most in _COUNTS if brightest <= most)
        return f"has reflectances up to {brightest:g}, but must have 0 to 1; divide those of all sweeps by {most:g}"
    layout = _layout(data) if many else None
    if layout is not None:
        return f"{layout}; write four values a point: {_FOUR}"
    if len(data) % 16:
        return f"is {len(data)} bytes long, not a multiple of 16; it is truncated, copy it again"
    first = int(odd.nonzero()[0])
    values = ", ".join(f"{v:.3g}" for v in points[first].tolist())
    remedy = (
        "copy it again" if bool(points.isfinite().all()) else "copy it again, or leave out the points without return"
    )
    return f"point {first} is {values}, but must lie within {_FARTHEST:g} m and reflect 0 to 1; {remedy}"


def _is_bright(
    points: np.ndarray,  # [n, 4 or more]
) -> bool:
    """Whether all is right but that the reflectances do not end at 1."""
    with np.errstate(invalid="ignore", over="ignore"):
        near = bool((np.square(points[:, :3]).sum(axis=1) <= _FARTHEST**2).all())
        return near and bool(((points[:, 3] >= 0) & (points[:, 3] <= _COUNTS[-1])).all())


def _alternates(points: Tensor) -> bool:
    """Whether rows are nearer to the row after the next than to the next: two of them make a point."""
    return bool((points[2:] - points[:-2]).abs().mean() < 0.5 * (points[1:] - points[:-1]).abs().mean())


def _layout(data: bytes) -> str | None:
    """The first of the other layouts that makes sense of all points."""
    for columns, kind in _LAYOUTS:
        values = np.dtype(kind)
        if len(data) % (columns * values.itemsize) == 0 and _fits(
            np.frombuffer(data, dtype=values).reshape(-1, columns)
        ):
            order = " in big-endian order" if kind[0] == ">" else ""
            return f"holds {columns} values of {values.name} a point{order}"
    return None


def _fits(
    points: np.ndarray,  # [n, columns]
) -> bool:
    """Whether a layout fits; without a reflectance, neighbours in the file decide: they are near each other, and values
    of other columns are not."""
    with np.errstate(invalid="ignore", over="ignore"):
        points = points.astype("f8")
        if not np.median(np.abs(points[:, :3]).max(axis=1)) > _NEAREST:
            return False
        if points.shape[1] > 3:
            return _is_bright(points) and bool((points[:, 3] > 0).any())
        steps = np.abs(np.diff(points, axis=0)).mean() if len(points) > 1 else 0.0
        others = np.abs(points[:, :1] - points[:, 1:]).mean()
        return bool((np.square(points).sum(axis=1) <= _FARTHEST**2).all()) and steps < others
