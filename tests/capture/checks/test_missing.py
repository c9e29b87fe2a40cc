# SPDX-License-Identifier: Apache-2.0
"""Frames that one sensor lacks: their numbers and their count; none is missing of thinned drives and of sensors of other rates."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from wrong_poses import street

from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.stamps import check_stamps
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.types import Capture, UnusedFrame


def doubts(capture: Capture) -> list[Verdict]:
    return [v for v in check_stamps(Sample(capture)) if v.level in (Level.CERTAIN, Level.LIKELY)]


def with_images(keep: Callable[[int], bool], camera: str = "camera_0") -> Capture:
    kept = tuple(f for f in street().images if f.sensor != camera or keep(f.index))
    return replace(street(), images=kept)


@pytest.mark.parametrize(
    ("keep", "sentence"),
    [
        (lambda k: k % 2 == 0, "7 frames are missing of camera_0, which has 8: lidar has frames 1, 3, 5 and 4 more."),
        (lambda k: k % 3 == 0, "10 frames are missing of camera_0, which has 6: lidar has frames 1, 2, 4, 5, 7, 8 and 4 more."),
        (lambda k: k < 2 or k in (3, 5, 7, 8, 10, 12, 14), "6 frames are missing of camera_0, which has 9: lidar has frames 2, 4, 6 and"
         " 3 more."),
        (lambda k: k >= 8, "8 frames are missing of camera_0, which has 8: lidar has frames 0 to 7."),
        (lambda k: k == 3, "12 frames are missing of camera_0, which has 1: lidar has frames 4 to 15."),
        (lambda k: k != 7, "About 1 frame is missing of camera_0: after frame 6, 0.20 s without any."),
    ],
)  # fmt: skip
def test_frames_that_a_camera_lacks_are_counted(keep: Callable[[int], bool], sentence: str) -> None:
    (verdict,) = doubts(with_images(keep))
    assert verdict.level is Level.LIKELY and verdict.subject == "camera_0" and verdict.sentence == sentence


def test_sweeps_that_are_missing_are_counted() -> None:
    odd = replace(street(), sweeps=street().sweeps[::2])
    (verdict,) = doubts(odd)
    assert verdict.sentence == "7 frames are missing of lidar, which has 8: camera_0 has frames 1, 3, 5 and 4 more."


def test_a_sensor_that_starts_a_little_later_lacks_nothing() -> None:
    assert doubts(with_images(lambda k: 4 <= k < 13)) == []


def test_a_camera_of_half_the_rate_lacks_nothing() -> None:
    """Its frames are numbered from 0: number 3 is not of the moment of the lidar's number 3."""
    kept = [f for f in street().images if f.sensor == "camera_1" or f.index % 2 == 0]
    slower = [replace(f, index=f.index // 2) if f.sensor == "camera_0" else f for f in kept]
    assert doubts(replace(street(), images=tuple(slower))) == []


@pytest.mark.parametrize("frames", [0, 1, 2])
def test_no_frames_and_one_frame_lack_nothing(frames: int) -> None:
    few = replace(street(), images=street().images[: 2 * frames], sweeps=street().sweeps[:frames])
    assert doubts(few) == []


def test_frames_that_the_user_leaves_out_are_not_missed() -> None:
    """Others are, also beside them."""
    out = {3, 7, 8, 15}
    capture = with_images(lambda k: k not in out)
    lost = tuple(
        UnusedFrame(f.sensor, f.index, f.time_mid) for f in street().images if f.sensor == "camera_0" and f.index in out
    )
    assert doubts(capture) != [] and doubts(replace(capture, left_out=lost)) == []
    fewer = with_images(lambda k: k not in out | {9})
    (verdict,) = doubts(replace(fewer, left_out=lost))
    assert verdict.sentence.startswith("About 1 frame is missing of camera_0: after frame 6,")
