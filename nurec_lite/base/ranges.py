# SPDX-License-Identifier: Apache-2.0
"""Named ranges of the training step, for nsys and ncu (NVTX), for torch.profiler (record_function) and for `train.timing`.

    with span("render_camera"):  # step/render_camera, inside `with span("step")`
        with span("tile"):       # step/render_camera/tile

Each range is recorded under its whole path, so that no tool has to know its outer ranges. Nothing is recorded before `switch`.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, ParamSpec, Protocol, TypeVar

from torch.profiler import record_function

from nurec_lite.base.nvtx import recorder as nvtx_recorder

STEP = "step"  # the outermost range: one pass of the training loop
BACKWARD = f"{STEP}/backward"
GRAPH, RECORD = "graph", "record"  # within a step: the launch of a captured graph, and its capture
P = ParamSpec("P")
T = TypeVar("T")


class Recorder(Protocol):
    """Gets the begin and the end of every range, in its own thread."""

    def begin(self, path: str) -> Any: ...

    def end(self, path: str, begun: Any) -> None: ...


class _RecordFunction:
    def begin(self, path: str) -> record_function:
        return record_function(path).__enter__()

    def end(self, path: str, begun: record_function) -> None:
        begun.__exit__(None, None, None)


class _Several:
    def __init__(self, recorders: list[Recorder]) -> None:
        self.recorders = recorders

    def begin(self, path: str) -> list[Any]:
        return [recorder.begin(path) for recorder in self.recorders]

    def end(self, path: str, begun: list[Any]) -> None:
        for recorder, its in zip(reversed(self.recorders), reversed(begun), strict=True):
            recorder.end(path, its)


class _Thread(threading.local):
    path = ""  # of the innermost open range


_NOTHING: AbstractContextManager[None] = nullcontext()
_recorder: Recorder | None = None
_thread = _Thread()


class _Span:
    """An open range. Recorders that got its begin get its end, even if `switch` changes them in between."""

    __slots__ = ("begun", "outer", "path", "recorder")

    def __init__(self, recorder: Recorder, name: str, within: str | None) -> None:
        self.recorder, self.outer = recorder, _thread.path
        inside = self.outer if within is None else within
        self.path = f"{inside}/{name}" if inside else name

    def __enter__(self) -> None:
        _thread.path = self.path
        self.begun = self.recorder.begin(self.path)

    def __exit__(self, *error: object) -> None:
        self.recorder.end(self.path, self.begun)
        _thread.path = self.outer


def span(
    name: str,
    within: str | None = None,  # path of the range around it; None: the innermost open one of this thread
) -> AbstractContextManager[None]:
    """A range. Autograd calls backward formulas from threads of its own, without open ranges: the formulas name theirs."""
    return _NOTHING if _recorder is None else _Span(_recorder, name, within)


@contextmanager
def inside(path: str) -> Iterator[None]:
    """Puts the ranges of this thread into another one within the block."""
    before, _thread.path = _thread.path, path
    try:
        yield
    finally:
        _thread.path = before


def in_span(name: str, function: Callable[P, T]) -> Callable[P, T]:
    """Returns the function with each call as a range; the function itself while nothing is recorded."""
    if _recorder is None:
        return function

    def in_range(*args: P.args, **kwargs: P.kwargs) -> T:
        with span(name):
            return function(*args, **kwargs)

    return in_range


@contextmanager
def switch(
    nvtx: bool = False,  # for nsys and ncu (nurec_lite.base.nvtx); nothing where none listens
    torch: bool = False,  # for torch.profiler, which does not see NVTX
    timing: Recorder | None = None,  # a `nurec_lite.base.timing.Timing`
) -> Iterator[None]:
    """Records all ranges of the process there, within the block: paths begin with the ranges that it opens. ConfigError if
    NUREC_LITE_NVTX cannot be had."""
    global _recorder
    before, outer = _recorder, _thread.path
    chosen = (nvtx_recorder() if nvtx else None, _RecordFunction() if torch else None, timing)
    recorders = [recorder for recorder in chosen if recorder is not None]
    _recorder = _Several(recorders) if len(recorders) > 1 else next(iter(recorders), None)
    _thread.path = ""
    try:
        yield
    finally:
        _recorder, _thread.path = before, outer
