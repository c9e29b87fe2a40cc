# SPDX-License-Identifier: Apache-2.0
"""Functions of torch through torch.compile: on a GPU they queue a few kernels instead of one an operation."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
T = TypeVar("T")
BACKEND = "inductor"


def compiled(
    function: Callable[P, T],
    differentiated: bool = True,  # whether it is called for gradients; if so, calls without gradients run it uncompiled
) -> Callable[P, T]:
    """Compiled at the first call, whole (an operation that the compiler cannot take is an error), and once more when a size changes, for
    all of its values. Occasional calls without gradients do not wait for another compilation."""
    by_compiler: Callable[P, T] = torch.compile(function, fullgraph=True, backend=BACKEND)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        wanted = torch.is_grad_enabled() or not differentiated
        return by_compiler(*args, **kwargs) if wanted else function(*args, **kwargs)

    return call
