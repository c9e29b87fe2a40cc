# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from nurec_lite.capture.types import Capture, CaptureError, ImageFrame, SweepFrame, make_split
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lidar import Lidar, Sweep
from nurec_lite.geometry.tracks import Tracks

POSE = torch.eye(4, dtype=torch.float64)


def no_image() -> Tensor:
    raise AssertionError("a split decodes nothing")


def no_sweep() -> Sweep:
    raise AssertionError("a split decodes nothing")


def make_capture(n_moments: int, cameras: tuple[str, ...] = ("left", "right"), first: int = 0) -> Capture:
    """Images of camera 0, then of camera 1, then sweeps; one of each a moment."""
    indices = range(first, first + n_moments)
    return Capture(
        name="drive",
        cameras=tuple(Camera(name, 4, 3, 2.0, 2.0, 2.0, 1.5, POSE) for name in cameras),
        lidars=(Lidar("top", POSE, torch.zeros(2)),),
        images=tuple(ImageFrame(c, i, 0.1 * i, 0.1 * i, POSE, POSE, no_image) for c in cameras for i in indices),
        sweeps=tuple(SweepFrame("top", i, 0.1 * i, 0.1 * i + 0.1, POSE, POSE, no_sweep) for i in indices),
        tracks=Tracks.empty(),
    )


def test_interp_holds_out_every_fifth_moment_of_all_sensors() -> None:
    split = make_split(make_capture(12), "interp")
    assert split.test_images == (4, 9, 12 + 4, 12 + 9)
    assert split.test_sweeps == (4, 9)


def test_interp_goes_by_the_index_of_the_moment_not_by_the_place_in_the_list() -> None:
    split = make_split(make_capture(5, first=3), "interp")
    assert split.test_images == (1, 5 + 1) and split.test_sweeps == (1,)


def test_side_tests_the_last_camera_and_trains_on_the_rest() -> None:
    split = make_split(make_capture(3, ("left", "middle", "right")), "side")
    assert split.train_images == (0, 1, 2, 3, 4, 5) and split.test_images == (6, 7, 8)
    assert split.train_sweeps == (0, 1, 2) and split.test_sweeps == ()


@pytest.mark.parametrize("name", ["interp", "side"])
def test_every_frame_is_in_exactly_one_part(name: str) -> None:
    capture = make_capture(12)
    split = make_split(capture, name)
    assert sorted(split.train_images + split.test_images) == list(range(len(capture.images)))
    assert sorted(split.train_sweeps + split.test_sweeps) == list(range(len(capture.sweeps)))


def test_choices_are_made_without_a_look_at_what_is_held_out() -> None:
    capture = make_capture(25)
    held_out, chosen = make_split(capture, "interp"), make_split(capture, "validation")
    unsafe_operations = {*chosen.train_images, *chosen.test_images}
    assert not unsafe_operations & set(held_out.test_images) and not set(chosen.train_images) & set(chosen.test_images)
    assert unsafe_operations == set(held_out.train_images)
    assert {capture.images[i].index for i in chosen.test_images} == {2, 12, 22}
    assert {capture.sweeps[i].index for i in chosen.test_sweeps} == {2, 12, 22}


def test_with_split_leaves_the_original_alone() -> None:
    capture = make_capture(5)
    chosen = capture.with_split("interp").split
    assert capture.split is None
    assert chosen is not None and chosen.name == "interp"


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(CaptureError, match="split 'random' is unknown; choose one of interp, side, validation"):
        make_split(make_capture(5), "random")


def test_side_needs_two_cameras() -> None:
    with pytest.raises(CaptureError, match="split 'side' tests the last of several cameras, but capture drive has 1"):
        make_split(make_capture(5, ("left",)), "side")


@pytest.mark.parametrize("n_moments", [0, 3])
def test_a_capture_too_short_to_hold_anything_out_is_refused(n_moments: int) -> None:
    with pytest.raises(CaptureError, match="leaves no image to train on or none to test"):
        make_split(make_capture(n_moments), "interp")


def test_the_remedy_of_a_short_capture_can_help() -> None:
    with pytest.raises(
        CaptureError, match=r"has images at 3 moments; use more frames \(data.frames\), or data.split=half$"
    ):
        make_split(make_capture(3), "interp")
    assert make_split(make_capture(3), "half").test_images
    with pytest.raises(CaptureError, match=r"has images at 1 moment; use more frames \(data.frames\)$"):
        make_split(make_capture(1), "interp")
    with pytest.raises(CaptureError, match=r"has no images; choose cameras and frames that have some"):
        make_split(make_capture(5, ()), "interp")


def test_a_split_that_holds_out_all_sweeps_is_refused() -> None:
    capture = make_capture(8)
    tested = capture.sweeps[make_split(capture, "half").test_sweeps[0]]
    with pytest.raises(
        CaptureError, match="split 'half' leaves no sweep to train on: capture drive has 1 in all; choose other"
    ):
        make_split(replace(capture, sweeps=(tested,)), "half")
    assert make_split(replace(capture, sweeps=()), "half").train_images


def test_time_mid_is_halfway() -> None:
    assert make_capture(1).sweeps[0].time_mid == pytest.approx(0.05)
