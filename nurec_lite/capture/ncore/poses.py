# SPDX-License-Identifier: Apache-2.0
"""Poses of NCore: a graph of named frames with edges that are fixed or change with time. The rig's path and the mountings of sensors follow
from it."""

import re
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from nurec_lite.capture.files import short
from nurec_lite.capture.ncore.fields import LATEST_US, field, numbers
from nurec_lite.capture.ncore.sequence import Part, Sequence
from nurec_lite.capture.ncore.store import REMEDY
from nurec_lite.capture.trajectory import Trajectory
from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.se3 import invert

RIG, WORLD, GLOBAL = "rig", "world", "world_global"
RIGID = 1e-3  # largest difference of R R^T from the identity
_KEY = re.compile(r"\((?:'([^'\\]+)'|\"([^\"\\]+)\"), (?:'([^'\\]+)'|\"([^\"\\]+)\")\)")


@dataclass(frozen=True, eq=False)
class Edge:
    """Takes points of the frame `source` to `target`."""

    source: str
    target: str
    stamps: list[int] | None  # [n] microseconds; None: fixed
    poses: Tensor  # [n, 4, 4], n = 1 where it is fixed

    def toward(self, target: str) -> Tensor:  # [n, 4, 4]
        return self.poses if target == self.target else invert(self.poses)


@dataclass(frozen=True, eq=False)
class Poses:
    where: str
    path: Trajectory  # of the rig; seconds of the capture
    fixed: tuple[Edge, ...]
    origin: Tensor  # [3] metres: where the store's world begins in that of the capture

    def mounting(self, sensor: str) -> Tensor:  # [4, 4] T_rig_sensor
        steps = _route(self.fixed, sensor, RIG)
        if steps is None:
            raise CaptureError(
                f"{self.where}: '{short(sensor)}' has no fixed place on '{RIG}', and sensors that move on it are not read; "
                "choose other cameras by data.cameras"
            )
        return _product(steps)[0]

    def world(
        self,
        frame: str,  # world, rig, or a sensor on the rig
        time: float,  # seconds
    ) -> Tensor:  # [4, 4] T_world_frame
        if frame == WORLD:
            T = torch.eye(4, dtype=torch.float64)
            T[:3, 3] = self.origin
            return T
        at = self.path.at(time)
        return at if frame == RIG else at @ self.mounting(frame)


def read_poses(sequence: Sequence) -> Poses:
    part = sequence.part("poses")
    if part is None:
        raise CaptureError(
            f"{sequence.where} holds no poses; name the folder or the JSON with all stores of the sequence by data.root"
        )
    fixed, moving = _edges(part, "static_poses"), _edges(part, "dynamic_poses")
    steps = _route((*fixed, *moving), RIG, WORLD)
    if steps is None or sum(edge.stamps is not None for edge, _ in steps) != 1:
        raise CaptureError(
            f"{part}: the way from '{RIG}' to '{WORLD}' must have one part that changes with time; {REMEDY}"
        )
    stamps = next(edge.stamps for edge, _ in steps if edge.stamps is not None)
    times = torch.tensor([sequence.seconds(t) for t in stamps], dtype=torch.float64)
    origin = torch.tensor(sequence.own["origin"] if sequence.own else (0, 0, 0), dtype=torch.float64)
    poses = _product(steps)
    poses[:, :3, 3] += origin
    return Poses(str(part), Trajectory(times, poses), tuple(fixed), origin)


def _edges(part: Part, group: str) -> list[Edge]:
    found = []
    for key in (known := part.attributes(group)):
        match = _KEY.fullmatch(key)
        if match is None:
            raise CaptureError(f"{part}/{group}: '{short(key)}' names no two frames; {REMEDY}")
        source, target = match[1] or match[2], match[3] or match[4]
        row, where = field(known, key, dict, f"{part}/{group}"), f"{part}/{group}: {short(key)}"
        stamps = _stamps(row, where) if group == "dynamic_poses" else None
        poses = (
            numbers(row, "pose", (4, 4), where)[None] if stamps is None else numbers(row, "poses", (-1, 4, 4), where)
        )
        _check(poses, stamps, where)
        found.append(Edge(source, target, stamps, poses))
    return found


def _stamps(row: dict[str, object], where: str) -> list[int]:
    stamps = field(row, "timestamps_us", list, where)
    rising = all(type(t) is int and 0 <= t < LATEST_US for t in stamps) and all(a < b for a, b in pairwise(stamps))
    if not stamps or not rising:
        raise CaptureError(f"{where}: 'timestamps_us' must be rising microseconds; {REMEDY}")
    return stamps


def _check(poses: Tensor, stamps: list[int] | None, where: str) -> None:
    R = poses[:, :3, :3]
    apart = float((R @ R.transpose(1, 2) - torch.eye(3, dtype=R.dtype)).abs().max()) if len(poses) else 0.0
    if apart > RIGID or not bool((torch.linalg.det(R) > 0).all()):
        raise CaptureError(f"{where} holds a pose that is no rotation and translation; {REMEDY}")
    if stamps is not None and len(stamps) != len(poses):
        raise CaptureError(f"{where} has {len(poses)} poses for {len(stamps)} times; {REMEDY}")


def _route(edges: tuple[Edge, ...], source: str, target: str) -> list[tuple[Edge, str]] | None:
    """Returns the edges from one frame to another, each with the frame that it leads to; None where no way leads there."""
    ways: dict[str, list[tuple[Edge, str]]] = {source: []}
    queue = [source]
    while queue and target not in ways:
        at = queue.pop(0)
        for edge in edges:
            to = {edge.source: edge.target, edge.target: edge.source}.get(at)
            if to is not None and to not in ways:
                ways[to] = [*ways[at], (edge, to)]
                queue.append(to)
    return ways.get(target)


def _product(steps: list[tuple[Edge, str]]) -> Tensor:  # [n, 4, 4] T_target_source
    T = torch.eye(4, dtype=torch.float64)[None]
    for edge, to in steps:
        T = edge.toward(to) @ T
    return T
