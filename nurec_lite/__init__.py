# SPDX-License-Identifier: Apache-2.0
"""nurec_lite: driving captures (cameras, spinning lidar, tracks) reconstructed as 3D Gaussians, and how that is made fast.

`nurec_lite.load`, `nurec_lite.train` and `nurec_lite.read` are imported when they are first used, so that commands start fast.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from nurec_lite.base.threads import limit_blas_threads  # before torch's libraries

# isort: split
from nurec_lite.base.announce import announce
from nurec_lite.base.beginning import check_folder, end_quietly
from nurec_lite.base.early_device import VERBS, begin_device
from nurec_lite.base.early_libraries import begin_libraries
from nurec_lite.base.lean_imports import begin_imports

__version__ = "0.1.0"
_HOMES = {  # of the public names
    "nurec_lite.api.open": ("load", "train", "read"),
    "nurec_lite.api.scene": ("TrainedScene",),
    "nurec_lite.api.renders": ("CameraRender", "LidarRender"),
    "nurec_lite.capture.types": ("Capture", "CaptureError"),
    "nurec_lite.geometry.camera": ("Camera",),
    "nurec_lite.geometry.lidar": ("Lidar",),
    "nurec_lite.geometry.tracks": ("Tracks",),
    "nurec_lite.output.sensors": ("NovelSensor",),
    "nurec_lite.base.errors": ("UserError", "ConfigError"),
}
_PUBLIC = {name: home for home, names in _HOMES.items() for name in names}


class _Package(ModuleType):
    """`nurec_lite.train` is the function. `python -m nurec_lite.train` needs a module of that name, and importing it would set the
    attribute to the module."""

    @property
    def train(self) -> Any:
        return __getattr__("train")

    @train.setter
    def train(self, module: ModuleType) -> None:
        """Leaves the function where it is; the module is in sys.modules."""


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'nurec_lite' has no attribute '{name}'")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})


if sys.argv[:1] == ["-m"]:  # Python looks for the module that `python -m nurec_lite...` names
    end_quietly()
    check_folder()
    limit_blas_threads()
    announce(sys.orig_argv)
    begin_device(sys.orig_argv)
    if any(f"nurec_lite.{verb}" in sys.orig_argv for verb in VERBS):  # whose modules call `end_imports`
        begin_imports()
        begin_libraries()
