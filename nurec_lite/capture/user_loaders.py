# SPDX-License-Identifier: Apache-2.0
"""Frames that a program loads by functions of its own: arrays become tensors, and any other value ends with a sentence."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nurec_lite.base.texts import excerpt
from nurec_lite.capture.files import short
from nurec_lite.capture.images import as_image
from nurec_lite.capture.types import Capture, CaptureError, ImageFrame, SweepFrame
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lidar import Sweep

_KINDS = {"times": torch.float64, "rings": torch.int64, "returned": torch.bool}  # else float32
_REMEDY = "correct it where the capture was made"


@dataclass(frozen=True)
class UserImageLoader:
    """Loads an image by a function of the caller. It pickles where that function does."""

    load: Callable[[], Any]
    size: tuple[int, int]  # width, height
    where: str  # for messages

    def __call__(self) -> Tensor:  # [H, W, 3] uint8
        width, height = self.size
        value = _loaded(self.load, self.where)
        try:
            image = as_image(value)
        except (TypeError, ValueError):
            raise CaptureError(f"{self.where} is loaded as {excerpt(value)}, which is no image; {_REMEDY}") from None
        if image.dtype != torch.uint8 or image.shape != (height, width, 3):
            raise CaptureError(
                f"{self.where} would be {image.dtype} {list(image.shape)}, but the camera makes uint8 {[height, width, 3]}; {_REMEDY}"
            )
        return image


@dataclass(frozen=True)
class UserSweepLoader:
    """Loads a sweep by a function of the caller. It pickles where that function does."""

    load: Callable[[], Any]
    where: str  # for messages

    def __call__(self) -> Sweep:
        value = _loaded(self.load, self.where)
        if not isinstance(value, Sweep):
            raise CaptureError(f"{self.where} is loaded as {excerpt(value)}, which is no Sweep; {_REMEDY}")
        found = {"ranges": _values("ranges", value.ranges, None, self.where)}
        for name in (f.name for f in fields(Sweep) if f.name != "ranges"):
            found[name] = _values(name, getattr(value, name), len(found["ranges"]), self.where)
        return Sweep(**found)


def _values(
    name: str,  # of a field of Sweep
    given: Any,
    rays: int | None,  # None: as many as there are
    where: str,
) -> Tensor:  # as Sweep describes it
    kind = _KINDS.get(name, torch.float32)
    try:
        values = given if isinstance(given, Tensor) else torch.as_tensor(np.require(given, requirements=("C", "W")))
        right = values.to(kind)
    except (TypeError, ValueError, RuntimeError):
        raise CaptureError(f"{where}: {name} holds {excerpt(given)}, but must hold numbers; {_REMEDY}") from None
    shape = [values.numel() if rays is None else rays, *((3,) if name == "directions" else ())]
    if list(values.shape) != shape:
        flaw = (
            "has fields of different lengths" if list(values.shape[1:]) == shape[1:] else "has a field of another shape"
        )
        raise CaptureError(f"{where} {flaw}: {name} has shape {list(values.shape)}, but must have {shape}; {_REMEDY}")
    if name in ("directions", "times") and not bool(right.isfinite().all()):
        raise CaptureError(f"{where}: {name} holds numbers that are not finite; {_REMEDY}")
    if not kind.is_floating_point and not torch.equal(right.to(values.dtype), values):
        raise CaptureError(f"{where}: {name} must hold {kind}, but holds {excerpt(values.tolist())}; {_REMEDY}")
    return right


def _loaded(load: Callable[[], Any], where: str) -> Any:
    if not callable(load):
        raise CaptureError(f"{where}: load is {excerpt(load)}, but must be a function that loads the frame; {_REMEDY}")
    try:
        return load()
    except OSError as error:
        raise CaptureError(f"{where} cannot be loaded ({short(error)}); restore the file") from error


def user_image_loader(frame: ImageFrame, camera: Camera, where: str) -> UserImageLoader:
    return UserImageLoader(frame.load, (camera.width, camera.height), where)


def with_checked_loads(capture: Capture) -> Capture:
    """The capture that asks functions of the caller through the classes above."""
    images = (
        f if _is_ours(f.load) else replace(f, load=user_image_loader(f, capture.camera(f.sensor), _called(capture, f)))
        for f in capture.images
    )
    sweeps = (
        f if _is_ours(f.load) else replace(f, load=UserSweepLoader(f.load, _called(capture, f))) for f in capture.sweeps
    )
    return replace(capture, images=tuple(images), sweeps=tuple(sweeps))


def _called(capture: Capture, frame: ImageFrame | SweepFrame) -> str:
    return f"{capture.name}: frame {frame.index} of {frame.sensor}"


def _is_ours(load: Callable[[], Any]) -> bool:
    """Whether it is a loader of this package, whose results need no check."""
    return type(load).__module__.startswith("nurec_lite.")
