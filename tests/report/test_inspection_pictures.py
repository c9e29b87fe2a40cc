# SPDX-License-Identifier: Apache-2.0
"""Pictures of a capture: points, boxes and maps lie where geometry puts them; rates and speeds are those of the frames."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hand_made import SIZE, HandMade, one_track

from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.types import Capture
from nurec_lite.report.inspection.above import _middle, maps
from nurec_lite.report.inspection.actors import held
from nurec_lite.report.inspection.canvas import BACK, Canvas
from nurec_lite.report.inspection.content import short
from nurec_lite.report.inspection.motion import curves, intervals, rate
from nurec_lite.report.inspection.overlay import Overlay, overlay


def drawn(capture: Capture, frame: int = 0, width: int = SIZE[0]) -> Overlay:
    return overlay(Sample(capture), capture, capture.images[frame], width)


def coloured(picture: np.ndarray) -> list[tuple[int, int]]:
    """Column and row of the pixels that are not grey."""
    rows, columns = np.nonzero(np.ptp(picture.astype(int), axis=2) > 3)
    return sorted(zip(columns.tolist(), rows.tolist(), strict=True))


# ---- lidar on an image


def test_a_point_is_drawn_where_it_projects() -> None:
    """The rig is at 0.5 m: a point 10 m ahead of it, 1 m left and 1 m up lies at 40 - 50/10, 30 - 50/10."""
    found = drawn(HandMade([(10.5, 1.0, 1.0)]).capture())
    places = np.array(coloured(found.picture))
    assert found.points == 1 and abs(places.mean(0) - [35, 25]).max() <= 1.5
    assert found.late == pytest.approx(0, abs=1e-9) and found.bar is not None


def test_a_wider_picture_shows_it_at_the_same_share() -> None:
    capture = HandMade([(10.5, 1.0, 1.0)]).capture()
    places = np.array(coloured(drawn(capture, width=3 * SIZE[0]).picture))
    assert abs(places.mean(0) / 3 - [35, 25]).max() <= 1


def test_points_beside_or_behind_the_camera_are_not_drawn() -> None:
    assert drawn(HandMade([(-10.0, 0.0, 0.0), (1.0, 30.0, 0.0)]).capture()).points == 0


def test_a_lens_model_does_not_fold_points_from_outside_into_the_image() -> None:
    """With k1 = -0.3, 1.7 from the axis is mapped to 0.23, which lies within the image; the model turns back at 1.05."""
    folded = HandMade([(10.5, 17.0, 0.0)], distortion=(-0.3, 0.0, 0.0, 0.0, 0.0)).capture()
    assert drawn(folded).points == 0
    inside = HandMade([(10.5, 2.0, 0.0)], distortion=(-0.3, 0.0, 0.0, 0.0, 0.0)).capture()
    assert drawn(inside).points == 1


def test_an_image_far_from_every_sweep_has_no_points() -> None:
    capture = HandMade([(20.0, 0.0, 0.0)]).capture()
    late = replace(capture.images[0], time_start=9.0, time_end=9.0)
    found = drawn(replace(capture, images=(late,)))
    assert found.points == 0 and found.bar is None and found.late is None


def test_without_a_lidar_the_image_is_shown_as_it_is() -> None:
    capture = replace(HandMade([(20.0, 0.0, 0.0)]).capture(), lidars=(), sweeps=())
    assert (drawn(capture).picture == 128).all()


def test_a_box_is_drawn_around_its_object() -> None:
    """2 m wide and high, its back 9.5 m and its front 11.5 m ahead: 80/9.5/2 pixels from the middle at most."""
    tracks = one_track((2.0, 2.0, 2.0), [0.0, 1.0], [(11.0, 0.0, 0.0)] * 2)
    capture = replace(HandMade([(50.0, 0.0, 0.0)], tracks=tracks).capture(), lidars=(), sweeps=())
    found = drawn(capture)
    places = np.array(coloured(found.picture))
    assert found.boxes == 1
    assert places.min(0) == pytest.approx(np.array([40, 30]) - 50 / 9.5, abs=1)
    assert places.max(0) == pytest.approx(np.array([40, 30]) + 50 / 9.5, abs=1)


def test_a_box_behind_the_camera_is_not_drawn() -> None:
    tracks = one_track((2.0, 2.0, 2.0), [0.0, 1.0], [(-11.0, 0.0, 0.0)] * 2)
    assert drawn(HandMade([(50.0, 0.0, 0.0)], tracks=tracks).capture()).boxes == 0


# ---- maps


def lit(picture: np.ndarray, rows: slice, columns: slice) -> int:
    return int((picture[rows, columns].astype(int) - BACK > 20).any(axis=2).sum())


POST = [(20.0, 5.0, 0.3)]  # 1.3 m above the ground
GROUND = [(x, y, -1.0) for x in (2.0, 4.0) for y in (-2.0, 2.0)] * 5


def test_sweeps_lie_on_each_other_by_the_poses() -> None:
    """The close-up reaches 30 m around the middle of the path, at 0.1 m a pixel: the post lies in one pixel."""
    capture = HandMade(POST + GROUND, frames=11).capture()  # the middle is at 5.5 m
    _, close = maps(Sample(capture), capture, 0.0)
    row, column = round((30 - 5) / 0.1), round((20 - 5.5 + 30) / 0.1)
    assert close.across == pytest.approx(60) and close.picture.shape == (600, 600, 3)
    assert 1 <= lit(close.picture, slice(row - 30, row + 30), slice(column - 30, column + 30)) <= 4


def test_sweeps_at_wrong_poses_are_drawn_apart() -> None:
    capture = HandMade(POST + GROUND, frames=11).capture()
    wrong = []
    for f in capture.sweeps:
        start, end = f.T_world_rig_start.clone(), f.T_world_rig_end.clone()
        start[0, 3] *= 0.5
        end[0, 3] *= 0.5
        wrong.append(replace(f, T_world_rig_start=start, T_world_rig_end=end))
    _, close = maps(Sample(capture), replace(capture, sweeps=tuple(wrong)), 0.0)
    assert lit(close.picture, slice(220, 280), slice(300, 600)) >= 11


def test_the_ground_is_left_out() -> None:
    capture = HandMade(GROUND, frames=3).capture()
    _, close = maps(Sample(capture), capture, 0.0)
    assert lit(close.picture, slice(200, 260), slice(0, 600)) == 0


@pytest.mark.parametrize(
    ("span", "number"), [((0.0, 10.0), 5), ((7.8, 8.2), 8), ((-3.0, 4.0), 2), ((20.0, 30.0), 10), ((-9.0, -5.0), 0)]
)
def test_a_box_is_outlined_at_a_time_of_the_drive(span: tuple[float, float], number: int) -> None:
    """Labels of a log may go on for longer than the sweeps that are there."""
    assert _middle(torch.arange(11, dtype=torch.float64), span) == number


def test_a_map_of_a_long_way_has_coarser_pixels() -> None:
    capture = HandMade(POST, speed=1e4, frames=3).capture()
    whole, _ = maps(Sample(capture), capture, 0.0)
    assert max(whole.picture.shape) <= 1200 and whole.across == pytest.approx(3000 + 2 * 5, abs=10)


def test_cells_count_points_and_average_their_values() -> None:
    canvas = Canvas(np.zeros(2), np.array([4.0, 2.0]), 1.0)
    canvas.add(np.array([[0.5, 0.5], [0.6, 0.4], [3.5, 1.5], [-0.1, 0.5], [4.1, 0.5]]), 1.0)
    canvas.add(np.array([[0.5, 0.5]]), 4.0)
    assert canvas.counts.tolist() == [[0, 0, 0, 1], [3, 0, 0, 0]]
    assert canvas.totals.tolist() == [[0, 0, 0, 1], [6, 0, 0, 0]]


def test_a_cropped_canvas_keeps_places_and_counts() -> None:
    canvas = Canvas(np.zeros(2), np.array([100.0, 50.0]), 0.5)
    canvas.add(np.array([[40.2, 20.2], [60.2, 30.2]]), 1.0)
    part = canvas.cropped(np.array([[40.0, 35.0]]), 2.0)
    assert part.counts.sum() == 2 and part.counts.shape == (pytest.approx(38, abs=2), pytest.approx(48, abs=2))
    for place in ([40.2, 20.2], [60.2, 30.2]):
        column, row = np.floor(part.pixels(np.array(place))).astype(int)
        assert part.counts[row, column] == 1


# ---- boxes


def test_a_box_holds_the_returns_of_all_sweeps() -> None:
    tracks = one_track((2.0, 2.0, 2.0), [0.0, 1.0], [(20.0, 0.0, 0.0)] * 2)
    capture = HandMade(
        [(19.5, 0.5, 0.5), (20.9, 0.0, 0.0), (21.5, 0.0, 0.0), (40.0, 0.0, 0.0)], tracks=tracks
    ).capture()
    (one,) = held(Sample(capture), capture)
    assert (one.inside, one.sweeps) == (2 * 4, 4)
    assert one.above.counts.sum() == 3 * 4  # and the points near the box


def test_points_of_an_object_that_moves_lie_on_each_other_in_its_box() -> None:
    """The object goes on by 2 m a second, and so does the point that the lidar sees of it."""
    tracks = one_track((2.0, 2.0, 2.0), [0.0, 1.0], [(20.0, 0.0, 0.0), (22.0, 0.0, 0.0)])
    capture = HandMade([(20.5, 0.5, 0.5)], tracks=tracks, moving=2.0).capture()
    (one,) = held(Sample(capture), capture)
    assert one.inside == 4 and (one.above.counts > 0).sum() <= 2


# ---- rates


def test_speeds_are_those_of_the_rig() -> None:
    forward, left, turning, height = curves(HandMade(POST, speed=7.0).capture(), 0.0)
    assert forward.values == pytest.approx([7.0] * len(forward.values))
    for curve in (left, turning, height):
        assert curve.values == pytest.approx([0.0] * len(curve.values), abs=1e-9)


def test_one_pose_has_no_speeds() -> None:
    capture = HandMade(POST).capture()
    assert curves(replace(capture, sweeps=(), images=capture.images[:1]), 0.0) == []


def test_a_missing_frame_is_a_gap() -> None:
    frames = [f for f in HandMade(POST, frames=8).capture().sweeps if f.index != 5]
    found = rate(frames, "top", 0.0)
    assert (found.frames, found.gaps, found.missing, found.after) == (7, 1, 1, 4)
    assert found.interval == pytest.approx(0.1) and found.longest == pytest.approx(0.2)
    assert found.lasts == pytest.approx(0.1)
    curve = intervals(frames, "top", 0.0)
    assert max(curve.values) == pytest.approx(200) and curve.times[
        curve.values.index(max(curve.values))
    ] == pytest.approx(0.6)


def test_one_frame_has_no_rate() -> None:
    found = rate(HandMade(POST).capture().images[:1], "front", 0.0)
    assert (found.interval, found.longest, found.gaps, found.missing) == (None, None, 0, 0)


@pytest.mark.parametrize(
    ("name", "shown"), [("7", "7"), ("track_000012", "track_000012"), ("68c4d27a-b0d5-4619", "68c4d27a")]
)
def test_long_ids_are_cut_in_pictures(name: str, shown: str) -> None:
    assert short(name) == shown
