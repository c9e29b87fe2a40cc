# SPDX-License-Identifier: Apache-2.0
"""Time stamps in another unit, of other clocks, with gaps and repeated; none of right drives is doubted."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from pandaset_drive import needs_pandaset, read_pandaset
from tiny_capture import ROOT
from wrong_poses import street

from nurec_lite.capture.check import check_capture
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.stamps import check_stamps
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.kitti.raw import read_kitti_raw
from nurec_lite.capture.pack import read_pack
from nurec_lite.capture.plausible import plausible
from nurec_lite.capture.types import Capture, CaptureError, Frame, ImageFrame

Odd = Callable[[Capture], Capture]


def doubts(capture: Capture) -> list[Verdict]:
    return [v for v in check_stamps(Sample(capture)) if v.level in (Level.CERTAIN, Level.LIKELY)]


def at(time: Callable[[float], float], sensors: tuple[str, ...] = ("lidar", "camera_0", "camera_1")) -> Odd:
    """Other stamps of some sensors."""

    def stamped(frame: Frame) -> Frame:
        ends = (
            (time(frame.time_start), time(frame.time_end))
            if frame.sensor in sensors
            else (frame.time_start, frame.time_end)
        )
        return replace(frame, time_start=ends[0], time_end=ends[1])

    def odd(capture: Capture) -> Capture:
        return replace(capture, images=tuple(map(stamped, capture.images)), sweeps=tuple(map(stamped, capture.sweeps)))

    return odd


def images(keep: Callable[[ImageFrame], ImageFrame | None]) -> Odd:
    """Changes images of the first camera."""

    def odd(capture: Capture) -> Capture:
        kept = [keep(f) if f.sensor == "camera_0" else f for f in capture.images]
        return replace(capture, images=tuple(f for f in kept if f is not None))

    return odd


def again(frame: ImageFrame) -> ImageFrame:
    """Images 6 and 9 are stamped right after those before them."""
    early = 0.099 if frame.index in (6, 9) else 0.0
    return replace(frame, time_start=frame.time_start - early, time_end=frame.time_end - early)


def late_by(seconds: float, *numbers: int) -> Callable[[ImageFrame], ImageFrame]:
    def late(frame: ImageFrame) -> ImageFrame:
        own = seconds if frame.index in numbers else 0.0
        return replace(frame, time_start=frame.time_start + own, time_end=frame.time_end + own)

    return late


CAMERA = ("camera_0",)
WRONG: dict[str, tuple[Odd, Level, str]] = {
    "milliseconds": (at(lambda t: 1e3 * t, CAMERA), Level.CERTAIN, "camera_0 are 100 s apart, .* in milliseconds: divide them by 1000"),
    "microseconds": (at(lambda t: 1e6 * t, CAMERA), Level.CERTAIN, "in microseconds: divide them by 1000000"),
    "nanoseconds": (at(lambda t: 1e9 * t, CAMERA), Level.CERTAIN, "in nanoseconds"),
    "kiloseconds": (at(lambda t: 1e-3 * t, CAMERA), Level.CERTAIN, "not in seconds: multiply them"),
    "another start": (at(lambda t: t + 1.7e9, CAMERA), Level.CERTAIN, "camera_0 and lidar share no time: .* from 1.7e.09 to"),
    "a little later": (at(lambda t: t + 1.5, CAMERA), Level.LIKELY, "share only 0.0. s"),
    "a clock that runs fast": (at(lambda t: 1.05 * t, CAMERA), Level.LIKELY, "camera_0 runs 5.0 % fast against that of lidar"),
    "dropped": (
        images(lambda f: None if f.index in (4, 8, 9) else f), Level.LIKELY, "3 frames are missing of camera_0: after frame 7, 0.30 s",
    ),
    "repeated": (images(again), Level.LIKELY, "2 of 16 frames of camera_0 have nearly the stamp of the frame before: frame 6"),
    "one is late": (images(late_by(0.04, 6)), Level.LIKELY, "The stamp of frame 6 of camera_0 is 40 ms late: .* 100 ms apart"),
    "one is early": (images(late_by(-0.06, 6)), Level.LIKELY, "The stamp of frame 6 of camera_0 is 60 ms early"),
    "the first is late": (images(late_by(0.03, 0)), Level.LIKELY, "The stamp of frame 0 of camera_0 is 30 ms late"),
    "the last is late": (images(late_by(0.03, 15)), Level.LIKELY, "The stamp of frame 15 of camera_0 is 30 ms late"),
    "the second half is late": (
        images(late_by(0.04, *range(8, 16))), Level.LIKELY, "From frame 8 on, stamps of camera_0 are 40 ms late",
    ),
    "long": (
        images(lambda f: replace(f, time_end=f.time_start + 0.5)), Level.LIKELY, "camera_0 last 0.5 s, but the next one comes after 0.1 s",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_named(case: str) -> None:
    odd, level, sentence = WRONG[case]
    found = doubts(odd(street()))
    assert [v.subject for v in found][:1] == ["camera_0"] and found[0].level is level and found[0].remedy is not None
    assert re.search(sentence, found[0].text), found[0].text
    assert len(found) == 1


def test_stamps_in_whole_seconds_are_named() -> None:
    """More than half of them are those of the frame before, so that no rate can be computed."""
    found = doubts(at(lambda t: float(round(t)))(street()))
    assert [v.level for v in found] == [Level.CERTAIN] * 3 and {v.check for v in found} == {"time stamps"}
    assert all("of 16 frames of" in v.text and "give each frame its own time in seconds" in v.text for v in found)


def test_all_sensors_in_milliseconds_are_named() -> None:
    found = doubts(at(lambda t: 1e3 * t)(street()))
    assert [v.level for v in found] == [Level.CERTAIN] * 3 and all("in milliseconds" in v.text for v in found)


def test_times_that_the_reader_refuses_are_named_with_their_unit() -> None:
    with pytest.raises(
        CaptureError, match=r"lasts [0-9]+ s, but 10 s at most: its times are in milliseconds: divide them by 1000"
    ):
        plausible(at(lambda t: 1e3 * t)(street()), "drive")
    with pytest.raises(CaptureError, match="its times are in nanoseconds"):
        check_capture(at(lambda t: 1e9 * (t + 1.7e9))(street()), "drive")
    first = street().images[0]
    late = replace(first, time_start=first.time_end, time_end=first.time_start)
    with pytest.raises(CaptureError, match="ends before it starts: time_start and time_end are exchanged"):
        check_capture(replace(street(), images=(late, *street().images[1:])), "drive")


def test_elevations_in_degrees_are_named() -> None:
    (lidar,) = street().lidars
    with pytest.raises(CaptureError, match=r"up to 25: they are in degrees, give radians"):
        check_capture(replace(street(), lidars=(replace(lidar, elevations=torch.rad2deg(lidar.elevations)),)), "drive")


@pytest.mark.parametrize("every", [2, 5])
def test_thinned_drives_are_regular(every: int) -> None:
    capture = street()
    kept = (tuple(f for f in frames if f.index % every == 0) for frames in (capture.images, capture.sweeps))
    images_, sweeps = kept
    assert doubts(replace(capture, images=images_, sweeps=sweeps)) == []


def test_few_frames_tell_nothing() -> None:
    few = replace(street(), images=street().images[:4], sweeps=street().sweeps[:4])
    assert [v.level for v in check_stamps(Sample(few))] == [Level.UNKNOWN]


def test_one_frame_of_each_sensor_tells_nothing() -> None:
    """A key frame of nuScenes is such a case: its image is exposed within the sweep's turn, and not at its middle."""
    capture = street()
    image, sweep = capture.images[0], capture.sweeps[0]
    late = replace(image, time_start=sweep.time_mid + 0.04, time_end=sweep.time_mid + 0.04)
    assert doubts(replace(capture, images=(late,), sweeps=(sweep,))) == []


def test_right_drives_are_not_doubted(kitti_root: Path) -> None:
    assert doubts(read_pack(ROOT / "data/street.pack")) == []
    assert doubts(read_kitti_raw(kitti_root, poses_file=kitti_root / "extra/poses_velo.txt")) == []


@needs_pandaset
def test_pandaset_is_not_doubted() -> None:
    assert doubts(read_pandaset()) == []
