# SPDX-License-Identifier: Apache-2.0
"""The masks that `data.masks` asks for: those of a folder, one PNG a camera, or none. `auto` is found later, by the poses."""

from dataclasses import replace
from pathlib import Path

from torch import Tensor

from nurec_lite.base.names import folded
from nurec_lite.capture.files import read_bytes, short
from nurec_lite.capture.masks.pictures import check_mask, decode_mask
from nurec_lite.capture.types import Capture, CaptureError, Glanced
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.masks import reduced

AUTO, NONE = "auto", "none"
REMEDY = "put CAMERA.png there, white where pixels are left out"


def masked(
    capture: Capture,
    asked: str | None,  # data.masks; None: the capture's own masks
    chosen: bool,  # whether the configuration chooses among the cameras
    downscale: int,  # reduction factor of the images
) -> Capture:
    """The capture with the masks that a run uses."""
    if asked == NONE:
        return replace(capture, cameras=tuple(replace(camera, mask=None) for camera in capture.cameras))
    if asked in (None, AUTO):
        return capture
    return _from_folder(capture, Path(asked), chosen, downscale)


def _from_folder(capture: Capture, folder: Path, chosen: bool, downscale: int) -> Capture:
    files = _files(folder)
    names = {folded(camera.name) for camera in capture.cameras}
    strange = [path for name, path in files.items() if name not in names]
    if strange and (not chosen or len(strange) == len(files)):
        known = short(", ".join(camera.name for camera in capture.cameras))
        raise CaptureError(f"{strange[0]} is named after no camera of {capture.name}, which has {known}; rename it")
    cameras = [_with_file(capture, camera, files.get(folded(camera.name)), downscale) for camera in capture.cameras]
    return replace(capture, cameras=tuple(cameras))


def _files(folder: Path) -> dict[str, Path]:
    if not folder.is_dir():
        raise CaptureError(f"data.masks is {folder}, which is no folder; name the one that holds CAMERA.png, or auto")
    files = {folded(path.stem): path for path in sorted(folder.iterdir()) if path.suffix.lower() == ".png"}
    if not files:
        raise CaptureError(f"data.masks is {folder}, which holds no PNG; {REMEDY}")
    return files


def _with_file(capture: Capture, camera: Camera, path: Path | None, downscale: int) -> Camera:
    """The camera keeps its own mask where the folder has none of it."""
    if path is None:
        return camera
    owner, size = f"camera {camera.name}", _full_size(capture, camera, downscale)
    mask = decode_mask(read_bytes(path, REMEDY), str(path), size, owner)
    return replace(camera, mask=_of_images(mask, path, owner, downscale))


def _of_images(mask: Tensor | None, path: Path, owner: str, downscale: int) -> Tensor | None:
    if mask is None or downscale == 1:
        return mask
    mask = reduced(mask, downscale)
    check_mask(mask, f"{path}, reduced by data.downscale={downscale},", owner)
    return mask


def _full_size(capture: Capture, camera: Camera, downscale: int) -> tuple[int, int]:
    """Width and height of a camera's images in their files."""
    load = next((f.load for f in capture.images if f.sensor == camera.name), None)
    if downscale > 1 and isinstance(load, Glanced):
        return load.glance().first.size
    return camera.width * downscale, camera.height * downscale
