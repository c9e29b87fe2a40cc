# SPDX-License-Identifier: Apache-2.0
"""Maps of cameras as files: PNG, one a map, and NPZ or EXR, all in one."""

import json
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import imageio.v3 as imageio
import numpy as np
from PIL import Image
from torch import Tensor

from nurec_lite.base.errors import ConfigError
from nurec_lite.base.files import write_text, written
from nurec_lite.capture.origin import to_users_world
from nurec_lite.capture.types import ImageFrame, Origin
from nurec_lite.evaluation.pictures import to_picture
from nurec_lite.geometry.camera import Camera
from nurec_lite.output.maps import CameraMaps

DEPTH_STEPS = 256  # of a 16-bit depth image in a metre, as in KITTI's depth benchmark: it reaches 255.99 m
CLASSES_FILE = "classes.json"
_CHANNELS = {
    "colour": ("R", "G", "B"),
    "depth": ("Z",),
    "normals": ("N.X", "N.Y", "N.Z"),
    "opacity": ("opacity",),
    "classes": ("class",),
}
CAMERA_ARRAYS = """
  colour [H,W,3]                           0 to 1, float32
  depth [H,W]                              metres along the camera's forward axis, or along the ray of a fisheye, FTheta or MEI lens;
                                           float32, 0 where opacity is below 0.5
  normals [H,W,3]                          unit, in the camera's axes (x right, y down, z forward) in mid-exposure; 0 there, too
  opacity [H,W]                            0 (sky alone) to 1
  classes [H,W], class_names               number of the class, and the names by number
  intrinsics [3,3], distortion             pixels, the centre of the first one at (0.5, 0.5); coefficients of `lens`
  T_world_camera_start, T_world_camera_end [4,4] poses of the camera at time_start and time_end (seconds, also there)
""".strip("\n")
_PALETTE = [
    (70, 130, 180),
    (128, 128, 128),
    (0, 0, 142),
    (220, 20, 60),
    (0, 60, 100),
    (119, 11, 32),
    (250, 170, 30),
    (152, 251, 152),
]


def save_map_png(path: Path, name: str, maps: CameraMaps) -> None:
    """One map as PNG: 8 bits, but 16 for the depth; normals as (n + 1) / 2 in red, green and blue, classes as numbers with a palette."""
    values = getattr(maps, name)
    with written(path) as file:
        if name == "classes":  # imageio takes no palette
            image = Image.fromarray(values.cpu().numpy(), mode="P")
            image.putpalette(class_colours().flatten().tolist())
            image.save(file, format="PNG")
        else:
            imageio.imwrite(file, _pixels(name, values), plugin="pillow", extension=".png", is_batch=False)


def _pixels(name: str, values: Tensor) -> np.ndarray:  # [H, W] or [H, W, 3]
    if name == "depth":
        steps = (values * DEPTH_STEPS).round().clamp(0, 2**16 - 1)
        return steps.cpu().numpy().astype(np.uint16)
    return to_picture(0.5 + 0.5 * values if name == "normals" else values)


def class_colours() -> np.ndarray:  # [256, 3] uint8
    """The colours of the classes by their numbers."""
    return np.array([_PALETTE[k % len(_PALETTE)] for k in range(256)], np.uint8)


def save_class_names(folder: Path, names: Sequence[str]) -> None:
    """The names by their numbers, as JSON."""
    write_text(folder / CLASSES_FILE, json.dumps(dict(enumerate(names)), indent=1) + "\n")


def exr() -> ModuleType:
    """The package OpenEXR; ConfigError where the extra `exr` is not installed."""
    try:
        return import_module("OpenEXR")
    except ImportError as error:
        raise ConfigError(
            "formats=exr needs the extra `exr`, which is not installed: pip install openexr; or use npz"
        ) from error


def save_maps_exr(
    path: Path,
    maps: CameraMaps,
    outputs: Sequence[str],  # of `maps.OUTPUTS`
) -> None:
    """One image with channels R, G, B, Z (metres), N.X, N.Y, N.Z and opacity in 32-bit floats, and class as a whole number."""
    package = exr()
    channels: dict[str, np.ndarray] = {}
    for name in outputs:
        values = getattr(maps, name).cpu().numpy()
        planes = np.atleast_3d(values.astype(np.uint32 if name == "classes" else np.float32))
        channels |= {c: np.ascontiguousarray(planes[..., k]) for k, c in enumerate(_CHANNELS[name])}
    header = {"compression": package.ZIP_COMPRESSION, "type": package.scanlineimage}
    with written(path) as file:
        package.File(header, channels).write(file.name)


def save_maps_npz(
    path: Path,
    maps: CameraMaps,
    outputs: Sequence[str],  # of `maps.OUTPUTS`
    camera: Camera,
    frame: ImageFrame,
    names: Sequence[str],  # of the classes
    origin: Origin,
) -> None:
    """The arrays of CAMERA_ARRAYS that were asked for, and where the camera was."""
    arrays: dict[str, Any] = {name: getattr(maps, name).cpu().numpy() for name in outputs}
    if "classes" in outputs:
        arrays["class_names"] = np.array(names)
    arrays["intrinsics"] = np.array([[camera.fx, 0, camera.cx], [0, camera.fy, camera.cy], [0, 0, 1.0]])
    arrays["distortion"] = np.array(camera.distortion, dtype=np.float64)
    arrays["lens"] = np.array(camera.lens)
    for end, T, time in (
        ("start", frame.T_world_rig_start, frame.time_start),
        ("end", frame.T_world_rig_end, frame.time_end),
    ):
        pose = (T.double() @ camera.T_rig_cam.double()).clone()
        pose[:3, 3] = to_users_world(pose[:3, 3], origin)
        arrays |= {f"T_world_camera_{end}": pose.numpy(), f"time_{end}": np.array(time)}
    with written(path) as file:
        np.savez_compressed(file, **arrays)
