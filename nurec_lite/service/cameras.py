# SPDX-License-Identifier: Apache-2.0
"""Cameras of requests: a CameraSpec as a camera of the renderer, and back. Its models are those of NCore, which one function reads."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from nurec_lite.capture.check import MAX_SIDE, sensor_flaws
from nurec_lite.capture.ncore.lenses import FISHEYE, FTHETA, NAMES, OPENCV, lens_fields
from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.camera import Camera, beyond, lens_flaw, lens_numbers, view_limits
from nurec_lite.geometry.se3 import matrix_to_quat
from nurec_lite.service.errors import BUSY, UNSUPPORTED, RequestError
from nurec_lite.service.messages import message, name_of, number_of

PINHOLE = "opencv_pinhole_param"
MODELS = {
    PINHOLE: OPENCV[0],
    "opencv_fisheye_param": FISHEYE,
    "ftheta_param": FTHETA,
}  # fields of the oneof, as NCore calls them
_COUNTS = {"radial_coeffs": 6, "tangential_coeffs": 2, "thin_prism_coeffs": 4}  # of the pinhole
_FISHEYE_COUNT = 4  # of radial_coeffs
_SHUTTERS = NAMES | {"UNKNOWN": "global"}


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
    camera = _scaled(
        Camera(name, own[1], own[0], T_rig_cam=mount, shutter=_shutter(spec), **_lens(spec)), height, width
    )
    camera = _masked(camera, spec)
    flaws = list(sensor_flaws(camera))
    if flaws:
        raise RequestError(f"camera_intrinsics has {flaws[0]}; correct it")
    return camera


def spec_of(camera: Camera) -> Any:
    """The CameraSpec of a camera of the capture."""
    shutter = next(name for name, own in NAMES.items() if own == camera.shutter)
    return message("CameraSpec")(
        logical_id=camera.name, resolution_h=camera.height, resolution_w=camera.width,
        shutter_type=number_of("ShutterType", shutter), **_param(camera),
    )  # fmt: skip


def pose_of(T: torch.Tensor) -> Any:  # [4, 4]
    """The Pose of a rigid motion."""
    (w, x, y, z), (a, b, c) = matrix_to_quat(T[:3, :3]).tolist(), T[:3, 3].tolist()
    return message("Pose")(vec={"x": a, "y": b, "z": c}, quat={"w": w, "x": x, "y": y, "z": z})


def message_flaw(camera: Camera) -> str | None:
    """The lens, in words, if no message describes it; None if one does."""
    if camera.lens == "mei":
        return "a MEI lens"
    if camera.lens == "fisheye" and any(camera.distortion[_FISHEYE_COUNT:]):
        return "a fisheye lens with tangential distortion or a thin prism"
    return None


# ---- parts


def _size(name: str, height: int, width: int, most: int) -> tuple[int, int]:
    if height < 1 or width < 1:
        raise RequestError(f"{name}_h and {name}_w are {height} and {width}, but must be 1 pixel at least")
    if height * width > most:
        raise RequestError(
            f"{name} of {width} x {height} pixels is more than {most} in all; ask for fewer, or raise max_pixels", BUSY
        )
    if max(height, width) > MAX_SIDE:
        raise RequestError(f"{name}_h and {name}_w are {height} and {width}, but may be {MAX_SIDE} at most")
    return height, width


def _lens(spec: Any) -> dict[str, Any]:
    """The fields fx, fy, cx, cy, lens and distortion of a Camera."""
    model = spec.WhichOneof("one_of")
    if model is None:
        raise RequestError(f"camera_intrinsics has no model; give one of {', '.join(MODELS)}")
    if spec.HasField("bivariate_windshield_model_param"):
        raise RequestError("camera_intrinsics has a windshield model, which is not rendered; leave it out", UNSUPPORTED)
    given = getattr(spec, model)
    record = {"principal_point": [given.principal_point_x, given.principal_point_y]}
    if model == "ftheta_param":
        record |= _ftheta_record(spec, given)
    else:
        counts = _COUNTS if model == PINHOLE else {"radial_coeffs": _FISHEYE_COUNT}
        record |= {"focal_length": [given.focal_length_x, given.focal_length_y]}
        record |= {key: _coefficients(given, key, count) for key, count in counts.items()}
    if not all(math.isfinite(value) for values in record.values() if isinstance(values, list) for value in values):
        raise RequestError("camera_intrinsics holds a number that is not finite; correct it")
    try:
        return lens_fields(MODELS[model], record, f"camera_intrinsics.{model}")
    except CaptureError as error:
        raise RequestError(f"{str(error).rpartition('; ')[0]}; correct it") from error


def _ftheta_record(spec: Any, given: Any) -> dict[str, Any]:
    """The polynomials, and the linear term where there is one."""
    record: dict[str, Any] = {
        "reference_poly": given.reference_poly, "resolution": [spec.resolution_w, spec.resolution_h],
        "pixeldist_to_angle_poly": list(given.pixeldist_to_angle_poly),
        "angle_to_pixeldist_poly": list(given.angle_to_pixeldist_poly),
    }  # fmt: skip
    if given.HasField("linear_cde"):
        record["linear_cde"] = [given.linear_cde.linear_c, given.linear_cde.linear_d, given.linear_cde.linear_e]
    return record


def _coefficients(given: Any, field: str, most: int) -> list[float]:
    """The coefficients, filled up with zeros."""
    values = list(getattr(given, field))
    if len(values) > most:
        raise RequestError(f"camera_intrinsics has {len(values)} {field}, but may have {most}; leave the others out")
    return values + [0.0] * (most - len(values))


def _masked(camera: Camera, spec: Any) -> Camera:
    """The camera with a mask of the pixels beyond the largest angle of its model, which stay black."""
    widest = getattr(getattr(spec, spec.WhichOneof("one_of")), "max_angle", 0.0)
    if not 0 <= widest < math.inf:  # which NaN is not
        raise RequestError(f"camera_intrinsics has the max_angle {widest:g}; give radians, or 0 for none")
    (d, e), f = lens_numbers(camera).skew, camera.fy
    if widest == 0 or not camera.fx * f - f * f * d * e > 0:  # a focal length may be too small to divide by
        return camera
    if lens_flaw(camera) is None and view_limits(camera)[1] <= widest:
        return camera
    mask = beyond(camera, min(widest, math.pi))
    return replace(camera, mask=mask) if bool(mask.any()) else camera


def _shutter(spec: Any) -> str:
    name = name_of("ShutterType", spec.shutter_type)
    if name is None:
        raise RequestError(f"shutter_type is {spec.shutter_type}, but must be one of 1 to 5")
    return _SHUTTERS[name]


def _scaled(camera: Camera, height: int, width: int) -> Camera:
    """The same view in an image of another size."""
    same_shape = width / camera.width == height / camera.height
    if camera.lens == "ftheta" and not same_shape and any(camera.distortion[4:6]):
        raise RequestError(
            "an FTheta camera with a skewed linear term is rendered in its own aspect ratio only; ask for that"
        )
    return camera.resized(width, height)


# ---- and back


def _param(camera: Camera) -> dict[str, Any]:
    """The model of the oneof with its field's name."""
    if camera.lens == "ftheta":
        return {"ftheta_param": _ftheta_param(camera)}
    shared = {
        "principal_point_x": camera.cx, "principal_point_y": camera.cy, "focal_length_x": camera.fx, "focal_length_y": camera.fy,
    }  # fmt: skip
    flaw = message_flaw(camera)
    if flaw is not None:
        raise RequestError(f"camera {camera.name} has {flaw}, which the service has no message for; ask for others")
    if camera.lens == "fisheye":
        radial = (*camera.distortion, *[0.0] * _FISHEYE_COUNT)[:_FISHEYE_COUNT]
        return {"opencv_fisheye_param": shared | {"radial_coeffs": radial, "max_angle": view_limits(camera)[1]}}
    k1, k2, p1, p2, k3, *rest = (*camera.distortion, *[0.0] * 12)[:12]
    lens = {"radial_coeffs": (k1, k2, k3, *rest[:3]), "tangential_coeffs": (p1, p2), "thin_prism_coeffs": rest[3:]}
    return {PINHOLE: shared | lens}


def _ftheta_param(camera: Camera) -> dict[str, Any]:
    f, back, (d, e) = camera.fy, camera.distortion[6:], lens_numbers(camera).skew
    forward = [0.0, f, *(f * a for a in camera.distortion[:4])]
    kind = "PIXELDIST_TO_ANGLE" if back else "ANGLE_TO_PIXELDIST"
    return {
        "principal_point_x": camera.cx - 0.5, "principal_point_y": camera.cy - 0.5,
        "reference_poly": number_of("FthetaPolynomial", kind), "angle_to_pixeldist_poly": forward,
        "pixeldist_to_angle_poly": [0.0, *(b / f**k for k, b in enumerate(back, 1))] if back else [],
        "max_angle": view_limits(camera)[1], "linear_cde": {"linear_c": camera.fx / f, "linear_d": d, "linear_e": e},
    }  # fmt: skip
