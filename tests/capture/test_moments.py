# SPDX-License-Identifier: Apache-2.0
"""Frames of several sensors that belong to one moment, and moments that a split holds out."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from mutations import bounded_memory
from tiny_capture import TINY, tiny_capture

from nurec_lite.capture.moments import Moments, moments_of
from nurec_lite.capture.pack import write_pack
from nurec_lite.capture.types import Capture, CaptureError, Frame, ImageFrame, SweepFrame
from nurec_lite.config import DataConfig
from nurec_lite.readers import open_capture
from nurec_lite.training.shots import ShotPlan

POSE = torch.eye(4, dtype=torch.float64)


def frames(sensor: str, times: list[float], numbers: list[int] | None = None) -> list[Frame]:
    return [Frame(sensor, n, t, t, POSE, POSE) for n, t in zip(numbers or range(len(times)), times, strict=True)]


def at(rate: float, count: int, start: float = 0.0) -> list[float]:  # seconds
    return [start + k / rate for k in range(count)]


def numbers(sweeps: list[Frame], *images: list[Frame]) -> tuple[list[int], list[list[int]]]:
    found = moments_of([f for own in images for f in own], sweeps)
    left, ends = list(found.images), [len(own) for own in images]
    return list(found.sweeps), [[left.pop(0) for _ in range(n)] for n in ends]


def test_numbers_that_agree_with_times_are_those_of_moments() -> None:
    """Stamps differ by some milliseconds, as KITTI's do, or by half a period, or cameras look one after another over a turn."""
    for late in ([0.003, 0.0031], [-0.05, -0.05], [k / 60 - 0.05 for k in range(6)]):
        cameras = [frames(f"c{k}", at(10, 12, shift), list(range(3, 15))) for k, shift in enumerate(late)]
        sweeps, images = numbers(frames("lidar", at(10, 12), list(range(3, 15))), *cameras)
        assert sweeps == list(range(3, 15)) and images == [sweeps] * len(late)


def test_cameras_that_run_twice_as_fast_have_two_images_a_moment() -> None:
    generator = torch.Generator().manual_seed(0)
    for start in (0.0, 0.004, 0.02, -0.02):
        noise = (0.002 * torch.randn(40, generator=generator)).tolist()
        camera = frames("c", [t + n for t, n in zip(at(20, 40, start), noise, strict=True)])
        sweeps, (images,) = numbers(frames("lidar", at(10, 20)), camera)
        assert sweeps == list(range(sweeps[0], sweeps[0] + 20))
        pairs = [images.count(n) for n in sweeps]
        assert pairs.count(2) >= 19 and max(abs(0.1 * n - 0.05 * k) for k, n in enumerate(images)) < 0.11


@pytest.mark.parametrize("late", [1, 5, 7])
def test_sensors_that_start_late_and_count_from_0_are_paired_by_time(late: int) -> None:
    sweeps, (images,) = numbers(frames("lidar", at(10, 30)), frames("c", at(10, 30 - late, 0.1 * late + 0.004)))
    assert sweeps == list(range(30)) and images == list(range(late, 30))
    sweeps, (images,) = numbers(frames("lidar", at(10, 30 - late, 0.1 * late)), frames("c", at(10, 30, 0.004)))
    assert images == list(range(30)) and sweeps == list(range(late, 30))


def test_moments_follow_one_another_over_gaps() -> None:
    """Moments of both sensors and of one; numbers count on as if no frame were missing."""
    times = [t for t in at(10, 40) if not 1.05 < t < 1.95]
    sweeps, (images,) = numbers(frames("lidar", times), frames("c", at(20, 80, 0.002)))
    assert sweeps[:11] == list(range(11)) and sweeps[11:] == list(range(20, 40))
    assert images == [k // 2 for k in range(80)]
    sweeps, (images,) = numbers(frames("lidar", times), frames("c", [t + 0.004 for t in times]))
    assert sweeps == images == list(range(len(times)))


def test_a_camera_of_which_few_images_are_kept_has_its_own_moments() -> None:
    """Some of its images are then held out. Every fifth image is there, and every sweep."""
    sweeps, (images,) = numbers(frames("lidar", at(10, 51)), frames("c", at(2, 11, 0.003), list(range(0, 51, 5))))
    assert len(set(images)) == 11 and images == sorted(images) and set(sweeps) <= {min(images) - 1, *images}
    assert all(abs(0.1 * k - 0.5 * images.index(n)) < 0.5 for k, n in enumerate(sweeps) if n in images)


def test_one_sensor_and_one_frame() -> None:
    assert numbers(frames("lidar", at(10, 4), [2, 3, 5, 9])) == ([2, 3, 5, 9], [])
    assert numbers([], frames("c", [7.0], [3])) == ([], [[3]])
    assert moments_of([], []) == Moments((), ())
    assert numbers([], frames("c", at(10, 4), [3, 2, 1, 0]))[1] == [[3, 4, 5, 6]], "numbers that run backwards"


def test_places_are_numbers_unless_some_are_missing() -> None:
    assert Moments((3, 4, 5), (4,)).places() == {3: 3, 4: 4, 5: 5}
    assert Moments((0, 5, 15), (10, 20)).places() == {0: 0, 5: 1, 10: 2, 15: 3, 20: 4}
    assert Moments((), ()).places() == {}


# ---- splits


def made(images: list[Frame], sweeps: list[Frame]) -> Capture:
    whole = tiny_capture()
    camera, lidar = whole.cameras[0], whole.lidars[0]
    return replace(
        whole, cameras=(camera,), split=None,
        images=tuple(ImageFrame(**vars(replace(f, sensor=camera.name)), load=whole.images[0].load) for f in images),
        sweeps=tuple(SweepFrame(**vars(replace(f, sensor=lidar.name)), load=whole.sweeps[0].load) for f in sweeps),
    )  # fmt: skip


def apart(capture: Capture) -> float:  # seconds
    """Between held-out frames of any sensor and those that train."""
    split = capture.with_split("interp").split
    assert split is not None and split.test_images and split.test_sweeps
    times = [
        torch.tensor([capture.images[i].time_mid for i in images] + [capture.sweeps[i].time_mid for i in sweeps])
        for images, sweeps in ((split.test_images, split.test_sweeps), (split.train_images, split.train_sweeps))
    ]
    return float((times[0][:, None] - times[1]).abs().min())


def test_no_trained_frame_of_any_sensor_lies_within_a_moment_that_is_held_out() -> None:
    twice = made(frames("c", at(20, 60, 0.004)), frames("l", at(10, 30)))
    assert apart(twice) > 0.045
    late = made(frames("c", at(10, 27, 0.304)), frames("l", at(10, 30)))
    assert apart(late) > 0.09
    assert twice.with_split("interp").split.test_sweeps == (4, 9, 14, 19, 24, 29)  # type: ignore[union-attr]


def test_of_a_thinned_drive_every_fifth_moment_that_is_there_is_held_out() -> None:
    for first, step in ((0, 5), (0, 10), (3, 5), (2, 3)):
        kept = list(range(first, 60, step))
        capture = made(frames("c", [0.1 * n + 0.003 for n in kept], kept), frames("l", [0.1 * n for n in kept], kept))
        split = capture.with_split("interp").split
        assert split is not None
        assert [capture.images[i].index for i in split.test_images] == kept[4::5]
        assert [capture.sweeps[i].index for i in split.test_sweeps] == kept[4::5]


def test_half_holds_out_every_second_moment() -> None:
    split = tiny_capture().with_split("half").split
    assert split is not None and len(split.train_images) == len(split.test_images) == TINY.frames
    assert {tiny_capture().images[i].index % 2 for i in split.test_images} == {1}
    assert {tiny_capture().sweeps[i].index % 2 for i in split.train_sweeps} == {0}


def doubled(capture: Capture) -> Capture:
    """Each image twice, 50 ms apart, and counted on its own."""
    images = [
        replace(f, index=2 * f.index + k, time_start=f.time_start + 0.05 * k, time_end=f.time_end + 0.05 * k)
        for f in capture.images
        for k in (0, 1)
    ]
    images.sort(key=lambda f: (f.sensor, f.index))
    return replace(capture, images=tuple(images), split=None)


def test_frames_are_chosen_by_moments_where_sensors_count_on_their_own(tmp_path: Path) -> None:
    write_pack(doubled(tiny_capture()), tmp_path / "twice.pack")
    config = DataConfig(kind="pack", root=str(tmp_path / "twice.pack"), split="half")
    part = open_capture(replace(config, frames=[2, 8]))
    assert [f.index for f in part.sweeps] == list(range(2, 8))
    assert sorted({f.index for f in part.images}) == list(range(4, 16))
    assert part.split is not None and [part.sweeps[i].index for i in part.split.test_sweeps] == [3, 5, 7]
    assert {part.images[i].index // 2 for i in part.split.test_images} == {3, 5, 7}
    thin = open_capture(replace(config, frames=[1, 10, 3]))
    assert [f.index for f in thin.sweeps] == [1, 4, 7]
    assert sorted({f.index for f in thin.images}) == [2, 3, 8, 9, 14, 15]


def test_a_step_gets_images_and_sweeps_of_one_moment() -> None:
    """Two of each a step: images and sweeps that join are of the same time, with any numbers."""
    capture = doubled(tiny_capture()).with_split("interp")
    plan = ShotPlan(capture, 0, 64, images_a_step=4)
    for step in range(8):
        times = [capture.images[i].time_mid for i in plan.images.of(step)]
        assert max(times) - min(times) == pytest.approx(0.05)


@pytest.mark.parametrize("late", [1e9, -1.5e15, 1e24, float("nan")])
def test_a_clock_that_is_far_away_costs_no_memory(late: float) -> None:
    """Moments fill gaps in time: a camera of another day asked for 75 GiB."""
    with bounded_memory(100 << 20):
        sweeps, (images,) = numbers(frames("top", at(10, 8)), frames("front", at(10, 8, late)))
    assert sweeps == list(range(8)) and len(images) == 8


@pytest.mark.parametrize("frames, cameras, split", [((0, 20), ["camera_0"], "side"), ((0, 3), None, "interp")])
def test_a_split_without_frames_is_refused_before_poses_are_estimated(
    frames: tuple[int, int], cameras: list[str] | None, split: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*given: object) -> Capture:
        raise AssertionError("poses are estimated")

    monkeypatch.setattr("nurec_lite.readers._completed", late)
    write_pack(tiny_capture(), tmp_path / "drive.pack")
    data = DataConfig(kind="pack", root=str(tmp_path / "drive.pack"), frames=list(frames), cameras=cameras, split=split)
    with pytest.raises(CaptureError, match=f"split '{split}'"):
        open_capture(data)
