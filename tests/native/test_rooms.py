# SPDX-License-Identifier: Apache-2.0
"""How much room lists get: by sensor, from what its recent lists needed, in sizes of which there are few."""

import pytest
from tiny_capture import tiny_capture, tiny_shots

from nurec_lite.native.rooms import RECENT, Rooms, rounded_up
from nurec_lite.splat.views import camera_view


def test_rooms_by_hand() -> None:
    """By sensor: all its views get what the longest of its lists needed."""
    rooms, shots = Rooms(slack=1.25), tiny_shots((0,), (0,))
    capture = tiny_capture()
    one, other = capture.cameras
    first, second = [camera_view(capture, f, "cpu") for f in capture.images if f.sensor == one.name][:2]
    beside = next(camera_view(capture, f, "cpu") for f in capture.images if f.sensor == other.name)
    sweep = shots.sweeps[0].view
    assert rooms.of(first) is None
    rooms.learn(one.name, 100)
    assert rooms.of(first) == rooms.of(second) == 128  # 125, and then up
    assert rooms.of(beside) is None and rooms.of(sweep) is None
    rooms.learn(one.name, 1000)
    rooms.learn(one.name, 10)
    assert rooms.of(first) == rooms.of(second) == 1280  # 1250 = 0b10011100010 -> 0b10100000000
    rooms.learn(sweep.lidar.name, 16)
    assert rooms.of(sweep) == 20 and rooms.of(first) == 1280 and rooms.of(beside) is None


def test_a_long_list_is_forgotten_after_so_many_others() -> None:
    rooms, (image,) = Rooms(slack=1.0), tiny_shots((0,), ()).images
    name = image.view.camera.name
    rooms.learn(name, 1000)
    for _ in range(RECENT - 1):
        rooms.learn(name, 100)
    assert rooms.of(image.view) == 1024
    rooms.learn(name, 100)
    assert rooms.of(image.view) == 104


@pytest.mark.parametrize(
    ("n", "up"), [(0, 0), (1, 1), (15, 15), (16, 16), (17, 18), (31, 32), (1 << 20, 1 << 20), ((1 << 20) + 1, 9 << 17)]
)
def test_rounding(n: int, up: int) -> None:
    assert rounded_up(n) == up
