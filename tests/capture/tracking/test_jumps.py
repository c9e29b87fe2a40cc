# SPDX-License-Identifier: Apache-2.0
"""Jumps of the poses part a drive; an object that drives on is one track."""

from types import SimpleNamespace
from typing import Any

import torch

from nurec_lite.capture.tracking.jumps import jumps, rejoined
from nurec_lite.geometry.tracks import Tracks


def compared(count: int, fits: Any) -> Any:  # sweeps, and whether two of them fit
    """Pairs of sweeps 1, 2, 4 and 6 apart."""
    steps = (-6, -4, -2, -1, 1, 2, 4, 6)
    others = [{i + k: fits(i, i + k) for k in steps if 0 <= i + k < count} for i in range(count)]
    return [SimpleNamespace(fits=pairs) for pairs in others]


def test_a_jump_is_where_no_sweep_before_fits_one_after() -> None:
    assert jumps(compared(40, lambda i, j: (i < 22) == (j < 22))) == [22]
    assert jumps(compared(40, lambda i, j: i // 13 == j // 13)) == [13, 26, 39]


def test_poses_that_drift_or_jitter_do_not_jump() -> None:
    assert jumps(compared(40, lambda i, j: abs(i - j) <= 1)) == []
    assert jumps(compared(40, lambda i, j: False)) == []
    assert jumps(compared(40, lambda i, j: True)) == []
    assert jumps(compared(1, lambda i, j: True)) == jumps([]) == []


def car(first: float, x: float, speed: float) -> Tracks:
    """Half a second of a car that drives along x."""
    times = first + 0.1 * torch.arange(6, dtype=torch.float64)
    places = torch.stack([x + speed * (times - first), 0 * times, 0 * times], dim=1)
    turn = torch.tensor([[1.0, 0.0, 0.0, 0.0]], dtype=torch.float64).expand(6, 4)
    sizes = torch.tensor([[4.3, 1.8, 1.5]], dtype=torch.float64)
    return Tracks(("1",), ("Car",), sizes, (0, 6), times, places, turn, 0.05)


def test_a_car_that_drives_on_is_one_track() -> None:
    """It is 1 m further after the jump. Another one is as near, but comes towards it."""
    whole = rejoined([car(0.0, 0.0, 10.0), Tracks.empty(), car(0.6, 7.0, 10.0)], 0.05)
    assert len(whole) == 1 and len(whole.times) == 12
    assert len(rejoined([car(0.0, 0.0, 10.0), car(0.6, 7.0, -10.0)], 0.05)) == 2
    assert len(rejoined([car(0.0, 0.0, 10.0), car(0.6, 12.0, 10.0)], 0.05)) == 2
    assert len(rejoined([Tracks.empty(), Tracks.empty()], 0.05)) == 0
