# SPDX-License-Identifier: Apache-2.0
"""Points of drivers: clocks, units, layouts, compensation, and lidars that have no beams."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_bag import DRIVERS, START, Driver, Recording, points_of, stamp_of, street
from tiny_capture import tiny_capture

from nurec_lite.capture.deskew import world_points
from nurec_lite.capture.rosbag.clouds import find_fields, read_cloud
from nurec_lite.capture.rosbag.library import CLOUD, LIVOX, decode
from nurec_lite.capture.rosbag.mapping import LidarEntry
from nurec_lite.capture.rosbag.pattern import PointClock, find_clock
from nurec_lite.capture.rosbag.read import read_rosbag
from nurec_lite.capture.types import Capture, CaptureError
from nurec_lite.geometry.lidar import azimuth_elevation
from nurec_lite.geometry.se3 import invert, transform

CAPTURE = tiny_capture()
ENTRY = LidarEntry("lidar", "/points")
STAMPS = 1.7e9 + 0.1 * torch.arange(5, dtype=torch.float64)


@pytest.mark.parametrize(
    ("first", "length", "clock"),
    [
        (torch.zeros(5), 0.0995, PointClock(1.0, "stamp")),  # Velodyne
        (torch.full((5,), -0.0995), 0.0995, PointClock(1.0, "stamp")),  # Velodyne, stamped at the end of the sweep
        (torch.zeros(5), 99.5e6, PointClock(1e-9, "stamp")),  # Ouster, Livox
        (torch.zeros(5), 99.5e3, PointClock(1e-6, "stamp")),
        (STAMPS, 0.0995, PointClock(1.0, "capture")),  # Hesai
        (STAMPS * 1e9, 99.5e6, PointClock(1e-9, "capture")),  # Livox' driver 2
        (STAMPS - 1.6e9, 0.0995, PointClock(1.0, "first")),  # a sensor that counts from when it was switched on
    ],
)
def test_units_and_origins_of_times_are_found(first: torch.Tensor, length: float, clock: PointClock) -> None:
    spans = torch.stack([first.double(), first.double() + length], dim=1)
    found, notes = find_clock(spans, STAMPS, ENTRY, "/points")
    assert found == clock and (len(notes) == 1) == (clock.origin == "first")


def test_stamps_nanoseconds_apart_are_refused_with_a_sentence() -> None:
    stamps = (STAMPS[0] * 1e9 + torch.arange(5, dtype=torch.float64)) * 1e-9
    spans = torch.tensor([[0.0, 0.1]], dtype=torch.float64).expand(5, 2)
    with pytest.raises(CaptureError, match="sweeps follow one another after 1e-06 s"):
        find_clock(spans, stamps, ENTRY, "/points")


def test_times_that_are_all_equal_come_from_the_azimuth() -> None:
    found, notes = find_clock(torch.zeros(5, 2, dtype=torch.float64), STAMPS, ENTRY, "/points")
    assert found is None and "all equal" in notes[0]


def table(driver: Driver, ros1: bool = False) -> tuple[object, np.ndarray]:
    recording = Recording(CAPTURE, ros1)
    sweep = CAPTURE.sweeps[0].load()
    return recording.cloud(sweep, START, driver), points_of(sweep, START, driver)[0]


@pytest.mark.parametrize("driver", DRIVERS.values(), ids=DRIVERS)
def test_every_layout_gives_the_points_that_returned(driver: Driver) -> None:
    message, true = table(driver)
    fields = find_fields(message, CLOUD, ENTRY, "here")
    cloud = read_cloud(message, CLOUD, fields, "here")
    there = np.abs(np.stack([true[k] for k in "xyz"], axis=1)).sum(axis=1) > 0
    assert len(cloud) == int(there.sum()) == int(CAPTURE.sweeps[0].load().returned.sum())
    assert np.allclose(cloud.points[:, 2].numpy(), true["z"][there], atol=1e-5)
    assert (fields.time is None) == (driver.time is None)
    if fields.ring is not None:
        assert cloud.rings is not None and np.array_equal(cloud.rings.numpy(), true["ring"][there])


def spoil(message: object, **values: object) -> object:
    for name, value in values.items():
        setattr(message, name, value)
    return message


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"height": 2**31, "width": 2**31}, "claims 2147483648 rows"),
        ({"data": np.zeros(100, np.uint8)}, "but holds 100 bytes"),
        ({"point_step": 10}, "ends beyond the point's 10 bytes"),
        ({"fields": []}, "has no field 'x'"),
        ({"row_step": 1, "height": 2}, "claims 2 rows"),
    ],
)
def test_a_cloud_that_lies_about_itself_is_refused(change: dict[str, object], sentence: str) -> None:
    message, _ = table(DRIVERS["velodyne"])
    with pytest.raises(CaptureError, match=sentence):
        find_fields(spoil(message, **change), CLOUD, ENTRY, "here")


@pytest.mark.parametrize("step", [0, 16, 1 << 31])
def test_rows_without_a_step_follow_one_another(step: int) -> None:
    message, true = table(replace(DRIVERS["hesai"], rows=False))
    height = next(n for n in (2, 3, 5, 7) if len(true) % n == 0)
    spoil(message, height=height, width=len(true) // height, row_step=step)
    cloud = read_cloud(message, CLOUD, find_fields(message, CLOUD, ENTRY, "here"), "here")
    there = np.abs(np.stack([true[k] for k in "xyz"], axis=1)).sum(axis=1) > 0
    assert np.allclose(cloud.points[:, 0].numpy(), true["x"][there], atol=1e-5)


def read(recording: Recording, folder: Path, text: str = "") -> Capture:
    path = recording.write(folder / "bag", "mcap")
    if not text:
        return read_rosbag(path)
    (folder / "m.yaml").write_text("cameras: {a: {images: /camera_0/image_raw/compressed, info: /camera_0/camera_info}}\n"
                                   "poses: {topic: /odom}\n" + text)  # fmt: skip
    return read_rosbag(path, mapping=folder / "m.yaml")


@pytest.mark.parametrize("ros1", [True, False])
def test_livox_s_own_message_is_read(ros1: bool, tmp_path: Path) -> None:
    """All points are of one line, so beams come from their elevations."""
    made = Recording(CAPTURE, ros1).images().mountings().odometry().livox()
    capture = read_rosbag(made.write(tmp_path / ("a.bag" if ros1 else "a"), "mcap"))
    sweep, true = capture.sweeps[1].load(), CAPTURE.sweeps[1].load()
    assert int(sweep.returned.sum()) == int(true.returned.sum())
    assert float((sweep.times.min() - true.times[true.returned].min()).abs()) < 1e-6


@pytest.mark.parametrize("ros1", [True, False])
@pytest.mark.parametrize("frame", ["", "l", "lidar", "livox_frame"])
def test_livox_s_message_is_what_the_library_makes_of_it(frame: str, ros1: bool) -> None:
    made = Recording(CAPTURE, ros1).livox()
    message, store = made.rows[0][3], made.store
    message.header.frame_id, points = frame, message.points
    for count in (0, 1, len(points)):
        message.points = points[:count]
        data = bytes((store.serialize_ros1 if ros1 else store.serialize_cdr)(message, LIVOX[1]))
        found, true = (
            decode(data, LIVOX[1], ros1),
            (store.deserialize_ros1 if ros1 else store.deserialize_cdr)(data, LIVOX[1]),
        )
        assert (found.header.frame_id, found.header.stamp.nanosec) == (frame, message.header.stamp.nanosec)
        names = found.points.dtype.names
        assert found.points.tolist() == [tuple(getattr(p, name) for name in names) for p in true.points]
    with pytest.raises(ValueError, match="points, but holds"):
        decode(data[:-12], LIVOX[1], ros1)


def test_a_lidar_whose_lines_sweep_in_every_direction_has_no_missing_rays(tmp_path: Path) -> None:
    made = Recording(CAPTURE).images().mountings().odometry().sweeps("livox")
    chance = np.random.default_rng(1)
    for _, topic, _, message in made.rows:
        if topic == "/points":
            rows = message.data.reshape(-1, message.point_step)
            rows[:, 17] = chance.integers(0, 4, len(rows))  # the line: four, whose points lie anywhere
    capture = read(made, tmp_path)
    assert bool(capture.sweeps[0].load().returned.all())
    assert any("no beams of one elevation" in doubt.sentence for doubt in capture.doubts)


def test_headers_without_stamps_get_the_time_of_receipt(tmp_path: Path) -> None:
    made = street(CAPTURE)
    for _, topic, _, message in made.rows:
        if topic.startswith("/camera_0/image"):
            message.header.stamp.sec = message.header.stamp.nanosec = 0
    capture = read(made, tmp_path)
    late = [f.time_mid for f in capture.images if f.sensor == "camera_0"]
    on_time = [f.time_mid for f in capture.images if f.sensor == "camera_1"]
    assert np.allclose(np.subtract(late, on_time), 0.02, atol=1e-6)
    assert any("have no stamps" in doubt.sentence for doubt in capture.doubts)


@pytest.mark.parametrize(("stamp", "late"), [("start", 0.0), ("middle", 0.05), ("end", 0.1)])
def test_stamps_on_another_clock_than_the_points_are_the_moment_that_the_mapping_says(
    stamp: str, late: float, tmp_path: Path
) -> None:
    made, leaps = Recording(CAPTURE).images().mountings().odometry(), lambda t, _: t * 1e-9 + 37.0  # leap seconds
    for frame in CAPTURE.sweeps:
        at = stamp_of(frame.time_start + late)
        made.add("/points", CLOUD, at, made.cloud(frame.load(), at, replace(DRIVERS["hesai"], time=leaps)))
    capture = read(made, tmp_path, f"lidars: {{lidar: {{points: /points, stamp: {stamp}}}}}")
    after, true = (c.sweeps[3].time_start - c.images[0].time_mid for c in (capture, CAPTURE))
    assert after == pytest.approx(true, abs=0.003)


def test_stamps_far_from_the_times_of_receipt_are_reported(tmp_path: Path) -> None:
    made = street(CAPTURE)
    made.rows = [(received + 90 * 10**9, *rest) for received, *rest in made.rows]
    capture = read(made, tmp_path)
    assert any("90.0 s before the times when the bag received them" in doubt.sentence for doubt in capture.doubts)
    assert capture.sweeps[0].time_start == pytest.approx(CAPTURE.sweeps[0].time_start, abs=0.002)


def compensated(made: Recording) -> Recording:
    """Points as the lidar would have seen them at the stamp, the start of the sweep."""
    lidar = CAPTURE.lidars[0]
    for (_, _, _, message), frame in zip(
        [row for row in made.rows if row[1] == "/points"], CAPTURE.sweeps, strict=True
    ):
        sweep = frame.load()
        sweep = sweep.select(sweep.returned)
        T_lidar_world = invert(frame.T_world_rig_start.double() @ lidar.T_rig_lidar)
        points = transform(T_lidar_world, world_points(frame, sweep, lidar)).float().numpy()
        rows = message.data.reshape(len(points), -1)
        rows[:, :12] = np.frombuffer(points.tobytes(), np.uint8).reshape(-1, 12)
    return made


@pytest.mark.parametrize(("driver", "drop"), [("velodyne", False), ("plain", True)])
def test_compensated_points_lie_where_the_raw_ones_do(driver: str, drop: bool, tmp_path: Path) -> None:
    made = compensated(street(CAPTURE, driver=driver))
    capture = read(made, tmp_path, "lidars: {lidar: {points: /points, compensated: true}}\n")
    for mine, true in list(zip(capture.sweeps, CAPTURE.sweeps, strict=True))[:3]:
        sweep, wanted = mine.load(), true.load()
        found = world_points(mine, sweep.select(sweep.returned), capture.lidars[0])
        places = world_points(true, wanted.select(wanted.returned), CAPTURE.lidars[0])
        near = torch.cdist(places, found).min(dim=1).values
        assert len(found) == len(places) and float(near.max()) < (0.01 if drop else 2e-3)
        assert (mine.time_end == mine.time_start) is drop  # without times the moment of the stamp is all that is known


def test_returns_are_those_of_the_sweep(tmp_path: Path) -> None:
    frame = read(street(CAPTURE), tmp_path).sweeps[3]
    points, times = frame.load.returns()  # type: ignore[attr-defined]
    sweep = frame.load()
    hit = sweep.select(sweep.returned)
    assert len(points) == len(hit) and torch.equal(times.sort().values, hit.times.sort().values)
    near = torch.cdist(points, hit.directions.double() * hit.ranges.double()[:, None]).min(dim=1).values
    assert float(near.max()) < 1e-4


def test_returns_of_the_vehicle_are_left_out(tmp_path: Path) -> None:
    true = CAPTURE.sweeps[0].load()
    places = (true.directions * true.ranges[:, None])[true.returned]
    ahead, beside = 8.0, 6.0
    own = int(((places[:, 0].abs() < ahead) & (places[:, 1].abs() < beside)).sum())
    capture = read(street(CAPTURE), tmp_path, f"lidars: {{lidar: {{points: /points, vehicle: [{ahead}, {beside}]}}}}\n")
    assert own > 0 and int(capture.sweeps[0].load().returned.sum()) == int(true.returned.sum()) - own


@pytest.mark.parametrize("sense", [1, -1])
def test_the_sense_of_turning_and_the_start_come_from_times(sense: int, tmp_path: Path) -> None:
    """A lidar that turns the other way and begins to the left."""
    made = Recording(CAPTURE).images().mountings().odometry()
    for frame in CAPTURE.sweeps:
        sweep = frame.load()
        azimuth = azimuth_elevation(sweep.directions.double())[:, 0]
        turned = torch.remainder(sense * (azimuth - 1.5), 2 * torch.pi) / (2 * torch.pi)
        sweep = type(sweep)(
            *(
                getattr(sweep, f) if f != "times" else frame.time_start + 0.1 * turned
                for f in sweep.__dataclass_fields__
            )
        )
        made.add(
            "/points",
            CLOUD,
            stamp_of(frame.time_start),
            made.cloud(sweep, stamp_of(frame.time_start), DRIVERS["velodyne"]),
        )
    capture = read(made, tmp_path)
    lidar, sweep = capture.lidars[0], capture.sweeps[2].load()
    assert lidar.clockwise is (sense < 0) and abs(lidar.azimuth_start - 1.5) < 0.1
    azimuth = azimuth_elevation(sweep.directions.double())[:, 0]
    wanted = CAPTURE.sweeps[2].time_start + 0.1 * torch.remainder(sense * (azimuth - 1.5), 2 * torch.pi) / (
        2 * torch.pi
    )
    assert float((sweep.times - wanted)[~sweep.returned].abs().quantile(0.95)) < 0.003


def test_rings_without_times_are_timed_by_the_azimuth(tmp_path: Path) -> None:
    """Points in the order of measuring say which way the lidar turns."""
    DRIVERS["timeless"] = Driver((("x", 7), ("y", 7), ("z", 7), ("intensity", 7), ("ring", 4)), None)
    try:
        capture = read(street(CAPTURE, driver="timeless"), tmp_path)
    finally:
        del DRIVERS["timeless"]
    mine, true = capture.sweeps[2].load(), CAPTURE.sweeps[2].load()
    mine, true = mine.select(mine.returned), true.select(true.returned)
    near = torch.cdist(true.directions.double(), mine.directions.double()).min(dim=1).indices
    assert len(mine) == len(true) and float((mine.times[near] - true.times).abs().max()) < 0.002
