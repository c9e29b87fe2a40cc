# SPDX-License-Identifier: Apache-2.0
"""Lack of memory, on the host or on a GPU: its signs, and a budget that needs less."""

from dataclasses import replace
from typing import Any

from nurec_lite.base.errors import UserError
from nurec_lite.base.memory import is_out_of_memory
from nurec_lite.bounds import AUTO
from nurec_lite.config import Config
from nurec_lite.scene.needed import MIN_GAUSSIANS

TRIES = 4
_LESS = 0.7  # of its value before


class OutOfMemoryError(UserError):
    """There is no memory for a scene or for a step of it; nothing of it can be used."""

    def __init__(self, step: int, gaussians: int | None) -> None:
        what = "the scene" if gaussians is None else f"step {step + 1} of {gaussians} Gaussians"
        super().__init__(f"there is not enough memory for {what}")
        self.gaussians = gaussians


def out_of_memory(error: BaseException) -> bool:
    return isinstance(error, OutOfMemoryError) or is_out_of_memory(error)


def smaller(
    config: Config,
    gaussians: int | None,  # of the scene that did not fit; None: it could not even be made
    resumed: bool,  # whether it continues from a checkpoint, and keeps that model
) -> tuple[Config, str]:
    """Returns a configuration that needs less, and its changes in words."""
    rays, model = max(64, config.train.lidar_rays // 2), config.model
    given = config.density.cap
    most = gaussians or MIN_GAUSSIANS if isinstance(given, str) else given
    cap = min(most, int(_LESS * (gaussians or most)))
    less = {"train.lidar_rays": rays, "density.cap": cap}
    if not resumed:
        points: dict[str, Any] = {
            name: int(_LESS * number)
            for name in ("points", "raised_points", "far_points")
            if (number := getattr(model, name)) != AUTO  # which follows the cap
        }
        model = replace(model, **points)
        less |= {f"model.{name}": value for name, value in points.items()}
    changed = replace(
        config,
        model=model,
        train=replace(config.train, lidar_rays=rays),
        density=replace(config.density, cap=cap),
    )
    return changed, " ".join(f"{key}={value}" for key, value in less.items())
