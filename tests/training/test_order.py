# SPDX-License-Identifier: Apache-2.0
"""The order of frames: each once an epoch, several a step, those of one moment together."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from nurec_lite.training.order import Order


def test_a_moment_with_too_many_cameras_gives_the_frame_that_was_drawn() -> None:
    """With one frame a step the order is that of single frames, with any moments."""
    one, apart = (Order((10, 11, 12), moments, seed=0, most=1) for moments in ((0, 0, 0), (0, 1, 2)))
    assert [one.of(step) for step in range(9)] == [apart.of(step) for step in range(9)]


@given(st.integers(1, 13), st.integers(1, 4), st.integers(1, 9), st.integers(0, 5))
def test_all_frames_come_before_one_comes_again(frames: int, cameras: int, images: int, seed: int) -> None:
    """Sizes that do not divide one another, over many epochs; and no step has a frame twice."""
    order = Order(tuple(range(100, 100 + frames)), tuple(k // cameras for k in range(frames)), seed, images)
    found = [order.of(step) for step in range(3 * frames)]
    assert all(len(set(step)) == len(step) == min(images, frames) for step in found)
    in_turn = [frame for step in found for frame in step]
    for begin in range(0, len(in_turn) - frames + 1, frames):
        assert sorted(in_turn[begin : begin + frames]) == list(order.frames)


@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 5))
def test_whole_moments_stay_together_where_they_fit(moments: int, cameras: int, seed: int) -> None:
    """Their frames keep their order, whichever of them the epoch's order names first."""
    frames = tuple(range(moments * cameras))
    order = Order(frames, tuple(k // cameras for k in frames), seed, cameras)
    for step in range(3 * moments):
        found = order.of(step)
        assert found == tuple(range(found[0], found[0] + cameras)) and found[0] % cameras == 0


def test_every_epoch_has_an_order_of_its_own() -> None:
    order = Order(tuple(range(20)), tuple(range(20)), seed=1, most=4)
    epochs = [tuple(frame for step in range(5) for frame in order.of(5 * epoch + step)) for epoch in range(4)]
    assert len(set(epochs)) == 4


def test_over_many_epochs_every_frame_comes_as_often() -> None:
    """Nine frames, two a step, cameras in pairs and one alone."""
    order = Order(tuple(range(9)), tuple(k // 2 for k in range(9)), seed=0, most=2)
    seen = Counter(frame for step in range(9 * 50) for frame in order.of(step))
    assert set(seen.values()) == {100}


def test_few_combinations_of_cameras_share_a_step() -> None:
    order = Order(tuple(range(60)), tuple(k // 6 for k in range(60)), seed=3, most=2)
    pairs = {tuple(frame % 6 for frame in order.of(step)) for step in range(90)}
    assert pairs == {(0, 1), (2, 3), (4, 5)}
