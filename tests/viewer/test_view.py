# SPDX-License-Identifier: Apache-2.0
"""The whole viewer over viser's own protocol: pictures for each browser, its controls, a newer checkpoint, and the end of the command."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import imageio.v3 as imageio
import numpy as np
import pytest
from test_opened import opened, state
from tiny_capture import ROOT, tiny_capture
from web_client import WebClient, browser

from nurec_lite.output.camera_path import read_camera_path
from nurec_lite.training.loop import save
from nurec_lite.viewer import viewer as module
from nurec_lite.viewer.viewer import Viewer


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("nurec_lite.cli.reconstruction.open_capture", lambda config, origin, known: tiny_capture())
    save(state(), tmp_path / "run/checkpoint.pt")
    return tmp_path / "run"


@pytest.fixture
def viewer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Viewer]:
    monkeypatch.setattr(module, "LOOK_S", 0.05)
    viewer = Viewer(opened(folder), "127.0.0.1", 0, 24)
    yield viewer
    viewer.close()


class Page:
    """A browser that keeps its controls by their labels, and the last picture."""

    def __init__(self, client: WebClient, x: float = 0.0) -> None:
        self.client, self.labels, self.markdown, self.notes = client, dict[str, str](), dict[str, str](), list[str]()
        self._messages = client.messages()
        self.fly_to(x)

    def fly_to(self, x: float) -> None:
        self.client.camera((x, 0.0, 1.5), (x + 5.0, 0.0, 1.5), (0.5, -0.5, 0.5, -0.5))

    def picture(self) -> np.ndarray:
        """The next one."""
        while True:
            kind, content = self.next()
            if kind == "BackgroundImageMessage":
                data = content["rgb_data"]
                return imageio.imread(data) if isinstance(data, bytes) else np.zeros(0)

    def next(self) -> tuple[str, dict[str, Any]]:
        kind, content = next(self._messages)
        if "props" in content and "label" in content["props"]:
            self.labels[content["props"]["label"]] = content["uuid"]
        if kind == "GuiUpdateMessage" and "_markdown" in content["updates"]:
            self.markdown[content["uuid"]] = content["updates"]["_markdown"]
        if kind == "NotificationMessage" or "Notification" in kind:
            self.notes.append(str(content))
        return kind, content

    def until(self, found: Any) -> None:
        while not found():
            self.next()

    def set(self, label: str, value: Any = True) -> None:
        self.until(lambda: label in self.labels)
        self.client.set(self.labels[label], value)


def test_debug(viewer: Viewer) -> None:
    with browser(viewer.port) as client:
        page = Page(client)
        for _ in range(80):
            print(str(page.next())[:200])
        assert 0
