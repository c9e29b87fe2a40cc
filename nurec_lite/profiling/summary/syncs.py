# SPDX-License-Identifier: Apache-2.0
"""Lines of Python that make the host wait for the GPU, by torch's sync debug mode.

It does not see all of them: torch.cuda.synchronize() and copies to pageable memory that are called asynchronous escape it.
"""

import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import torch

from nurec_lite.base.paths import PACKAGE

_SAYS = "called a synchronizing"  # how torch's warning begins


@contextmanager
def waiting_lines(cuda: bool) -> Iterator[Counter[str]]:
    """Counts FILE:LINE at every warning, within the block."""
    lines: Counter[str] = Counter()

    def note(message: Warning | str, category: type[Warning], filename: str, number: int, *rest: object) -> None:
        if _SAYS in str(message):
            lines[_nearest(sys._getframe(1)) or f"{Path(filename).name}:{number}"] += 1

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = note  # type: ignore[assignment]
        if cuda:
            torch.cuda.set_sync_debug_mode("warn")
        try:
            yield lines
        finally:
            if cuda:
                torch.cuda.set_sync_debug_mode("default")


def _nearest(frame: FrameType | None) -> str | None:
    """The innermost line of this package."""
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(PACKAGE):
            return f"{path.relative_to(PACKAGE.parent)}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def lines_a_step(lines: dict[str, int], steps: int) -> tuple[str, ...]:
    """The most frequent first."""
    ordered = sorted(lines.items(), key=lambda item: (-item[1], item[0]))
    return tuple(f"{line} ({count / steps:g} a step)" for line, count in ordered)
