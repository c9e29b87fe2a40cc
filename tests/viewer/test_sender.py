# SPDX-License-Identifier: Apache-2.0
"""Pictures are encoded next to the rendering: in order, no more than two ahead, and none after the browser has gone."""

import threading
from collections.abc import Callable, Iterator
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from nurec_lite.viewer.painter import Painted
from nurec_lite.viewer.sender import AHEAD, Encoded, Sender, encoded
from nurec_lite.viewer.worker import Worker

BROWSERS, PICTURES = 10, 12


def picture(number: int, depth: np.ndarray | None = None) -> Painted:
    image = np.random.default_rng(number).integers(0, 255, (8, 16, 3), dtype=np.uint8)
    return Painted(image, depth, text=str(number), fits=number % 2 == 0)


def noted(got: list[Encoded], enough: int, end: threading.Event) -> Callable[[Encoded], None]:
    def send(one: Encoded) -> None:
        got.append(one)
        if len(got) == enough:
            end.set()

    return send


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker(lambda: None, 1e9)
    yield worker
    worker.stop()


def test_what_is_sent_is_what_was_painted() -> None:
    depth = np.linspace(0.2, 160, 12, dtype=np.float32).reshape(3, 4)
    found = encoded(picture(4, depth), 100)
    decoded = np.array(Image.open(BytesIO(found.picture)))
    assert decoded.shape == (8, 16, 3) and (found.text, found.fits) == ("4", True)
    assert found.depth is not None
    red, green, blue = np.array(Image.open(BytesIO(found.depth))).astype(np.float64).transpose(2, 0, 1) / 255
    shader = blue * 0.00255 + green * 0.6528 + red * 167.1168  # readDepth of viser's page
    np.testing.assert_allclose(shader, depth, rtol=0, atol=1.3e-3)


def test_ten_browsers_get_their_own_pictures_in_order(worker: Worker) -> None:
    got: list[list[Encoded]] = [[] for _ in range(BROWSERS)]
    ends = [threading.Event() for _ in range(BROWSERS)]
    senders = [Sender(noted(got[k], PICTURES, ends[k]), lambda held, k=k: worker.hold((k, "picture"), held)) for k in range(BROWSERS)]  # type: ignore[misc]  # fmt: skip

    def draw(browser: int, number: int) -> None:
        if number < PICTURES:
            senders[browser].put(picture(100 * browser + number), 70)
            worker.ask((browser, "picture"), lambda: draw(browser, number + 1))

    for browser in range(BROWSERS):
        worker.ask((browser, "picture"), lambda browser=browser: draw(browser, 0))  # type: ignore[misc]
    worker.start()
    assert all(end.wait(60) for end in ends)
    for browser in range(BROWSERS):
        assert [one.text for one in got[browser]] == [str(100 * browser + k) for k in range(PICTURES)]
        assert got[browser][-1].picture == encoded(picture(100 * browser + PICTURES - 1), 70).picture
        senders[browser].close()
    assert "encode" not in {thread.name for thread in threading.enumerate()}


def test_a_browser_that_takes_long_holds_its_own_pictures_only(worker: Worker) -> None:
    may, slow, done = threading.Event(), list[str](), list[str]()

    def send(one: Encoded) -> None:
        assert may.wait(60)
        slow.append(one.text)

    sender, end = Sender(send, lambda held: worker.hold((1, "picture"), held)), threading.Event()
    for number in range(AHEAD):
        sender.put(picture(number), 70)
    worker.ask((1, "picture"), lambda: (done.append("slow"), end.set()))
    other = threading.Event()
    worker.ask((2, "picture"), lambda: (done.append("other"), other.set()), 0.001)
    worker.start()
    assert other.wait(60) and done == ["other"]
    may.set()
    assert end.wait(60) and done == ["other", "slow"]
    sender.close()
    assert slow == ["0", "1"][: len(slow)] and slow


def test_a_picture_that_cannot_be_sent_stops_no_other() -> None:
    got, end, full = list[Encoded](), threading.Event(), list[bool]()
    keep = noted(got, 1, end)

    def send(one: Encoded) -> None:
        if one.text == "0":
            raise RuntimeError("the browser has gone")
        keep(one)

    sender = Sender(send, full.append)
    for number in (0, 1):
        sender.put(picture(number), 70)
    assert end.wait(60)
    sender.close()
    sender.put(picture(2), 70)
    assert [one.text for one in got] == ["1"] and full[-1] is False


def test_what_a_gone_browser_held_is_free_again(worker: Worker) -> None:
    done = threading.Event()
    worker.hold((1, "picture"), True)
    worker.forget(1)
    worker.ask((1, "picture"), done.set)
    worker.start()
    assert done.wait(60)
