# SPDX-License-Identifier: Apache-2.0
"""Survey of a drive's sweeps: properties of all, found from a few."""

import math
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from nurec_lite.capture.crops import Cut, cut_directions, cut_sectors, find_cuts, is_thinned, sector_sentence
from nurec_lite.capture.kitti.gaps import ring_steps
from nurec_lite.capture.kitti.order import ByElevation, find_order
from nurec_lite.capture.kitti.points import read_points
from nurec_lite.capture.kitti.scan import Scan, degree_of, on_vehicle, same_ray
from nurec_lite.capture.kitti.spin import find_spin, is_kitti
from nurec_lite.capture.kitti.turns import TURN
from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.lidar import azimuth_elevation

Some = TypeVar("Some")
N_SURVEY = 8  # sweeps, spread over the drive
_GROUND = math.radians(-8)  # rays below reach the ground within 13 m, so nearly all return
_SEVERAL = 0.02  # share of points that are further returns of a ray
_MOST_RETURNS = 4
_BANDS = 64  # of elevation, where the points lie on no beams
_VOXEL = 0.05  # metres; a filter keeps one point of a larger voxel
_ALONE = 0.95  # share of the points that are alone in such a voxel after a filter
_REACH = 80.0  # metres that lidars see at least
_STEPS = Scan.azimuth_steps  # of KITTI's lidar, about

Arranged = tuple[Tensor, Tensor, Tensor]  # points [n, 4], angles [n, 2], rings [n] of a sweep, as of Scan.arrange


def spread(sweeps: list[Some]) -> list[Some]:
    """Returns some sweeps from all over a drive."""
    indices = torch.linspace(0, len(sweeps) - 1, min(N_SURVEY, len(sweeps))).long().tolist()
    return [sweeps[i] for i in indices]


def survey(
    paths: list[Path],  # sweeps spread over the drive
) -> Scan:
    return scan_of([read_points(path) for path in paths], [str(path) for path in paths])


def scan_of(
    sweeps: list[Tensor],  # each [n, 4 or more] x, y, z in metres and reflectance of 0 to 1, in the order of its file
    names: list[str],  # of the sweeps, for messages
) -> Scan:
    """Scan pattern of the lidar, from the order and the elevations of its points."""
    scan = _stored(sweeps, names)
    arranged = [scan.arrange(points, name) for points, name in zip(sweeps, names, strict=True)]
    if has_several_returns(arranged, names):
        scan = replace(scan, several=True, notes=(*scan.notes, RETURNS))
        arranged = [scan.arrange(points, name) for points, name in zip(sweeps, names, strict=True)]
    return without_cuts(scan, arranged)


def has_several_returns(arranged: list[Arranged], names: list[str]) -> bool:
    """Whether files hold several returns of a ray; CaptureError for a file of several sweeps."""
    share = [same_ray(angles, rings).double().mean() for _, angles, rings in arranged]
    most = max(range(len(share)), key=lambda i: share[i])
    if share[most] > 1 - 0.9 / _MOST_RETURNS:
        raise CaptureError(
            f"{names[most]} holds more than {_MOST_RETURNS} points of the same direction; keep one sweep a file"
        )
    return bool(torch.stack(share).median() > _SEVERAL)


RETURNS = "Sweeps hold several returns of a ray: the strongest is kept."
DIRECTION = (
    "The order of the points does not say which way the lidar turns: it is taken to turn clockwise, as KITTI's does."
)
UNKNOWN = "Rays without return look like removed points, so training uses none of them."
_FILTERED = (
    "Sweeps were thinned by a filter that keeps one point of a voxel, and their points lie on no beams. " + UNKNOWN
)
_THINNED = "Sweeps lack points at random, also on surfaces near by. " + UNKNOWN


def _stored(
    sweeps: list[Tensor],  # each [n, 4] in the order of its file
    names: list[str],  # of their files
) -> Scan:
    """Layout of the files; missing rays are not known yet."""
    angles = [azimuth_elevation(points[:, :3]) for points in sweeps]
    order, notes = find_order(angles), []
    if order is None:
        _check_filtered(sweeps, names[0])
        order = bands(torch.cat([sweep[:, 1] for sweep in angles]))
        notes.append(_FILTERED)
    spin = find_spin(angles)
    if spin is None and not is_kitti(order, angles):
        notes.append(DIRECTION)
    clockwise, start = spin or (True, math.pi)
    blocked = torch.full((len(order.elevations), 360), bool(notes and notes[0] == _FILTERED))
    return Scan(order, blocked, clockwise=clockwise, start=start, notes=tuple(notes))


def _check_filtered(sweeps: list[Tensor], name: str) -> None:
    """Refuses points in no order, unless a filter made them so: then their rays need not be known."""
    for points in sweeps:
        voxels = (points[:, :3] / _VOXEL).floor().long() + (1 << 14)
        key = (voxels[:, 0] << 32) + (voxels[:, 1] << 16) + voxels[:, 2]
        if len(key.unique()) < _ALONE * len(key):
            raise CaptureError(
                f"{name} holds points that are neither in KITTI's order nor on beams of different elevation, so their beams are "
                "lost; write them ring by ring from the top, each ring by rising azimuth from 0, as KITTI raw has them"
            )


def bands(
    elevation: Tensor,  # [n] radians
) -> ByElevation:
    low, high = torch.quantile(elevation[:: max(1, len(elevation) // 100_000)], torch.tensor([0.005, 0.995]).double())
    return ByElevation(torch.linspace(float(high), float(low), _BANDS, dtype=torch.float64))


def without_cuts(scan: Scan, sweeps: list[Arranged]) -> Scan:
    """The scan with the directions of missing rays that tell nothing: the vehicle itself stands in the way, or points were removed."""
    steps = [ring_steps(angles, rings) for _, angles, rings in sweeps]
    nominal = float(torch.stack([step.nominal for step in steps]).nanmedian())
    if not math.isfinite(nominal):  # no two points of a ring
        return scan
    ranges = [points[:, :3].norm(dim=1) for points, _, _ in sweeps]
    pairs = torch.cat([torch.stack([r, r[step.after]], dim=1) for r, step in zip(ranges, steps, strict=True)])
    notes, seen = list(scan.notes), _seen(scan, sweeps, nominal)
    lost = scan.blocked | _blocked(seen, scan.elevations)
    if not bool(scan.blocked.all()) and is_thinned(torch.cat([step.gap for step in steps]), pairs, nominal):
        notes.append(_THINNED)
        lost = torch.ones_like(lost)
    cuts = _all_cuts([points for points, _, _ in sweeps])
    sectors = cut_sectors(seen, nominal)
    if cuts or bool(sectors.any()):
        kept = [cut.sentence for cut in cuts] + ([sector_sentence(sectors.all(0))] if bool(sectors.any()) else [])
        notes.append(f"Sweeps hold only points of {', '.join(kept)}: rays into cut space are left out.")
        lost |= widened(sectors | cut_directions(cuts, scan.elevations, max(_REACH, float(pairs.max()))))
    return replace(scan, blocked=lost, azimuth_steps=_azimuth_steps(nominal), notes=tuple(notes))


def _all_cuts(sweeps: list[Tensor]) -> list[Cut]:
    outside = [points[~on_vehicle(points)] for points in sweeps]
    number = torch.arange(len(outside)).repeat_interleave(torch.tensor([len(points) for points in outside]))
    return find_cuts(torch.cat(outside), number) if len(number) else []


def _azimuth_steps(nominal: float) -> int:
    """Steps of a turn; KITTI's number if they are about as many."""
    found = max(1, round(TURN / nominal))
    return _STEPS if abs(found / _STEPS - 1) < 0.1 else found


def _seen(scan: Scan, sweeps: list[Arranged], step: float) -> Tensor:  # [B, 360] bool: something returned
    """Points seen from outside the vehicle. Between rays more than a degree apart, their returns count for the degrees
    between."""
    seen = torch.zeros(len(scan.elevations), 360, dtype=torch.bool)
    for points, angles, rings in sweeps:
        outside = ~on_vehicle(points)
        seen[rings[outside], degree_of(angles[outside, 0])] = True
    for _ in range(min(180, math.ceil(math.degrees(step) - 0.5))):
        seen = widened(seen)
    return seen


def _blocked(seen: Tensor, elevations: Tensor) -> Tensor:  # [B, 360] bool
    """Rays that point at the ground and yet never return: the vehicle itself stands in the way. A degree to either side counts,
    too, because the edge may lie within it."""
    return widened(~seen & (elevations < _GROUND)[:, None])


def widened(mask: Tensor) -> Tensor:  # [B, 360] bool: by a degree to either side
    return mask | mask.roll(1, dims=1) | mask.roll(-1, dims=1)
