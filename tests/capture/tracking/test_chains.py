# SPDX-License-Identifier: Apache-2.0
"""Chains of groups that are one object: pairs that are left out without a look, and the place where an object goes on."""

import numpy as np
import pytest
from test_objects import Doubles

from nurec_lite.capture.tracking import chains
from nurec_lite.capture.tracking.chains import _away, _beside, _goes_on
from nurec_lite.capture.tracking.clusters import Groups
from nurec_lite.capture.tracking.follow import Chain, chain
from nurec_lite.capture.tracking.smooth import along


def groups_of(times: Doubles, places: Doubles, size: Doubles) -> Groups:
    return Groups(times, places, places - 0.5 * size, places + 0.5 * size, np.ones(len(times), np.int64))


def walked(random: np.random.Generator, first: float) -> tuple[Doubles, Doubles]:
    """Times with gaps, and the places of something that turns and brakes."""
    times = first + np.cumsum(random.choice([0.1, 0.1, 0.1, 0.6], 20))
    rates = random.normal(0, 4, 2) + np.cumsum(random.normal(0, 0.5, (20, 2)), axis=0)
    return times, random.normal(0, 6, 2) + np.cumsum(rates * 0.1, axis=0)


def two(seed: int) -> tuple[Groups, Chain, Chain]:
    random = np.random.default_rng(seed)
    ways = [walked(random, first) for first in (0.0, 0.3)]
    times, places = (np.concatenate(parts) for parts in zip(*ways, strict=True))
    groups = groups_of(times, places, random.uniform(0.2, 5, (40, 2)))
    return groups, chain(groups, np.arange(20)), chain(groups, np.arange(20, 40))


def test_chains_that_are_left_out_without_a_look_are_not_beside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [two(seed) for seed in range(300)]
    found = [_beside(*pair) for pair in pairs]
    left_out = sum(_away(a, b) >= chains.BESIDE for _, a, b in pairs)
    monkeypatch.setattr(chains, "_away", lambda a, b: 0.0)
    assert [_beside(*pair) for pair in pairs] == found
    assert left_out > 30


def test_parts_of_one_car_are_beside_each_other() -> None:
    times = np.arange(20) * 0.1
    front, rear = (np.column_stack([x + 8 * times, np.zeros(20)]) for x in (2.0, 0.0))
    groups = groups_of(np.concatenate([times, times]), np.concatenate([front, rear]), np.array([1.0, 1.5]))
    a, b = chain(groups, np.arange(20)), chain(groups, np.arange(20, 40))
    assert _away(a, b) <= 0 and _beside(groups, a, b)


@pytest.mark.parametrize(("metres", "one"), [(0.0, True), (1.9, True), (2.5, False)])
def test_an_object_goes_on_where_it_is_expected(metres: float, one: bool) -> None:
    """After half a second unseen it may be 1.5 m, and 1.5 m a second, away."""
    times = np.concatenate([np.arange(8) * 0.1, 1.2 + np.arange(8) * 0.1])
    places = np.column_stack([10 * times, np.where(times > 1, metres, 0.0)])
    groups = groups_of(times, places, np.ones(2))
    a, b = chain(groups, np.arange(8)), chain(groups, np.arange(8, 16))
    middle = np.array([0.95])
    apart = along(a.times, a.places, middle) - along(b.times, b.places, middle)
    assert np.linalg.norm(apart) == pytest.approx(metres, abs=1e-6)
    assert _goes_on(a, b) == one
