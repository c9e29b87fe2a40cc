# SPDX-License-Identifier: Apache-2.0
"""How much room lists get: by kind of view, from what recent lists of it needed, in sizes of which there are few."""

import pytest
from tiny_capture import tiny_capture, tiny_shots

from nurec_lite.native.capacity import RECENT_LISTS, CapacityTracker, rounded_up
from nurec_lite.splat.views import camera_view


def test_rooms_by_hand() -> None:
    """All views of a camera get what the longest of their lists needed; those of reduced images are of another kind."""
    rooms, shots = CapacityTracker(slack=1.25), tiny_shots((0,), (0,))
    capture = tiny_capture()
    one, other = capture.cameras
    first, second = [camera_view(capture, f, "cpu") for f in capture.images if f.sensor == one.name][:2]
    beside = next(camera_view(capture, f, "cpu") for f in capture.images if f.sensor == other.name)
    sweep = shots.sweeps[0].view
    reduced = camera_view(capture, next(f for f in capture.images if f.sensor == one.name), "cpu", 2)
    assert rooms.of(first) is None
    rooms.learn(first.kind, 100)
    assert rooms.of(first) == rooms.of(second) == 128  # 125, and then up
    assert rooms.of(beside) is None and rooms.of(sweep) is None and rooms.of(reduced) is None
    rooms.learn(first.kind, 1000)
    rooms.learn(second.kind, 10)
    assert rooms.of(first) == rooms.of(second) == 1280  # 1250 = 0b10011100010 -> 0b10100000000
    rooms.learn(first.kind, 1137)
    assert rooms.of(first) == 1280
    rooms.learn(first.kind, 1205)  # a sixteenth more would not fit
    assert rooms.of(first) == 1536  # 1506
    rooms.learn(sweep.kind, 16)
    rooms.learn(reduced.kind, 8)
    assert rooms.of(sweep) == 20 and rooms.of(first) == 1536 and rooms.of(beside) is None and rooms.of(reduced) == 10


def test_a_long_list_is_forgotten_after_so_many_others() -> None:
    rooms, (image,) = CapacityTracker(slack=1.0), tiny_shots((0,), ()).images
    kind = image.view.kind
    rooms.learn(kind, 1000)
    for _ in range(RECENT_LISTS - 1):
        rooms.learn(kind, 100)
    assert rooms.of(image.view) == 1024
    rooms.learn(kind, 100)
    assert rooms.of(image.view) == 104


def test_a_room_stays_until_it_is_twice_too_large() -> None:
    rooms, (image,) = CapacityTracker(slack=1.5), tiny_shots((0,), ()).images
    rooms.learn(image.view.kind, 1000)
    for needed, room in ((900, 1536), (700, 1536), (512, 1536), (469, 704)):
        for _ in range(RECENT_LISTS):
            rooms.learn(image.view.kind, needed)
        assert rooms.of(image.view) == room


@pytest.mark.parametrize(
    ("n", "up"), [(0, 0), (1, 1), (15, 15), (16, 16), (17, 18), (31, 32), (1 << 20, 1 << 20), ((1 << 20) + 1, 9 << 17)]
)
def test_rounding(n: int, up: int) -> None:
    assert rounded_up(n) == up
