# SPDX-License-Identifier: Apache-2.0
"""Memory that runs out, on the host or on a GPU."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from nurec_lite.base.errors import UserError

_WORDS = ("not enough memory", "can't allocate memory", "bad_alloc", "out of memory", "can't start new thread")


def is_out_of_memory(error: BaseException) -> bool:
    """torch says it in several ways, and a thread without room for its stack in another."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error).lower() for word in _WORDS)


@contextmanager
def memory_for(what: str, remedy: str) -> Iterator[None]:
    """UserError with the remedy if memory runs out within."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise UserError(f"there is not enough memory for {what}; {remedy}") from error
