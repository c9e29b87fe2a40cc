# SPDX-License-Identifier: Apache-2.0
"""Rain moves, but its drops are no objects and no parts of objects."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from kept_sweeps import kept

from benchmarks.tracking.agreement import compared
from nurec_lite.capture.tracking.found import find_tracks
from nurec_lite.capture.tracking.rain import are_drops
from nurec_lite.capture.tracking.returns import Grid, Returns
from nurec_lite.capture.types import Capture
from nurec_lite.config import DataConfig
from nurec_lite.geometry.lidar import Sweep
from nurec_lite.readers import read_capture


def rainy(capture: Capture, share: float) -> Capture:
    """The capture with drops in a share of the rays, 1.5 to 20 m away, most of them close by."""

    def with_drops(sweep: Sweep, seed: int) -> Sweep:
        chance, away = torch.rand(2, len(sweep.ranges), generator=torch.Generator().manual_seed(seed))
        drops = 1.5 + 18.0 * away**1.5
        hit = (chance < share) & (~sweep.returned | (drops < sweep.ranges))
        return replace(sweep, ranges=torch.where(hit, drops, sweep.ranges), returned=sweep.returned | hit)

    frames = [
        replace(frame, load=lambda i=i, load=frame.load: with_drops(load(), i))
        for i, frame in enumerate(capture.sweeps)
    ]
    return kept(replace(capture, sweeps=tuple(frames)))


def test_cars_are_found_in_the_rain() -> None:
    """Three cars drive on the bundled street."""
    capture = rainy(read_capture(DataConfig()), 0.12)
    found = find_tracks(capture)
    figures = compared(capture, capture.tracks, found, 10)
    assert len(found) == 3
    assert figures["recall"] > 0.97 and figures["precision"] == 1.0


GRID = Grid(np.linspace(-0.3, 0.3, 7, dtype=np.float32), 100)


def seen(cells: list[int], ranges: list[float]) -> Returns:
    anything: Any = None
    return Returns(
        anything, anything, anything, np.array(ranges, np.float32), np.array(cells, np.int64), anything, anything,
        anything, anything,
    )  # fmt: skip


def test_drops_are_alone_in_free_space() -> None:
    """Cells 0 to 9 show a wall across the seam of the image; the others are single returns near, near and far."""
    returns = seen([98, 99, 0, 1, 2, 350, 450, 650], [12.0, 12.1, 12.2, 12.3, 12.4, 5.0, 6.0, 40.0])
    index, moving = np.arange(8), np.array([True] * 6 + [False, True])
    assert are_drops(returns, GRID, index, moving).tolist() == [False] * 5 + [True, False, False]


def test_few_returns_alone_are_edges_and_twigs() -> None:
    """A jam on an open street has few other returns above the ground: those of the ground count as well."""
    returns = seen([*range(500), 650], [12.0] * 500 + [5.0])
    assert not are_drops(returns, GRID, np.arange(420, 501), np.ones(81, bool)).any()
    none = np.zeros(0, np.int64)
    assert are_drops(seen([], []), GRID, none, none.astype(bool)).tolist() == []
    assert are_drops(returns, GRID, none, none.astype(bool)).tolist() == []
