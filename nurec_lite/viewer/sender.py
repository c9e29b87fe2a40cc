# SPDX-License-Identifier: Apache-2.0
"""One thread a browser: it encodes the browser's pictures and sends them in their order, while the next ones are rendered."""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import Condition, Thread

import numpy as np

from nurec_lite.output.image_bytes import jpeg_bytes, png_bytes
from nurec_lite.viewer.painter import Painted

AHEAD = 2  # pictures that are painted and not yet sent, at most: one is encoded, one waits
_DEPTH_STEP_M = 256e-5  # viser's depths have 24 bits of 1e-5 m; the last 8 would cost most of the time
log = logging.getLogger("nurec_lite")


@dataclass(frozen=True)
class Encoded:
    picture: bytes  # JPEG
    depth: bytes | None  # PNG
    text: str
    fits: bool


def encoded(painted: Painted, quality: int) -> Encoded:
    depth = None if painted.depth is None else png_bytes(depth_colours(painted.depth))
    return Encoded(jpeg_bytes(painted.image, quality), depth, painted.text, painted.fits)


def depth_colours(
    depth: np.ndarray,  # [h, w] metres, up to 167.7
) -> np.ndarray:  # [h, w, 3] uint8
    """Depths as viser's pages read them: 65536 red + 256 green + blue in steps of 1e-5 m. Blue stays 0."""
    number = np.clip(depth / _DEPTH_STEP_M + 0.5, 0, 65535).astype(np.uint16)
    return np.stack([number >> 8, number & 255, np.zeros_like(number)], axis=-1).astype(np.uint8)


class Sender:
    """Sender of pictures to a browser; its methods may be called from any thread."""

    def __init__(self, send: Callable[[Encoded], None], full: Callable[[bool], None]) -> None:
        """`full` gets whether no other picture should be painted now."""
        self._send, self._full = send, full
        self._coming: deque[tuple[Painted, int]] = deque()  # the first is at work
        self._changed, self._ended = Condition(), False
        self._thread = Thread(target=self._run, name="encode", daemon=True)
        self._thread.start()

    def put(
        self,
        painted: Painted,
        quality: int,  # of the JPEG
    ) -> None:
        with self._changed:
            if self._ended:
                return
            self._coming.append((painted, quality))
            self._full(len(self._coming) >= AHEAD)
            self._changed.notify_all()

    def close(self) -> None:
        """Returns when the picture at work is sent; the others are dropped."""
        with self._changed:
            self._ended = True
            self._coming.clear()
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while (first := self._first()) is not None:
            try:
                self._send(encoded(*first))
            except Exception:
                log.exception("a picture could not be sent")
            self._done()

    def _first(self) -> tuple[Painted, int] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._coming)
            return None if self._ended else self._coming[0]

    def _done(self) -> None:
        with self._changed:
            if not self._ended:
                self._coming.popleft()
                self._full(len(self._coming) >= AHEAD)
