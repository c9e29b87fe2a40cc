# SPDX-License-Identifier: Apache-2.0
"""Sweeps complete labels: before them, after them, and where labels lack."""

import math

import pytest
import torch

from nurec_lite.capture.tracking.completed import completed
from nurec_lite.geometry.tracks import Tracks

SPEED = 5.0  # metres a second, forward


def track(name: str, first: float, last: float, aside: float = 0.0, ahead: float = 0.0, yaw: float = 0.0) -> Tracks:
    """A car that drives along x; at 0 s it is `ahead`."""
    times = torch.arange(round(first * 10), round(last * 10) + 1, dtype=torch.float64) / 10
    n = len(times)
    places = torch.stack([SPEED * times + ahead, torch.full((n,), aside).double(), torch.zeros(n).double()], dim=1)
    q = torch.tensor([math.cos(yaw / 2), 0, 0, math.sin(yaw / 2)], dtype=torch.float64).expand(n, 4)
    size = torch.tensor([[4.0, 1.8, 1.5]], dtype=torch.float64)
    return Tracks((name,), ("Car",), size, (0, n), times, places, q, margin=0.05)


def test_a_label_goes_on_where_the_sweeps_still_show_its_object() -> None:
    label = track("8", 1.0, 2.0)
    (whole,) = [completed(label, track("found-1", 0.5, 3.0, aside=0.1, ahead=0.3))]
    assert whole.ids == ("8",)
    assert whole.times.tolist() == pytest.approx([0.1 * i for i in range(5, 31)])
    assert torch.equal(whole.translations[5:16], label.translations)  # labelled moments stay as they are
    torch.testing.assert_close(whole.translations, track("8", 0.5, 3.0).translations)  # the others continue them
    torch.testing.assert_close(whole.sizes, label.sizes)


def test_a_label_keeps_its_yaw_before_and_after() -> None:
    whole = completed(track("8", 1.0, 2.0, yaw=0.02), track("found-1", 0.5, 3.0))
    yaws = 2 * torch.atan2(whole.quaternions[:, 3], whole.quaternions[:, 0])
    torch.testing.assert_close(yaws, torch.full_like(yaws, 0.02))


def test_an_object_without_a_label_comes_after_the_labels() -> None:
    labels = track("8", 1.0, 2.0)
    whole = completed(labels, track("found-1", 0.5, 3.0, aside=4.0))
    assert whole.ids == ("8", "found-1")
    assert whole.offsets == (0, 11, 37)
    assert torch.equal(whole.select([0]).translations, labels.translations)


def test_without_labels_all_is_what_was_found() -> None:
    found = track("found-1", 0.5, 3.0)
    assert completed(Tracks.empty(), found) is found


def test_labels_stay_where_nothing_was_found() -> None:
    label = track("8", 1.0, 2.0)
    assert torch.equal(completed(label, Tracks.empty()).translations, label.translations)
