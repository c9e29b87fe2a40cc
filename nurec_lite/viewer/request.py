# SPDX-License-Identifier: Apache-2.0
"""Requests of a browser: the picture that it wants to see."""

from dataclasses import dataclass, field

from torch import Tensor

from nurec_lite.scene.edit import Edits

SHOWN = ("colour", "range", "normals", "opacity", "classes")
BESIDE = ("nothing", "photo", "photo and error")


@dataclass(frozen=True)
class FrameView:
    """The view of a captured image: its own lens, poses and times."""

    camera: str
    index: int
    beside: str = BESIDE[1]


@dataclass(frozen=True, eq=False)
class Request:
    T_world_cam: Tensor  # [4, 4] float64, about the capture's origin
    fov: float  # radians, vertical
    aspect: float  # width over height
    time: float  # seconds of the drive
    shown: str = SHOWN[0]
    lens: str | None = None  # name of the camera that gives the lens; None: a pinhole, as the browser has it
    edits: Edits = field(default_factory=Edits)
    frame: FrameView | None = None  # instead of pose, lens and time
    covered: bool = False  # whether the browser draws things over the picture, and needs depths to hide parts of them
