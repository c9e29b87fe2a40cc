# SPDX-License-Identifier: Apache-2.0
"""The state of one browser, and the pictures that follow from it. It knows nothing of viser: drawings go to a `Screen`."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from threading import RLock
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from nurec_lite.base.errors import UserError
from nurec_lite.capture.trajectory import Trajectory, trajectory_of
from nurec_lite.capture.types import ImageFrame
from nurec_lite.output.camera_path import Key
from nurec_lite.scene.edit import Edits, Move
from nurec_lite.viewer.pace import Pace
from nurec_lite.viewer.painter import Painted, Painter, captured
from nurec_lite.viewer.request import FrameView, Request
from nurec_lite.viewer.worker import Worker

PICTURES_S = 1 / 30  # seconds between two pictures of a film, at least
REST_S = 0.2  # seconds without a change until a finer picture is drawn
_NEAR_M, _NEAR_RAD = 0.05, 0.01  # metres and radians that a browser may miss the view that it was sent to
_COARSE, _FINE = 70, 90  # quality of JPEG
AHEAD_M = 3.0  # metres from a camera to the point that drags turn it around: far ones swing it off the road or below it
PICTURE = "picture"  # a session's job for the worker


class Screen(Protocol):
    """A browser."""

    def show(self, painted: Painted, quality: int) -> None: ...

    def look(self, T_world_cam: Tensor, fov: float) -> None:
        """Takes the browser's camera to a pose [4, 4], with a vertical field of view in radians."""

    def at(self, time: float) -> None:
        """Shows another moment."""


@dataclass(frozen=True)
class Actor:
    """The edits of an actor."""

    shown: bool = True
    move: Move = field(default_factory=lambda: Move(0.0, 0.0, 0.0, 0.0))


@dataclass(frozen=True)
class Film:
    """A change over time: the drive plays, or a camera flies along a path."""

    since: float  # seconds of the monotonic clock
    start: float = 0.0  # seconds of the drive at that time
    speed: float = 1.0
    keys: tuple[Key, ...] = ()  # of a camera path, about the capture's origin; empty: the drive plays


class Session:
    """One browser. Its methods may be called from any thread."""

    def __init__(self, name: int, painter: Painter, worker: Worker, pace: Pace, screen: Screen, height: int) -> None:
        self.name, self._painter, self._worker, self._pace = name, painter, worker, pace
        self._screen, self.height, self._lock = screen, height, RLock()
        self.path: Trajectory = trajectory_of(painter.run.capture)
        self.request = Request(torch.eye(4, dtype=torch.float64), 1.0, 16 / 9, self.path.span[0])
        self.camera, self.rows = self.request.T_world_cam, height  # of the browser
        self.actors: dict[str, Actor] = {}
        self.film: Film | None = None
        self._sent: tuple[Tensor, float] | None = None  # view that the browser was sent to, and when

    # ---- changes

    def moved(self, T_world_cam: Tensor, fov: float, aspect: float, rows: int) -> None:  # [4, 4], radians
        """Notes a move of the browser's camera. A frame's own view ends when a user moves on from it."""
        with self._lock:
            frame = self.request.frame
            if frame is not None and self._left(T_world_cam):
                frame = None
            self.request = replace(self.request, T_world_cam=T_world_cam, fov=fov, aspect=aspect, frame=frame)
            self.camera, self.rows = T_world_cam, rows
        self.ask()

    def _left(self, T_world_cam: Tensor) -> bool:
        """Whether a user has moved on: the browser has arrived before, and is elsewhere now."""
        if self._sent is None:
            return True
        goal, until = self._sent
        near = float((T_world_cam[:3, 3] - goal[:3, 3]).norm()) < _NEAR_M
        near = near and math.acos(min(1.0, float(T_world_cam[:3, 2] @ goal[:3, 2]))) < _NEAR_RAD
        if near:
            self._sent = goal, 0.0
        return not near and time.monotonic() > until

    def change(self, **values: object) -> None:
        """Changes fields of the request."""
        with self._lock:
            self.request = replace(self.request, **values)  # type: ignore[arg-type]
        self.ask()

    def edit(self, actors: dict[str, Actor]) -> None:
        with self._lock:
            self.actors |= actors
            self.request = replace(self.request, edits=edits_of(self.actors))
        self.ask()

    def jump(self, camera: str, index: int, beside: str) -> ImageFrame:
        """Shows a frame's own view, and takes the browser's camera there."""
        wish = FrameView(camera, index, beside)
        frame = captured(self._painter.run.capture, wish)
        T, fov = self.view_of(frame)
        with self._lock:
            self.film, self._sent = None, (T, time.monotonic() + 2.0)
            self.request = replace(self.request, frame=wish, time=frame.time_mid, T_world_cam=T)
            self.camera = T
        self._screen.look(T, fov)
        self._screen.at(frame.time_mid)
        self.ask()
        return frame

    def view_of(self, frame: ImageFrame) -> tuple[Tensor, float]:  # [4, 4] T_world_cam, radians
        """Place and vertical field of view of a frame's camera, in the middle of its exposure."""
        camera = self._painter.run.capture.camera(frame.sensor)
        return self.path.at(frame.time_mid) @ camera.T_rig_cam.double(), 2 * math.atan(0.5 * camera.height / camera.fy)

    def play(self, speed: float | None) -> None:
        """Plays the drive at this speed from the shown moment; None: stops it."""
        with self._lock:
            self.film = None if speed is None else Film(time.monotonic(), self.request.time, speed)
            self.request = replace(self.request, frame=None)
        self.ask()

    def fly(self, keys: tuple[Key, ...]) -> None:
        """Flies the picture along a path, and then back to the browser's camera."""
        with self._lock:
            self.film = Film(time.monotonic(), keys=keys)
            self.request = replace(self.request, frame=None)
        self.ask()

    # ---- pictures

    def ask(self) -> None:
        """Asks for the picture of the present state."""
        self._worker.ask((self.name, PICTURE), self._draw)

    def _draw(self) -> None:
        with self._lock:
            self._roll()
            request, moving, height = self.request, self.film is not None, min(self.height, self.rows)
        heights = self._pace.heights(height, request.aspect, moving)
        self._paint(request, heights)
        if moving:
            self._worker.ask((self.name, PICTURE), self._draw, PICTURES_S, yields=True)

    def _paint(self, request: Request, heights: list[int]) -> None:
        """Draws the first of these heights; the others follow unless something changes."""
        begin = time.monotonic()
        try:
            painted = self._painter.paint(request, heights[0])
        except UserError as error:
            return self._screen.show(Painted(blank(request.aspect), text=str(error)), _COARSE)
        self._pace.learn(painted.image.shape[0] * painted.image.shape[1], time.monotonic() - begin)
        finer: Callable[[], None] = partial(self._paint, request, heights[1:])
        if heights[1:]:
            self._worker.ask((self.name, PICTURE), finer, REST_S, yields=True)
        self._screen.show(painted, _COARSE if heights[1:] else _FINE)

    def _roll(self) -> None:
        """Moves the film on to the present."""
        film = self.film
        if film is None:
            return
        gone = time.monotonic() - film.since
        if film.keys:
            key = film.keys[min(round(gone / PICTURES_S), len(film.keys) - 1)]
            self.film = None if key is film.keys[-1] else film
            T = key.T_world_cam if self.film else self.camera
            self.request = replace(self.request, T_world_cam=T, time=key.time, frame=None)
        else:
            first, last = self.path.span
            at = film.start - first + film.speed * gone
            self.request = replace(self.request, time=first + at % max(last - first, 1e-9))
        self._screen.at(self.request.time)


def edits_of(actors: dict[str, Actor]) -> Edits:
    removed = tuple(name for name, actor in actors.items() if not actor.shown)
    moves = tuple((name, a.move) for name, a in actors.items() if a.shown and a.move != Actor().move)
    return Edits(removed, moves)


def blank(aspect: float) -> np.ndarray:  # [H, W, 3] uint8
    return np.full((36, max(1, round(36 * aspect)), 3), 24, np.uint8)
