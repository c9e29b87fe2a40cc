# SPDX-License-Identifier: Apache-2.0
"""A run in any number of browsers: one server, one thread that renders, and a look at the run's folder every second."""

import logging
import math
from threading import Lock
from typing import Any

from nurec_lite.base.errors import UserError
from nurec_lite.capture.trajectory import trajectory_of
from nurec_lite.viewer import server
from nurec_lite.viewer.browser import Browser
from nurec_lite.viewer.opened import Run
from nurec_lite.viewer.pace import Pace
from nurec_lite.viewer.painter import Painter
from nurec_lite.viewer.session import AHEAD_M
from nurec_lite.viewer.worker import Worker

LOOK_S = 1.0  # seconds between two looks for a newer checkpoint
log = logging.getLogger("nurec_lite")


class Viewer:
    """Serves a run until it is closed."""

    def __init__(self, run: Run, host: str, port: int, height: int) -> None:
        self._run, self._height = run, height
        self._painter, self._pace = Painter(run.shown), Pace()
        self._worker = Worker(self.look, LOOK_S)
        self._browsers: dict[int, Browser] = {}
        self._lock = Lock()
        self._server = server.start(host, port)
        self._begin()
        self._server.on_client_connect(self._connected)
        self._server.on_client_disconnect(self._gone)
        self._worker.start()

    @property
    def port(self) -> int:
        return int(self._server.get_port())

    def _begin(self) -> None:
        """Puts cameras of new browsers where the first camera of the drive stood at its start."""
        capture = self._run.shown.capture
        T = trajectory_of(capture).at(trajectory_of(capture).span[0])
        first = self._server.initial_camera
        if capture.cameras:
            camera = capture.cameras[0]
            T = T @ camera.T_rig_cam.double()
            first.fov = 2 * math.atan(0.5 * camera.height / camera.fy)
        ahead = T[:3, 2] if capture.cameras else T[:3, 0]
        first.up, first.position = (0.0, 0.0, 1.0), T[:3, 3].numpy()
        first.look_at = (T[:3, 3] + AHEAD_M * ahead).numpy()

    def _connected(self, client: Any) -> None:
        browser = Browser(
            client, self._painter, self._worker, self._pace, self._run.folder, self._run.missing, self._height
        )  # fmt: skip
        with self._lock:
            self._browsers[client.client_id] = browser
        if client.client_id not in self._server.get_clients():  # it left before it was known
            self._gone(client)

    def _gone(self, client: Any) -> None:
        with self._lock:
            browser = self._browsers.pop(client.client_id, None)
        if browser is not None:
            browser.close()

    def look(self) -> None:
        """Shows the newest checkpoint. A worse one, such as that of another drive, leaves the scene that is shown."""
        with self._lock:
            browsers = list(self._browsers.values())
        try:
            if self._run.newer():
                self._painter.renew(self._run.shown)
                for browser in browsers:
                    browser.renewed()
        except UserError as error:
            log.warning("%s", error)
            for browser in browsers:
                browser.complain(str(error))

    def close(self) -> None:
        self._worker.stop()
        with self._lock:
            browsers = list(self._browsers.values())
        for browser in browsers:
            browser.close()
        server.stop(self._server)
