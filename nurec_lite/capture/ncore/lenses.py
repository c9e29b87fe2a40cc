# SPDX-License-Identifier: Apache-2.0
"""Lenses of NCore: records of its store as coefficients of nurec_lite/geometry/lens.py, and the other way round.

FTheta has two polynomials: from angles to pixels, and back. The record says which one is exact. If the polynomial back is exact, the
other is fitted anew, since the stored one may have a constant term.
"""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from nurec_lite.capture.files import short
from nurec_lite.capture.ncore.fields import field, numbers
from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.camera import SHUTTERS, Camera, lens_numbers, view_limits
from nurec_lite.geometry.lens import lens_of

if TYPE_CHECKING:
    from ncore.data import CameraModelParameters

IDEAL, OPENCV, FISHEYE, FTHETA = (
    "ideal-pinhole",
    ("opencv-pinhole", "pinhole"),
    "opencv-fisheye",
    "ftheta",
)  # pinhole: older
MODELS = (IDEAL, OPENCV[0], FISHEYE, FTHETA)
NAMES = {
    "ROLLING_TOP_TO_BOTTOM": "top_to_bottom", "ROLLING_LEFT_TO_RIGHT": "left_to_right",
    "ROLLING_BOTTOM_TO_TOP": "bottom_to_top", "ROLLING_RIGHT_TO_LEFT": "right_to_left", "GLOBAL": "global",
}  # fmt: skip
_TERMS = 5  # of a polynomial without its constant
_CONSTANT = 0.01  # pixels at most
_FORWARD = ("ANGLE_TO_PIXELDIST", 2)  # as files may write it
_BACKWARD = ("PIXELDIST_TO_ANGLE", 1)


def lens_fields(
    model: str,
    lens: dict[str, Any],  # camera_model_parameters
    where: str,
) -> dict[str, Any]:  # fx, fy, cx, cy, lens and distortion of a Camera
    if model == FTHETA:
        return _ftheta(lens, where)
    (fx, fy), (cx, cy) = (numbers(lens, key, (2,), where).tolist() for key in ("focal_length", "principal_point"))
    if not min(fx, fy) > 0:
        raise CaptureError(f"{where} has the focal length {fx:g}, {fy:g}; prepare the sequence again")
    found = {"fx": fx, "fy": fy, "cx": cx, "cy": cy}
    if model == FISHEYE:
        return found | {"lens": "fisheye", "distortion": tuple(numbers(lens, "radial_coeffs", (4,), where).tolist())}
    return found | {"distortion": () if model == IDEAL else _opencv(lens, where)}


def _opencv(lens: dict[str, Any], where: str) -> tuple[float, ...]:
    """Returns as few coefficients as are not zero."""
    k1, k2, k3, *rational = numbers(lens, "radial_coeffs", (6,), where).tolist()
    p1, p2 = numbers(lens, "tangential_coeffs", (2,), where).tolist()
    prism = numbers(lens, "thin_prism_coeffs", (4,), where).tolist()
    found = (k1, k2, p1, p2, k3, *rational, *prism)
    count = 12 if any(prism) else 8 if any(rational) else 5
    return found[:count] if any(found) else ()


def _ftheta(lens: dict[str, Any], where: str) -> dict[str, Any]:
    cx, cy = (
        numbers(lens, "principal_point", (2,), where) + 0.5
    ).tolist()  # it counts from the centre of the first pixel
    c, d, e = numbers(lens, "linear_cde", (3,), where).tolist() if "linear_cde" in lens else (1.0, 0.0, 0.0)
    c = 1.0 if c == d == e == 0 else c  # as older files leave it
    if not c - d * e > 0:
        raise CaptureError(f"{where} has the linear term {c:g}, {d:g}, {e:g}, which mirrors the image; correct it")
    kind = lens.get("reference_poly")
    if kind not in (*_FORWARD, *_BACKWARD):
        raise CaptureError(
            f"{where} has the reference_poly '{short(kind)}', but must have {_FORWARD[0]} or {_BACKWARD[0]}; correct it"
        )
    back: tuple[float, ...] = ()
    if kind in _FORWARD:
        forward = _without_constant(lens, "angle_to_pixeldist_poly", _CONSTANT, where)
    else:
        pixels = _without_constant(lens, "pixeldist_to_angle_poly", 1e-4, where)
        size = numbers(lens, "resolution", (2,), where)
        forward = _inverted(pixels, _farthest(size, (cx, cy), (c, d, e)), where)
        back = tuple(b * forward[0] ** k for k, b in enumerate(pixels, 1))
    fy = forward[0]
    if not fy > 0:
        raise CaptureError(f"{where} has an FTheta polynomial that does not rise; correct it")
    distortion = (*(a / fy for a in forward[1:]), d, e, *back)
    return {"fx": c * fy, "fy": fy, "cx": cx, "cy": cy, "lens": "ftheta", "distortion": distortion}


def _without_constant(lens: dict[str, Any], key: str, most: float, where: str) -> list[float]:
    """The coefficients of the powers 1 to 5."""
    given = np.asarray(field(lens, key, list, where))
    constant, *found = numbers(lens, key, (len(given),), where).tolist() or [0.0]
    if abs(constant) > most or len(found) > _TERMS:
        raise CaptureError(
            f"{where} has {key} with the constant {constant:g} and {len(found)} further terms, but only polynomials through zero "
            f"with at most {_TERMS} terms are read; choose other cameras by data.cameras"
        )
    return found + [0.0] * (_TERMS - len(found))


def _farthest(size: Tensor, at: tuple[float, float], cde: tuple[float, float, float]) -> float:
    """Pixels from the principal point to the farthest corner, without the linear term."""
    c, d, e = cde
    corners = torch.cartesian_prod(*(torch.tensor([0.0, float(n)], dtype=torch.float64) for n in size)) - torch.tensor(
        at
    )
    u, v = corners.unbind(-1)
    return float(torch.hypot(u - d * v, c * v - e * u).max()) / (c - d * e)


def _inverted(powers: list[float], end: float, where: str) -> list[float]:
    """Five terms through zero that fit the inverse of a polynomial through zero between 0 and `end`, by least squares."""
    r = torch.linspace(0, end, 2001, dtype=torch.float64)
    angle = sum(p * r**k for k, p in enumerate(powers, 1))
    assert isinstance(angle, Tensor)
    if not bool((angle.diff() > 0).all()):
        raise CaptureError(f"{where} has a pixeldist_to_angle_poly that does not rise within the image; correct it")
    top = float(angle[-1])
    terms = torch.stack([(angle / top) ** k for k in range(1, _TERMS + 1)], dim=1)
    found = torch.linalg.lstsq(terms, r[:, None]).solution[:, 0].tolist()
    return [f / top**k for k, f in enumerate(found, 1)]


# ---- and back


def camera_model(camera: Camera) -> "CameraModelParameters":
    """The camera as a record of NCore's library; CaptureError where it has none."""
    from ncore.data import ShutterType

    if camera.lens == "mei":
        raise CaptureError(f"camera {camera.name} has a MEI lens, which NCore has no model for; write format=pack")
    names = {ours: name for name, ours in NAMES.items()}
    assert set(names) == set(SHUTTERS)
    shared = {
        "resolution": np.array([camera.width, camera.height], np.uint64), "shutter_type": ShutterType[names[camera.shutter]],
    }  # fmt: skip
    if camera.lens == "ftheta":
        return _ftheta_model(camera, shared)
    shared |= {"principal_point": _float32(camera.cx, camera.cy), "focal_length": _float32(camera.fx, camera.fy)}
    return _fisheye_model(camera, shared) if camera.lens == "fisheye" else _opencv_model(camera, shared)


def _float32(*values: float) -> "np.ndarray[Any, np.dtype[np.float32]]":
    return np.array(values, np.float32)


def _opencv_model(camera: Camera, shared: dict[str, Any]) -> "CameraModelParameters":
    from ncore.data import OpenCVPinholeCameraModelParameters

    k1, k2, p1, p2, k3, *rest = (*camera.distortion, *[0.0] * 12)[:12]
    radial, prism = _float32(k1, k2, k3, *rest[:3]), _float32(*rest[3:])
    return OpenCVPinholeCameraModelParameters(
        radial_coeffs=radial, tangential_coeffs=_float32(p1, p2), thin_prism_coeffs=prism, **shared
    )


def _fisheye_model(camera: Camera, shared: dict[str, Any]) -> "CameraModelParameters":
    from ncore.data import OpenCVFisheyeCameraModelParameters

    if any(camera.distortion[4:]):
        raise CaptureError(
            f"camera {camera.name} has a fisheye lens with tangential distortion or a thin prism, which NCore has no model for; "
            "write format=pack"
        )
    radial = _float32(*(*camera.distortion, *[0.0] * 4)[:4])
    return OpenCVFisheyeCameraModelParameters(radial_coeffs=radial, max_angle=_widest(camera), **shared)


def _ftheta_model(camera: Camera, shared: dict[str, Any]) -> "CameraModelParameters":
    from ncore.data import FThetaCameraModelParameters

    f, (d, e) = camera.fy, lens_numbers(camera).skew
    back = camera.distortion[6:] or _back(camera)
    kinds = FThetaCameraModelParameters.PolynomialType
    return FThetaCameraModelParameters(
        principal_point=_float32(camera.cx - 0.5, camera.cy - 0.5),
        reference_poly=kinds.PIXELDIST_TO_ANGLE if camera.distortion[6:] else kinds.ANGLE_TO_PIXELDIST,
        angle_to_pixeldist_poly=_float32(0.0, f, *(f * a for a in camera.distortion[:4])),
        pixeldist_to_angle_poly=_float32(0.0, *(b / f**k for k, b in enumerate(back, 1))),
        max_angle=_widest(camera), linear_cde=_float32(camera.fx / f, d, e), **shared,
    )  # fmt: skip


def _back(camera: Camera) -> list[float]:
    """Five terms through zero from pixels divided by fy to angles, fitted within the image."""
    lens = lens_of("ftheta", (*camera.distortion[:4], 0.0, 0.0))
    angle = torch.linspace(0, view_limits(camera)[1], 2001, dtype=torch.float64)[1:]
    r = angle * (1 + sum(a * angle**k for k, a in enumerate(lens.radial, 1)))
    terms = torch.stack([(r / r[-1]) ** k for k in range(1, _TERMS + 1)], dim=1)
    found = torch.linalg.lstsq(terms, angle[:, None]).solution[:, 0].tolist()
    return [f / float(r[-1]) ** k for k, f in enumerate(found, 1)]


def _widest(camera: Camera) -> float:
    """Radians, beyond the image's farthest corner: NCore asks for smaller angles."""
    return min(view_limits(camera)[1] + 1e-3, math.pi)
