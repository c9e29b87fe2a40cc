# SPDX-License-Identifier: Apache-2.0
"""Decodes the frames that are measured before they are asked for, by all cores: a bounded number of them waits in memory."""

import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from nurec_lite.base.pool import thread_pool
from nurec_lite.base.threads import cores
from nurec_lite.capture.decoders import decoded_sizes
from nurec_lite.capture.types import Capture

BYTES = 1 << 30  # of decoded frames that wait
IMAGE, SWEEP = "image", "sweep"
Key = tuple[str, int]  # image or sweep, index into Capture.images or Capture.sweeps


class DecodedAhead:
    """Frames in the order in which they are measured. `begin` starts the work; without it the first request does."""

    def __init__(
        self,
        capture: Capture,
        images: Sequence[int],  # indices into its images, in the order of the requests
        sweeps: Sequence[int],  # indices into its sweeps, which come after all images
        device: torch.device,  # of the measurement
    ) -> None:
        self._capture, self._most = capture, max(2, BYTES // largest(capture))
        self._keys: list[Key] = [*((IMAGE, i) for i in images), *((SWEEP, i) for i in sweeps)]
        self._place = {key: place for place, key in enumerate(self._keys)}
        self._threads = cores() if device.type == "cuda" and "OMP_NUM_THREADS" not in os.environ else None
        self._locks = device.type == "cuda"
        self._waiting: dict[Key, Future[Any]] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._asked, self._open = 0, ExitStack()

    def begin(self) -> None:
        if self._pool is None:
            self._pool = self._open.enter_context(thread_pool(self._threads))
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
        for key in self._keys[self._asked : self._asked + self._most]:
            if key not in self._waiting:
                self._waiting[key] = self._pool.submit(self._content, key)

    def _content(self, key: Key) -> Any:
        kind, i = key
        try:
            found = (self._capture.images if kind == IMAGE else self._capture.sweeps)[i].load()
            return (
                found.pin_memory() if self._locks and isinstance(found, Tensor) else found
            )  # here it keeps nobody waiting
        except Exception as error:
            return error

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
