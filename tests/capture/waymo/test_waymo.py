# SPDX-License-Identifier: Apache-2.0
"""A segment in the layout of Waymo's version 2 becomes the street that it was made from; damage is a sentence."""

import math
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mutations import bounded_memory, mutated, overwrite, read_or_refuse

pytest.importorskip("pyarrow")
import pyarrow as pa
import pyarrow.parquet as parquet
from tiny_waymo import (
    CAMERAS,
    CAR,
    EXPOSED,
    FRAMES,
    LATE,
    MOMENT,
    REAR,
    SEGMENT,
    SIZE,
    TOP,
    TURN,
    at,
    camera,
    car_at,
    column_times,
    mounted,
    pose_time,
    rig_at,
    tables,
    write_segment,
)

from nurec_lite.capture.arrow import parquet as arrow_parquet
from nurec_lite.capture.arrow.parquet import Row, read_columns
from nurec_lite.capture.check import check_capture
from nurec_lite.capture.deskew import project_world_points, world_points
from nurec_lite.capture.types import Capture, CaptureError
from nurec_lite.capture.waymo.read import read_waymo
from nurec_lite.capture.waymo.segment import VEHICLE
from nurec_lite.config import DataConfig, PosesChoice
from nurec_lite.readers import read_capture

REAL = Path(__file__).resolve().parents[3].parent / "shared/data/samples/waymo_v2"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_segment(tmp_path_factory.mktemp("waymo") / "training")


@pytest.fixture(scope="module")
def capture(whole: Path) -> Capture:
    found = read_waymo(whole.parent, drive="1002", lidars=["TOP", "REAR_LIDAR"])
    check_capture(found, "tiny")
    return found


@pytest.fixture
def root(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "training"))


def test_sensors_sit_where_they_do(capture: Capture) -> None:
    assert [(c.name, c.shutter) for c in capture.cameras] == [
        ("FRONT", "right_to_left"),
        ("SIDE_LEFT", "top_to_bottom"),
    ]
    for found in capture.cameras:
        torch.testing.assert_close(found.T_rig_cam, camera(found.name), atol=1e-6, rtol=0)
        assert found.distortion == (0.03, -0.02, 0.0, 0.0, 0.0) and (found.fx, found.cx, found.cy) == (40, 24, 16)
    top, rear = capture.lidars
    for lidar, name in ((top, "TOP"), (rear, "REAR")):
        torch.testing.assert_close(lidar.T_rig_lidar, mounted(name), atol=1e-6, rtol=0)
    torch.testing.assert_close(top.elevations, TOP.flip(0), atol=1e-9, rtol=0)
    step = (REAR[1] - REAR[0]) / 8
    torch.testing.assert_close(rear.elevations, REAR[1] - step * (torch.arange(8).double() + 0.5), atol=1e-9, rtol=0)


def test_rows_of_images_are_exposed_when_they_were(capture: Capture) -> None:
    assert len(capture.images) == 2 * FRAMES and capture.images[0].load().shape == (SIZE[1], SIZE[0], 3)
    numbers = {name: number for number, (name, _, _) in CAMERAS.items()}
    for frame in capture.images:
        middle = pose_time(numbers[frame.sensor], frame.index)
        assert (frame.time_start, frame.time_end) == pytest.approx((middle + EXPOSED[0], middle + EXPOSED[1]), abs=1e-6)
        torch.testing.assert_close(frame.T_world_rig_start, at(frame.time_start), atol=1e-5, rtol=0)
        torch.testing.assert_close(frame.T_world_rig_end, at(frame.time_end), atol=1e-5, rtol=0)


def test_the_upper_lidars_clock_comes_from_its_poses(capture: Capture) -> None:
    frames = [f for f in capture.sweeps if f.sensor == "TOP"]
    assert [f.index for f in frames] == list(range(FRAMES))
    for k, frame in enumerate(frames):
        assert frame.time_start == pytest.approx(
            TURN * k + LATE, abs=0.002
        ) and frame.time_end - frame.time_start == pytest.approx(TURN)
        torch.testing.assert_close(frame.T_world_rig_start[:3, 3], at(TURN * k + LATE)[:3, 3], atol=0.02, rtol=0)


@pytest.mark.parametrize("name", ["TOP", "REAR_LIDAR"])
def test_points_lie_where_they_were(capture: Capture, name: str) -> None:
    frame, lidar = [f for f in capture.sweeps if f.sensor == name][1], capture.lidar(name)
    sweep = frame.load()
    world = world_points(frame, sweep.select(sweep.returned), lidar)
    ground, wall = (world[:, 2] + 65).abs() < 0.01, ((world[:, 0] - 860).abs() - 12).abs() < 0.01
    assert float((ground | wall).float().mean()) == 1
    assert 5 < int((~sweep.returned).sum()) < len(sweep), "rays that did not return are pixels, too"
    if name == "TOP":
        assert len(sweep) == len(TOP) * 90
        torch.testing.assert_close(sweep.times[:90], column_times(1), atol=0.002, rtol=0)
    else:
        assert frame.time_start == frame.time_end == pytest.approx(TURN + MOMENT, abs=0.002), "all at the frame's pose"


def test_points_fall_into_images_where_they_are(capture: Capture) -> None:
    """A point that a rolling shutter sees lies on the ray through its pixel at that pixel's time."""
    frame, sensor = capture.images[2], capture.cameras[0]
    world = torch.tensor([[855.0, 1590, -64], [863, 1588, -64.5], [860, 1600, -62]]).double()
    pixels, depth = project_world_points(sensor, frame, world)
    share = (SIZE[0] - 0.5 - pixels[:, 0]) / (SIZE[0] - 1)
    rigs = rig_at(frame.time_start + share * (frame.time_end - frame.time_start))
    T = torch.linalg.inv(rigs @ camera("FRONT"))
    local = (T[:, :3, :3] @ world[..., None])[..., 0] + T[:, :3, 3]
    xy = local[:, :2] / local[:, 2:]
    r2 = xy.square().sum(dim=1, keepdim=True)
    true = xy * (1 + 0.03 * r2 - 0.02 * r2**2) * 40 + torch.tensor([24.0, 16])
    assert bool((depth > 5).all())
    torch.testing.assert_close(pixels, true, atol=1e-3, rtol=0)


def test_a_car_that_drives_is_a_track_and_a_parked_one_is_not(capture: Capture) -> None:
    tracks = capture.tracks
    assert tracks.ids == (f"box{CAR}",) and tracks.classes == ("vehicle",), (
        "a name that begins with a sign gets a word before it"
    )
    torch.testing.assert_close(tracks.sizes, torch.tensor([[4.4, 1.9, 1.5]]).double())
    torch.testing.assert_close(tracks.translations, car_at(tracks.times), atol=0.02, rtol=0)


def test_any_sensors_in_any_order(whole: Path) -> None:
    config = DataConfig(kind="waymo", root=str(whole), downscale=2, poses=PosesChoice(source="capture"), frames=[1, 3])
    config.cameras = ["SIDE_LEFT", "FRONT"]
    found = read_capture(config)
    assert [c.name for c in found.cameras] == config.cameras and [s.name for s in found.lidars] == ["TOP"]
    assert len(found.images) == 4 and len(found.sweeps) == 2 and found.images[0].load().shape == (16, 24, 3)


@pytest.mark.parametrize(("names", "group"), [(True, 100), (False, 1)])
def test_names_in_place_of_numbers_and_rows_in_other_groups(
    capture: Capture, tmp_path: Path, names: bool, group: int
) -> None:
    found = read_waymo(write_segment(tmp_path, names, group), lidars=["TOP", "REAR_LIDAR"])
    order = [3, 0, 5, 1]  # images in any order, from a process that was sent them
    for k in order:
        frame = pickle.loads(pickle.dumps(found.images[k]))
        assert torch.equal(frame.load(), capture.images[k].load())
    assert all(
        torch.equal(a.load().ranges, b.load().ranges)
        for a, b in zip(found.sweeps[1:3], capture.sweeps[1:3], strict=True)
    )


def test_components_may_be_missing(root: Path) -> None:
    for part in ("camera_image", "lidar_box", "lidar_pose"):
        shutil.rmtree(root / part)
    found = read_waymo(root)
    assert not found.cameras and not found.tracks.ids and len(found.sweeps) == FRAMES
    assert found.doubts[0].remedy == "download camera_image, too"


# ---- damage


def part(component: str, **changes: Any) -> Callable[[Path], object]:
    """`changes` replace the columns that end so."""

    def changed(root: Path) -> None:
        columns = tables()[component]
        for end, value in changes.items():
            name = next(k for k in columns if k.endswith(end))
            if value is None:
                del columns[name]
            else:
                columns[name] = value(columns[name]) if callable(value) else [value] * len(columns[name])
        parquet.write_table(pa.table(columns), root / component / f"{SEGMENT}.parquet")

    return changed


def cut(component: str) -> Callable[[Path], object]:
    path = f"{component}/{SEGMENT}.parquet"
    return lambda root: overwrite(root / path, (root / path).read_bytes()[:-50])


def linked_to_nothing(component: str) -> Callable[[Path], object]:
    """A part of the data set on a disk that is not there."""

    def change(root: Path) -> None:
        path = root / component / f"{SEGMENT}.parquet"
        path.unlink()
        path.symlink_to("elsewhere")

    return change


def rows(component: str, places: list[int]) -> Callable[[Path], object]:
    """Leaves rows of a component, some of them twice."""

    def change(root: Path) -> None:
        path = root / component / f"{SEGMENT}.parquet"
        parquet.write_table(parquet.read_table(path).take(pa.array(places, pa.int64())), path)

    return change


def stamps(component: str, later: int) -> Callable[[Path], object]:  # microseconds
    def change(root: Path) -> None:
        path, name = root / component / f"{SEGMENT}.parquet", "key.frame_timestamp_micros"
        known = parquet.read_table(path)
        moved = pa.array(known[name].to_numpy() + later)
        parquet.write_table(known.set_column(known.schema.get_field_index(name), name, moved), path)

    return change


FLAWS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a file that is cut off": (cut("camera_image"), "camera_image"),
    "no calibration": (lambda root: shutil.rmtree(root / "camera_calibration"), "does not exist; download this part"),
    "no column": (part("vehicle_pose", transform=None), f"has no column '{VEHICLE}'"),
    "poses of three numbers": (part("vehicle_pose", transform=[1.0, 2, 3]), "holds 3 numbers, but a pose has 16"),
    "poses of zeros": (part("vehicle_pose", transform=[0.0] * 16), "holds rows that are no poses"),
    "poses of different lengths": (
        part("vehicle_pose", transform=lambda rows: [[1.0] * (16 + k) for k in range(len(rows))]), "must hold lists of numbers",
    ),
    "frames without poses": (
        lambda root: parquet.write_table(
            parquet.read_table(root / f"vehicle_pose/{SEGMENT}.parquet").slice(1), root / f"vehicle_pose/{SEGMENT}.parquet"
        ), "lacks frames that",
    ),
    "stamps as words": (part("lidar", micros="now"), "must hold whole numbers"),
    "a lens of zeros": (part("camera_calibration", f_u=0.0), "is no camera of 48x32 pixels"),
    "images of another size": (part("camera_calibration", width=50), "is 48x32 pixels, but camera_calibration"),
    "images that are none": (part("camera_image", image=b"jpeg"), "is no whole PNG or JPEG"),
    "images that end too soon": (part("camera_image", done_time=1.0), "end before they begin"),
    "times of another day": (part("camera_image", pose_timestamp=1.0), "has poses at other times"),
    "beams of another lidar": (part("lidar_calibration", values=[0.0, 0.1]), "has 2 beams, but its range images 12 rows"),
    "beams that fall": (part("lidar_calibration", values=TOP.flip(0).tolist()), "do not rise"),
    "ranges of another shape": (part("lidar", shape=[12, 91, 4]), "holds no image"),
    "ranges that are not finite": (part("lidar", values=[math.nan] * (12 * 90 * 4)), "lidar"),
    "sweeps of the next minute": (stamps("lidar", 60 * 10**6), "has sweeps at other times than the poses of its frames"),
    "returns beyond 10 km": (part("lidar", values=[1e30] * (12 * 90 * 4)), "holds returns beyond 10 km"),
    "images by a link to nothing": (linked_to_nothing("camera_image"), "camera_image/1002394760240072_1120_000_1140_000.parquet"),
    "sweeps by a link to nothing": (linked_to_nothing("lidar"), "lidar/1002394760240072_1120_000_1140_000.parquet"),
    "a camera without a lens": (rows("camera_calibration", [0]), "has no row of SIDE_LEFT"),
    "a lens twice": (rows("camera_calibration", [0, 1, 0]), "has two rows of FRONT"),
    "a lidar that sits twice": (rows("lidar_calibration", [0, 1, 0]), "has two rows of TOP"),
    "a sweep twice": (rows("lidar", [0, 1, 2, 0]), "has two rows of 1552440195362591, 'TOP'"),
    "a box without a size": (part("lidar_box", **{"size.x": 0.0}), "boxes without a size"),
}  # fmt: skip


def test_a_table_of_boxes_may_be_empty(root: Path) -> None:
    rows("lidar_box", [])(root)
    assert len(read_waymo(root).tracks) == 0


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_flaw_is_a_sentence(root: Path, flaw: str) -> None:
    change, said = FLAWS[flaw]
    change(root)
    with pytest.raises(CaptureError) as refused:
        read_waymo(root)
    assert said in str(refused.value) and "; " in str(refused.value) and str(refused.value).isprintable()


def test_large_rows_are_refused_before_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_parquet, "LARGEST_ROW", 1 << 20)
    path = tmp_path / "x.parquet"
    parquet.write_table(pa.table({"x": [np.zeros(4_000_000, np.float32)], "n": [1]}), path, use_dictionary=False)
    with bounded_memory(10 << 20):
        with pytest.raises(CaptureError, match="holds values of more than 1048576 bytes"):
            Row(path, 0).read(("x",))
        assert read_columns(path, {"n": int})["n"].tolist() == [1]


def test_rows_in_any_order_are_the_same(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    parquet.write_table(pa.table({"x": [[k] * k for k in range(20)]}), path, row_group_size=6)
    for number in (7, 3, 19, 0, 19, 8):
        assert Row(path, number).read(("x",))["x"].as_py() == [number] * number
    with pytest.raises(CaptureError, match="has no row 20"):
        Row(path, 20).read(("x",))


@pytest.mark.slow
@settings(max_examples=30)
@given(st.data())
def test_a_damaged_file_is_refused_or_read(whole: Path, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(whole.rglob("*.parquet"))))
    before = path.read_bytes()
    overwrite(path, data.draw(mutated(before)))
    try:
        read_or_refuse(lambda: checked(whole), "")
    finally:
        overwrite(path, before)


def checked(root: Path) -> None:
    found = read_waymo(root)
    check_capture(found, root.name)
    for frame in (*found.images[:2], *found.sweeps[:2]):
        frame.load()


# ---- real files


@pytest.mark.skipif(not REAL.is_dir(), reason="the samples of Waymo are not here")
def test_real_poses_have_the_columns_that_are_read() -> None:
    path = next((REAL / "vehicle_pose").iterdir())
    table = read_columns(path, {"key.frame_timestamp_micros": int, VEHICLE: list})
    steps = np.diff(table["key.frame_timestamp_micros"]) * 1e-6
    assert table[VEHICLE].shape == (199, 16) and np.median(steps) == pytest.approx(0.1, abs=1e-3)
    assert (
        read_columns(next((REAL / "camera_hkp").iterdir()), {"key.camera_name": object})["key.camera_name"][0]
        == "FRONT"
    )
