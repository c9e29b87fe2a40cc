# SPDX-License-Identifier: Apache-2.0
"""Rows of poses and stamps of cameras are compared with the frames of the drive."""

from pathlib import Path

import numpy as np
import pytest

from nurec_lite.capture.kitti.doubts import row_doubts, stamp_doubts
from nurec_lite.capture.kitti.poses import Clock

FRAMES = 30


@pytest.fixture
def clock() -> Clock:
    forward = 0.1035 * np.arange(FRAMES)
    return Clock(
        forward, np.full(FRAMES, 0.1), np.datetime64("2030-01-02T10:00:00", "ns"), "velodyne_points/timestamps.txt"
    )


def rows(folder: Path, n: int) -> Path:
    path = folder / "poses.txt"
    path.write_text("1 0 0 0 0 1 0 0 0 0 1 0\n" * n)
    return path


def test_one_row_for_each_sweep_that_exists_is_named(tmp_path: Path, clock: Clock) -> None:
    sweeps = [n for n in range(FRAMES) if not 7 <= n <= 10]
    (doubt,) = row_doubts(rows(tmp_path, 26), clock, sweeps)
    assert (
        doubt.certain
        and "has 26 rows, as many as the drive has sweeps" in doubt.sentence
        and "frame 7" in doubt.sentence
    )


def test_more_rows_than_frames_are_named(tmp_path: Path, clock: Clock) -> None:
    (doubt,) = row_doubts(rows(tmp_path, 60), clock, range(FRAMES))
    assert not doubt.certain and "has 60 rows, but the drive has 30 frames" in doubt.sentence


def test_right_rows_are_not_doubted(tmp_path: Path, clock: Clock) -> None:
    assert list(row_doubts(rows(tmp_path, FRAMES), clock, range(FRAMES))) == []
    assert list(row_doubts(rows(tmp_path, FRAMES), clock, [n for n in range(FRAMES) if n != 5])) == []


@pytest.mark.parametrize(("cut", "named"), [(3, True), (1, True), (0, False)])
def test_lost_stamps_at_the_start_are_named(cut: int, named: bool, tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "image_02").mkdir()
    path = tmp_path / "image_02/timestamps.txt"
    path.write_text("".join(f"2030-01-02 10:00:{0.1035 * i + 0.0105:012.9f}\n" for i in range(cut, FRAMES)))
    found = list(stamp_doubts(path, clock))
    assert bool(found) == named
    assert all(
        d.certain and f"{0.1035 * cut + 0.0105:.2f} s after" in d.sentence and f"{cut} frames late" in d.sentence
        for d in found
    )


def test_a_clock_that_is_an_hour_off_lacks_no_frames(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "image_02").mkdir()
    path = tmp_path / "image_02/timestamps.txt"
    path.write_text("".join(f"2030-01-02 11:00:{0.1035 * i + 0.0105:012.9f}\n" for i in range(FRAMES)))
    (found,) = stamp_doubts(path, clock)
    assert (
        found.certain and "stamps frames 3600.01 s after" in found.sentence and "than the drive lasts" in found.sentence
    )
    assert found.remedy == "subtract 3600 s, so that both have times of one clock"
