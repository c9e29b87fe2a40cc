# SPDX-License-Identifier: Apache-2.0
"""Sweeps that hold few returns, none or those of the sweep before are named; sweeps that vary as drives do are not."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from wrong_poses import street

from nurec_lite.capture.checks.emptied import emptied
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.files import PIECE, PIECES
from nurec_lite.capture.types import Capture, SweepFrame
from nurec_lite.geometry.lidar import Sweep


@dataclass(frozen=True)
class Filed:
    """A sweep with the mark of a file."""

    sweep: Sweep
    size: int
    checksum: int

    def __call__(self) -> Sweep:
        return self.sweep

    def mark(self, thorough: bool) -> tuple[int, int]:
        return self.size, self.checksum


def filed(change: Callable[[int, Filed], Filed]) -> Capture:
    def with_file(frame: SweepFrame) -> SweepFrame:
        return replace(frame, load=change(frame.index, Filed(frame.load(), 100_000 + frame.index, frame.index)))

    return replace(street(), sweeps=tuple(map(with_file, street().sweeps)))


def without(sweep: Sweep, part: float) -> Sweep:
    kept = sweep.returned & (torch.arange(len(sweep)) >= part * len(sweep))
    return replace(sweep, returned=kept, ranges=sweep.ranges * kept)


def said(capture: Capture, sweeps: int = 6) -> list[str]:
    return [verdict.text for verdict in emptied(Sample(capture, sweeps=sweeps), capture.lidars[0], "rays")]


ZEROS = zlib.crc32(bytes(PIECES * PIECE))


@pytest.mark.parametrize("frame", [0, 8, 15])
@pytest.mark.parametrize(("part", "size", "checksum"), [(0.5, 50_000, 7), (1.0, 1_000, 7), (1.0, 100_000, ZEROS)])
def test_a_sweep_of_few_returns_is_named(frame: int, part: float, size: int, checksum: int) -> None:
    odd = filed(lambda k, f: Filed(without(f.sweep, part), size, checksum) if k == frame else f)
    (text,) = said(odd)
    assert text.startswith("Sweeps of lidar hold few returns, where others hold ") and f": sweep {frame} (" in text


def test_a_sweep_that_repeats_the_one_before_is_named() -> None:
    first = street().sweeps[6].load()
    (text,) = said(filed(lambda k, f: Filed(first, 100_006, 6) if k in (6, 7) else f))
    assert text.startswith("1 of 16 sweeps of lidar repeat the sweep before (the first is sweep 7)")


def test_right_sweeps_are_not_named() -> None:
    assert said(street()) == [] == said(filed(lambda k, f: f))
    assert said(filed(lambda k, f: Filed(f.sweep, 50_000, k) if k == 8 else f)) == []  # a file that is packed better
    assert said(filed(lambda k, f: Filed(f.sweep, 9, 9))) == []  # one file holds all sweeps


@pytest.mark.parametrize("sweeps", [0, 1, 2])
def test_few_sweeps_are_not_named(sweeps: int) -> None:
    assert said(replace(street(), sweeps=street().sweeps[:sweeps])) == []
