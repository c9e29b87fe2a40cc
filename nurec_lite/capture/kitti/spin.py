# SPDX-License-Identifier: Apache-2.0
"""The lidar's direction of rotation, where the order of the points shows it.

Files that hold column after column are in the order of time. Files that hold ring after ring are not, or need not be.
"""

import math

import torch
from torch import Tensor

from nurec_lite.capture.kitti.order import ByElevation, Order
from nurec_lite.capture.kitti.turns import TURN
from nurec_lite.geometry.lidar import wrap_angle

_PARTS = 64  # of a file
_OF_A_PART = 64  # points
_AGREE = 0.9  # share of the steps between parts that must go the same way
_SHORTEST, _LONGEST = math.radians(20), math.radians(400)  # way from the first part to the last
_BEHIND = math.radians(10)  # a turn that begins so near to KITTI's start begins there
_NOISE = math.radians(0.1)  # largest fall of the azimuth from a point to the next
_COLUMN = math.radians(0.5)  # azimuth that the beams of a column lie apart


def find_spin(
    sweeps: list[Tensor],  # each [n, 2] azimuth and elevation, in the order of its file
) -> (
    tuple[bool, float] | None
):  # clockwise, and the azimuth in radians where a turn begins; None: the order does not say
    ways = [way for angles in sweeps if _in_columns(angles[:, 1]) and (way := _way(angles[:, 0])) is not None]
    if len(ways) < max(1, 0.5 * len(sweeps)):
        return None
    clockwise = sum(float(way.sum()) for way in ways) < 0
    sign = -1 if clockwise else 1
    behind = -sign * math.pi
    late = torch.tensor([_passes_behind(angles[:, 0], way, sign) for angles, way in zip(sweeps, ways, strict=False)])
    if late.double().mean() < 0.5:
        return clockwise, behind
    first = torch.stack([angles[0, 0] for angles in sweeps])
    start = math.atan2(float(first.sin().mean()), float(first.cos().mean()))
    return clockwise, float(wrap_angle(torch.tensor(start - sign * _COLUMN, dtype=torch.float64)))


def _in_columns(elevation: Tensor) -> bool:
    """Whether every part of the file has points of all beams; parts of a file of rings have not."""
    parts = [float(part.std()) for part in elevation.tensor_split(_PARTS) if len(part) > 1]
    return bool(parts) and sum(parts) / len(parts) > 0.5 * float(elevation.std())


def _way(
    azimuth: Tensor,  # [n] radians
) -> Tensor | None:  # [parts - 1] radians between the middles of the parts of a file, if they go one way
    parts = [part[:: len(part) // _OF_A_PART + 1] for part in azimuth.tensor_split(_PARTS) if len(part)]
    middles = torch.stack([torch.atan2(part.sin().mean(), part.cos().mean()) for part in parts])
    way = wrap_angle(middles.diff())
    if len(way) < _PARTS - 1 or not _SHORTEST < abs(float(way.sum())) < _LONGEST:
        return None
    share = float((way > 0).double().mean())
    return way if max(share, 1 - share) >= _AGREE else None


def _passes_behind(azimuth: Tensor, way: Tensor, sign: int) -> bool:
    """Whether the sweep goes on beyond the direction where KITTI's ends."""
    to_behind = float((sign * (math.pi - azimuth[0])) % TURN)
    return _BEHIND < to_behind < abs(float(way.sum())) - _BEHIND


def is_kitti(
    order: Order,
    sweeps: list[Tensor],  # each [n, 2] azimuth and elevation, in the order of its file
) -> bool:
    """Whether the file has KITTI's order: ring after ring from the top, each by rising azimuth from 0."""
    if not isinstance(order, ByElevation):
        return order.down and order.sense == 1 and order.start == 0
    right = []
    for angles in sweeps:
        step = order.rings(angles, "")[0].diff()
        right.append((step > 0) | (step == 0) & ((angles[:, 0] % TURN).diff() > -_NOISE))
    return float(torch.cat(right).double().mean()) > 1 - 0.01
