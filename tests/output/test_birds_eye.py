# SPDX-License-Identifier: Apache-2.0
"""The picture from above: where points, boxes and the vehicle stand in it."""

import math
from dataclasses import replace

import numpy as np
import torch

from nurec_lite.geometry.se3 import pose_matrix, rotvec_to_quat, transform
from nurec_lite.geometry.tracks import Tracks
from nurec_lite.output.birds_eye import AHEAD_M, ASIDE_M, BEHIND_M, MEASURED, RENDERED, SCALE, Above, birds_eye

HEADER = 24  # pixels
NONE = torch.zeros(0, 3)
# an id that draws nothing, so that only the box is near the box
CAR = Tracks(
    (" ",), ("Car",), torch.tensor([[4.0, 2.0, 1.5]]), (0, 1), torch.tensor([5.0]), torch.tensor([[20.0, 5.0, 0.0]]),
    torch.tensor([[1.0, 0, 0, 0]]), margin=0.5,
)  # fmt: skip


def above(rendered: torch.Tensor = NONE, measured: torch.Tensor = NONE, tracks: Tracks | None = None) -> Above:
    return Above(rendered, measured, torch.eye(4), tracks or Tracks.empty(), frozenset(), 5.0)


def where(picture: np.ndarray, colour: tuple[int, int, int]) -> np.ndarray:  # [n, 2] metres ahead and left
    """Pixels of that colour, those of the legend left out."""
    body = picture[HEADER:].copy()
    body[:90, :400] = 0
    row, column = np.nonzero((body == colour).all(-1))
    return np.stack([(column + 0.5) / SCALE - BEHIND_M, ASIDE_M - (row + 0.5) / SCALE], axis=-1)


def test_size() -> None:
    assert birds_eye(above(), "", "").shape == (HEADER + 2 * ASIDE_M * SCALE, (AHEAD_M + BEHIND_M) * SCALE, 3)


def test_points_stand_where_they_are_ahead_and_to_the_left() -> None:
    picture = birds_eye(above(torch.tensor([[12.0, 7, 0]]), torch.tensor([[-6.0, -9, 3]])), "", "")
    np.testing.assert_allclose(where(picture, RENDERED).mean(0), [12, 7], atol=1.5 / SCALE)
    np.testing.assert_allclose(where(picture, MEASURED).mean(0), [-6, -9], atol=1.5 / SCALE)


def test_rendered_points_cover_measured_ones_which_stay_visible_around() -> None:
    point = torch.tensor([[12.0, 7, 0]])
    picture = birds_eye(above(point, point), "", "")
    assert len(where(picture, RENDERED)) == 4 and len(where(picture, MEASURED)) == 5


def test_the_vehicle_is_the_centre_and_looks_to_the_right() -> None:
    q = rotvec_to_quat(torch.tensor([0, 0, math.pi / 2], dtype=torch.float64))
    T_world_rig = pose_matrix(q, torch.tensor([100.0, 50, 2], dtype=torch.float64))
    world = transform(T_world_rig, torch.tensor([[12.0, 7, 0]], dtype=torch.float64))
    picture = birds_eye(replace(above(world), T_world_rig=T_world_rig), "", "")
    np.testing.assert_allclose(where(picture, RENDERED).mean(0), [12, 7], atol=1.5 / SCALE)


def test_points_outside_are_left_out() -> None:
    far = torch.tensor([[1e6, 0, 0], [0, -1e6, 0], [-BEHIND_M - 1, 0, 0], [0, ASIDE_M + 1, 0]])
    picture, empty = birds_eye(above(far, far), "", ""), birds_eye(above(), "", "")
    np.testing.assert_array_equal(picture, empty)


def test_boxes_of_actors_that_are_there() -> None:
    plain = birds_eye(above(), "", "")

    def drawn(picture: np.ndarray) -> np.ndarray:  # the legend left out
        row, column = np.nonzero((picture != plain).any(-1) & (np.arange(picture.shape[0]) > HEADER + 90)[:, None])
        return np.stack([(column + 0.5) / SCALE - BEHIND_M, ASIDE_M - (row - HEADER + 0.5) / SCALE], axis=-1)

    box = drawn(birds_eye(above(tracks=CAR), "", ""))
    np.testing.assert_allclose(box.min(0), [18, 4], atol=1.5 / SCALE)
    np.testing.assert_allclose(box.max(0), [22, 6], atol=1.5 / SCALE)
    middle = box[abs(box[:, 1] - 5) < 1 / SCALE][:, 0]  # the line to the front
    assert ((middle > 20.5) & (middle < 21.5)).any() and not ((middle > 18.5) & (middle < 19.5)).any()
    assert len(drawn(birds_eye(replace(above(tracks=CAR), hidden=frozenset({0})), "", ""))) == 0
    assert len(drawn(birds_eye(replace(above(tracks=CAR), time=6.0), "", ""))) == 0
