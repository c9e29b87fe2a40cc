# SPDX-License-Identifier: Apache-2.0
"""The controls of one browser. Each calls a method of `Controls`; nothing is computed here."""

from collections.abc import Callable, Sequence
from threading import RLock
from typing import Any, Protocol

from nurec_lite.base.errors import UserError
from nurec_lite.viewer.request import BESIDE, SHOWN
from nurec_lite.viewer.sweeps import POINTS

PINHOLE = "pinhole"  # the lens of the browser
SPEEDS = {"1/4": 0.25, "1/2": 0.5, "1": 1.0, "2": 2.0}
_MOVES = {"forward": 30.0, "left": 10.0, "up": 5.0}  # metres to either side


class Controls(Protocol):
    """Everything that the panel can ask for."""

    def set_time(self, time: float) -> None: ...
    def play(self, on: bool, speed: str) -> None: ...
    def show_as(self, shown: str, lens: str) -> None: ...
    def sensors(self, frustums: bool, lidar: str, points: str) -> None: ...
    def go(self, camera: str, number: int, beside: str) -> None: ...
    def leave(self) -> None: ...
    def boxes(self, shown: bool) -> None: ...
    def choose(self, track: str) -> None: ...
    def edit(self, track: str, shown: bool, forward: float, left: float, up: float, degrees: float) -> None: ...
    def all_actors(self, shown: bool) -> None: ...
    def add_pose(self) -> None: ...
    def remove_pose(self) -> None: ...
    def fly(self, seconds: float) -> None: ...
    def save(self, name: str, seconds: float) -> None: ...
    def download(self, name: str, seconds: float) -> None: ...


class Panel:
    """Controls of viser in one browser."""

    def __init__(
        self,
        client: Any,
        controls: Controls,
        span: tuple[float, float],  # seconds of the drive
        frames: dict[str, int],  # number of images of each camera
        lidars: Sequence[str],
        tracks: Sequence[str],
        turn: RLock,  # held while an event is dealt with: one at a time, and none before the browser is ready
    ) -> None:
        self._client, self._controls, self._gui, self._turn = client, controls, client.gui, turn
        self.status = self._gui.add_markdown("")
        self._moment(span)
        self._picture(list(frames))
        self._sensors(lidars)
        if frames:
            self._frames(frames)
        if tracks:
            self._actors(list(tracks))
        self._path()

    # ---- parts

    def _moment(self, span: tuple[float, float]) -> None:
        with self._gui.add_folder("Time"):
            self.time = self._gui.add_slider("Seconds", *span, step=0.01, initial_value=span[0])
            self.playing = self._gui.add_checkbox("Play", initial_value=False)
            speed = self._gui.add_dropdown("Speed", list(SPEEDS), initial_value="1")
        self._on(self.time, lambda: self._controls.set_time(self.time.value))
        for handle in (self.playing, speed):
            self._on(handle, lambda: self._controls.play(self.playing.value, speed.value))

    def _picture(self, cameras: list[str]) -> None:
        with self._gui.add_folder("Picture"):
            shown = self._gui.add_dropdown("Show", list(SHOWN), initial_value=SHOWN[0])
            lens = self._gui.add_dropdown("Lens", [PINHOLE, *cameras], initial_value=PINHOLE)
        for handle in (shown, lens):
            self._on(handle, lambda: self._controls.show_as(shown.value, lens.value))

    def _sensors(self, lidars: Sequence[str]) -> None:
        with self._gui.add_folder("Sensors"):
            frustums = self._gui.add_checkbox("Frustums", initial_value=False)
            lidar = self._gui.add_dropdown("Lidar", list(lidars) or ["none"], disabled=not lidars)
            points = self._gui.add_dropdown("Points", list(POINTS), initial_value=POINTS[0], disabled=not lidars)
        for handle in (frustums, lidar, points):
            self._on(handle, lambda: self._controls.sensors(frustums.value, lidar.value, points.value))

    def _frames(self, frames: dict[str, int]) -> None:
        cameras = list(frames)
        with self._gui.add_folder("Captured frames"):
            self.camera = self._gui.add_dropdown("Camera", cameras, initial_value=cameras[0])
            self.number = self._gui.add_slider("Frame", 0, max(1, max(frames.values()) - 1), step=1, initial_value=0)
            beside = self._gui.add_dropdown("Beside it", list(BESIDE), initial_value=BESIDE[1])
            go, leave = self._gui.add_button("Go to its view"), self._gui.add_button("Leave its view")
        for handle in (self.camera, self.number, beside, go):
            self._on(handle, lambda: self._controls.go(self.camera.value, self.number.value, beside.value))
        self._on(leave, self._controls.leave)

    def _actors(self, tracks: list[str]) -> None:
        with self._gui.add_folder("Actors", expand_by_default=False):
            boxes = self._gui.add_checkbox("Boxes and ids", initial_value=False)
            everyone = self._gui.add_checkbox("All of them", initial_value=True)
            self.track = self._gui.add_dropdown("Actor", tracks, initial_value=tracks[0])
            self.shown = self._gui.add_checkbox("Shown", initial_value=True)
            self.moves = {
                way: self._gui.add_slider(f"{way.capitalize()}, m", -most, most, step=0.1, initial_value=0.0)
                for way, most in _MOVES.items()
            }
            self.moves["degrees"] = self._gui.add_slider("Turn, degrees", -180.0, 180.0, step=1.0, initial_value=0.0)
        self._on(boxes, lambda: self._controls.boxes(boxes.value))
        self._on(everyone, lambda: self._controls.all_actors(everyone.value))
        self._on(self.track, lambda: self._controls.choose(self.track.value))
        for handle in (self.shown, *self.moves.values()):
            self._on(handle, self._edited)

    def _edited(self) -> None:
        values = {way: float(slider.value) for way, slider in self.moves.items()}
        self._controls.edit(self.track.value, self.shown.value, **values)

    def _path(self) -> None:
        with self._gui.add_folder("Camera path", expand_by_default=False):
            self.poses = self._gui.add_markdown("no poses yet")
            add, remove = self._gui.add_button("Add this view"), self._gui.add_button("Remove the last one")
            seconds = self._gui.add_number("Seconds between", 2.0, min=0.1, max=60.0, step=0.1)
            fly = self._gui.add_button("Fly along it")
            name = self._gui.add_text("Name", initial_value="flight")
            save, download = self._gui.add_button("Save in the run's folder"), self._gui.add_button("Download")
            self.command = self._gui.add_markdown("")
        self._on(add, self._controls.add_pose)
        self._on(remove, self._controls.remove_pose)
        self._on(fly, lambda: self._controls.fly(seconds.value))
        self._on(save, lambda: self._controls.save(name.value, seconds.value))
        self._on(download, lambda: self._controls.download(name.value, seconds.value))

    # ---- events

    def _on(self, handle: Any, work: Callable[[], None]) -> None:
        """Runs the work when the user, not this program, changes a control; shows errors to the user."""

        def changed(event: Any) -> None:
            if event.client_id is None:
                return
            try:
                with self._turn:
                    work()
            except UserError as error:
                self.complain(str(error))

        (handle.on_click if hasattr(handle, "on_click") else handle.on_update)(changed)

    def complain(self, sentence: str) -> None:
        self._client.add_notification("This cannot be done", sentence, color="red", auto_close_seconds=15.0)

    def chosen(self, track: str, shown: bool, forward: float, left: float, up: float, degrees: float) -> None:
        """Shows how an actor is edited."""
        self.track.value, self.shown.value = track, shown
        for way, value in {"forward": forward, "left": left, "up": up, "degrees": degrees}.items():
            self.moves[way].value = value
