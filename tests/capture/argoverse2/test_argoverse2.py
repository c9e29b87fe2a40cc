# SPDX-License-Identifier: Apache-2.0
"""A log in Argoverse 2's layout becomes the street that it was made from; damage is a sentence."""

import math
import shutil
import sys
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
import pyarrow.feather
from tiny_argoverse2 import (
    CAMERAS,
    CAR,
    FIRST,
    LEAD,
    LOG,
    SIZE,
    SWEEPS,
    TURN,
    camera,
    car_at,
    mounted,
    rig_at,
    times_of,
    write,
    write_log,
)

from nurec_lite.capture.argoverse2.read import read_argoverse2
from nurec_lite.capture.arrow.feather import read_feather
from nurec_lite.capture.check import check_capture
from nurec_lite.capture.deskew import world_points
from nurec_lite.capture.types import Capture, CaptureError
from nurec_lite.config import DataConfig, PosesChoice
from nurec_lite.geometry.camera import project_points
from nurec_lite.geometry.lidar import azimuth_elevation
from nurec_lite.geometry.se3 import invert, transform
from nurec_lite.readers import read_capture
from nurec_lite.scene.points import actors_in, assign_to_actors

REAL = Path(__file__).resolve().parents[3].parent / "shared/data/samples/argoverse2"
LIDARS = ("up_lidar", "down_lidar")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_log(tmp_path_factory.mktemp("argoverse2") / "val")


@pytest.fixture(scope="module")
def capture(whole: Path) -> Capture:
    found = read_argoverse2(whole.parent.parent, drive="7fab")
    check_capture(found, "tiny")
    return found


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / LOG))


def test_sensors_sit_where_they_do(capture: Capture) -> None:
    assert [c.name for c in capture.cameras] == ["ring_front_center", "ring_rear_left"], "those of the ring, in order"
    for found in capture.cameras:
        torch.testing.assert_close(found.T_rig_cam, camera(found.name), atol=1e-6, rtol=0)
    assert [lidar.name for lidar in capture.lidars] == list(LIDARS)
    for lidar in capture.lidars:
        torch.testing.assert_close(lidar.T_rig_lidar[:3, 3], mounted(lidar.name)[:3, 3], atol=1e-9, rtol=0)
        assert float(lidar.T_rig_lidar[2, 2]) == 1, (
            "the lower one's axes are turned up, so that its rays count like others"
        )
    assert len(capture.images) == 4 * SWEEPS and len(capture.sweeps) == 2 * SWEEPS
    assert capture.images[0].load().shape == (SIZE[1], SIZE[0], 3)


def test_the_rig_drives_as_it_did(capture: Capture) -> None:
    for frame in (*capture.sweeps, *capture.images):
        times = torch.tensor([frame.time_start, frame.time_end]).double()
        found = torch.stack([frame.T_world_rig_start, frame.T_world_rig_end])
        torch.testing.assert_close(found, rig_at(times), atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", LIDARS)
def test_points_are_moved_back_to_their_own_times(capture: Capture, name: str) -> None:
    frame, lidar = [f for f in capture.sweeps if f.sensor == name][1], capture.lidar(name)
    sweep = frame.load()
    known = sweep.select(sweep.returned)
    world = world_points(frame, known, lidar)
    ground, wall = (world[:, 2] - 66).abs() < 0.05, ((world[:, 0] - 5100).abs() - 12).abs() < 0.05
    assert float((ground | wall).float().mean()) > 0.97, "coordinates are stored as half floats"
    elevation = azimuth_elevation(known.directions.double())[:, 1]
    assert float((elevation - lidar.elevations[known.rings]).abs().quantile(0.99)) < 1e-3
    assert float((known.intensities - 0.2).abs().max()) < 1e-6


@pytest.mark.parametrize("name", LIDARS)
def test_rays_that_did_not_return_have_the_times_of_their_beams(capture: Capture, name: str) -> None:
    frame, lidar = [f for f in capture.sweeps if f.sensor == name][2], capture.lidar(name)
    sweep = frame.load()
    lost = sweep.select(~sweep.returned)
    assert 100 < len(lost) < int(sweep.returned.sum()), "along the street and above the walls nothing returns"
    azimuth = azimuth_elevation(lost.directions.double())[:, 0]
    laser = _lasers(lidar.elevations)[lost.rings]
    late = (lost.times - (FIRST + 2 * TURN) - times_of(name, azimuth, laser)) / TURN
    assert float((torch.remainder(late + 0.5, 1) - 0.5).abs().quantile(0.99)) < 0.01
    assert frame.time_start - 1e-6 <= float(lost.times.min()) and float(lost.times.max()) <= frame.time_end + 1e-6


def _lasers(elevations: torch.Tensor) -> torch.Tensor:
    from nurec_lite.capture.argoverse2.rays import NOMINAL

    nominal = torch.deg2rad(torch.tensor(NOMINAL)).double()
    sign = 1 if float(elevations.min()) < -0.3 else -1
    return (elevations[:, None] - sign * nominal[None]).abs().argmin(dim=1)


def test_a_car_that_drives_is_a_track_and_a_parked_one_is_not(capture: Capture) -> None:
    tracks = capture.tracks
    assert tracks.ids == (CAR,) and tracks.classes == ("REGULAR_VEHICLE",)
    torch.testing.assert_close(tracks.sizes, torch.tensor([[4.4, 1.9, 1.5]]).double())
    torch.testing.assert_close(tracks.translations, car_at(tracks.times), atol=0.03, rtol=0)


def test_points_fall_into_images_where_they_are(capture: Capture) -> None:
    """Through the vehicle's poses at both times, as the stored points through the calibration alone."""
    frame, sensor = capture.sweeps[0], capture.cameras[0]
    sweep = frame.load()
    world = world_points(frame, sweep.select(sweep.returned), capture.lidars[0])
    shot = capture.images[0]
    pixels, depth = project_points(sensor, transform(invert(shot.T_world_rig_start @ sensor.T_rig_cam), world))
    true, true_depth = project_points(
        sensor, transform(invert(rig_at(torch.tensor([FIRST]).double())[0] @ camera(sensor.name)), world)
    )
    seen = depth > 1
    torch.testing.assert_close(pixels[seen], true[seen], atol=1e-3, rtol=0)
    assert int(seen.sum()) > 100 and torch.equal(seen, true_depth > 1)


def test_any_sensors_in_any_order(whole: Path) -> None:
    config = DataConfig(kind="argoverse2", root=str(whole), downscale=2, poses=PosesChoice(source="capture"))
    config.cameras, config.lidars, config.seconds = (
        ["stereo_front_left", "ring_front_center"],
        ["down_lidar"],
        [0.3, 0.5],
    )
    found = read_capture(config)
    assert [c.name for c in found.cameras] == config.cameras and [s.name for s in found.lidars] == ["down_lidar"]
    assert len(found.images) == 8 and len(found.sweeps) == 2 and found.images[0].load().shape == (16, 24, 3)


def test_one_of_several_logs(tmp_path: Path, folder: Path) -> None:
    shutil.copytree(folder, tmp_path / "8bcd-made")
    for drive in ("8bcd-made", "8b", "1"):
        assert read_argoverse2(tmp_path, drive=drive).name == "argoverse2_8bcd-made"
    with pytest.raises(CaptureError, match=r"holds 2 logs \(7fab-made, 8bcd-made\); choose one by data.drive"):
        read_argoverse2(tmp_path)


def test_a_test_set_has_no_tracks_and_images_may_be_missing(folder: Path) -> None:
    (folder / "annotations.feather").unlink()
    next((folder / "sensors/cameras/ring_front_center").iterdir()).unlink()
    shutil.rmtree(folder / "sensors/cameras/ring_rear_left")
    found = read_argoverse2(folder)
    assert not found.tracks.ids and len(found.images) == 2 * SWEEPS - 1


def test_its_package_is_named_where_it_is_missing(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        CaptureError, match="needs the package pyarrow, which is not installed; run pip install pyarrow"
    ):
        read_argoverse2(whole)


# ---- damage


def table(name: str, change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    def changed(folder: Path) -> None:
        path = next(folder.glob(f"**/{name}*.feather"))
        columns = {
            k: v.to_numpy()
            for k, v in zip(*(lambda t: (t.column_names, t.columns))(pyarrow.feather.read_table(path)), strict=True)
        }
        change(columns)
        write(path, columns)

    return changed


def starting_at(row: int) -> Callable[[dict[str, Any]], object]:
    return lambda columns: columns.update({name: values[row:] for name, values in columns.items()})


def first_sweep(folder: Path) -> Path:
    return next((folder / "sensors/lidar").iterdir())


def put(name: str, value: object) -> Callable[[dict[str, Any]], object]:
    return lambda columns: columns.update({name: np.full(len(columns[name]), value)})


FLAWS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no calibration": (lambda f: (f / "calibration/intrinsics.feather").unlink(), "cannot be read (No such file"),
    "a table that is cut off": (
        lambda f: overwrite(f / "annotations.feather", (f / "annotations.feather").read_bytes()[:-99]),
        "annotations.feather is no whole feather file",
    ),
    "an empty file": (lambda f: first_sweep(f).write_bytes(b""), "is empty"),
    "no column": (table("315", lambda c: c.pop("offset_ns")), "has no column 'offset_ns'"),
    "points as words": (table("315", put("x", "far")), "'x' holds string, but must hold numbers"),
    "points that are not finite": (table("315", put("y", np.nan)), "'y' is not finite everywhere"),
    "times of another sweep": (table("315", put("offset_ns", 10**9)), "'offset_ns' lies outside of a turn"),
    "no rotation": (table("city", lambda c: [c.update({k: 0 * c[k]}) for k in ("qw", "qx", "qy", "qz")]), "rows that are no poses"),
    "poses of another day": (table("city", lambda c: c.update(timestamp_ns=c["timestamp_ns"] + 10**13)), "lies outside of the times"),
    "a lens of zeros": (table("intrinsics", put("fx_px", 0.0)), "is no camera of 48x32 pixels"),
    "a camera that sits nowhere": (table("intrinsics", lambda c: c["sensor_name"].put(0, "x")), "names 'x', which egovehicle"),
    "a box without a size": (table("annotations", put("width_m", 0.0)), "sizes that are not above 0 m"),
    "boxes of another day": (table("annotations", lambda c: c.update(timestamp_ns=c["timestamp_ns"] + 10**13)), "has boxes at other times"),
    "two lenses of a camera": (table("intrinsics", lambda c: c["sensor_name"].put(0, "ring_rear_left")), "has two rows of ring_rear_left"),
    "two places of a camera": (table("egovehicle", lambda c: c["sensor_name"].put(0, "down_lidar")), "has two rows of down_lidar"),
    "a camera without a lens": (table("intrinsics", starting_at(1)), "has no row of ring_front_center"),
    "lidars that sit nowhere": (table("egovehicle", starting_at(2)), "has no row of a lidar"),
    "images of another size": (
        lambda f: shutil.rmtree(f / "sensors/lidar") or table("intrinsics", put("width_px", 99))(f),
        "is 48x32 pixels, but intrinsics.feather",
    ),
    "no sensors": (lambda f: shutil.rmtree(f / "sensors"), "holds neither images nor sweeps"),
}  # fmt: skip


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_flaw_is_a_sentence(folder: Path, flaw: str) -> None:
    change, said = FLAWS[flaw]
    change(folder)
    with pytest.raises(CaptureError) as refused:
        read_argoverse2(folder)
    assert said in str(refused.value) and "; " in str(refused.value) and str(refused.value).isprintable()


@pytest.mark.parametrize(("key", "name"), [("cameras", "ring_top"), ("lidars", "top_lidar")])
def test_a_sensor_that_is_not_there(whole: Path, key: str, name: str) -> None:
    with pytest.raises(CaptureError, match=f"data.{key} names '{name}', but .* has "):
        read_argoverse2(whole, **{key: [name]})


def test_a_table_of_gigabytes(tmp_path: Path) -> None:
    pyarrow.feather.write_feather(
        pa.table({"x": np.zeros(20_000_000, np.float16)}), tmp_path / "x.feather", compression="lz4"
    )
    with bounded_memory(30 << 20), pytest.raises(CaptureError, match="has more than 2000000 rows"):
        read_feather(tmp_path / "x.feather", {"x": float})


@pytest.mark.parametrize("claimed", [1 << 40, 1 << 30, -2, -(1 << 62)])
def test_a_buffer_that_claims_gigabytes(tmp_path: Path, claimed: int) -> None:
    path, true = tmp_path / "x.feather", (8 * 50_000).to_bytes(8, "little")
    pyarrow.feather.write_feather(pa.table({"x": np.zeros(50_000)}), path, compression="lz4")
    data = path.read_bytes()
    assert data.count(true) == 1 and len(read_feather(path, {"x": float})["x"]) == 50_000
    path.write_bytes(data.replace(true, claimed.to_bytes(8, "little", signed=True)))
    with (
        bounded_memory(30 << 20),
        pytest.raises(CaptureError, match=r"x.feather (has more than|cannot be read)") as refused,
    ):
        read_feather(path, {"x": float})
    assert not isinstance(refused.value.__cause__, MemoryError), "nobody tried to make room for it"


def test_texts_of_gigabytes(tmp_path: Path) -> None:
    path = tmp_path / "x.feather"
    pyarrow.feather.write_feather(pa.table({"x": ["a" * (1 << 20)] * 300}), path, compression="zstd")
    with bounded_memory(50 << 20), pytest.raises(CaptureError, match="or 256 MiB"):
        read_feather(path, {"x": str})


@pytest.mark.slow
@settings(max_examples=30)
@given(st.data())
def test_a_damaged_file_is_refused_or_read(whole: Path, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(path for path in whole.rglob("*.*") if path.is_file())))
    before = path.read_bytes()
    overwrite(path, data.draw(mutated(before)))
    try:
        read_or_refuse(lambda: checked(whole), "")
    finally:
        overwrite(path, before)


def checked(folder: Path) -> None:
    found = read_argoverse2(folder)
    check_capture(found, folder.name)
    for frame in (found.images[0], *found.sweeps[:: SWEEPS - 1]):
        frame.load()


# ---- real files


@pytest.mark.skipif(not REAL.is_dir(), reason="the sample of Argoverse 2 is not here")
def test_two_real_sweeps() -> None:
    found = read_argoverse2(REAL)
    check_capture(found, "argoverse2")
    assert len(found.sweeps) == 4 and len(found.lidars) == 2
    boxes = set[int]()
    for frame in found.sweeps:
        lidar, sweep = found.lidar(frame.sensor), frame.load()
        known = sweep.select(sweep.returned)
        elevation = azimuth_elevation(known.directions.double())[:, 1]
        assert float(torch.rad2deg(elevation - lidar.elevations[known.rings]).abs().quantile(0.9)) < 0.01
        assert 0.95 < len(sweep) / (32 * lidar.azimuth_steps) < 1.02, "rays that did not return complete the turn"
        node, _ = assign_to_actors(actors_in(found.tracks, [frame])[0], known, world_points(frame, known, lidar))
        boxes |= set(node[node > 0].unique().tolist())
    assert len(boxes) >= 20 and math.isclose(found.tracks.sizes[:, 0].median(), 4.5, abs_tol=1.0)


def test_the_lead_of_lasers_is_as_large_as_in_real_files() -> None:
    assert float(LEAD.abs().max()) == pytest.approx(math.radians(4.2)) and set(CAMERAS) >= {"ring_front_center"}
