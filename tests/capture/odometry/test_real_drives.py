# SPDX-License-Identifier: Apache-2.0
"""Poses of real drives, by the figures that they are judged by: sweeps ten apart, and jitter from frame to frame."""

import math
from pathlib import Path

import pytest
from hidden_poses import middles
from kept_sweeps import kept_pandaset
from pandaset_drive import needs_pandaset

from nurec_lite.capture.checks.sharp import sharpness_of
from nurec_lite.capture.kitti.raw import read_kitti_raw
from nurec_lite.capture.odometry.choose import posed
from nurec_lite.capture.odometry.glance import poses_of
from nurec_lite.capture.odometry.reckoning import integrated, log, measured_twists
from nurec_lite.capture.types import ESTIMATED, POSITIONED, UNKNOWN, Capture
from nurec_lite.geometry.se3 import invert

MEDIAN, NINTH = 0.022, 0.071  # metres: the error of a well-kept lidar odometry on KITTI 0009
JITTER, TURN_JITTER = 0.002, math.radians(0.03)
FRAMES = range(10, 28)


def assert_sharp(capture: Capture) -> None:
    _, found = sharpness_of(capture, capture.lidars[0])
    assert found.median < MEDIAN and found.ninth < NINTH, found
    assert found.jitter < JITTER and found.turn_jitter < TURN_JITTER, found


@pytest.fixture(scope="module")
def with_oxts(request: pytest.FixtureRequest) -> Capture:
    return read_kitti_raw(request.getfixturevalue("kitti_root"), frames=FRAMES, poses_needed=False)


@pytest.fixture(scope="module")
def found(with_oxts: Capture) -> Capture:
    return posed(with_oxts, "auto")


def test_kitti_with_oxts(with_oxts: Capture, found: Capture) -> None:
    assert with_oxts.poses_from == POSITIONED and found.poses_from == ESTIMATED
    assert_sharp(found)


def test_kitti_by_its_sweeps_alone(with_oxts: Capture, tmp_path: Path, kitti_root: Path) -> None:
    for path in (kitti_root / "2011_09_26").rglob("*"):
        if "oxts" not in path.parts and path.is_file():
            link = tmp_path / path.relative_to(kitti_root)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path)
    alone = read_kitti_raw(tmp_path, frames=FRAMES, poses_needed=False)
    assert alone.poses_from == UNKNOWN and alone.measured is None
    assert_sharp(posed(alone, "auto"))


def test_velocities_of_kitti_are_in_the_axes_of_its_rig(with_oxts: Capture, found: Capture) -> None:
    """Dead reckoning goes where the drive's lidar odometry does, within a hundredth."""
    assert with_oxts.measured is not None
    times, twists = middles(with_oxts), measured_twists(with_oxts.measured)
    assert twists is not None
    reckoned = integrated(twists, times[:-10], times[10:])
    poses = poses_of(found.sweeps)(times)
    apart = log(invert(reckoned) @ invert(poses[:-10]) @ poses[10:])
    assert float(apart[:, 3:].norm(dim=1).max()) < 0.02 * float(reckoned[:, :3, 3].norm(dim=1).min())


@needs_pandaset
def test_pandaset_whose_own_poses_are_a_second_opinion() -> None:
    capture = kept_pandaset()
    found = posed(capture, "lidar")
    assert_sharp(found)
    times = middles(capture)
    said, mine = (poses_of(c.sweeps)(times) for c in (capture, found))
    apart = log(invert(invert(said[:-10]) @ said[10:]) @ invert(mine[:-10]) @ mine[10:])
    assert float(apart[:, 3:].norm(dim=1).max()) < 0.05 and float(apart[:, :3].norm(dim=1).max()) < math.radians(0.3)
