# SPDX-License-Identifier: Apache-2.0
"""People side by side are people, not one vehicle; a vehicle stays one."""

from dataclasses import replace

import numpy as np
import pytest
from test_objects import Doubles, apart, cloud, driven

from nurec_lite.capture.tracking import objects
from nurec_lite.capture.tracking.boxes import Moments, Path, fit
from nurec_lite.capture.tracking.classes import Kind
from nurec_lite.capture.tracking.cloud import Cloud
from nurec_lite.capture.tracking.objects import find_objects
from nurec_lite.capture.tracking.people import separated

PERSON = (0.6, 0.6, 1.75)


@pytest.mark.parametrize(("speed", "sides"), [(1.4, (5.0, 5.85)), (1.3, (5.0, 6.1, 7.2))])
def test_people_who_walk_side_by_side_are_not_a_car(speed: float, sides: tuple[float, ...]) -> None:
    """A quarter of a metre lies between two of them, half a metre between three."""
    ways = [driven(np.full(60, speed), start=(9.0 + 0.2 * i, y)) for i, y in enumerate(sides)]
    paths = find_objects(cloud(ways, size=PERSON, steps=0.1))
    assert [path.kind.name for path in paths] == ["Pedestrian"] * len(sides)
    assert max(min(np.median(apart(path, way)) for path in paths) for way in ways) < 0.15


def test_two_cyclists_side_by_side_are_two() -> None:
    ways = [driven(np.full(40, 5.0), start=(9.0, y)) for y in (5.0, 6.0)]
    paths = find_objects(cloud(ways, size=(1.75, 0.6, 1.7), steps=0.4))
    assert [path.kind.name for path in paths] == ["Cyclist"] * 2


def test_a_slow_car_is_one() -> None:
    (path,) = find_objects(cloud([driven(np.full(60, 1.4), start=(9.0, 4.0))], steps=0.1))
    assert path.kind.name == "Car"


def moments(points: Doubles, heights: Doubles, each: int) -> Moments:  # `each` returns a moment
    count = len(points) // each
    times, of = 0.1 * np.arange(count), np.repeat(np.arange(count), each)
    first = each * np.arange(count)
    return Moments(times, np.zeros((count, 2)), np.ones(count), first, of, points, heights, np.full(count, np.inf))


def test_strips_that_are_too_low_too_wide_or_too_few_are_no_people() -> None:
    rng = np.random.default_rng(0)
    points = np.column_stack([rng.uniform(-0.3, 0.3, 600), rng.uniform(-0.3, 0.3, 600) + np.tile([-0.6, 0.6], 300)])
    seen = moments(points, rng.uniform(0.3, 1.75, 600), each=30)
    path = Path(seen.times, np.zeros((20, 2)), np.zeros(20), Kind("Car", (3.2, 1.8, 1.8)), np.zeros(20), 600)
    assert [len(part.of) for part in separated(seen, path)] == [300, 300]
    assert separated(replace(seen, heights=0.5 * seen.heights), path) == []
    assert separated(replace(seen, points=3 * points), path) == []
    assert separated(moments(points, seen.heights, each=10), replace(path, times=seen.times)) == []
    assert separated(seen, replace(path, kind=Kind("Cyclist", (1.8, 0.8, 1.8)))) == []
    assert separated(moments(points[:0], seen.heights[:0], each=30), path) == []


def test_a_group_of_cyclists_two_abreast_is_six_cyclists() -> None:
    """Riders of one row have no empty lane along the way between them, but gaps from one to the next."""
    ways = [driven(np.full(40, 5.0), start=(9.0 + 2.5 * row, y)) for row in range(3) for y in (5.0, 6.0)]
    paths = find_objects(cloud(ways, size=(1.75, 0.6, 1.7), steps=0.4))
    assert [path.kind.name for path in paths] == ["Cyclist"] * 6
    assert max(min(np.median(apart(path, way)) for path in paths) for way in ways) < 0.15


def test_people_of_other_speeds_who_walk_abreast_stay_people() -> None:
    """Boxes slip along them, so that their returns of all moments together are longer than a person."""
    ways = [driven(np.full(60, 1.2 + 0.1 * i), start=(9.0 - i, 5.0 + 1.5 * i)) for i in range(3)]
    paths = find_objects(cloud(ways, size=PERSON, steps=0.1))
    assert [path.kind.name for path in paths] == ["Pedestrian"] * 3


def test_a_car_is_no_single_person(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of a car may look like a person. Without a second person, the car stays."""
    person = Kind("Cyclist", (1.8, 1.0, 1.4))

    def one_person(cloud: Cloud, seen: Moments) -> Path | None:
        return replace(fit(seen), kind=person) if len(seen) > 8 else None

    def parts(seen: Moments, path: Path) -> list[Moments]:
        return [seen, moments(np.zeros((8, 2)), np.ones(8), each=1)]

    monkeypatch.setattr(objects, "separated", parts)
    monkeypatch.setattr(objects, "_person", one_person)
    (path,) = find_objects(cloud([driven(np.full(60, 1.4), start=(9.0, 4.0))], steps=0.1))
    assert path.kind.name == "Car"
