# SPDX-License-Identifier: Apache-2.0
"""Ranges by NVTX, for nsys and ncu: binding, domain, colours and categories.

The package nvtx writes them into a domain of their own, and records nothing unless a tool listens. The environment
variable NUREC_LITE_NVTX=torch chooses torch's binding: some versions of nsys drop all ranges of the package (NVIDIA/NVTX#126).
"""

import logging
import os
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple
from zlib import crc32

import torch

from nurec_lite.base.errors import ConfigError

DOMAIN = "nurec_lite"  # of the package's ranges; torch's binding has the default domain alone
SETTING, PACKAGE, TORCH = "NUREC_LITE_NVTX", "package", "torch"
log = logging.getLogger("nurec_lite")


class Look(NamedTuple):
    """Colour and category that a tool shows for a range."""

    colour: int  # 0xAARRGGBB
    category: str | None = None


STAGES = {  # the step, and its stages with all that is in them
    "step": Look(0xFFBEC2C8),
    "next_batch": Look(0xFF966E46, "host"),
    "prefetch": Look(0xFF60768C, "host"),
    "place": Look(0xFFC4B028, "host"),
    "resize": Look(0xFF3C9A8E),
    "collect": Look(0xFF009EA8),
    "render_camera": Look(0xFF266EB0, "camera"),
    "render_lidar": Look(0xFFEB892C, "lidar"),
    "loss": Look(0xFFE26A96),
    "backward": Look(0xFF966CBE),
    "exchange": Look(0xFFC8503C),
    "optimize": Look(0xFF3A9658),
    "noise": Look(0xFF78AA3C),
    "density": Look(0xFFB0543C),
    "report": Look(0xFF76A0DC, "host"),
}


def look(path: str) -> Look:
    """The look of a range: that of its stage. Other outermost ranges have a colour that follows from their name."""
    outer, *inner = path.split("/")
    stage = inner[0] if inner and inner[0] in STAGES else outer
    colours = [known.colour for known in STAGES.values()]
    return STAGES.get(stage) or Look(colours[crc32(stage.encode()) % len(colours)])


class ByPackage:
    """Records in a domain of the package nvtx."""

    def __init__(self, domain: Any) -> None:
        self._domain = domain
        self._attributes: dict[str, Any] = {}  # by path: made once, and the path is then a string that the tool knows

    def begin(self, path: str) -> None:
        if path not in self._attributes:
            colour, category = look(path)
            made = self._domain.get_event_attributes(message=path, color=colour, category=category)
            self._attributes[path] = made
        self._domain.push_range(self._attributes[path])

    def end(self, path: str, begun: None) -> None:
        self._domain.pop_range()


class ByTorch:
    """Records by torch's binding, which has neither domains nor colours, and does not know whether a tool listens."""

    def begin(self, path: str) -> None:
        torch.cuda.nvtx.range_push(path)

    def end(self, path: str, begun: None) -> None:
        torch.cuda.nvtx.range_pop()


def by_package() -> ByPackage | None:
    """Returns the recorder of the package nvtx, which must be installed; None where no tool listens."""
    domain = import_module("nvtx").get_domain(DOMAIN)
    listened_to = domain.get_event_attributes() is not None  # the stand-in for a domain without a listener makes none
    return ByPackage(domain) if listened_to else None


def by_torch() -> ByTorch | None:
    """Returns the recorder of torch's binding; None where torch is built without CUDA."""
    return ByTorch() if torch.backends.cuda.is_built() else None


def recorder() -> ByPackage | ByTorch | None:
    """The recorder of the chosen binding; None if it would record nothing."""
    return by_package() if chosen() == PACKAGE else by_torch()


def chosen() -> str:
    """PACKAGE or TORCH: the value of NUREC_LITE_NVTX; without it the package, if it is installed. ConfigError if it cannot be had."""
    asked = os.environ.get(SETTING) or (PACKAGE if installed() else _instead())
    if asked not in (PACKAGE, TORCH):
        raise ConfigError(f"{SETTING} is '{asked}', but must be {PACKAGE} or {TORCH}")
    if asked == PACKAGE and not installed():
        raise ConfigError(
            f"{SETTING}={PACKAGE}, but the package is not installed: pip install nvtx, or {SETTING}={TORCH}"
        )
    return asked


def installed() -> bool:
    return find_spec("nvtx") is not None


@cache
def _instead() -> str:
    """Returns torch's binding, and warns once that the package is missing."""
    log.warning("the package nvtx is not installed, so torch's binding records the ranges (pip install nvtx)")
    return TORCH


def domain() -> str | None:
    """Domain of recorded ranges; None: the default one."""
    return DOMAIN if chosen() == PACKAGE else None


def surroundings() -> dict[str, str]:
    """Environment of a process that is to record by the same binding."""
    return {SETTING: chosen()}


def remedy() -> str:
    """Remedy for a tool that saw no range at all; empty if it would not help."""
    if chosen() == TORCH:
        return ""
    return f"; should this version of the tool drop the ranges of the package nvtx, set {SETTING}={TORCH}"
