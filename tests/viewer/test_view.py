# SPDX-License-Identifier: Apache-2.0
"""The whole viewer over viser's own protocol: pictures for each browser, its controls, a newer checkpoint, and the end of the command."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import imageio.v3 as imageio
import numpy as np
import pytest
from test_opened import opened, state
from tiny_capture import ROOT, tiny_capture
from web_client import WebClient, browser

from nurec_lite.config import DataConfig
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
    """A browser that keeps its controls by their labels, its texts, and the sizes of pictures."""

    def __init__(self, client: WebClient, x: float = 0.0) -> None:
        self.client, self.labels, self.texts = client, dict[str, str](), dict[str, str]()
        self.values, self.kinds, self.depths = dict[str, Any](), list[str](), list[bool]()
        self.points, self.gone = list[int](), list[str]()  # of clouds; names of removed things
        self._messages = client.messages()
        self.fly_to(x)

    def fly_to(self, x: float) -> None:
        self.client.camera((x, 0.0, 1.5), (x + 5.0, 0.0, 1.5), (0.5, -0.5, 0.5, -0.5))

    def picture(self) -> np.ndarray:  # [H, W, 3] uint8
        """The next one."""
        while True:
            kind, content = self.next()
            if kind == "BackgroundImageMessage" and content["rgb_data"]:
                return imageio.imread(content["rgb_data"])

    def next(self) -> tuple[str, dict[str, Any]]:
        kind, content = next(self._messages)
        self.kinds.append(kind)
        if kind == "BackgroundImageMessage":
            self.depths.append(content["depth_data"] is not None)
        if kind == "PointCloudMessage":
            self.points.append(len(content["props"]["points"]))
        if kind == "RemoveSceneNodeMessage":
            self.gone.append(content["name"])
        if "label" in content.get("props", {}):
            self.labels[content["props"]["label"]] = content["uuid"]
        if kind == "GuiUpdateMessage":
            self.values[content["uuid"]] = content["updates"].get("value")
            self.texts[content["uuid"]] = content["updates"].get("_markdown", "")
        if kind == "NotificationShowMessage" or "otification" in kind:
            self.texts["notice"] = str(content)
        return kind, content

    def until(self, found: Callable[[], bool]) -> None:
        while not found():
            self.next()

    def reads(self, text: str) -> None:
        """Waits for a text."""
        self.until(lambda: any(text in one for one in self.texts.values()))

    def set(self, label: str, value: Any = True) -> None:
        self.until(lambda: label in self.labels)
        self.client.set(self.labels[label], value)


def test_each_browser_has_its_own_picture_of_its_own_shape(viewer: Viewer) -> None:
    with browser(viewer.port) as one, browser(viewer.port) as two:
        pages = [Page(one), Page(two, 3.0)]
        pictures = [page.picture() for page in pages]
        assert all(picture.shape[1] / picture.shape[0] == pytest.approx(64 / 36, rel=0.1) for picture in pictures)
        assert pictures[0].std() > 1 and np.abs(pictures[0].astype(int) - pictures[1].astype(int)).max() > 20
        two.camera((0.0, 0.0, 1.5), (5.0, 0.0, 1.5), (0.5, -0.5, 0.5, -0.5), size=(50, 50))
        while (shape := pages[1].picture().shape)[0] != shape[1]:
            pass


def test_ten_browsers_at_once_are_all_served(viewer: Viewer) -> None:
    with ExitStack() as stack:
        pages = [Page(stack.enter_context(browser(viewer.port)), 0.3 * k) for k in range(10)]
        first = [page.picture() for page in pages]
        for page in pages:
            page.fly_to(6.0)
        for page, seen in zip(pages, first, strict=True):
            while np.abs(page.picture()[:4].astype(int) - seen[:4]).max() < 5:
                pass


def test_a_newer_checkpoint_appears_in_an_open_browser(viewer: Viewer, folder: Path) -> None:
    with browser(viewer.port) as client:
        page = Page(client)
        page.reads("**Step 0**")
        page.picture()
        save(state(9), folder / "checkpoint.pt")
        page.reads("**Step 9**")
        page.picture()
        other = state(10)
        other.scene.origin = (5.0, 0.0, 0.0)
        save(other, folder / "checkpoint.pt")
        page.reads("is now of another drive")


def test_a_frame_is_shown_next_to_its_photo_and_the_browser_is_sent_there(viewer: Viewer) -> None:
    with browser(viewer.port) as client:
        page = Page(client)
        page.set("Frame", 4)
        page.reads("camera_0 4: PSNR")
        assert {"SetCameraPositionMessage", "SetCameraLookAtMessage", "SetCameraFovMessage"} <= set(page.kinds)
        assert page.values[page.labels["Seconds"]] == pytest.approx(tiny_capture().images[8].time_mid)


def test_sensors_and_actors_are_drawn_over_the_picture(viewer: Viewer) -> None:
    with browser(viewer.port) as client:
        page = Page(client)
        page.picture()
        assert not any(page.depths)
        page.set("Frustums")
        page.until(lambda: any(page.depths))
        page.until(lambda: page.kinds.count("CameraFrustumMessage") == 2)
        page.set("Points", "rendered over measured")
        page.until(lambda: page.kinds.count("PointCloudMessage") == 2)
        page.set("Points", "measured")
        page.until(lambda: page.gone[-1:] == ["/sweep/rendered"])
        assert min(page.points) > 0  # a browser takes a cloud without points for an error
        page.set("Boxes and ids")
        page.until(lambda: "BoxMessage" in page.kinds and "LabelMessage" in page.kinds)
        page.set("Play")
        page.until(lambda: (page.values.get(page.labels.get("Seconds", "")) or 0) > 0)
        page.set("Play", False)


def test_the_picture_follows_what_is_chosen(viewer: Viewer) -> None:
    with browser(viewer.port) as client:
        page = Page(client)
        last = page.picture().astype(int)
        for label, value in (
            ("Show", "range"),
            ("Show", "opacity"),
            ("Lens", "camera_1"),
            ("Lens", "pinhole"),
            ("Show", "colour"),
        ):
            page.set(label, value)
            while (found := page.picture().astype(int)).shape == last.shape and np.abs(found - last).mean() < 5:
                pass
            last = found


def test_an_actor_is_hidden_and_shown(viewer: Viewer) -> None:
    with browser(viewer.port) as client:
        page = Page(client)
        page.set("All of them", False)
        page.until(lambda: page.values.get(page.labels.get("Shown", "")) is False)
        page.set("Actor", "001")
        page.set("Shown", True)
        page.picture()


def test_a_path_is_drawn_flown_saved_and_downloaded(viewer: Viewer, folder: Path) -> None:
    with browser(viewer.port) as client:
        page = Page(client)
        page.set("Save in the run's folder")
        page.reads("at least two poses")
        page.set("Add this view")
        page.reads("1. at 0.00 s")
        page.set("Seconds", 0.4)
        page.fly_to(2.0)
        page.picture()
        page.set("Add this view")
        page.reads("2. at 0.40 s")
        assert "LineSegmentsMessage" in page.kinds
        page.set("Save in the run's folder")
        page.reads("nurec_lite.render")
        page.set("Name", "../outside")
        page.set("Save in the run's folder")
        page.reads("is not one plain part of a path")
        page.set("Name", "again")
        page.set("Download")
        page.until(lambda: "FileTransferStartDownload" in page.kinds)
        page.set("Fly along it")
        page.picture()
    found = read_camera_path(folder / "paths/flight.yaml")
    assert [key.time for key in found.keys] == [0.0, 0.4] and [p.name for p in (folder / "paths").iterdir()] == [
        "flight.yaml"
    ]
    assert [round(float(key.T_world_cam[0, 3]), 3) for key in found.keys] == [0.0, 2.0]


def test_a_browser_that_leaves_is_forgotten(viewer: Viewer) -> None:
    with browser(viewer.port) as client:
        Page(client).picture()
        assert len(viewer._browsers) == 1
    with browser(viewer.port) as client:
        page = Page(client)
        page.picture()
        page.fly_to(1.0)
        page.picture()
    assert len(viewer._browsers) <= 1


@pytest.mark.slow
def test_ctrl_c_is_heeded_at_once(tmp_path: Path) -> None:
    """The signal comes while the first thread goes to sleep."""
    save(state(data=DataConfig(kind="pack", root="gone.pack")), tmp_path / "run/checkpoint.pt")
    line = [sys.executable, "-m", "nurec_lite.view", str(tmp_path / "run"), "port=0", "device=cpu", "ops=reference"]
    for _ in range(5):
        process = subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None and next(text for text in process.stdout if "Ctrl-C" in text)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=120)
        assert (process.returncode, out, errors) == (0, "ended\n", "")


def test_the_command_ends_well_at_ctrl_c(tmp_path: Path) -> None:
    """From the folder of a run whose drive is gone."""
    save(state(data=DataConfig(kind="pack", root="gone.pack")), tmp_path / "run/checkpoint.pt")
    line = [sys.executable, "-m", "nurec_lite.view", str(tmp_path / "run"), "port=0", "device=cpu", "ops=reference"]
    process = subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = next(text for text in process.stdout if "Ctrl-C" in text)
    port = int(said.split(" (")[0].rpartition(":")[2])
    with browser(port) as client:
        page = Page(client)
        page.reads("left out")
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=120)
    assert (process.returncode, out, errors) == (0, "ended\n", "")
