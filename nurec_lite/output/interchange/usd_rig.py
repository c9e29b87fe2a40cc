# SPDX-License-Identifier: Apache-2.0
"""The rig of a drive in USD: its path, cameras with their intrinsics, lidars with their beams.

The rig moves along `/World/rig`; cameras and lidars are its children. Where sensors are corrected, each camera has a pose of its own at
each of its frames, so that it stands where the renderer believes that it stood in mid-exposure.
"""

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from nurec_lite.capture.trajectory import Trajectory, trajectory_of
from nurec_lite.capture.types import Capture
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lidar import Lidar
from nurec_lite.geometry.se3 import invert, matrix_to_quat, pose_matrix
from nurec_lite.output.interchange.usd import ROOT, UsdScene, code, pose_ops, pxr, set_pose, unique_name
from nurec_lite.scene.scene import Scene
from nurec_lite.splat.corrected import corrected
from nurec_lite.splat.views import camera_view

RIG = f"{ROOT}/rig"
FOCAL = 0.5  # tenths of a metre, as USD counts: 50 mm
_USD_FROM_CAMERA = torch.diag(torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.float64))  # x right, y up, z back
_SAME = 1e-6  # metres, and radians: smaller corrections are none


def add_rig(stage: Any, scene: Scene, capture: Capture, content: UsdScene) -> None:
    """The prims of all sensors."""
    path = _path(capture)
    ops = pose_ops(pxr().UsdGeom.Xform.Define(stage, RIG))
    for time, pose in zip(path.times.tolist(), path.poses, strict=True):
        _set(ops, pose, code(content, time))
    names: list[str] = []
    for camera in capture.cameras:
        names.append(unique_name(camera.name, names))
        _add_camera(stage, f"{RIG}/{names[-1]}", scene, capture, camera, path, content)
    for lidar in capture.lidars:
        names.append(unique_name(lidar.name, names))
        _add_lidar(stage, f"{RIG}/{names[-1]}", lidar)


def _path(capture: Capture) -> Trajectory:
    """The trajectory with the middles of all frames."""
    known = trajectory_of(capture)
    middles = torch.tensor([frame.time_mid for frame in (*capture.images, *capture.sweeps)], dtype=torch.float64)
    times = torch.cat([known.times, middles]).unique()
    return Trajectory(times, known.at(times))


def _add_camera(
    stage: Any, path: str, scene: Scene, capture: Capture, camera: Camera, rig: Trajectory, content: UsdScene
) -> None:
    prim = pxr().UsdGeom.Camera.Define(stage, path)
    _set_lens(prim, camera)
    _describe(prim.GetPrim(), camera)
    ops, poses = pose_ops(prim), _mounts(scene, capture, camera, rig)
    mount = camera.T_rig_cam.double()
    if all((pose - mount).abs().max() < _SAME for _, pose in poses):
        _set(ops, mount @ _USD_FROM_CAMERA, None)
        return
    for time, pose in poses:
        _set(ops, pose @ _USD_FROM_CAMERA, code(content, time))


def _mounts(scene: Scene, capture: Capture, camera: Camera, rig: Trajectory) -> list[tuple[float, Tensor]]:
    """Times of the camera's frames, and T_rig_cam [4, 4] in mid-exposure, corrected."""
    if scene.calibration is None:
        return []
    found = []
    for frame in capture.images:
        if frame.sensor == camera.name:
            view = corrected(camera_view(capture, frame, scene.sky.device), scene.calibration)
            middle = view.T_world_sensor_start.new_tensor(0.5)
            world = pose_matrix(*(part.double() for part in view.pose(middle))).cpu()
            found.append((frame.time_mid, invert(rig.at(frame.time_mid)) @ world))
    return found


def _set_lens(prim: Any, camera: Camera) -> None:
    """A pinhole: aperture and its offset in tenths of a metre at the focal length."""
    prim.CreateFocalLengthAttr(FOCAL)
    prim.CreateHorizontalApertureAttr(camera.width / camera.fx * FOCAL)
    prim.CreateVerticalApertureAttr(camera.height / camera.fy * FOCAL)
    prim.CreateHorizontalApertureOffsetAttr((0.5 * camera.width - camera.cx) / camera.fx * FOCAL)
    prim.CreateVerticalApertureOffsetAttr((camera.cy - 0.5 * camera.height) / camera.fy * FOCAL)
    prim.CreateClippingRangeAttr(pxr().Gf.Vec2f(0.1, 10_000))


def _add_lidar(stage: Any, path: str, lidar: Lidar) -> None:
    prim = pxr().UsdGeom.Xform.Define(stage, path)
    _set(pose_ops(prim), lidar.T_rig_lidar.double(), None)
    _describe(prim.GetPrim(), lidar)


def _describe(prim: Any, sensor: Camera | Lidar) -> None:
    """All that the project knows of a sensor, but for its pose, as custom data."""
    for f in fields(sensor):
        value = getattr(sensor, f.name)
        if isinstance(value, Tensor) and value.ndim == 1:
            value = tuple(value.tolist())
        if isinstance(value, tuple) and all(isinstance(number, int | float) for number in value):
            value = pxr().Vt.DoubleArray(list(value))
        elif not isinstance(value, int | float | str):
            continue
        prim.SetCustomDataByKey(f.name, value)


def _set(ops: tuple[Any, Any], pose: Tensor, at: float | None) -> None:
    set_pose(*ops, pose[:3, 3].tolist(), matrix_to_quat(pose[:3, :3]).tolist(), at)
