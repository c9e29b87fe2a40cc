# SPDX-License-Identifier: Apache-2.0
"""Boxes over time, from returns of the sides that face a lidar: of one object, of objects side by side, and of none."""

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from nurec_lite.capture.tracking.boxes import Path, directions
from nurec_lite.capture.tracking.classes import Kind, kind_of
from nurec_lite.capture.tracking.cloud import Cloud
from nurec_lite.capture.tracking.found import is_own
from nurec_lite.capture.tracking.objects import _moved_on, _narrowed, _without_doubles, find_objects, gathered
from nurec_lite.capture.tracking.smooth import smooth

PERIOD = 0.1  # seconds
Doubles = NDArray[np.float64]


def returns(
    size: tuple[float, float, float], place: Doubles, yaw: float, sensor: Doubles, rng: np.random.Generator
) -> Doubles:
    """[n, 3] metres: of the one or two upright faces that a sensor sees."""
    c, s = math.cos(yaw), math.sin(yaw)
    x, y = np.array([[c, s], [-s, c]]) @ (sensor - place)
    along, across = rng.uniform(-0.5, 0.5, (2, 40)) * np.array(size[:2])[:, None]
    faces = []
    if abs(x) > size[0] / 2:
        faces.append(np.stack([np.full(40, math.copysign(size[0] / 2, x)), across], axis=1))
    if abs(y) > size[1] / 2:
        faces.append(np.stack([along, np.full(40, math.copysign(size[1] / 2, y))], axis=1))
    own = np.concatenate(faces) + rng.normal(0, 0.02, (40 * len(faces), 2))
    return np.column_stack([place + own @ np.array([[c, s], [-s, c]]), rng.uniform(0.3, size[2], len(own))])


def cloud(
    ways: list[Doubles],  # each [t, 3] x, y and yaw of a car at every sweep
    size: tuple[float, float, float] = (4.4, 1.8, 1.5),
    still: Doubles | None = None,
    steps: float = 1.0,  # metres that the lidar moves from sweep to sweep
) -> Cloud:
    rng = np.random.default_rng(0)
    count = max(len(way) for way in ways)
    middles = PERIOD * (np.arange(count) + 0.5)
    sensors = np.column_stack([steps * np.arange(count), np.zeros(count)])
    points, times = [], []
    for i in range(count):
        for way in ways:
            points.append(returns(size, way[i, :2], way[i, 2], sensors[i], rng))
            times.append(np.full(len(points[-1]), middles[i]))
    all_points, all_times = np.concatenate(points), np.concatenate(times)
    moving = np.ones(len(all_times), bool)
    nothing = np.zeros((0, 6)) if still is None else still
    gone = np.stack([all_times, all_times + 60.0], axis=1)  # others saw past it long after
    return Cloud(all_points, all_times, all_points[:, 2], moving, gone, nothing, middles, sensors, PERIOD)


def driven(speeds: Doubles, start: tuple[float, float] = (10.0, 6.0), yaw: float = 0.0) -> Doubles:
    way = PERIOD * np.cumsum(speeds)
    x, y = start[0] + way * math.cos(yaw), start[1] + way * math.sin(yaw)
    return np.column_stack([x, y, np.full(len(way), yaw)])


def apart(path: Path, way: Doubles) -> Doubles:  # [n] metres
    index = np.rint(path.times / PERIOD - 0.5).astype(int)
    return np.linalg.norm(path.places - way[index, :2], axis=1)


def test_a_car_that_stops_and_drives_on_has_one_track() -> None:
    speeds = np.concatenate([np.linspace(8, 0, 20), np.zeros(20), np.linspace(0, 8, 20)])
    way = driven(speeds)
    (path,) = find_objects(cloud([way]))
    assert len(path.times) == len(way)
    assert apart(path, way).max() < 0.3
    assert np.abs(np.rad2deg(path.yaws)).max() < 5
    assert path.kind.name == "Car"


def test_a_side_that_is_never_seen_does_not_move_the_box() -> None:
    """The lidar follows the car and sees its rear alone: the box reaches forward as far as cars usually do."""
    way = driven(np.full(30, 10.0), start=(12.0, 0.0))
    (path,) = find_objects(cloud([way]))
    assert apart(path, way).max() < 0.25


@pytest.mark.parametrize("yaw", [0.5, -0.4, 3.0])
def test_the_yaw_is_that_of_the_way(yaw: float) -> None:
    way = driven(np.full(25, 7.0), start=(15.0, 12.0), yaw=yaw)
    (path,) = find_objects(cloud([way]))
    assert np.abs(np.rad2deg((path.yaws - yaw + math.pi) % (2 * math.pi) - math.pi)).max() < 3
    assert np.median(apart(path, way)) < 0.15


def test_the_yaw_of_a_slow_car_is_that_of_its_sides() -> None:
    way = driven(np.full(20, 0.8), start=(8.0, 6.0), yaw=0.3)
    (path,) = find_objects(cloud([way], steps=0.2))
    assert abs(math.degrees(float(np.median(path.yaws)) - 0.3)) < 4


def test_cars_in_a_queue_stay_two() -> None:
    ways = [driven(np.full(25, 6.0), start=(x, 5.0)) for x in (8.0, 16.0)]
    paths = find_objects(cloud(ways))
    assert len(paths) == 2
    assert max(min(np.median(apart(path, way)) for way in ways) for path in paths) < 0.3


def test_what_does_not_get_anywhere_is_left_out() -> None:
    still = driven(np.zeros(30))
    assert find_objects(cloud([still])) == []


def test_what_lies_where_others_saw_the_same_is_left_out() -> None:
    """Flicker along a hedge: returns seem to move, but between them other sweeps saw the hedge itself."""
    way = driven(np.full(25, 4.0))
    rng = np.random.default_rng(1)
    count = 20000
    hedge = np.column_stack([rng.uniform(0, 30, count), rng.uniform(5, 7, count), rng.uniform(0.3, 1.4, count)])
    times = np.sort(rng.uniform(0, 2.5, count))
    ends = np.column_stack([np.zeros(count), np.full(count, 2.5)])
    assert find_objects(cloud([way], still=np.column_stack([hedge, times, ends]))) == []


def slow(seconds: float) -> tuple[Doubles, Doubles]:
    """The way of a car at 1 m/s, and as many returns of its own: for some seconds others saw something at their places."""
    way = driven(np.full(50, 1.0))
    seen = cloud([way], steps=0.2)
    around = np.column_stack([seen.times - seconds, seen.times + seconds])
    return way, np.column_stack([seen.points, seen.times, around])


def test_a_slow_car_is_itself_what_others_saw_at_its_place() -> None:
    way, still = slow(seconds=0.4)
    (path,) = find_objects(cloud([way], still=still, steps=0.2))
    assert apart(path, way).max() < 0.3


def test_what_others_saw_after_a_box_has_left_stands_still() -> None:
    way, still = slow(seconds=8.0)
    assert find_objects(cloud([way], still=np.tile(still, (2, 1)), steps=0.2)) == []


def test_what_others_see_past_while_the_box_is_still_there_does_not_move() -> None:
    """They look through the windows of a parked car. A car at 4 m/s has left its place after 1.5 s, not after 0.2 s."""
    way = driven(np.full(30, 4.0))
    seen = cloud([way])
    middle = way[np.rint(seen.times / PERIOD - 0.5).astype(int), :2]
    path = Path(PERIOD * (np.arange(30) + 0.5), way[:, :2], way[:, 2], Kind("Car", (4.4, 1.8, 1.5)), np.zeros(30), 1)
    inside = replace(seen, points=np.column_stack([middle, seen.heights]), heights=np.full(len(middle), 1.0))
    for seconds, moves in ((0.0, False), (0.2, False), (1.5, True)):
        gone = seen.times[:, None] + seconds * np.array([-1, 1])
        assert (_moved_on(replace(inside, gone=gone), path, np.arange(len(middle))) == moves).all()


def test_a_part_of_a_drive_without_returns_that_move_has_no_objects() -> None:
    seen = cloud([driven(np.full(9, 5.0))])
    assert find_objects(replace(seen, moving=np.zeros(len(seen.times), bool))) == []


@pytest.mark.parametrize("speed", [2.0, 9.0])
def test_cars_side_by_side_at_one_speed_stay_two(speed: float) -> None:
    """A metre lies between them, less than between the parts of some trucks."""
    ways = [driven(np.full(40, speed), start=(8.0, y)) for y in (4.0, 6.8)]
    paths = find_objects(cloud(ways, steps=0.5 * speed * PERIOD))
    assert len(paths) == 2
    assert max(min(np.median(apart(path, way)) for way in ways) for path in paths) < 0.3


def part(way: Doubles, first: int, last: int) -> Path:
    times = PERIOD * (np.arange(first, last) + 0.5)
    return Path(
        times, way[first:last, :2], way[first:last, 2], Kind("Car", (4.4, 1.8, 1.5)), 0 * times, 80 * len(times)
    )


def test_two_parts_of_one_way_are_one_object() -> None:
    """The first part is the longer one; the second begins before its end, half a metre aside."""
    way = driven(np.full(50, 6.0))
    seen = cloud([way])
    (path,) = _without_doubles(seen, [part(np.add(way, (0.0, 0.5, 0.0)), 25, 50), part(way, 0, 32)])
    assert len(path.times) == 50
    assert apart(path, way).max() < 0.3


def test_a_double_that_goes_on_elsewhere_is_left_out() -> None:
    """Nothing is seen where it goes."""
    way = driven(np.full(50, 6.0))
    other = way.copy()
    other[32:, 1] += 3.0 * np.arange(18)
    seen = cloud([way[:32]])
    (path,) = _without_doubles(seen, [part(other, 22, 50), part(way, 0, 32)])
    assert path.times[-1] < 3.2


def test_a_high_wide_rear_is_that_of_a_truck() -> None:
    """The beams pass below the top of a truck ahead, and its side is not seen."""
    assert kind_of(np.array([0.1, 2.4, 2.4]), 10.0).name == "Truck"
    assert kind_of(np.array([0.1, 2.0, 2.4]), 10.0).name == "Van"
    assert kind_of(np.array([4.2, 2.25, 1.6]), 10.0).name == "Car"


def test_what_reaches_above_the_highest_beam_may_be_a_truck() -> None:
    """A wide vehicle 9 m ahead of a lidar like KITTI's, whose beams rise by 2 degrees, shows 2.06 m of its rear."""
    assert kind_of(np.array([0.1, 2.3, 2.06]), 10.0).name == "Van"
    truck = kind_of(np.array([0.1, 2.3, 2.06]), 10.0, cut=True)
    assert (truck.name, truck.size[0], truck.size[2]) == ("Truck", 9.5, 3.2)
    assert kind_of(np.array([0.1, 1.7, 2.5]), 10.0, cut=True).name == "Truck"
    assert kind_of(np.array([4.2, 1.8, 1.6]), 10.0, cut=True).name == "Car"


def test_a_truck_ahead_whose_top_no_beam_reaches_reaches_as_far_as_trucks_do() -> None:
    way = driven(np.full(40, 9.0), start=(14.0, 0.0))
    seen = cloud([way], size=(9.5, 2.4, 2.05), steps=0.9)
    (path,) = find_objects(replace(seen, mounted=1.7, rise=0.035))
    assert path.kind.name == "Truck"
    assert np.median(apart(path, way)) < 0.2
    (path,) = find_objects(seen)
    assert path.kind.name == "Van"


def test_a_truck_close_by_is_found_although_no_beam_reaches_its_top() -> None:
    """Its returns end at the height of the lidar, so that it looks like a wide van."""
    way = driven(np.full(40, 2.2), start=(10.0, 4.0))
    (path,) = find_objects(cloud([way], size=(5.5, 2.5, 2.0), steps=0.2))
    assert path.kind.size[1] == pytest.approx(2.5, abs=0.1)


def test_trucks_in_a_queue_stay_two() -> None:
    """Two metres lie between them. Both stand for a second, then start."""
    speeds = np.concatenate([np.zeros(10), np.linspace(0, 6, 40)])
    ways = [driven(speeds, start=(x, 6.0)) for x in (8.0, 19.5)]
    seen = cloud(ways, size=(9.5, 2.3, 1.95), steps=0.08)
    paths = find_objects(replace(seen, mounted=1.7, rise=0.035))
    assert len(paths) == 2
    assert max(min(np.median(apart(path, way)) for way in ways) for path in paths) < 0.5


def test_the_yaw_of_a_car_that_stands_is_the_way_that_it_starts() -> None:
    """Its middle seems to move while other parts of it are seen."""
    times = np.arange(40) * PERIOD
    way = 0.75 * np.maximum(times - 1.5, 0) ** 2
    middles = np.column_stack([way, 0.09 * np.sin(7 * times)])
    middles[times > 1.6, 1] = 0.0
    assert np.abs(np.rad2deg(directions(times, middles))).max() < 25


def test_a_wrong_place_does_not_bend_a_path() -> None:
    times = np.arange(20) * PERIOD
    places = np.column_stack([5 * times, 0 * times])
    off = places.copy()
    off[7] += (0.0, 3.0)
    assert np.abs(smooth(times, off, np.full(20, 0.1)) - places).max() < 0.1


def test_a_short_car_that_comes_by_has_its_own_length() -> None:
    """Its front and later its rear face the lidar, so that a wrong length would move it."""
    way = driven(np.full(40, -12.0), start=(30.0, 4.0))
    way[:, 2] = math.pi
    (path,) = find_objects(cloud([way], size=(3.6, 1.7, 1.5), steps=0.4))
    assert abs(path.kind.size[0] - 3.65) < 0.12
    assert apart(path, way).max() < 0.15


def test_a_car_whose_side_is_never_seen_has_the_usual_length() -> None:
    (path,) = find_objects(cloud([driven(np.full(30, 10.0), start=(12.0, 0.0))], size=(3.6, 1.7, 1.5)))
    assert path.kind.size[0] == pytest.approx(4.3)


def test_a_car_ahead_keeps_its_track_to_the_end_where_nothing_saw_past_it() -> None:
    """Its place in the last sweeps was always hidden by itself."""
    seen = cloud([driven(np.full(30, 10.0), start=(12.0, 0.0))])
    unsure = replace(seen, moving=seen.moving & (seen.times < 2.6))
    (path,) = find_objects(unsure)
    assert path.times[-1] == pytest.approx(2.95)


@pytest.mark.parametrize(("aside", "own"), [(3.3, False), (-3.0, False), (0.0, True)])
def test_traffic_beside_the_vehicle_is_not_its_own_part(aside: float, own: bool) -> None:
    """A van in the next lane keeps its distance as the trailer behind the lidar does."""
    way = driven(np.full(30, 10.0), start=(0.0 if aside else -4.5, aside))
    seen = cloud([way])
    (path,) = find_objects(seen)
    assert is_own(path, seen) == own


def test_a_car_that_turns_off_is_no_wider() -> None:
    """Its sides stand askew to its way while it turns: straight parts of the way tell its size."""
    rates = np.concatenate([np.zeros(15), np.full(13, 1.2), np.zeros(8)])
    yaws = PERIOD * np.cumsum(rates)
    steps = PERIOD * 4.5 * np.column_stack([np.cos(yaws), np.sin(yaws)])
    way = np.column_stack([np.array([9.0, 1.0]) + np.cumsum(steps, axis=0), yaws])
    (path,) = find_objects(cloud([way], steps=0.35))
    assert path.kind.size[1] < 1.95
    index = np.rint(path.times / PERIOD - 0.5).astype(int)
    assert np.median(np.abs(np.rad2deg(path.yaws - yaws[index]))) < 3


def test_a_car_that_waits_between_others_keeps_its_track() -> None:
    """While it waits, others hide the space beyond its place: hardly any of its returns move for certain."""
    way = driven(np.concatenate([np.full(10, 6.0), np.linspace(6, 0, 8), np.zeros(50), np.linspace(0, 6, 12)]))
    seen = cloud([way])
    waits = (seen.times > 1.4) & (seen.times < 6.9) & (np.random.default_rng(2).random(len(seen.times)) > 0.1)
    (path,) = find_objects(replace(seen, moving=seen.moving & ~waits))
    assert len(path.times) > 0.95 * len(way)
    assert apart(path, way).max() < 0.4


def test_a_path_from_one_vehicle_to_the_next_keeps_its_part_of_the_second() -> None:
    """It follows the first car, which is found as a whole, for a while; both drive 9 m apart."""
    first, second = (driven(np.full(50, 6.0), start=(x, 6.0)) for x in (19.0, 10.0))
    seen = cloud([first, second])
    jumps = np.concatenate([first[:20], second[20:]])
    paths = _without_doubles(seen, [replace(part(first, 0, 50), returns=9000), part(jumps, 0, 50)])
    assert len(paths) == 2
    assert max(min(apart(path, way).max() for way in (first, second)) for path in paths) < 0.3
    assert len(_without_doubles(seen, [replace(part(first, 0, 50), returns=9000), part(first, 4, 40)])) == 1


def test_a_truck_that_comes_out_from_behind_a_corner_is_no_wider() -> None:
    """Its front comes out first, so that its way seems to turn. The sweeps that show all of it tell the width."""
    way = driven(np.full(40, 8.0), start=(13.0, 22.0), yaw=-0.5 * math.pi)
    seen = cloud([way], size=(7.5, 2.4, 3.0), steps=0.0)
    out = seen.points[:, 1] < 16.0
    shown = replace(
        seen, points=seen.points[out], times=seen.times[out], heights=seen.heights[out],
        moving=seen.moving[out], gone=seen.gone[out],
    )  # fmt: skip
    turned_box = part(way, 6, 38)
    bent = replace(turned_box, yaws=turned_box.yaws - np.linspace(0.5, 0.0, 32), kind=Kind("Truck", (7.5, 3.0, 3.2)))
    moments, path = _narrowed(shown, gathered(shown, bent), bent)
    assert len(moments) >= 20
    assert path.kind.size[1] < 2.6
    assert np.abs(np.rad2deg(path.yaws + 0.5 * math.pi)).max() < 6
