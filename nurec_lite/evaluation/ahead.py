# SPDX-License-Identifier: Apache-2.0
"""Decodes the frames that are measured before they are asked for, by all cores: a bounded number of them waits in memory.

Threads decode. Where a GPU measures many pixels, processes do, since threads would keep the measurement from Python's lock.
"""

import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Any

import torch

from nurec_lite.base.pool import thread_pool
from nurec_lite.base.shared_results import shared_results
from nurec_lite.base.threads import cores
from nurec_lite.base.transfer import SideStream
from nurec_lite.capture.decoders import decode_apart, decoded_sizes, decoders
from nurec_lite.capture.types import Capture, ImageFrame, SweepFrame

BYTES = 1 << 30  # of decoded frames that wait; on a GPU a quarter of it
IMAGE, SWEEP = "image", "sweep"
Key = tuple[str, int]  # image or sweep, index into Capture.images or Capture.sweeps


class DecodedAhead:
    """Frames in the order of measuring. `begin` starts the work; without it the first request does."""

    def __init__(
        self,
        capture: Capture,
        images: Sequence[int],  # indices into its images, in the order of the requests
        sweeps: Sequence[int],  # indices into its sweeps, which come after all images
        device: torch.device,  # of the measurement
    ) -> None:
        self._capture, self._device = capture, device
        self._keys: list[Key] = [*((IMAGE, i) for i in images), *((SWEEP, i) for i in sweeps)]
        self._place = {key: place for place, key in enumerate(self._keys)}
        sizes = decoded_sizes(capture)
        self._apart = decode_apart(device, [sizes[self._frame(key).sensor] for key in self._keys])
        self._most = max(2, BYTES // (4 if self._apart else 1) // largest(capture))
        self._waiting: dict[Key, Future[Any]] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._arriving: _Arriving | None = None  # from processes
        self._asked, self._open = 0, ExitStack()

    def begin(self) -> None:
        if self._pool is None:
            threads = cores() if self._device.type == "cuda" and "OMP_NUM_THREADS" not in os.environ else None
            if self._apart:
                self._arriving, threads = _Arriving(self._capture, [*map(self._frame, self._keys)], self._device), 1
                self._open.callback(self._arriving.close)  # after the thread that asks
            self._pool = self._open.enter_context(thread_pool(threads))
        self._submit()

    def of(self, key: Key) -> Any:
        """The decoded frame, or the error that decoding ends with. A frame before those of the last request is decoded again."""
        place = self._place.get(key, -1)
        if place < self._asked:
            return self._content(key)
        for passed in self._keys[self._asked : place]:
            if passed in self._waiting:
                self._waiting.pop(passed).cancel()
        self._asked = place
        self.begin()
        found = self._waiting.pop(key).result()
        self._asked += 1
        self._submit()
        return found

    def _submit(self) -> None:
        assert self._pool is not None
        for place, key in enumerate(self._keys[self._asked : self._asked + self._most], self._asked):
            if key not in self._waiting:
                work = partial(self._content, key) if self._arriving is None else partial(self._arriving.at, place)
                self._waiting[key] = self._pool.submit(work)

    def _content(self, key: Key) -> Any:
        return _loaded(self._frame(key))

    def _frame(self, key: Key) -> ImageFrame | SweepFrame:
        kind, i = key
        return self._capture.images[i] if kind == IMAGE else self._capture.sweeps[i]

    def __enter__(self) -> "DecodedAhead":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for future in self._waiting.values():
            future.cancel()
        self._open.close()


def held_out_ahead(capture: Capture, device: torch.device) -> DecodedAhead:
    """The frames that the capture's split holds out."""
    assert capture.split is not None
    return DecodedAhead(capture, capture.split.test_images, capture.split.test_sweeps, device)


def largest(capture: Capture) -> int:
    """Bytes of the capture's largest frame, about."""
    return max(1, *decoded_sizes(capture).values())


class _Arriving:
    """Contents of frames that processes decode, on the device."""

    def __init__(self, capture: Capture, frames: Sequence[ImageFrame | SweepFrame], device: torch.device) -> None:
        jobs = [partial(_loaded, frame) for frame in frames]
        self._values = shared_results(jobs, decoders(), largest(capture), for_gpu=True)
        self._side, self._device, self._next = SideStream(device), device, 0

    def at(self, place: int) -> Any:
        """The content of that frame, or the error that decoding ends with. The frames between the last call's and this one are lost."""
        for _ in range(self._next, place):
            next(self._values)
        self._next = place + 1
        content = next(self._values)
        if isinstance(content, Exception):
            return content
        with self._side.inside():
            made = content.to(self._device, copy=True)
        self._side.finish()  # before the memory holds another frame
        return made

    def close(self) -> None:
        self._values.close()


def _loaded(frame: ImageFrame | SweepFrame) -> Any:
    """The content of a frame, or the error that decoding ends with."""
    try:
        return frame.load()
    except Exception as error:
        return error
