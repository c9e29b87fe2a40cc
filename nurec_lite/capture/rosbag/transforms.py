# SPDX-License-Identifier: Apache-2.0
"""Frames of a recording and the transforms between them: tf_static, and tf where it moves."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.se3 import interpolate_trajectory, invert, matrix_to_quat, pose_matrix, quat_normalize

_SHORTEST = 1e-3  # least length of a quaternion
_STILL_METRES, _STILL_COSINE = 0.02, 0.99999  # largest variation of a mounting that is published again and again
Edge = tuple[str, str]  # parent and child


def frame_name(text: str) -> str:
    """Name of a frame without a slash before it, which ROS 1 writes for some."""
    return text.lstrip("/")


def pose_of(
    position: Any,  # x, y, z
    orientation: Any,  # x, y, z, w
) -> list[float] | None:  # x, y, z and the quaternion wxyz, which is not yet of length 1; None: it is no pose
    values = [position.x, position.y, position.z, orientation.w, orientation.x, orientation.y, orientation.z]
    length = sum(v * v for v in values[3:]) ** 0.5
    finite = all(abs(v) < 1e12 for v in values)  # NaN fails as well
    return values if finite and length > _SHORTEST else None


def matrices(
    rows: list[list[float]],  # as of pose_of
) -> Tensor:  # [n, 4, 4]
    values = torch.tensor(rows, dtype=torch.float64).view(-1, 7)
    return pose_matrix(quat_normalize(values[:, 3:]), values[:, :3])


@dataclass
class Transforms:
    """The tree of frames. `static` has one pose an edge, `moving` many."""

    static: dict[Edge, list[float]] = field(default_factory=dict)
    moving: dict[Edge, dict[int, list[float]]] = field(default_factory=dict)  # by nanoseconds

    def add(self, message: Any, static: bool) -> None:
        for one in message.transforms:
            edge = (frame_name(one.header.frame_id), frame_name(one.child_frame_id))
            pose = pose_of(one.transform.translation, one.transform.rotation)
            if pose is None or edge[0] == edge[1]:
                continue
            if static:
                self.static[edge] = pose
            else:
                stamp = one.header.stamp.sec * 10**9 + one.header.stamp.nanosec
                self.moving.setdefault(edge, {})[stamp] = pose

    @property
    def frames(self) -> set[str]:
        return {name for edge in (*self.static, *self.moving) for name in edge}

    def fixed(self, target: str, source: str, named_by: str) -> Tensor:  # [4, 4] T_target_source
        """The transform between frames that are bolted to one another."""
        T = torch.eye(4, dtype=torch.float64)
        for edge, down in self._path(target, source, named_by):
            step = self._still(edge, named_by)
            T = T @ (step if down else invert(step))
        return T

    def at(
        self,
        target: str,
        source: str,
        times: Tensor,  # [n] nanoseconds, int64
        named_by: str,
    ) -> Tensor:  # [n, 4, 4] T_target_source
        T = torch.eye(4, dtype=torch.float64).expand(len(times), 4, 4)
        for edge, down in self._path(target, source, named_by):
            step = self._moved(edge, times) if edge in self.moving else matrices([self.static[edge]])
            T = T @ (step if down else invert(step))
        return T

    def stamps(self, target: str, source: str, named_by: str) -> Tensor:  # [n] nanoseconds, int64, rising
        """Stamps of the edge between both frames that is published most often; none if nothing moves between them."""
        edges = [edge for edge, _ in self._path(target, source, named_by) if edge in self.moving]
        most = max((self.moving[edge] for edge in edges), key=len, default={})
        return torch.tensor(sorted(most), dtype=torch.int64)

    def connected(self, a: str, b: str) -> bool:
        return a == b or self._walk(a, b) is not None

    def _path(self, target: str, source: str, named_by: str) -> list[tuple[Edge, bool]]:
        path = self._walk(target, source)
        if path is None:
            have = ", ".join(sorted(self.frames)[:12]) or "none"
            raise CaptureError(
                f"{named_by}: no tf leads from frame '{target}' to '{source}' (frames of the recording: {have}); name frames by rig "
                "and frame in data.mapping, or give T_rig_sensor there"
            )
        return path

    def _walk(self, target: str, source: str) -> list[tuple[Edge, bool]] | None:
        """Edges from the target to the source, and whether each leads from parent to child."""
        came: dict[str, tuple[str, Edge, bool] | None] = {target: None}
        around = self._neighbours()
        queue = deque([target])
        while queue and source not in came:
            here = queue.popleft()
            for other, edge, down in around.get(here, []):
                if other not in came:
                    came[other] = (here, edge, down)
                    queue.append(other)
        if source not in came:
            return None
        path, here = [], source
        while (step := came[here]) is not None:
            here, edge, down = step
            path.append((edge, down))
        return path[::-1]

    def _neighbours(self) -> dict[str, list[tuple[str, Edge, bool]]]:
        found: dict[str, list[tuple[str, Edge, bool]]] = {}
        for parent, child in (*self.static, *self.moving):
            found.setdefault(parent, []).append((child, (parent, child), True))
            found.setdefault(child, []).append((parent, (parent, child), False))
        return found

    def _still(self, edge: Edge, named_by: str) -> Tensor:  # [4, 4] T_parent_child
        if edge in self.static:
            return matrices([self.static[edge]])[0]
        poses = matrices(list(self.moving[edge].values()))
        q = matrix_to_quat(poses[:, :3, :3])
        away = (poses[:, :3, 3] - poses[0, :3, 3]).norm(dim=1).max()
        if float(away) > _STILL_METRES or float((q @ q[0]).abs().min()) < _STILL_COSINE:
            raise CaptureError(
                f"{named_by}: tf moves '{edge[1]}' against '{edge[0]}' during the recording, so neither is bolted to the other; name the "
                "vehicle's frame by rig in data.mapping"
            )
        return poses[0]

    def _moved(self, edge: Edge, times: Tensor) -> Tensor:  # [n, 4, 4] T_parent_child
        rows = dict(sorted(self.moving[edge].items()))
        first = next(iter(rows))
        known = torch.tensor([stamp - first for stamp in rows], dtype=torch.float64) * 1e-9
        return interpolate_trajectory(known, matrices(list(rows.values())), (times - first).double() * 1e-9)
