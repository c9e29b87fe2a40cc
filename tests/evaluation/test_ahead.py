# SPDX-License-Identifier: Apache-2.0
"""Frames that are decoded before they are asked for."""

import os
from collections.abc import Callable
from dataclasses import replace
from threading import Event
from typing import Any

import pytest
import torch
from tiny_capture import tiny_capture

from nurec_lite.capture.types import Capture
from nurec_lite.evaluation import ahead
from nurec_lite.evaluation.ahead import IMAGE, SWEEP, DecodedAhead, held_out_ahead, largest

CPU = torch.device("cpu")


def counted(load: Callable[[int], Any]) -> Capture:
    """A capture with images that are loaded by this function of their number."""
    capture = tiny_capture()
    images = tuple(replace(f, load=lambda i=i: load(i)) for i, f in enumerate(capture.images))
    return replace(capture, images=images)


def numbered() -> tuple[list[int], Capture]:
    """Numbers of images that were loaded, and a capture with images that are their numbers."""
    loaded: list[int] = []

    def load(i: int) -> int:
        loaded.append(i)
        return i

    return loaded, counted(load)


def test_each_frame_is_decoded_once_and_only_so_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, capture = numbered()
    monkeypatch.setattr(ahead, "BYTES", 3 * largest(capture))
    with DecodedAhead(capture, range(8), (), CPU) as decoded:
        for i in range(8):
            assert decoded.of((IMAGE, i)) == i
            assert len(decoded._waiting) == min(3, 7 - i)
    assert sorted(loaded) == list(range(8))


def test_begin_decodes_before_the_first_request() -> None:
    done = Event()
    with DecodedAhead(counted(lambda i: done.set()), (5,), (), CPU) as decoded:
        decoded.begin()
        assert done.wait(60)


def test_an_error_is_a_result_and_others_go_on() -> None:
    def load(i: int) -> int:
        if i == 1:
            raise ValueError("damaged")
        return i

    with DecodedAhead(counted(load), range(4), (), CPU) as decoded:
        found = [decoded.of((IMAGE, i)) for i in range(4)]
    assert isinstance(found.pop(1), ValueError) and found == [0, 2, 3]


def test_processes_decode_many_pixels_and_frames_may_be_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(i: int) -> Any:
        if i == 1:
            raise ValueError("damaged")
        return torch.tensor([i, os.getpid()])

    monkeypatch.setattr(ahead, "decode_apart", lambda device, sizes: True)
    with DecodedAhead(counted(load), range(8), (), CPU) as decoded:
        decoded.begin()
        found = [decoded.of((IMAGE, i)) for i in (0, 1, 2, 5, 0, 7)]
    assert isinstance(found.pop(1), ValueError)
    assert [int(value[0]) for value in found] == [0, 2, 5, 0, 7]
    apart = [int(value[1]) != os.getpid() for value in found]
    assert apart == [True, True, True, False, True]  # the one that is asked for again is decoded here


def test_frames_may_be_passed_over_or_asked_for_again() -> None:
    loaded, capture = numbered()
    with DecodedAhead(capture, range(8), (), CPU) as decoded:
        assert [decoded.of((IMAGE, i)) for i in (0, 5, 0, 6)] == [0, 5, 0, 6]
        assert decoded.of((SWEEP, 0)).ranges.ndim == 1  # of none that were announced
    assert loaded.count(0) == 2 and loaded.count(5) == loaded.count(6) == 1


def test_what_is_held_out_comes_images_first() -> None:
    capture = tiny_capture()
    assert capture.split is not None
    with held_out_ahead(capture, CPU) as decoded:
        for i in capture.split.test_images:
            assert torch.equal(decoded.of((IMAGE, i)), capture.images[i].load())
        for i in capture.split.test_sweeps:
            assert torch.equal(decoded.of((SWEEP, i)).ranges, capture.sweeps[i].load().ranges)
    assert decoded._waiting == {}
