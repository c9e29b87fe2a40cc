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

from nurec_lite.capture.check import LATEST, MAX_BEAMS
from nurec_lite.capture.pack_check import REMEDY
from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.lidar import Sweep, azimuth_elevation, unit_directions

RANGE_STEP = 0.002  # metres
ANGLE_STEP = 2 * math.pi / 2**17  # radians
TIME_STEP = 1e-6  # seconds
INTENSITY_STEP = 1 / 255
MAX_RAYS = 1 << 21  # of a sweep; 128 beams every 0.1 degrees, two returns each, are 0.9 million
_LIMITS = {  # of the numbers of steps, whoever wrote them
    "azimuth": (-(2**16) - 1, 2**16 + 1),
    "elevation": (-(2**15) - 1, 2**15 + 1),
    "time": (-(2**30), 2**30),  # 18 minutes from what the azimuth says
    "range": (1, 5_000_000),  # 10 km
    "intensity": (0, 255),
}
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6, "lc": 0, "lp": 0, "pb": 0}]
_HEADER = np.dtype([("rays", "<i8"), ("returned", "<i8"), ("time", "<f8"), ("rate", "<f8")])


def encode_sweep(
    sweep: Sweep,
    name: str = "the sweep",  # for messages
    beams: int = MAX_BEAMS,  # of the lidar: rings are below it
) -> bytes:
    try:
        return _encode(sweep, beams)
    except (ValueError, IndexError) as error:
        raise CaptureError(f"{name} cannot be stored ({error}); correct it where the capture was made") from error


def _encode(sweep: Sweep, beams: int) -> bytes:
    fields = [getattr(sweep, f) for f in Sweep.__dataclass_fields__]
    if not all(len(values) == len(sweep) and bool(values.isfinite().all()) for values in fields):
        raise ValueError("a number is not finite, or the fields differ in length")
    rings = sweep.rings.numpy()
    order = np.argsort(rings, kind="stable")
    angles = azimuth_elevation(sweep.directions.double()).numpy()[order]
    returned = sweep.returned.numpy()[order]
    azimuth, elevation = (_steps(angles[:, k], ANGLE_STEP) for k in (0, 1))
    time, rate = _fit_times(azimuth * ANGLE_STEP, sweep.times.numpy()[order])
    residual = _steps(sweep.times.numpy()[order] - time - rate * (azimuth * ANGLE_STEP), TIME_STEP)
    ranges = _steps(sweep.ranges.numpy()[order][returned], RANGE_STEP)
    intensities = _steps(sweep.intensities.numpy()[order][returned], INTENSITY_STEP)
    header = np.array([(len(sweep), returned.sum(), time, rate)], dtype=_HEADER)
    _check_header(*header[0].tolist())
    _check_steps(beams, rings, azimuth, elevation, residual, ranges, intensities)
    streams = [_planes(np.diff(values, prepend=0)) for values in (rings, azimuth, elevation, residual)]
    streams += [np.packbits(returned).tobytes(), _planes(np.diff(ranges, prepend=0))]
    streams += [intensities.astype(np.uint8).tobytes()]
    return header.tobytes() + lzma.compress(b"".join(streams), format=lzma.FORMAT_RAW, filters=_FILTERS)


def decode_sweep(
    data: bytes,
    name: str,  # for messages
    beams: int = MAX_BEAMS,
) -> Sweep:
    """Memory is bounded by MAX_RAYS, whatever the data claim."""
    try:
        return _decode(data, beams)
    except (lzma.LZMAError, ValueError) as error:
        raise CaptureError(f"{name} cannot be decoded ({error}); {REMEDY}") from error


def _decode(data: bytes, beams: int) -> Sweep:
    n, n_returned, time, rate = np.frombuffer(data, _HEADER, count=1)[0].tolist()
    _check_header(n, n_returned, time, rate)
    sizes = [4 * n, 4 * n, 4 * n, 4 * n, (n + 7) // 8, 4 * n_returned, n_returned]
    body = np.frombuffer(_decompress(data[_HEADER.itemsize :], sum(sizes)), np.uint8)
    parts = np.split(body, np.cumsum(sizes[:-1]))
    rings, azimuth, elevation, residual = (_integers(part).cumsum() for part in parts[:4])
    returned = np.unpackbits(parts[4], count=n).astype(bool)
    if returned.sum() != n_returned:
        raise ValueError(f"{returned.sum()} rays returned, but it states {n_returned}")
    range_steps = _integers(parts[5]).cumsum()
    _check_steps(beams, rings, azimuth, elevation, residual, range_steps, parts[6])
    ranges, intensities = np.zeros(n), np.zeros(n)
    ranges[returned], intensities[returned] = range_steps * RANGE_STEP, parts[6] * INTENSITY_STEP
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


def _check_header(n: int, n_returned: int, time: float, rate: float) -> None:
    if not 0 <= n_returned <= n <= MAX_RAYS:
        raise ValueError(f"{n} rays of which {n_returned} returned, where at most {MAX_RAYS} are possible")
    if not (abs(time) <= LATEST and abs(rate) <= LATEST):
        raise ValueError(f"a time of {time:g} s and {rate:g} s a radian")


def _check_steps(beams: int, rings: np.ndarray, *values: np.ndarray) -> None:
    """Each value is as many steps as its sensor can give."""
    limits = {"ring": (0, beams - 1)} | _LIMITS
    for (kind, (low, high)), steps in zip(limits.items(), (rings, *values), strict=True):
        if len(steps) and not low <= steps.min() <= steps.max() <= high:
            raise ValueError(f"{kind} goes from {steps.min()} to {steps.max()} steps, but lies within {low} to {high}")


def _decompress(data: bytes, size: int) -> bytes:
    """Exactly `size` bytes, to the last of the stream: one more is asked for, so that its end is seen, too."""
    decompressor = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=_FILTERS)
    body = decompressor.decompress(data, max_length=size + 1)
    if len(body) != size or not decompressor.eof or decompressor.unused_data:
        raise ValueError(f"{len(body)} bytes where {size} belong")
    return body


def _fit_times(
    azimuth: np.ndarray,  # [n] radians
    times: np.ndarray,  # [n] seconds
) -> tuple[float, float]:  # seconds at azimuth 0, seconds a radian: what a spinning sensor's times follow
    if len(times) < 2 or np.ptp(azimuth) == 0:
        return float(times.mean()) if len(times) else 0.0, 0.0
    rate = ((azimuth - azimuth.mean()) * (times - times.mean())).mean() / azimuth.var()
    return float(times.mean() - rate * azimuth.mean()), float(rate)


def _steps(values: np.ndarray, step: float) -> np.ndarray:  # int64, clipped far beyond all limits
    return np.rint(values.astype(np.float64) / step).clip(-(2.0**40), 2.0**40).astype(np.int64)


def _planes(values: np.ndarray) -> bytes:
    """Signed integers, zigzag coded so that small ones have zero upper bytes, byte 0 of all first, then byte 1, ..."""
    zigzag = ((values << 1) ^ (values >> 63)).astype("<u4")
    return zigzag.view(np.uint8).reshape(-1, 4).T.tobytes()


def _integers(planes: np.ndarray) -> np.ndarray:  # int64
    zigzag = np.ascontiguousarray(planes.reshape(4, -1).T).view("<u4")[:, 0].astype(np.int64)
    return (zigzag >> 1) ^ -(zigzag & 1)
