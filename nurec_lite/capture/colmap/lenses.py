# SPDX-License-Identifier: Apache-2.0
"""COLMAP's camera models as the renderer's camera: a pinhole with OpenCV's radial and tangential distortion."""

from torch import Tensor

from nurec_lite.capture.colmap.model import Lens
from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.camera import Camera

# how the parameters of a model are called; f stands for fx and fy
READ = {
    "SIMPLE_PINHOLE": ("f", "cx", "cy"),
    "PINHOLE": ("fx", "fy", "cx", "cy"),
    "SIMPLE_RADIAL": ("f", "cx", "cy", "k1"),
    "RADIAL": ("f", "cx", "cy", "k1", "k2"),
    "OPENCV": ("fx", "fy", "cx", "cy", "k1", "k2", "p1", "p2"),
    "FULL_OPENCV": ("fx", "fy", "cx", "cy", "k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6"),
}
COEFFICIENTS = ("k1", "k2", "p1", "p2", "k3")


def camera_of(
    lens: Lens,
    name: str,
    T_rig_cam: Tensor,  # [4, 4]
    where: object,  # file, for messages
) -> Camera:
    """COLMAP, too, has the centre of the first pixel at (0.5, 0.5)."""
    if lens.model not in READ:
        raise CaptureError(
            f"{where}: camera {lens.number} is of the model {lens.model}, but the models that are read are {', '.join(READ)}; "
            "undistort the images by colmap image_undistorter"
        )
    known = dict(zip(READ[lens.model], lens.params, strict=True))
    if any(known.get(k, 0.0) for k in ("k4", "k5", "k6")):
        raise CaptureError(
            f"{where}: camera {lens.number} is of the model FULL_OPENCV with k4, k5 or k6, which is not read; "
            "undistort the images by colmap image_undistorter"
        )
    fx, fy = known.get("fx", known.get("f", 0.0)), known.get("fy", known.get("f", 0.0))
    if not (0 < fx < 1e6 and 0 < fy < 1e6):
        raise CaptureError(f"{where}: camera {lens.number} has no focal length; restore the file")
    distortion = tuple(known.get(k, 0.0) for k in COEFFICIENTS)
    return Camera(
        name,
        lens.width,
        lens.height,
        fx,
        fy,
        known["cx"],
        known["cy"],
        T_rig_cam,
        distortion if any(distortion) else (),
    )
