# SPDX-License-Identifier: Apache-2.0
"""Captures whose sweeps are decoded once. Nothing may be written into them."""

from dataclasses import replace
from functools import lru_cache

from pandaset_drive import read_pandaset
from tiny_capture import ROOT

from nurec_lite.capture.pack import read_pack
from nurec_lite.capture.types import Capture


def kept(capture: Capture) -> Capture:
    return replace(capture, sweeps=tuple(replace(f, load=lru_cache(f.load)) for f in capture.sweeps))


@lru_cache(maxsize=1)
def kept_pandaset() -> Capture:
    """PandaSet with its front camera, read once for all tests of a process."""
    return kept(read_pandaset(cameras=("front_camera",)))


@lru_cache(maxsize=1)
def kept_street() -> Capture:
    """The bundled street."""
    return kept(read_pack(ROOT / "data/street.pack"))
