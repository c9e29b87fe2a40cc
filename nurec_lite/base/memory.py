# SPDX-License-Identifier: Apache-2.0
"""Memory that runs out, on the host or on a GPU, and how much was in use at most."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from nurec_lite.base.errors import UserError

_WORDS = ("not enough memory", "can't allocate memory", "bad_alloc", "out of memory", "can't start new thread")


class MemoryShortError(UserError):
    """Memory ran out, and the sentence names a remedy."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory ran out: torch has several words for it, a thread without memory for its stack another."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError | MemoryShortError):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error).lower() for word in _WORDS)


@contextmanager
def memory_for(what: str, remedy: str) -> Iterator[None]:
    """Block that raises UserError with the remedy if memory runs out in it."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise MemoryShortError(f"there is not enough memory for {what}; {remedy}") from error


def peak_bytes(device: torch.device) -> int | None:
    """Largest memory of torch on a GPU; on a CPU that of the process, None if the system does not say."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), None)
    except (OSError, ValueError, IndexError):
        return None


def restart_peak() -> None:
    """Forgets the peak so far, when another run of this process begins."""
    if torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM (proc(5))
