# SPDX-License-Identifier: Apache-2.0
"""Functions of a render that are left to torch: directions towards Gaussians and the sky, as written or compiled."""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from torch import Tensor

from nurec_lite.base.compiled import compiled
from nurec_lite.scene.gaussians import AnyGaussians
from nurec_lite.scene.sky import over_sky
from nurec_lite.splat.render import local_directions


class TorchFallbacks(NamedTuple):
    local_directions: Callable[[AnyGaussians, Tensor], Tensor]
    over_sky: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


@lru_cache(maxsize=2)
def torch_fallbacks(compile_rest: bool) -> TorchFallbacks:
    if not compile_rest:
        return TorchFallbacks(local_directions, over_sky)
    return TorchFallbacks(compiled(local_directions), compiled(over_sky))
