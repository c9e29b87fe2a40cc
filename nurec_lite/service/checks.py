# SPDX-License-Identifier: Apache-2.0
"""Poses, times and objects of requests, checked. Each mistake is a RequestError with one sentence."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nurec_lite.geometry.se3 import pose_matrix
from nurec_lite.service.errors import BUSY, RequestError

FARTHEST = 1e6  # metres from the scene's origin
LONGEST_ID = 200  # characters of a name
MOST_OBJECTS = 1000  # of a request
BEYOND_S = 3600.0  # seconds that a frame may lie before or after the drive
LONGEST_S = 10.0  # seconds of an exposure or a revolution


@dataclass(frozen=True)
class Ends:
    """Poses at the start and at the end of a frame."""

    start: tuple[float, ...]  # w, x, y, z of a unit quaternion, then x, y, z in metres
    end: tuple[float, ...]

    def matrices(self) -> tuple[Tensor, Tensor]:  # [4, 4] float64 each
        start, end = (torch.tensor(one, dtype=torch.float64) for one in (self.start, self.end))
        return pose_matrix(start[:4], start[4:]), pose_matrix(end[:4], end[4:])


@dataclass(frozen=True)
class Moment:
    """First and last second of a frame, in the capture's clock."""

    start: float
    end: float


@dataclass(frozen=True)
class Placed:
    """An actor where the caller wants it."""

    track: str
    ends: Ends


def moment(
    request: Any,  # with frame_start_us and frame_end_us
    span: tuple[float, float],  # seconds of the drive
) -> Moment:
    start, end = 1e-6 * request.frame_start_us, 1e-6 * request.frame_end_us
    if end < start:
        raise RequestError(
            f"frame_end_us is {request.frame_end_us}, before frame_start_us {request.frame_start_us}; exchange them"
        )
    if start < span[0] - BEYOND_S or end > span[1] + BEYOND_S:
        wrong = request.frame_start_us if start < span[0] - BEYOND_S else request.frame_end_us
        raise RequestError(
            f"a frame at {wrong} us is far from the drive, {_us(span[0])} to {_us(span[1])} us; count microseconds of the capture"
        )
    if end - start > LONGEST_S:
        raise RequestError(
            f"the frame lasts {end - start:g} s, but may last {LONGEST_S:g} s at most; correct its times"
        )
    return Moment(start, end)


def ends(pair: Any, name: str) -> Ends:
    """Returns both poses of a PosePair; without an end the sensor or object stands still."""
    if not pair.HasField("start_pose"):
        raise RequestError(f"{name}.start_pose is missing; give the pose at frame_start_us")
    start = pose(pair.start_pose, f"{name}.start_pose")
    return Ends(start, pose(pair.end_pose, f"{name}.end_pose") if pair.HasField("end_pose") else start)


def pose(given: Any, name: str) -> tuple[float, ...]:
    """Seven numbers as `Ends` holds them."""
    place = given.vec.x, given.vec.y, given.vec.z
    if not all(abs(x) <= FARTHEST for x in place):  # NaN fails as well
        raise RequestError(
            f"{name}.vec holds a number that is not within {FARTHEST:g} m; give metres in the scene's world"
        )
    quat = given.quat.w, given.quat.x, given.quat.y, given.quat.z
    length = math.sqrt(sum(x * x for x in quat))
    if not 0.5 < length < 2:  # NaN fails as well
        raise RequestError(f"{name}.quat has length {length:g}, but must be a unit quaternion w, x, y, z")
    return (*(x / length for x in quat), *place)


def placed(objects: Sequence[Any]) -> tuple[Placed, ...]:
    """The dynamic objects of a request, in the order of their names."""
    if len(objects) > MOST_OBJECTS:
        raise RequestError(f"dynamic_objects has {len(objects)} entries, but may have {MOST_OBJECTS}; send fewer", BUSY)
    found = {one.track_id: Placed(one.track_id, ends(one.pose_pair, _of(one))) for one in objects}
    if len(found) < len(objects):
        names = [one.track_id for one in objects]
        again = next(name for name in names if names.count(name) > 1)
        raise RequestError(f"dynamic_objects names '{again:.{LONGEST_ID}}' twice; send it once")
    return tuple(found[name] for name in sorted(found))


def _of(one: Any) -> str:
    return f"pose_pair of '{one.track_id:.{LONGEST_ID}}'"


def _us(seconds: float) -> int:
    return round(1e6 * seconds)
