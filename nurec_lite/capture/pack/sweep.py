# SPDX-License-Identifier: Apache-2.0
"""A sweep as a small byte string: quantised, differences within a ring, byte planes, zlib.

Steps: 2 mm of range, 2 pi / 2^17 of azimuth and elevation (3.8 mm at 80 m), 1 us, 1/255 of intensity; each value is off by at
most half a step, so a point moves by less than 3 mm at 80 m. Rays keep their order.

The first packs have LZMA in place of zlib: 7 % smaller, but four times as long to encode and to decode.
"""

import lzma
import math
import zlib
from collections.abc import Iterable
from itertools import chain
from typing import Any

import numpy as np
import torch

from nurec_lite.capture.check import LATEST, MAX_BEAMS
from nurec_lite.capture.checks.ray_values import value_flaws
from nurec_lite.capture.pack.check import REMEDY
from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.free_lidar import bands_of
from nurec_lite.geometry.lidar import Lidar, Sweep, azimuth_elevation

RANGE_STEP = 0.002  # metres
ANGLE_STEP = 2 * math.pi / 2**17  # radians
TIME_STEP = 1e-6  # seconds
INTENSITY_STEP = 1 / 255
MAX_RAYS = 1 << 21  # of a sweep; 128 beams every 0.1 degrees, two returns each, are 0.9 million
_LIMITS = {  # of the numbers of steps, for packs of any origin
    "azimuth": (-(2**16) - 1, 2**16 + 1),
    "elevation": (-(2**15) - 1, 2**15 + 1),
    "time": (-(2**30), 2**30),  # 18 minutes from the time by azimuth
    "range": (1, 5_000_000),  # 10 km
    "intensity": (0, 255),
}
_ZLIB = b"\x78"  # how zlib begins, and LZMA never
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6, "lc": 0, "lp": 0, "pb": 0}]
_HEADER = np.dtype([("rays", "<i8"), ("returned", "<i8"), ("time", "<f8"), ("rate", "<f8")])


def table_sweep(lidar: Lidar) -> Sweep:
    """A lidar's table of rays as a sweep without returns that takes a second."""
    assert lidar.table is not None
    directions, fractions = lidar.table.directions, lidar.table.fractions
    nothing = torch.zeros(len(fractions))
    return Sweep(directions, nothing, nothing, fractions, bands_of(lidar, directions), nothing.bool())


def encode_sweep(
    sweep: Sweep,
    name: str = "the sweep",  # for messages
    beams: int = MAX_BEAMS,  # of the lidar: rings are below it
) -> bytes:
    try:
        return _encode(sweep, beams)
    except (ValueError, IndexError) as error:
        raise CaptureError(f"{name} cannot be stored {_why(sweep, beams, error)} where the capture was made") from error


def _why(sweep: Sweep, beams: int, error: Exception) -> str:
    """The first flaw of its values and the remedy, or the error."""
    flaw = next(value_flaws(sweep, beams), None) if _even(sweep) else None
    return f"({error}); correct it" if flaw is None else f"({error}: {flaw[0]}); {flaw[1]}"


def _even(sweep: Sweep) -> bool:
    return all(len(getattr(sweep, f)) == len(sweep) for f in Sweep.__dataclass_fields__)


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
    signed = [_planes(np.diff(values, prepend=0)) for values in (rings, azimuth, elevation, residual, ranges)]
    streams = [*chain(*signed[:4]), np.packbits(returned).tobytes(), *signed[4], intensities.astype(np.uint8).tobytes()]
    return header.tobytes() + _compress(streams)


def decode_sweep(
    data: bytes,
    name: str,  # for messages
    beams: int = MAX_BEAMS,
) -> Sweep:
    """Decodes a sweep; MAX_RAYS bounds the memory for any claim of the data."""
    try:
        return _decode(data, beams)
    except (zlib.error, lzma.LZMAError, ValueError) as error:
        raise CaptureError(f"{name} cannot be decoded ({error}); {REMEDY}") from error


def _decode(data: bytes, beams: int) -> Sweep:
    n, n_returned, time, rate = np.frombuffer(data, _HEADER, count=1)[0].tolist()
    _check_header(n, n_returned, time, rate)
    sizes = [4 * n, 4 * n, 4 * n, 4 * n, (n + 7) // 8, 4 * n_returned, n_returned]
    body = np.frombuffer(_decompress(data[_HEADER.itemsize :], sum(sizes)), np.uint8)
    parts = np.split(body, np.cumsum(sizes[:-1]))
    rings, azimuth, elevation, residual = (_integers(part).cumsum(dtype=np.int64) for part in parts[:4])
    returned = np.unpackbits(parts[4], count=n).astype(bool)
    if returned.sum() != n_returned:
        raise ValueError(f"{returned.sum()} rays returned, but it states {n_returned}")
    range_steps = _integers(parts[5]).cumsum(dtype=np.int64)
    _check_steps(beams, rings, azimuth, elevation, residual, range_steps, parts[6])
    ranges, intensities = np.zeros(n, np.float32), np.zeros(n, np.float32)
    ranges[returned], intensities[returned] = range_steps * RANGE_STEP, parts[6] * INTENSITY_STEP
    radians = azimuth * ANGLE_STEP
    directions = _directions(radians.astype(np.float32), (elevation * ANGLE_STEP).astype(np.float32))
    place = np.empty(n, dtype=np.int64)
    place[np.argsort(rings.astype(np.uint16), kind="stable")] = np.arange(n)  # 16 bits: a radix sort, in half the time
    return Sweep(
        directions=torch.from_numpy(np.take(directions, place, axis=0)),  # a third of the time of an index
        ranges=torch.from_numpy(ranges[place]),
        intensities=torch.from_numpy(intensities[place]),
        times=torch.from_numpy((time + rate * radians + residual * TIME_STEP)[place]),
        rings=torch.from_numpy(rings),
        returned=torch.from_numpy(returned[place]),
    )


def _check_header(n: int, n_returned: int, time: float, rate: float) -> None:
    if not 0 <= n_returned <= n <= MAX_RAYS:
        raise ValueError(f"{n} rays with {n_returned} returns, but at most {MAX_RAYS} rays are possible")
    if not (abs(time) <= LATEST and abs(rate) <= LATEST):
        raise ValueError(f"a time of {time:g} s and {rate:g} s a radian")


def _check_steps(beams: int, rings: np.ndarray, *values: np.ndarray) -> None:
    """Refuses values with more steps than their sensor can give."""
    limits = {"ring": (0, beams - 1)} | _LIMITS
    for (kind, (low, high)), steps in zip(limits.items(), (rings, *values), strict=True):
        if len(steps) and not low <= steps.min() <= steps.max() <= high:
            raise ValueError(f"{kind} goes from {steps.min()} to {steps.max()} steps, but lies within {low} to {high}")


def _compress(streams: Iterable[bytes]) -> bytes:
    """Compresses parts as one zlib stream; each part begins a new block for its own statistics (4 % smaller)."""
    compressor = zlib.compressobj(6, memLevel=9, strategy=zlib.Z_FILTERED)
    return b"".join(compressor.compress(s) + compressor.flush(zlib.Z_FULL_FLUSH) for s in streams) + compressor.flush()


def _decompress(data: bytes, size: int) -> bytes:
    """Returns exactly `size` bytes, the whole stream: it asks for one more, to see that the stream ends."""
    if data[:1] == _ZLIB:
        decompressor: Any = zlib.decompressobj()
    else:
        decompressor = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=_FILTERS)
    body = decompressor.decompress(data, size + 1)
    if len(body) != size or not decompressor.eof or decompressor.unused_data:
        raise ValueError(f"{len(body)} bytes where {size} belong")
    return body


def _directions(
    azimuth: np.ndarray,  # [n] float32 radians
    elevation: np.ndarray,
) -> np.ndarray:  # [n, 3] float32
    """Directions of lidar.unit_directions, without torch's threads, which wait for one another on a busy machine, and
    in single precision: 0.02 mm at 80 m."""
    c = np.cos(elevation)
    return np.stack([c * np.cos(azimuth), c * np.sin(azimuth), np.sin(elevation)], axis=1)


def _fit_times(
    azimuth: np.ndarray,  # [n] radians
    times: np.ndarray,  # [n] seconds
) -> tuple[float, float]:  # seconds at azimuth 0, seconds a radian: the times of a spinning sensor
    if len(times) < 2 or np.ptp(azimuth) == 0:
        return float(times.mean()) if len(times) else 0.0, 0.0
    rate = ((azimuth - azimuth.mean()) * (times - times.mean())).mean() / azimuth.var()
    return float(times.mean() - rate * azimuth.mean()), float(rate)


def _steps(values: np.ndarray, step: float) -> np.ndarray:  # int64, clipped far beyond all limits
    return np.rint(values.astype(np.float64) / step).clip(-(2.0**40), 2.0**40).astype(np.int64)


def _planes(values: np.ndarray) -> list[bytes]:
    """Signed integers, zigzag coded so that small ones have zero upper bytes: byte 0 of all, byte 1 of all, ..."""
    zigzag = ((values << 1) ^ (values >> 63)).astype("<u4")
    return [plane.tobytes() for plane in zigzag.view(np.uint8).reshape(-1, 4).T]


def _integers(planes: np.ndarray) -> np.ndarray:  # int32
    """Integers from `_planes`; most of the upper planes are empty."""
    zigzag = np.zeros(len(planes) // 4, np.uint32)
    for k, plane in enumerate(planes.reshape(4, -1)):
        if plane.any():
            zigzag |= plane.astype(np.uint32) << (8 * k)
    return (zigzag >> 1).astype(np.int32) ^ -(zigzag & 1).astype(np.int32)
