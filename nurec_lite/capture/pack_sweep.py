# SPDX-License-Identifier: Apache-2.0
"""A sweep as a small byte string: quantised, differences within a ring, byte planes, LZMA.

Steps: 2 mm of range, 2 pi / 2^17 of azimuth and elevation (3.8 mm at 80 m), 1 us, 1/255 of intensity; each value is off by at
most half a step, so a point moves by less than 3 mm at 80 m. Rays keep their order.
"""

import lzma
import math

import numpy as np
import torch
from torch import Tensor

from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.lidar import Sweep, azimuth_elevation, unit_directions

RANGE_STEP = 0.002  # metres
ANGLE_STEP = 2 * math.pi / 2**17  # radians
TIME_STEP = 1e-6  # seconds
INTENSITY_STEP = 1 / 255
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6, "lc": 0, "lp": 0, "pb": 0}]
_HEADER = np.dtype([("rays", "<i8"), ("returned", "<i8"), ("time", "<f8"), ("rate", "<f8")])


def encode_sweep(sweep: Sweep) -> bytes:
    rings = sweep.rings.numpy()
    order = np.argsort(rings, kind="stable")
    angles = azimuth_elevation(sweep.directions.double()).numpy()[order]
    returned = sweep.returned.numpy()[order]
    azimuth, elevation = (_steps(angles[:, k], ANGLE_STEP) for k in (0, 1))
    time, rate = _fit_times(azimuth * ANGLE_STEP, sweep.times.numpy()[order])
    residual = sweep.times.numpy()[order] - time - rate * (azimuth * ANGLE_STEP)
    header = np.array([(len(sweep), returned.sum(), time, rate)], dtype=_HEADER)
    streams = [
        _planes(np.diff(rings, prepend=0)),
        _planes(np.diff(azimuth, prepend=0)),
        _planes(np.diff(elevation, prepend=0)),
        _planes(np.diff(_steps(residual, TIME_STEP), prepend=0)),
        np.packbits(returned).tobytes(),
        _planes(np.diff(_steps(sweep.ranges.numpy()[order][returned], RANGE_STEP), prepend=0)),
        _steps(sweep.intensities.numpy()[order][returned], INTENSITY_STEP).astype(np.uint8).tobytes(),
    ]
    return header.tobytes() + lzma.compress(b"".join(streams), format=lzma.FORMAT_RAW, filters=_FILTERS)


def decode_sweep(data: bytes, name: str) -> Sweep:
    try:
        return _decode(data)
    except (lzma.LZMAError, ValueError, IndexError) as error:
        raise CaptureError(f"{name} cannot be decoded ({error}); write the pack again") from error


def _decode(data: bytes) -> Sweep:
    n, n_returned, time, rate = np.frombuffer(data, _HEADER, count=1)[0].tolist()
    body = lzma.decompress(data[_HEADER.itemsize :], format=lzma.FORMAT_RAW, filters=_FILTERS)
    sizes = [4 * n, 4 * n, 4 * n, 4 * n, (n + 7) // 8, 4 * n_returned, n_returned]
    parts = np.split(np.frombuffer(body, np.uint8), np.cumsum(sizes))
    rings, azimuth, elevation, residual = (_integers(part).cumsum() for part in parts[:4])
    returned = np.unpackbits(parts[4], count=n).astype(bool)
    ranges, intensities = np.zeros(n), np.zeros(n)
    ranges[returned] = _integers(parts[5]).cumsum() * RANGE_STEP
    intensities[returned] = parts[6] * INTENSITY_STEP
    angles = torch.from_numpy(np.stack([azimuth, elevation], axis=1) * ANGLE_STEP)
    times = time + rate * (azimuth * ANGLE_STEP) + residual * TIME_STEP
    place = np.empty(n, dtype=np.int64)
    place[np.argsort(rings, kind="stable")] = np.arange(n)

    def restore(values: np.ndarray) -> Tensor:
        return torch.from_numpy(values[place])

    return Sweep(
        directions=unit_directions(angles).float()[torch.from_numpy(place)],
        ranges=restore(ranges).float(),
        intensities=restore(intensities).float(),
        times=restore(times),
        rings=torch.from_numpy(rings),
        returned=restore(returned),
    )


def _fit_times(
    azimuth: np.ndarray,  # [n] radians
    times: np.ndarray,  # [n] seconds
) -> tuple[float, float]:  # seconds at azimuth 0, seconds a radian: what a spinning sensor's times follow
    if len(times) < 2 or np.ptp(azimuth) == 0:
        return float(times.mean()) if len(times) else 0.0, 0.0
    rate = ((azimuth - azimuth.mean()) * (times - times.mean())).mean() / azimuth.var()
    return float(times.mean() - rate * azimuth.mean()), float(rate)


def _steps(values: np.ndarray, step: float) -> np.ndarray:  # int64
    return np.rint(values / step).astype(np.int64)


def _planes(values: np.ndarray) -> bytes:
    """Signed integers, zigzag coded so that small ones have zero upper bytes, byte 0 of all first, then byte 1, ..."""
    zigzag = ((values << 1) ^ (values >> 63)).astype("<u4")
    return zigzag.view(np.uint8).reshape(-1, 4).T.tobytes()


def _integers(planes: np.ndarray) -> np.ndarray:  # int64
    zigzag = np.ascontiguousarray(planes.reshape(4, -1).T).view("<u4")[:, 0].astype(np.int64)
    return (zigzag >> 1) ^ -(zigzag & 1)
