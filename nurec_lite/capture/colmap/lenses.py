# SPDX-License-Identifier: Apache-2.0
"""COLMAP's camera models as the renderer's camera."""

from torch import Tensor

from nurec_lite.capture.colmap.model import Lens
from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lens import COEFFICIENTS

# how the parameters of a model are called; f stands for fx and fy
READ = {
    "SIMPLE_PINHOLE": ("f", "cx", "cy"),
    "PINHOLE": ("fx", "fy", "cx", "cy"),
    "SIMPLE_RADIAL": ("f", "cx", "cy", "k1"),
    "RADIAL": ("f", "cx", "cy", "k1", "k2"),
    "OPENCV": ("fx", "fy", "cx", "cy", "k1", "k2", "p1", "p2"),
    "FULL_OPENCV": ("fx", "fy", "cx", "cy", "k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6"),
}
FISHEYES = {
    "SIMPLE_RADIAL_FISHEYE": ("f", "cx", "cy", "k1"),
    "RADIAL_FISHEYE": ("f", "cx", "cy", "k1", "k2"),
    "OPENCV_FISHEYE": ("fx", "fy", "cx", "cy", "k1", "k2", "k3", "k4"),
    "THIN_PRISM_FISHEYE": ("fx", "fy", "cx", "cy", "k1", "k2", "p1", "p2", "k3", "k4", "s1", "s3"),
}


def camera_of(
    lens: Lens,
    name: str,
    T_rig_cam: Tensor,  # [4, 4]
    where: object,  # file, for messages
) -> Camera:
    """Returns the renderer's camera; COLMAP, too, has the centre of the first pixel at (0.5, 0.5)."""
    models = READ | FISHEYES
    if lens.model not in models:
        raise CaptureError(
            f"{where}: camera {lens.number} is of the model {lens.model}, but the models that are read are {', '.join(models)}; "
            "undistort the images by colmap image_undistorter"
        )
    known = dict(zip(models[lens.model], lens.params, strict=True))
    fx, fy = known.get("fx", known.get("f", 0.0)), known.get("fy", known.get("f", 0.0))
    if not (0 < fx < 1e6 and 0 < fy < 1e6):
        raise CaptureError(f"{where}: camera {lens.number} has no focal length; restore the file")
    model = "fisheye" if lens.model in FISHEYES else "pinhole"
    distortion = _shortest(model, known)
    return Camera(name, lens.width, lens.height, fx, fy, known["cx"], known["cy"], T_rig_cam, distortion, lens=model)


def _shortest(model: str, known: dict[str, float]) -> tuple[float, ...]:
    """Returns as few coefficients of the lens as hold those that are not zero."""
    names, counts = COEFFICIENTS[model]
    values = tuple(known.get(k, 0.0) for k in names)
    return next(values[:count] for count in counts if not any(values[count:]))
