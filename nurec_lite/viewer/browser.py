# SPDX-License-Identifier: Apache-2.0
"""One browser: its session, its controls, and the drawings over the picture."""

import math
import shlex
from functools import partial
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nurec_lite.cli.reconstruction import Reconstruction
from nurec_lite.geometry.se3 import pose_matrix
from nurec_lite.output.camera_path import CameraPath, Pinhole
from nurec_lite.scene.edit import Move
from nurec_lite.viewer import server
from nurec_lite.viewer.drawn_path import DrawnPath, flown, path_file, save_path, text_of
from nurec_lite.viewer.overlay import Overlay
from nurec_lite.viewer.pace import Pace
from nurec_lite.viewer.painter import FAR_M, Painted, Painter
from nurec_lite.viewer.panel import PINHOLE, SPEEDS, Panel
from nurec_lite.viewer.sender import Encoded, Sender
from nurec_lite.viewer.session import AHEAD_M, PICTURE, Actor, Session
from nurec_lite.viewer.sweeps import POINTS, Clouds, clouds_of, sweep_at
from nurec_lite.viewer.worker import Worker

SWEEP = "sweep"  # a job of the worker


class Browser:
    """A client of viser. It is the session's `Screen` and the panel's `Controls`."""

    def __init__(
        self, client: Any, painter: Painter, worker: Worker, pace: Pace, folder: Path, missing: str | None, height: int
    ) -> None:
        run = painter.run
        self._client, self._painter, self._worker, self._folder = client, painter, worker, folder
        self._files = missing is None
        self._fits = True
        self._missing, self._text = missing or "", ""
        self._sender = Sender(self._send, partial(worker.hold, (client.client_id, PICTURE)))
        self._session = Session(client.client_id, painter, worker, pace, self, height)
        self._overlay = Overlay(client, run.capture, self._session.path)
        self._drawn = DrawnPath()
        self._frustums = self._boxes = False
        self._lidar, self._points = "", POINTS[0]
        self._swept: tuple[object, ...] | None = None  # the sweep that was asked for last
        self._turn = RLock()
        with self._turn:
            self._panel = self._controls()
            client.camera.on_update(lambda _: self.moved())
            self.renewed()

    def _controls(self) -> Panel:
        run = self.run
        frames = {camera.name: self._of(camera.name) for camera in run.capture.cameras}
        numbers = {name: len(found) for name, found in frames.items() if found}
        lidars = [one.name for one in run.capture.lidars if any(f.sensor == one.name for f in run.capture.sweeps)]
        return Panel(self._client, self, self._session.path.span, numbers, lidars, run.scene.tracks.ids, self._turn)

    @property
    def run(self) -> Reconstruction:
        return self._painter.run

    def _of(self, camera: str) -> list[Any]:
        return [frame for frame in self.run.capture.images if frame.sensor == camera]

    def moved(self) -> None:
        """Notes a move of the user's camera, or another size of the window."""
        camera = self._client.camera
        if camera.image_height < 1 or camera.image_width < 1:
            return
        pose = pose_matrix(
            torch.from_numpy(np.array(camera.wxyz)), torch.from_numpy(np.array(camera.position))
        ).double()
        self._session.moved(pose, float(camera.fov), camera.image_width / camera.image_height, camera.image_height)

    def renewed(self) -> None:
        """Updates the browser for another scene, or fills a new one."""
        self._state()
        self._swept = None
        self._drawn_over()
        if self._client.camera._state.update_timestamp:
            self.moved()

    def complain(self, sentence: str) -> None:
        self._panel.complain(sentence)

    def _state(self) -> None:
        run, scale = self.run, f"Ranges: dark blue 0 m, yellow {FAR_M:g} m. Errors: dark 0, bright 0.3 of 1 or 2 m."
        about = f"**Step {run.counters.get('step', 0):.0f}**, {len(run.scene.gaussians)} Gaussians"
        self._panel.status.content = "\n\n".join(filter(None, [about, self._text, self._missing, scale]))

    # ---- Screen

    def show(self, painted: Painted, quality: int) -> None:
        self._sender.put(painted, quality)

    def _send(self, encoded: Encoded) -> None:
        if encoded.fits != self._fits:
            self._fits = encoded.fits
            self._client.scene.set_global_visibility(encoded.fits)
        server.show(self._client, encoded.picture, encoded.depth)
        if encoded.text != self._text:
            self._text = encoded.text
            self._state()

    def look(self, T_world_cam: Tensor, fov: float) -> None:
        place, ahead = T_world_cam[:3, 3], T_world_cam[:3, 2]
        with self._client.atomic():
            self._client.camera.position = place.numpy()
            self._client.camera.look_at = (place + AHEAD_M * ahead).numpy()
            self._client.camera.fov = fov

    def at(self, time: float) -> None:
        self._panel.time.value = time
        self._drawn_over()

    def _drawn_over(self) -> None:
        """Moves the drawings over the picture to the present moment."""
        time = self._session.request.time
        edits = self._session.request.edits
        self._overlay.frustums(time, self._frustums, self._go_to)
        if self._boxes:
            scene = self._painter.scene(edits)
            self._overlay.boxes(scene.learned_tracks().to("cpu"), time, True, set(edits.removed), self.choose)
        if self._points != POINTS[0]:
            frame = sweep_at(self.run.capture, self._lidar, time)
            asked = (frame.sensor, frame.index, self._points, edits)
            if asked != self._swept:
                self._swept = asked
                work = partial(self._sweep, frame)
                self._worker.ask((self._client.client_id, SWEEP), work)

    def _sweep(self, frame: Any) -> None:
        scene = self._painter.scene(self._session.request.edits)
        self._overlay.sweep(clouds_of(self.run, scene, frame, self._points, self._files))

    def _covered(self) -> None:
        """Asks for pictures with depths if something is drawn over them, else without."""
        covered = self._frustums or self._boxes or self._points != POINTS[0] or len(self._drawn.keys) > 1
        if covered != self._session.request.covered:
            self._session.change(covered=covered)

    # ---- Controls

    def set_time(self, time: float) -> None:
        self._session.change(time=time, frame=None)
        self._drawn_over()

    def play(self, on: bool, speed: str) -> None:
        self._session.play(SPEEDS[speed] if on else None)

    def show_as(self, shown: str, lens: str) -> None:
        self._session.change(shown=shown, lens=None if lens == PINHOLE else lens)

    def sensors(self, frustums: bool, lidar: str, points: str) -> None:
        self._frustums, self._lidar, self._points = frustums, lidar, points
        self._covered()
        if points == POINTS[0]:
            self._overlay.sweep(Clouds())
        self._overlay.frustums(self._session.request.time, frustums, self._go_to)
        self._swept = None
        self._drawn_over()

    def go(self, camera: str, number: int, beside: str) -> None:
        frames = self._of(camera)
        self._panel.playing.value = False
        self._session.jump(camera, frames[min(number, len(frames) - 1)].index, beside)

    def _go_to(self, camera: str) -> None:
        """The view of a camera at the present moment."""
        frames, time = self._of(camera), self._session.request.time
        if frames:
            number = min(range(len(frames)), key=lambda k: abs(frames[k].time_mid - time))
            self._panel.camera.value, self._panel.number.value = camera, number
            self.go(camera, number, "photo")

    def leave(self) -> None:
        self._session.change(frame=None)

    def boxes(self, shown: bool) -> None:
        self._boxes = shown
        self._covered()
        self._overlay.boxes(self.run.scene.tracks, 0.0, False, set(), self.choose)
        self._drawn_over()

    def choose(self, track: str) -> None:
        actor = self._session.actors.get(track, Actor())
        move = actor.move
        self._panel.chosen(track, actor.shown, move.forward, move.left, move.up, math.degrees(move.turn))

    def edit(self, track: str, shown: bool, forward: float, left: float, up: float, degrees: float) -> None:
        self._session.edit({track: Actor(shown, Move(forward, left, up, math.radians(degrees)))})
        self._drawn_over()

    def all_actors(self, shown: bool) -> None:
        known = self._session.actors
        tracks = self.run.scene.tracks.ids
        self._session.edit({name: Actor(shown, known.get(name, Actor()).move) for name in tracks})
        self.choose(self._panel.track.value)
        self._drawn_over()

    def add_pose(self) -> None:
        self.moved()  # viser calls back in threads: the press may come before the last move
        self._drawn.add(self._session.camera, self._session.request.time)
        self._path_changed()

    def remove_pose(self) -> None:
        self._drawn.remove_last()
        self._path_changed()

    def _path_changed(self) -> None:
        self._overlay.path(self._drawn.line())
        self._covered()
        rows = [f"{k + 1}. at {key.time:.2f} s of the drive" for k, key in enumerate(self._drawn.keys)]
        self._panel.poses.content = "\n".join(rows) or "no poses yet"

    def _film(self, seconds: float) -> CameraPath:
        request = self._session.request
        height = 2 * round(0.5 * min(self._session.height, 1080))  # films take even numbers
        own = Pinhole(2 * round(0.5 * height * request.aspect), height, request.fov)
        return self._drawn.film(request.lens or own, seconds)

    def fly(self, seconds: float) -> None:
        self._panel.playing.value = False
        self._session.fly(flown(self._film(seconds)))

    def save(self, name: str, seconds: float) -> None:
        file = path_file(self._folder, name)
        save_path(file, text_of(self._film(seconds), self.run.capture.origin))
        self._panel.command.content = f"Saved. Render it by\n\n```\n{self._command(file)}\n```"

    def _command(self, file: Path) -> str:
        edits = self._session.request.edits
        moves = [f"{name}:{m.forward:g}:{m.left:g}:{m.up:g}:{math.degrees(m.turn):g}" for name, m in edits.moves]
        parts = [
            "python",
            "-m",
            "nurec_lite.render",
            f"checkpoint={self.run.config.checkpoint}",
            f"path={file}",
            "fps=30",
            "formats=mp4",
        ]
        parts += [f"remove={','.join(edits.removed)}"] if edits.removed else []
        parts += [f"move={','.join(moves)}"] if moves else []
        return shlex.join(parts)

    def download(self, name: str, seconds: float) -> None:
        file = path_file(self._folder, name)
        text = text_of(self._film(seconds), self.run.capture.origin)
        self._client.send_file_download(file.name, text.encode(), save_immediately=True)

    def close(self) -> None:
        self._session.film = None
        self._sender.close()
        self._worker.forget(self._client.client_id)
