# SPDX-License-Identifier: Apache-2.0
"""One browser: pictures follow its state, coarse and then fine; a frame's view ends when the user moves on; films run by the clock."""

import math
import time
from typing import Any

import pytest
import torch
from tiny_capture import tiny_capture
from viewer_doubles import ByHand, Screen

from nurec_lite.cli.reconstruction import Reconstruction
from nurec_lite.output.camera_path import Key
from nurec_lite.scene.edit import Edits, Move
from nurec_lite.viewer.pace import Pace
from nurec_lite.viewer.painter import Painter
from nurec_lite.viewer.session import PICTURE, Actor, Session, edits_of

ASPECT = 2.0


class Two(Pace):
    """A coarse picture and a fine one."""

    def heights(self, full: int, aspect: float, moving: bool = False) -> list[int]:
        return [6] if moving else [6, full]


@pytest.fixture
def session(run: Reconstruction, by_hand: ByHand, screen: Screen) -> Session:
    return Session(3, Painter(run), by_hand, Two(), screen, 12)


def pose(x: float = 0.0) -> torch.Tensor:
    capture = tiny_capture()
    T = capture.images[0].T_world_rig_start.double() @ capture.cameras[0].T_rig_cam.double()
    T[0, 3] += x
    return T


def sizes(screen: Screen) -> list[tuple[int, ...]]:
    return [painted.image.shape[:2] for painted in screen.shown]


def test_a_moved_camera_gets_a_coarse_picture_and_a_fine_one(session: Session, by_hand: ByHand, screen: Screen) -> None:
    session.moved(pose(), 1.0, ASPECT, 100)
    by_hand.all()
    assert sizes(screen) == [(6, 12), (12, 24)]
    assert [painted.depth is None for painted in screen.shown] == [True, True]
    session.change(covered=True)
    by_hand.all()
    assert [painted.depth is None for painted in screen.shown[2:]] == [False, False]


def test_pictures_are_no_larger_than_the_window(session: Session, by_hand: ByHand, screen: Screen) -> None:
    session.moved(pose(), 1.0, ASPECT, 8)
    by_hand.all()
    assert sizes(screen)[-1] == (8, 16)


def test_a_newer_request_comes_before_the_fine_picture_of_an_old_one(
    session: Session, by_hand: ByHand, screen: Screen
) -> None:
    session.moved(pose(), 1.0, ASPECT, 100)
    by_hand.step()
    session.moved(pose(1.0), 1.0, ASPECT, 100)
    by_hand.all()
    assert sizes(screen) == [(6, 12), (6, 12), (12, 24)]


def test_requests_in_flight_become_one(session: Session, by_hand: ByHand, screen: Screen) -> None:
    for x in range(20):
        session.moved(pose(0.1 * x), 1.0, ASPECT, 100)
    by_hand.all()
    assert len(screen.shown) == 2


def test_a_frame_is_shown_until_the_user_moves_on(session: Session, by_hand: ByHand, screen: Screen) -> None:
    frame = session.jump("camera_1", 4, "photo")
    assert screen.times == [frame.time_mid] and session.request.frame is not None
    (goal,) = screen.looks
    session.moved(pose(30.0), 1.0, ASPECT, 100)  # sent before the browser got there
    assert session.request.frame is not None
    session.moved(goal, 1.0, ASPECT, 100)  # it arrives
    session.moved(goal, 1.0, 1.5, 100)  # another window
    assert session.request.frame is not None
    away = goal.clone()
    away[0, 3] += 0.5
    session.moved(away, 1.0, ASPECT, 100)
    assert session.request.frame is None
    by_hand.all()


def test_a_view_of_a_frame_is_where_its_camera_was(session: Session) -> None:
    capture = tiny_capture()
    frame = next(f for f in capture.images if f.sensor == "camera_1" and f.index == 4)
    T, fov = session.view_of(frame)
    half = (
        0.5 * (frame.T_world_rig_start + frame.T_world_rig_end).double() @ capture.camera("camera_1").T_rig_cam.double()
    )
    torch.testing.assert_close(T[:3, 3], half[:3, 3], rtol=0, atol=1e-3)
    camera = capture.camera("camera_1")
    assert math.tan(0.5 * fov) == pytest.approx(0.5 * camera.height / camera.fy)


def test_the_drive_plays_by_the_clock_and_begins_again(
    session: Session, by_hand: ByHand, screen: Screen, monkeypatch: Any
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    first, last = session.path.span
    session.change(time=first)
    session.play(2.0)
    by_hand.step()
    for seconds in (0.1, 0.2):
        now[0] = 100.0 + seconds
        by_hand.step()
        assert session.request.time == pytest.approx(first + 2 * seconds)
    now[0] = 100.0 + 0.5 * (last - first) + 0.05
    by_hand.step()
    assert session.request.time == pytest.approx(first + 0.1)
    session.play(None)
    by_hand.all()
    assert session.request.time == pytest.approx(first + 0.1)
    assert sizes(screen)[-1] == (12, 2 * 12 * 8 // 9) or sizes(screen)[-1][0] == 12  # fine again at rest


def test_a_flight_shows_the_path_and_comes_back(session: Session, by_hand: ByHand, monkeypatch: Any) -> None:
    now = [5.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    session.moved(pose(), 1.0, ASPECT, 100)
    keys = tuple(Key(k / 30, 0.2 + 0.01 * k, pose(float(k))) for k in range(31))
    session.fly(keys)
    now[0] = 5.5
    by_hand.step()
    assert torch.equal(session.request.T_world_cam, keys[15].T_world_cam) and session.request.time == keys[15].time
    now[0] = 9.0
    by_hand.all()
    assert session.film is None and torch.equal(session.request.T_world_cam, pose())


def test_edits_follow_the_actors(session: Session, by_hand: ByHand) -> None:
    session.edit({"000": Actor(shown=False), "001": Actor(move=Move(1.0, 0.0, 0.0, 0.0)), "002": Actor()})
    assert session.request.edits == Edits(("000",), (("001", Move(1.0, 0.0, 0.0, 0.0)),))
    session.edit({"000": Actor(), "001": Actor()})
    assert session.request.edits == Edits() == edits_of({})
    by_hand.all()


def test_what_cannot_be_drawn_is_said(session: Session, by_hand: ByHand, screen: Screen) -> None:
    session.edit({"99": Actor(shown=False)})
    by_hand.all()
    assert "names '99'" in screen.shown[-1].text


def test_a_session_asks_under_its_own_name(session: Session, by_hand: ByHand) -> None:
    session.ask()
    assert by_hand.step() == (3, PICTURE)
