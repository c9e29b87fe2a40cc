# SPDX-License-Identifier: Apache-2.0
"""The capacity of lists follows recent lists of the same kind of view, in few sizes."""

import pytest
from tiny_capture import tiny_capture, tiny_shots

from nurec_lite.native.capacity import RECENT_LISTS, CapacityTracker, rounded_up
from nurec_lite.splat.views import camera_view


def test_capacities_by_hand() -> None:
    """All views of a camera get as much as the longest of their lists needed; those of reduced images are of another kind."""
    capacities, shots = CapacityTracker(slack=1.25), tiny_shots((0,), (0,))
    capture = tiny_capture()
    one, other = capture.cameras
    first, second = [camera_view(capture, f, "cpu") for f in capture.images if f.sensor == one.name][:2]
    beside = next(camera_view(capture, f, "cpu") for f in capture.images if f.sensor == other.name)
    sweep = shots.sweeps[0].view
    reduced = camera_view(capture, next(f for f in capture.images if f.sensor == one.name), "cpu", 2)
    assert capacities.of(first) is None
    capacities.learn(first.kind, 100)
    assert capacities.of(first) == capacities.of(second) == 128  # 125, and then up
    assert capacities.of(beside) is None and capacities.of(sweep) is None and capacities.of(reduced) is None
    capacities.learn(first.kind, 1000)
    capacities.learn(second.kind, 10)
    assert capacities.of(first) == capacities.of(second) == 1280  # 1250 = 0b10011100010 -> 0b10100000000
    capacities.learn(first.kind, 1137)
    assert capacities.of(first) == 1280
    capacities.learn(first.kind, 1205)  # a sixteenth more would not fit
    assert capacities.of(first) == 1536  # 1506
    capacities.learn(sweep.kind, 16)
    capacities.learn(reduced.kind, 8)
    assert (
        capacities.of(sweep) == 20
        and capacities.of(first) == 1536
        and capacities.of(beside) is None
        and capacities.of(reduced) == 10
    )


def test_a_long_list_is_forgotten_after_so_many_others() -> None:
    capacities, (image,) = CapacityTracker(slack=1.0), tiny_shots((0,), ()).images
    kind = image.view.kind
    capacities.learn(kind, 1000)
    for _ in range(RECENT_LISTS - 1):
        capacities.learn(kind, 100)
    assert capacities.of(image.view) == 1024
    capacities.learn(kind, 100)
    assert capacities.of(image.view) == 104


def test_more_gaussians_make_longer_lists() -> None:
    capacities, (image,) = CapacityTracker(slack=1.5), tiny_shots((0,), ()).images
    capacities.expect(3.0)
    assert capacities.of(image.view) is None
    capacities.learn(image.view.kind, 800)
    capacities.learn(image.view.kind, 1000)
    capacities.expect(2.0)
    assert capacities.of(image.view) == 3072  # 3000, and then up
    for needed in (1000, 2000):
        capacities.learn(image.view.kind, needed)
        assert capacities.of(image.view) == 3072
    capacities.expect(1.01)
    assert capacities.of(image.view) == 3072  # 3030


def test_a_capacity_stays_until_it_is_twice_too_large() -> None:
    capacities, (image,) = CapacityTracker(slack=1.5), tiny_shots((0,), ()).images
    capacities.learn(image.view.kind, 1000)
    for needed, capacity in ((900, 1536), (700, 1536), (512, 1536), (469, 704)):
        for _ in range(RECENT_LISTS):
            capacities.learn(image.view.kind, needed)
        assert capacities.of(image.view) == capacity


@pytest.mark.parametrize(
    ("n", "up"), [(0, 0), (1, 1), (15, 15), (16, 16), (17, 18), (31, 32), (1 << 20, 1 << 20), ((1 << 20) + 1, 9 << 17)]
)
def test_rounding(n: int, up: int) -> None:
    assert rounded_up(n) == up
