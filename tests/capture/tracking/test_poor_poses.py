# SPDX-License-Identifier: Apache-2.0
"""Poor poses invent no moving objects: sweeps that do not fit each other are not compared."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kept_sweeps import kept

from nurec_lite.capture.kitti.raw import read_kitti_raw
from nurec_lite.capture.tracking.found import find_tracks
from nurec_lite.capture.tracking.free_space import _fits
from nurec_lite.capture.types import Capture
from nurec_lite.config import DataConfig
from nurec_lite.readers import read_capture


def moved(capture: Capture, first: int, left: float) -> Capture:
    """The capture with poses that jump by so many metres at a sweep."""
    frames = []
    for i, frame in enumerate(capture.sweeps):
        ends = [T.clone() for T in (frame.T_world_rig_start, frame.T_world_rig_end)]
        for T in ends:
            T[:2, 3] += (i >= first) * T.new_tensor([0.5 * left, left])
        frames.append(replace(frame, T_world_rig_start=ends[0], T_world_rig_end=ends[1]))
    return replace(capture, sweeps=tuple(frames))


def test_poses_that_jump_invent_no_tracks() -> None:
    """Three cars drive on the bundled street. Its hedges and parked cars seem to be elsewhere after the jump."""
    capture = kept(read_capture(DataConfig()))
    assert len(find_tracks(moved(capture, 22, 2.0))) == 3


@pytest.mark.slow
def test_poses_of_satellites_alone_invent_no_tracks(kitti_root: Path) -> None:
    """The heading of drive 0009 is off by 1.5 degrees, so that its poses drift by a metre in 36 sweeps. One car certainly moves."""
    assert len(find_tracks(kept(read_kitti_raw(kitti_root)))) <= 2


NONE = np.zeros(0, np.float32)


def test_poses_fit_where_few_returns_are_missed_by_a_little() -> None:
    rng = np.random.default_rng(0)
    alike, through, traffic = rng.normal(0, 0.1, 500), np.full(200, -4.0), np.full(300, 20.0)
    good = np.concatenate([alike, through, traffic]).astype(np.float32)
    bad = np.concatenate([good, rng.uniform(0.4, 1.0, 80)]).astype(np.float32)
    assert _fits(good, NONE)
    assert not _fits(bad, NONE)
    assert not _fits(bad, bad)
    assert _fits(NONE, NONE)
    assert _fits(np.full(5, 0.7, np.float32), NONE)


def test_slow_traffic_on_a_wide_street_does_not_tell_that_poses_are_wrong() -> None:
    """Houses above it agree."""
    jam = np.concatenate([np.zeros(500), np.full(80, 0.6)]).astype(np.float32)
    assert _fits(jam, np.zeros(120, np.float32))
