# SPDX-License-Identifier: Apache-2.0
"""Cameras of NCore: lens models that the renderer knows, and images as the store holds them.

Pinholes with OpenCV's radial (k1, k2, k3) and tangential distortion are read. Other lenses are refused by name: fisheye and FTheta, the
denominator of the rational model (k4, k5, k6), thin prisms, and windshields.
"""

import zlib
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from nurec_lite.capture.files import PIECE, short
from nurec_lite.capture.images import FIRST, LAST, check_header, decode_image
from nurec_lite.capture.ncore.fields import field, numbers
from nurec_lite.capture.ncore.poses import Poses
from nurec_lite.capture.ncore.sequence import Part, Sequence
from nurec_lite.capture.ncore.store import REMEDY, Span
from nurec_lite.capture.types import CaptureError, Encoded, Glance
from nurec_lite.geometry.camera import Camera

SHUTTERS = {
    "ROLLING_TOP_TO_BOTTOM": "top_to_bottom", "ROLLING_LEFT_TO_RIGHT": "left_to_right",
    "ROLLING_BOTTOM_TO_TOP": "bottom_to_top", "ROLLING_RIGHT_TO_LEFT": "right_to_left", "GLOBAL": "global",
}  # fmt: skip
IDEAL, OPENCV = "ideal-pinhole", ("opencv-pinhole", "pinhole")  # the last is the older name
LARGEST = 1 << 26  # bytes of an image
FORMATS = ("jpeg", "jpg", "png")


@dataclass(frozen=True)
class StoredImage:
    """Loads one image. It pickles."""

    span: Span
    size: tuple[int, int]  # width, height that the intrinsics demand
    downscale: int

    def __call__(self) -> Tensor:  # [H, W, 3] uint8
        return decode_image(self.encoded())

    def encoded(self) -> Encoded:
        return self._of(self.span.read())

    def glance(self) -> Glance:
        size = self.span.size
        last = self.span.part(max(0, size - LAST), min(LAST, size))
        return Glance(self._of(self.span.part(0, min(FIRST, size))), last, size)

    def check(self) -> None:
        check_header(self.encoded())

    def mark(self, thorough: bool) -> tuple[int, int]:
        return self.span.size, zlib.crc32(self.span.part(0, min(PIECE, self.span.size))) if thorough else -1

    def _of(self, data: bytes) -> Encoded:
        return Encoded(data, str(self.span), self.size, self.downscale, "its intrinsics")


def read_camera(sequence: Sequence, poses: Poses, name: str) -> Camera:
    """Returns the camera at full size; CaptureError where its lens or its mounting is not read."""
    part = sequence.part("intrinsics")
    known = {} if part is None else part.attributes(f"cameras/{name}")
    where = f"{sequence.where}: camera {name}"
    if not known:
        raise CaptureError(f"{where} has no intrinsics; choose other cameras by data.cameras")
    model = field(known, "camera_model_type", str, where)
    lens = field(known, "camera_model_parameters", dict, where)
    if model != IDEAL and model not in OPENCV:
        raise _unknown(where, f"the lens model '{short(model)}'")
    if lens.get("external_distortion_parameters") is not None:
        raise _unknown(where, "a windshield (external_distortion_parameters)")
    (width, height), (fx, fy), (cx, cy) = (
        numbers(lens, key, (2,), where).tolist() for key in ("resolution", "focal_length", "principal_point")
    )
    if not (width.is_integer() and height.is_integer() and min(fx, fy) > 0):
        raise CaptureError(f"{where} has {width:g}x{height:g} pixels and the focal length {fx:g}, {fy:g}; {REMEDY}")
    return Camera(
        name, int(width), int(height), fx, fy, cx, cy, T_rig_cam=poses.mounting(name),
        distortion=() if model == IDEAL else _distortion(lens, where), shutter=_shutter(lens, where),
    )  # fmt: skip


def _distortion(lens: dict[str, Any], where: str) -> tuple[float, ...]:  # k1, k2, p1, p2, k3; empty where there is none
    k1, k2, k3, *rational = numbers(lens, "radial_coeffs", (6,), where).tolist()
    p1, p2 = numbers(lens, "tangential_coeffs", (2,), where).tolist()
    if any(rational):
        raise _unknown(where, "a rational distortion (k4, k5, k6)")
    if bool(numbers(lens, "thin_prism_coeffs", (4,), where).any()):
        raise _unknown(where, "a thin prism")
    found = (k1, k2, p1, p2, k3)
    return found if any(found) else ()


def _shutter(lens: dict[str, Any], where: str) -> str:
    name = field(lens, "shutter_type", str, where)
    if name not in SHUTTERS:
        raise CaptureError(
            f"{where} has the shutter '{short(name)}', but must have one of {', '.join(SHUTTERS)}; {REMEDY}"
        )
    return SHUTTERS[name]


def _unknown(where: str, what: str) -> CaptureError:
    return CaptureError(
        f"{where} has {what}, which is not read: only pinholes with OpenCV's k1, k2, k3, p1 and p2 are; "
        "rectify its images, or choose other cameras by data.cameras"
    )


def stored_image(part: Part, camera: Camera, end: int, downscale: int) -> StoredImage:
    """Returns the loader of the frame that ends at a microsecond."""
    name = f"{part.group}/frames/{end}/image"
    form = part.store.attributes(name).get("format")
    if form not in FORMATS:
        raise CaptureError(
            f"{part.store.path}: {name} has the format '{short(form)}', but must be jpeg or png; convert it"
        )
    array = part.store.array(name)
    if array.packed or len(array.spans) != 1 or array.spans[0].size > LARGEST:
        raise CaptureError(f"{part.store.path}: {name} is no image as a file holds it; {REMEDY}")
    return StoredImage(array.spans[0], (camera.width, camera.height), downscale)


def masks_of(sequence: Sequence, name: str) -> list[str]:
    """Returns the names of the camera's masks."""
    part = sequence.part("masks")
    names = [] if part is None else part.attributes(f"cameras/{name}").get("mask_names", [])
    return [str(n) for n in names] if isinstance(names, list) else []
