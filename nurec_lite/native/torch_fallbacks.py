# SPDX-License-Identifier: Apache-2.0
"""Functions that renderers leave to torch: directions towards Gaussians, and the sky behind them; as it is written or compiled."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from nurec_lite.base.compiled import compiled
from nurec_lite.scene.sky import over_sky
from nurec_lite.splat.render import local_directions


@lru_cache(maxsize=2)
def torch_fallbacks(by_compiler: bool) -> dict[str, Callable[..., Any]]:
    """Functions by the names of nurec_lite.splat.render.Kernels."""
    parts: dict[str, Callable[..., Any]] = {"towards": local_directions, "over_sky": over_sky}
    return {name: compiled(part) for name, part in parts.items()} if by_compiler else parts
