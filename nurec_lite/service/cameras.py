# SPDX-License-Identifier: Apache-2.0
"""Cameras of requests: a CameraSpec as a camera of the renderer, and back."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from nurec_lite.capture.check import sensor_flaws
from nurec_lite.geometry.camera import SHUTTERS, Camera, distort, undistort
from nurec_lite.geometry.se3 import matrix_to_quat
from nurec_lite.service.errors import BUSY, UNSUPPORTED, RequestError
from nurec_lite.service.messages import message, name_of, number_of

_SHUTTERS = {
    "UNKNOWN": "global", "GLOBAL": "global", "ROLLING_TOP_TO_BOTTOM": "top_to_bottom", "ROLLING_BOTTOM_TO_TOP": "bottom_to_top",
    "ROLLING_LEFT_TO_RIGHT": "left_to_right", "ROLLING_RIGHT_TO_LEFT": "right_to_left",
}  # fmt: skip
assert set(_SHUTTERS.values()) == set(SHUTTERS)


def camera_of(
    spec: Any,  # CameraSpec
    height: int,  # pixels of the image; 0: those of the spec
    width: int,
    most_pixels: int,
    known: Mapping[str, Camera],  # of the capture; a camera of a known name sits where that one sits
    name: str,  # of a camera that is not known: callers' own names would be kept without end
) -> Camera:
    """The camera; RequestError for a model, a lens or a size that is not rendered."""
    own = _size("camera_intrinsics.resolution", spec.resolution_h, spec.resolution_w, most_pixels)
    height, width = _size("resolution", height, width, most_pixels) if height or width else own
    like = known.get(spec.logical_id)
    mount, name = (torch.eye(4, dtype=torch.float64), name) if like is None else (like.T_rig_cam, like.name)
    camera = replace(_lens(spec, name), T_rig_cam=mount, shutter=_shutter(spec), height=own[0], width=own[1])
    camera = _scaled(camera, height, width)
    flaws = list(sensor_flaws(camera))
    if flaws:
        raise RequestError(f"camera_intrinsics has {flaws[0]}; correct it")
    _check_folds(camera)
    return camera


def spec_of(camera: Camera) -> Any:
    """The CameraSpec of a camera of the capture."""
    shutter = next(name for name, own in _SHUTTERS.items() if own == camera.shutter and name != "UNKNOWN")
    spec = message("CameraSpec")(
        logical_id=camera.name, resolution_h=camera.height, resolution_w=camera.width,
        shutter_type=number_of("ShutterType", shutter),
    )  # fmt: skip
    k1, k2, p1, p2, k3 = camera.distortion or (0.0,) * 5
    spec.opencv_pinhole_param.CopyFrom(
        message("OpenCVPinholeParam")(
            principal_point_x=camera.cx, principal_point_y=camera.cy, focal_length_x=camera.fx, focal_length_y=camera.fy,
            radial_coeffs=(k1, k2, k3, 0, 0, 0), tangential_coeffs=(p1, p2), thin_prism_coeffs=(0,) * 4,
        )
    )  # fmt: skip
    return spec


def pose_of(T: torch.Tensor) -> Any:  # [4, 4]
    """The Pose of a rigid motion."""
    (w, x, y, z), (a, b, c) = matrix_to_quat(T[:3, :3]).tolist(), T[:3, 3].tolist()
    return message("Pose")(vec={"x": a, "y": b, "z": c}, quat={"w": w, "x": x, "y": y, "z": z})


# ---- parts


def _size(name: str, height: int, width: int, most: int) -> tuple[int, int]:
    if height < 1 or width < 1:
        raise RequestError(f"{name}_h and {name}_w are {height} and {width}, but must be 1 pixel at least")
    if height * width > most:
        raise RequestError(
            f"{name} of {width} x {height} pixels is more than {most} in all; ask for fewer, or raise max_pixels", BUSY
        )
    return height, width


def _lens(spec: Any, name: str) -> Camera:
    """The model alone, without mounting, size and shutter."""
    model = spec.WhichOneof("one_of")
    if model is None:
        raise RequestError("camera_intrinsics has no model; give opencv_pinhole_param")
    if model != "opencv_pinhole_param":
        raise RequestError(
            f"camera_intrinsics has the model {model}, which is not rendered; use opencv_pinhole_param", UNSUPPORTED
        )
    if spec.HasField("bivariate_windshield_model_param"):
        raise RequestError("camera_intrinsics has a windshield model, which is not rendered; leave it out", UNSUPPORTED)
    return _pinhole(spec.opencv_pinhole_param, name)


def _pinhole(given: Any, name: str) -> Camera:
    radial, tangential, prism = (
        _coefficients(given, field, count)
        for field, count in (("radial_coeffs", 6), ("tangential_coeffs", 2), ("thin_prism_coeffs", 4))
    )
    if any(radial[3:]) or any(prism):
        what = "radial_coeffs beyond the third" if any(radial[3:]) else "thin_prism_coeffs"
        raise RequestError(f"camera_intrinsics has {what}, which are not rendered; give zeros", UNSUPPORTED)
    lens = (radial[0], radial[1], *tangential, radial[2])
    numbers = given.focal_length_x, given.focal_length_y, given.principal_point_x, given.principal_point_y
    if not all(map(math.isfinite, (*numbers, *lens))):
        raise RequestError("camera_intrinsics holds a number that is not finite; correct it")
    return Camera(name, 1, 1, *numbers, torch.eye(4, dtype=torch.float64), lens if any(lens) else ())


def _coefficients(given: Any, field: str, most: int) -> list[float]:
    """The coefficients, filled up with zeros."""
    values = list(getattr(given, field))
    if len(values) > most:
        raise RequestError(f"camera_intrinsics has {len(values)} {field}, but may have {most}; leave the others out")
    return values + [0.0] * (most - len(values))


def _shutter(spec: Any) -> str:
    name = name_of("ShutterType", spec.shutter_type)
    if name is None:
        raise RequestError(f"shutter_type is {spec.shutter_type}, but must be one of 1 to 5")
    return _SHUTTERS[name]


def _scaled(camera: Camera, height: int, width: int) -> Camera:
    """The same view in an image of another size."""
    across, down = width / camera.width, height / camera.height
    return replace(
        camera, width=width, height=height,
        fx=camera.fx * across, cx=camera.cx * across, fy=camera.fy * down, cy=camera.cy * down,
    )  # fmt: skip


def _check_folds(camera: Camera) -> None:
    """RequestError where a pixel of the edge has no direction."""
    u, v = (torch.linspace(0, size, 65, dtype=torch.float64) for size in (camera.width, camera.height))
    edge = torch.cat([torch.cartesian_prod(u, v[::64]), torch.cartesian_prod(u[::64], v)])
    xy = (edge - edge.new_tensor([camera.cx, camera.cy])) / edge.new_tensor([camera.fx, camera.fy])
    off = (distort(camera, undistort(camera, xy)) - xy).abs().amax(1) * max(camera.fx, camera.fy)
    if not bool((off < 0.01).all()):
        raise RequestError(
            "camera_intrinsics folds the image, so that pixels at its edge have no direction; correct its lens"
        )
