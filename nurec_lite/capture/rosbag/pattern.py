# SPDX-License-Identifier: Apache-2.0
"""Scan pattern of a recording's lidar: beams, direction of rotation and clock of its points, from a few sweeps spread
over the recording."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nurec_lite.capture.free_rays import NO_TABLE, ONE_TIME, SLOTS, turns_steadily
from nurec_lite.capture.kitti.order import ByElevation
from nurec_lite.capture.kitti.scan import Scan
from nurec_lite.capture.kitti.spin import find_spin
from nurec_lite.capture.kitti.survey import (
    DIRECTION,
    RETURNS,
    UNKNOWN,
    bands,
    has_several_returns,
    scan_of,
    without_cuts,
)
from nurec_lite.capture.kitti.turns import TURN
from nurec_lite.capture.ray_files import read_rays
from nurec_lite.capture.rosbag.clouds import Cloud
from nurec_lite.capture.rosbag.mapping import UNITS, LidarEntry
from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.free_lidar import free_lidar
from nurec_lite.geometry.lidar import Lidar, azimuth_elevation, wrap_angle

_SPREAD = math.radians(4)  # of the elevations of a ring: a beam that spreads further does not spin about the z axis
_FEW = 20  # points of a ring that tell its elevation
_MOST_RINGS = 1024
_PERIOD = 0.1  # seconds of a sweep where only one is there
_LEAST = 1e-6  # seconds between stamps: nearer ones are one number in double precision
_NEAR = 30.0  # seconds between stamps and times of points that are on one clock
_SHORT, _LONG = 0.2, 1.6  # of the time between stamps, that the points of a sweep span
_STAMPED = {"start": "first", "middle": "middle", "end": "last"}  # point of a sweep
_FULL = 0.999  # share of intensities that a scale holds


@dataclass(frozen=True)
class PointClock:
    """The meaning of points' times."""

    unit: float  # seconds
    origin: (
        str  # capture: an absolute time; stamp: seconds from the header's stamp; first: seconds on a clock of its own
    )


@dataclass(frozen=True)
class Pattern:
    """The common pattern of a lidar's sweeps. Plain data, so that it pickles."""

    scan: Scan
    beams: Tensor | None  # [rings] int64, from the driver's number of a ring to the beam, -1: none; None: no rings
    scale: float  # largest intensity
    clock: PointClock | None  # None: points have no times
    period: float  # seconds of a sweep
    missing: bool  # rays that did not return are known
    farthest: float  # metres, of all points
    free: Lidar | None = None  # a lidar without rows and columns, mounted nowhere


def sensor_of(pattern: Pattern, name: str, T_rig_lidar: Tensor, least_range: float) -> Lidar:
    """The lidar with this pattern at its place [4, 4] on the rig; its range covers all points, in tens of metres."""
    scan, farthest = pattern.scan, max(least_range, 10 * round(0.1 * pattern.farthest + 0.5))
    if pattern.free is not None:
        return replace(pattern.free, name=name, T_rig_lidar=T_rig_lidar, max_range=farthest)
    return Lidar(name, T_rig_lidar, scan.elevations, farthest, scan.azimuth_steps, scan.start, scan.clockwise)


def find_pattern(
    clouds: list[Cloud],
    entry: LidarEntry,
    clock: PointClock | None,
    period: float,  # seconds
    name: str,  # for messages
) -> Pattern:
    scale, farthest = _scale(clouds), max(float(cloud.points.norm(dim=1).max()) for cloud in clouds)
    sweeps = [_columns(cloud, scale) for cloud in clouds]
    rings = [cloud.rings for cloud in clouds if cloud.rings is not None]
    angles = [azimuth_elevation(cloud.points) for cloud in clouds]
    names = [name] * len(clouds)
    if entry.spins is False or (entry.spins is None and clock is not None and not _spins(clouds, angles)):
        return _free(clouds, entry, scale, clock, period, farthest)
    if len(rings) < len(clouds) or len(torch.cat(rings).unique()) == 1:
        return Pattern(scan_of(sweeps, names), None, scale, clock, period, True, farthest)
    beams = _beams(torch.cat(rings), torch.cat([a[:, 1] for a in angles]), name)
    if beams is None:
        scan = _without_beams(torch.cat([a[:, 1] for a in angles]))
        return Pattern(scan, None, scale, clock, period, False, farthest)
    number, elevations = beams
    scan = _scan(sweeps, [number[r.clamp(0, len(number) - 1)] for r in rings], elevations, names)
    times = [cloud.times for cloud in clouds if cloud.times is not None]
    if clock is not None:
        clockwise, start = spin_of([a[:, 0] for a in angles], times, scan)
        scan = replace(scan, clockwise=clockwise, start=start)
    else:
        scan = _turning(scan, angles)
    return Pattern(scan, number, scale, clock, period, True, farthest)


def _spins(clouds: list[Cloud], angles: list[Tensor]) -> bool:
    """Whether most sweeps turn steadily with time."""
    pairs = [(a[:, 0], cloud.times) for a, cloud in zip(angles, clouds, strict=True) if cloud.times is not None]
    steady = [turns_steadily(azimuth, times) for azimuth, times in pairs if len(times) >= _FEW * SLOTS]
    return not steady or 2 * sum(steady) >= len(steady)


def _free(
    clouds: list[Cloud], entry: LidarEntry, scale: float, clock: PointClock | None, period: float, farthest: float
) -> Pattern:
    table = None if entry.rays is None else read_rays(entry.rays)
    points = max(clouds, key=len).points if table is None else table.directions
    lidar = free_lidar(entry.name, torch.eye(4, dtype=torch.float64), points, table=table)
    notes = [
        note.format(name=entry.name) for note, holds in ((NO_TABLE, table is None), (ONE_TIME, clock is None)) if holds
    ]
    scan = Scan(
        ByElevation(lidar.elevations), torch.zeros(len(lidar.elevations), 360, dtype=torch.bool), notes=tuple(notes)
    )
    return Pattern(scan, None, scale, clock, period, table is not None, farthest, lidar)


def _columns(cloud: Cloud, scale: float) -> Tensor:  # [n, 4] x, y, z, intensity of 0 to 1
    values = cloud.intensities if cloud.intensities is not None else torch.zeros(len(cloud), dtype=torch.float64)
    return torch.cat([cloud.points, (values / scale).clamp(0, 1)[:, None]], dim=1)


def _scale(clouds: list[Cloud]) -> float:
    """Scale of intensities: 1, 255, or a value above nearly all, since drivers that count photons have no largest one."""
    values = [cloud.intensities for cloud in clouds if cloud.intensities is not None]
    largest = float(torch.cat(values).max()) if values else 1.0
    if largest <= 1:
        return 1.0
    if largest <= 255:
        return 255.0
    ordered = torch.cat(values).sort().values
    return max(1.0, float(ordered[int(_FULL * (len(ordered) - 1))]))


def _beams(
    rings: Tensor,  # [n] int64
    elevation: Tensor,  # [n] radians
    name: str,
) -> tuple[Tensor, Tensor] | None:  # beam of each ring [rings], elevations [B] from the top; None: rings are no beams
    if int(rings.min()) < 0 or int(rings.max()) >= _MOST_RINGS:
        raise CaptureError(
            f"{name}: rings are numbered {int(rings.min())} to {int(rings.max())}, but a lidar has 0 to {_MOST_RINGS - 1}; name "
            "another field by ring in data.mapping"
        )
    order = torch.argsort(rings, stable=True)
    counts = torch.bincount(rings)
    parts = elevation[order].split(counts.tolist())
    full = [k for k, part in enumerate(parts) if len(part) >= min(_FEW, int(counts.max()))]
    spread = torch.stack([part.quantile(0.75) - part.quantile(0.25) for part in (_some(parts[k]) for k in full)])
    if float(spread.median()) > _SPREAD:
        return None
    found = [k for k, part in enumerate(parts) if len(part)]
    medians = torch.stack([parts[k].median() for k in found])
    rank = torch.argsort(medians, descending=True)
    number = torch.full((len(parts),), -1, dtype=torch.int64)
    number[torch.tensor(found)[rank]] = torch.arange(len(found))
    return number, medians[rank]


def _some(values: Tensor) -> Tensor:
    return values[:: len(values) // 10_000 + 1]


def _without_beams(elevation: Tensor) -> Scan:
    order = bands(elevation)
    blocked = torch.ones(len(order.elevations), 360, dtype=torch.bool)
    return Scan(order, blocked, notes=(f"The lidar's lines are no beams of one elevation. {UNKNOWN}",))


def _scan(sweeps: list[Tensor], rings: list[Tensor], elevations: Tensor, names: list[str]) -> Scan:
    scan = Scan(ByElevation(elevations), torch.zeros(len(elevations), 360, dtype=torch.bool))
    known = [ring >= 0 for ring in rings]
    rows = [(points[kept], ring[kept]) for points, ring, kept in zip(sweeps, rings, known, strict=True)]
    arranged = [scan.arrange(points, name, ring) for (points, ring), name in zip(rows, names, strict=True)]
    if has_several_returns(arranged, names):
        scan = replace(scan, several=True, notes=(RETURNS,))
        arranged = [scan.arrange(points, name, ring) for (points, ring), name in zip(rows, names, strict=True)]
    return without_cuts(scan, arranged)


def _turning(scan: Scan, angles: list[Tensor]) -> Scan:
    """The turn of the lidar by the order of the points, where they have no times."""
    spin = find_spin(angles)
    if spin is None:
        return replace(scan, notes=(*scan.notes, DIRECTION))
    return replace(scan, clockwise=spin[0], start=spin[1])


def spin_of(
    azimuths: list[Tensor], times: list[Tensor], scan: Scan
) -> tuple[bool, float]:  # clockwise, and the azimuth in radians where a sweep begins
    """The turn of the lidar by the azimuths [n] in radians and the times [n] in seconds of the points of some sweeps."""
    steps, first = [], []
    for azimuth, time in zip(azimuths, times, strict=True):
        ordered = azimuth[torch.argsort(time, stable=True)]
        skipped = ordered[:: max(1, len(ordered) // 64)]
        steps.append(wrap_angle(skipped.diff()))
        first.append(azimuth[time <= time.min()].median())
    sign = -1 if float(torch.cat(steps).median()) < 0 else 1
    begin = torch.stack(first)
    start = math.atan2(float(begin.sin().mean()), float(begin.cos().mean())) - sign * 0.5 * TURN / scan.azimuth_steps
    wrapped = float(wrap_angle(torch.tensor(start, dtype=torch.float64)))
    return sign < 0, wrapped + TURN if sign < 0 and wrapped <= -math.pi + 1e-6 else wrapped


# ---- the clock of the points


def find_clock(
    spans: Tensor,  # [n, 2] first and last time of the points of each sweep, as they say
    stamps: Tensor,  # [n] seconds of the headers, absolute
    entry: LidarEntry,
    where: str,
) -> tuple[PointClock | None, list[str]]:  # and sentences for the user
    lasts = float((spans[:, 1] - spans[:, 0]).median())
    if lasts <= 0:
        return None, [f"The times of the points of {where} are all equal: they are taken from the azimuth."]
    period = period_of(stamps)
    unit = UNITS[entry.unit] if entry.unit else min(UNITS.values(), key=lambda u: abs(math.log(lasts * u / period)))
    if not _SHORT <= lasts * unit / period <= _LONG:
        raise CaptureError(
            f"{where}: the points of a sweep span {lasts * unit:.3g} s by their field of time, but sweeps follow one another after "
            f"{period:.3g} s; name the field by time and its unit by unit in data.mapping"
        )
    offset = spans[:, 0] * unit
    if float((offset - stamps).abs().median()) < _NEAR:
        return PointClock(unit, "capture"), []
    if float(offset.abs().median()) <= 2 * period:
        return PointClock(unit, "stamp"), []
    away = float((offset - stamps).median())
    return PointClock(unit, "first"), [
        f"The times of the points of {where} lie {abs(away):.0f} s {'after' if away > 0 else 'before'} the stamps: they count from the "
        f"stamp, as the time of the {_STAMPED[entry.stamp]} point."
    ]


def period_of(stamps: Tensor) -> float:  # [n] seconds -> seconds between sweeps
    return max(float(stamps.diff().median()), _LEAST) if len(stamps) > 1 else _PERIOD
