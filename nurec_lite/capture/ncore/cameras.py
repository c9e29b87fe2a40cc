# SPDX-License-Identifier: Apache-2.0
"""Cameras of NCore, and images as the store holds them. All lenses of NCore are read (lenses.py); a windshield is refused by name."""

import zlib
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from nurec_lite.capture.files import PIECE, short
from nurec_lite.capture.images import FIRST, LAST, check_header, decode_image
from nurec_lite.capture.masks.pictures import decode_mask
from nurec_lite.capture.ncore.fields import field, numbers
from nurec_lite.capture.ncore.lenses import MODELS, NAMES, OPENCV, lens_fields
from nurec_lite.capture.ncore.poses import Poses
from nurec_lite.capture.ncore.sequence import Part, Sequence
from nurec_lite.capture.ncore.store import REMEDY, Span
from nurec_lite.capture.types import CaptureError, Encoded, Glance
from nurec_lite.geometry.camera import Camera

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
    if model not in (*MODELS, *OPENCV):
        raise _unknown(where, f"the lens model '{short(model)}'")
    if lens.get("external_distortion_parameters") is not None:
        raise _unknown(where, "a windshield (external_distortion_parameters)")
    width, height = numbers(lens, "resolution", (2,), where).tolist()
    if not (width.is_integer() and height.is_integer() and min(width, height) > 0):
        raise CaptureError(f"{where} has {width:g}x{height:g} pixels; {REMEDY}")
    mount, shutter = poses.mounting(name), _shutter(lens, where)
    return Camera(name, int(width), int(height), T_rig_cam=mount, shutter=shutter, **lens_fields(model, lens, where))


def _shutter(lens: dict[str, Any], where: str) -> str:
    name = field(lens, "shutter_type", str, where)
    if name not in NAMES:
        raise CaptureError(
            f"{where} has the shutter '{short(name)}', but must have one of {', '.join(NAMES)}; {REMEDY}"
        )
    return NAMES[name]


def _unknown(where: str, what: str) -> CaptureError:
    return CaptureError(
        f"{where} has {what}, which is not read: the models are {', '.join(MODELS)}; "
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
    return StoredImage(_file(part, name), (camera.width, camera.height), downscale)


def _file(part: Part, name: str) -> Span:
    array = part.store.array(name)
    if array.packed or len(array.spans) != 1 or array.spans[0].size > LARGEST:
        raise CaptureError(f"{part.store.path}: {name} is no image as a file holds it; {REMEDY}")
    return array.spans[0]


def masks_of(sequence: Sequence, name: str) -> list[str]:
    """Returns the names of the camera's masks."""
    part = sequence.part("masks")
    names = [] if part is None else part.attributes(f"cameras/{name}").get("mask_names", [])
    return [str(n) for n in names] if isinstance(names, list) else []


def read_mask(sequence: Sequence, camera: Camera, mask: str) -> Tensor | None:  # [H, W] bool; None: nothing is masked
    """Reads one of the camera's masks, which are not 0 where pixels are left out; CaptureError where it is none."""
    part = sequence.part("masks")
    assert part is not None
    span = _file(part, f"{part.group}/cameras/{camera.name}/{mask}")
    return decode_mask(span.read(), str(span), (camera.width, camera.height), f"camera {camera.name}")
