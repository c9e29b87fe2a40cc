# SPDX-License-Identifier: Apache-2.0
"""The operators torch.ops.nurec_lite.*: loads the compiled kernels and registers their gradients.

`load()` comes before the first use; nurec_lite/native/bind.py calls it before it gives out the stages.

Wrong arguments raise ValueError or TypeError: shapes, dtypes and devices always; NaN, infinity and numbers out of range on the CPU
always, on CUDA only with NUREC_LITE_CHECK=1 in the environment, since every such check waits for the device.
"""

from pathlib import Path

import torch

from nurec_lite.native.build import built, library
from nurec_lite.native.operators import (
    activate,
    correct_view,
    expose,
    gaussian_backward,
    image_loss,
    lidar_loss,
    mask_absent_actors,
    move_actors,
    over_sky,
    regularisers,
    render,
    render_segments,
    render_views,
    sh_colour,
    slice_grid,
    view_colour,
)

OPERATORS = (
    activate,
    correct_view,
    expose,
    gaussian_backward,
    image_loss,
    lidar_loss,
    mask_absent_actors,
    move_actors,
    over_sky,
    regularisers,
    render,
    render_segments,
    render_views,
    sh_colour,
    slice_grid,
    view_colour,
)  # with gradients, or with an error that names the function that has them


_registered: list[Path] = []  # the library, once it is loaded


def load() -> None:
    """Compiles the kernels if need be and registers them; nurec_lite.native.build.BuildError names a missing tool."""
    if not _registered:
        _register(library(_architecture()))


def load_built() -> None:
    """Loads the kernels if nothing has to be compiled; else does nothing."""
    path = None if _registered else built(_architecture())
    if path is not None:
        _register(path)


def _register(path: Path) -> None:
    torch.ops.load_library(str(path))
    for operator in OPERATORS:
        operator.register()
    _registered.append(path)


def _architecture() -> str:
    """Compute capability of the present GPU, such as 90; empty without one."""
    return "".join(map(str, torch.cuda.get_device_capability())) if torch.cuda.is_available() else ""
