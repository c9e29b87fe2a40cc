# SPDX-License-Identifier: Apache-2.0
"""Things that a browser draws over the picture: frustums of the cameras, points of a sweep, boxes of the actors, and the camera path."""

import math
from collections.abc import Callable
from functools import wraps
from itertools import combinations, product
from threading import RLock
from typing import Any, Concatenate, ParamSpec

import numpy as np
import torch
from torch import Tensor

from nurec_lite.capture.trajectory import Trajectory
from nurec_lite.capture.types import Capture
from nurec_lite.geometry.se3 import matrix_to_quat
from nurec_lite.geometry.tracks import Tracks, interpolate
from nurec_lite.viewer.sweeps import Cloud, Clouds

_FRUSTUM, _BOX, _PATH = (90, 200, 120), (240, 240, 120), (255, 90, 200)  # colours
P = ParamSpec("P")
_POINT_M = 0.04  # size of a point
_MOST_BOXES = 100
_CORNERS = np.array(list(product((-0.5, 0.5), repeat=3)), np.float32)  # [8, 3] of a box of 1 m
_EDGES = np.stack(
    [np.stack(pair) for pair in combinations(_CORNERS, 2) if abs(pair[0] - pair[1]).sum() == 1]
)  # [12, 2, 3]


def _alone(method: Callable[Concatenate["Overlay", P], None]) -> Callable[Concatenate["Overlay", P], None]:
    """A method that no other thread enters at the same time."""

    @wraps(method)
    def locked(self: "Overlay", *arguments: P.args, **keys: P.kwargs) -> None:
        with self.lock:
            method(self, *arguments, **keys)

    return locked


class Overlay:
    """Things in one browser. They follow the moment that is shown."""

    def __init__(self, client: Any, capture: Capture, path: Trajectory) -> None:
        self._scene, self._atomic, self._capture, self._path = client.scene, client.atomic, capture, path
        self._frustums: dict[str, Any] = {}
        self._boxes: dict[str, Any] = {}
        self._clouds: dict[str, Any] = {}
        self._line: Any = None
        self.lock = RLock()

    @_alone
    def frustums(self, time: float, shown: bool, clicked: Callable[[str], None]) -> None:
        """One frustum a camera of the rig; a click on it calls `clicked` with the camera's name."""
        if not shown:
            return self._drop(self._frustums)
        T_world_rig = self._path.at(time)
        with self._atomic():
            for camera in self._capture.cameras:
                wxyz, position = _pose(T_world_rig @ camera.T_rig_cam.double())
                if camera.name in self._frustums:
                    self._frustums[camera.name].wxyz, self._frustums[camera.name].position = wxyz, position
                    continue
                handle = self._scene.add_camera_frustum(
                    f"/frustums/{len(self._frustums)}", 2 * math.atan(0.5 * camera.height / camera.fy),
                    camera.width / camera.height, scale=0.6, thickness=0.01, color=_FRUSTUM, wxyz=wxyz, position=position,
                )  # fmt: skip
                handle.on_click(lambda _, name=camera.name: clicked(name))
                self._frustums[camera.name] = handle

    @_alone
    def sweep(self, clouds: Clouds) -> None:
        with self._atomic():
            self._cloud("/sweep/measured", clouds.measured)
            self._cloud("/sweep/rendered", clouds.rendered)

    def _cloud(self, name: str, cloud: Cloud | None) -> None:
        """Draws a cloud in the place of the last one. viser takes no cloud without points."""
        if cloud is None or len(cloud[0]) == 0:
            if name in self._clouds:
                self._clouds.pop(name).remove()
            return
        self._clouds[name] = self._scene.add_point_cloud(
            name, *cloud, point_size=_POINT_M, point_shape="circle", precision="float32"
        )

    @_alone
    def boxes(self, tracks: Tracks, time: float, shown: bool, hidden: set[str], clicked: Callable[[str], None]) -> None:
        """Boxes with ids of the actors that are there at the time; a click on one calls `clicked` with its id."""
        if not shown or len(tracks) == 0:
            return self._drop(self._boxes)
        poses = interpolate(tracks, torch.tensor([time], dtype=torch.float64))
        there = [k for k in range(len(tracks)) if bool(poses.valid[0, k]) and tracks.ids[k] not in hidden]
        there = there[:_MOST_BOXES]
        with self._atomic():
            for name in set(self._boxes) - {tracks.ids[k] for k in there}:
                self._remove(self._boxes.pop(name))
            for k in there:
                place = poses.quaternions[0, k].tolist(), poses.translations[0, k].tolist()
                self._box(tracks.ids[k], tracks.sizes[k].tolist(), *place, clicked)

    def _box(self, name: str, size: Any, wxyz: Any, position: Any, clicked: Callable[[str], None]) -> None:
        if name not in self._boxes:
            at = f"/boxes/{name.encode().hex()}"
            box = self._scene.add_box(at, _BOX, tuple(size), opacity=0.0, cast_shadow=False, receive_shadow=False)
            box.on_click(lambda _: clicked(name))
            edges = self._scene.add_line_segments(
                f"{at}/edges", _EDGES * np.float32(size), colors=_BOX, thickness=1.5, thickness_units="screen"
            )  # fmt: skip
            label = self._scene.add_label(
                f"{at}/label", name, position=(0.0, 0.0, 0.5 * size[2]), anchor="bottom-center"
            )
            self._boxes[name] = (box, edges, label)
        self._boxes[name][0].wxyz, self._boxes[name][0].position = wxyz, position

    @_alone
    def path(self, line: Tensor) -> None:  # [n, 3] metres
        if self._line is not None:
            self._line.remove()
            self._line = None
        if len(line) > 1:
            segments = torch.stack([line[:-1], line[1:]], dim=1).float().numpy()
            self._line = self._scene.add_line_segments(
                "/path", segments, colors=_PATH, thickness=3.0, thickness_units="screen"
            )

    def _drop(self, handles: dict[str, Any]) -> None:
        for handle in handles.values():
            self._remove(handle)
        handles.clear()

    @staticmethod
    def _remove(handle: Any) -> None:
        for one in reversed(handle) if isinstance(handle, tuple) else [handle]:
            one.remove()


def _pose(T: Tensor) -> tuple[list[float], list[float]]:  # wxyz, position
    return matrix_to_quat(T[:3, :3]).tolist(), T[:3, 3].tolist()
