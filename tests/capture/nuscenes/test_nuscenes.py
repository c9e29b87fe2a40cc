# SPDX-License-Identifier: Apache-2.0
"""A scene in nuScenes' layout becomes the street that it was made from; damage is a sentence."""

import json
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mutations import mutated, overwrite, read_or_refuse
from tiny_nuscenes import CAMERAS, CAR, NAME, SIZE, SWEEPS, T_RIG_LIDAR, TURN, camera, rig_at, stamp, write_scene
from tiny_nuscenes import sweep as file_of

from nurec_lite.capture.check import check_capture
from nurec_lite.capture.deskew import world_points
from nurec_lite.capture.nuscenes.rays import NOMINAL
from nurec_lite.capture.nuscenes.read import read_nuscenes
from nurec_lite.capture.types import CaptureError
from nurec_lite.config import DataConfig, PosesChoice
from nurec_lite.geometry.lidar import azimuth_elevation
from nurec_lite.readers import read_capture

REAL = Path(__file__).resolve().parents[3].parent / "shared/data/samples/nuscenes"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_scene(tmp_path_factory.mktemp("nuscenes"))


@pytest.fixture
def root(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def test_sensors_sit_where_they_do(whole: Path) -> None:
    capture = read_nuscenes(whole, drive=NAME)
    check_capture(capture, "tiny")
    torch.testing.assert_close(capture.lidars[0].T_rig_lidar, T_RIG_LIDAR, atol=1e-9, rtol=0)
    torch.testing.assert_close(capture.lidars[0].elevations, NOMINAL, atol=1e-4, rtol=0)
    for found in capture.cameras:
        torch.testing.assert_close(found.T_rig_cam, camera(found.name), atol=1e-9, rtol=0)
    assert len(capture.images) == 6 and len(capture.sweeps) == SWEEPS and not capture.doubts
    assert capture.images[0].load().shape == (SIZE[1], SIZE[0], 3)


def test_the_tables_or_the_folder_above_name_a_scene(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The archive v1.0-mini.tgz is often unpacked into a folder of the same name."""
    inner = root.parent / "v1.0-mini"
    root.rename(inner)
    monkeypatch.chdir(inner / "v1.0-mini")
    for place in (inner, inner / "v1.0-mini", inner.parent, Path()):
        found = read_nuscenes(place, drive=NAME)
        assert len(found.images) == 6 and len(found.sweeps) == SWEEPS and found.images[0].load().shape[2] == 3


def test_points_are_moved_back_to_their_own_times(whole: Path) -> None:
    capture = read_nuscenes(whole, drive=NAME)
    frame, lidar = capture.sweeps[3], capture.lidars[0]
    sweep = frame.load()
    known = sweep.select(sweep.returned)
    world = world_points(frame, known, lidar)
    ground, wall = world[:, 2].abs() < 0.02, ((world[:, 0] - 600).abs() - 12).abs() < 0.02
    assert float((ground | wall).float().mean()) > 0.99 and frame.time_end - frame.time_start == pytest.approx(TURN)
    azimuth, elevation = azimuth_elevation(known.directions.double()).unbind(-1)
    assert float((elevation - lidar.elevations[known.rings]).abs().max()) < 1e-4, "a beam is where the lidar sent it"
    late = (known.times - frame.time_start) / TURN - lidar.spin_fraction(azimuth)
    assert float((torch.remainder(late + 0.5, 1) - 0.5).abs().max()) < 1e-4
    lost = int((file_of(0.1 + 3 * TURN)[:, :3].norm(dim=1) == 0).sum())
    assert int((~sweep.returned).sum()) == lost > 10, "along the street some rays do not return"


def test_the_rig_drives_as_it_did(whole: Path) -> None:
    for k, frame in enumerate(read_nuscenes(whole, drive=NAME).sweeps):
        true = rig_at(torch.tensor([0.1 + TURN * k]).double())[0]
        torch.testing.assert_close(frame.T_world_rig_end, true, atol=1e-5, rtol=0)


def test_a_car_that_drives_is_a_track_and_a_parked_one_is_not(whole: Path) -> None:
    tracks = read_nuscenes(whole, drive=NAME).tracks
    assert tracks.ids == (CAR,) and tracks.classes == ("vehicle.car",)
    torch.testing.assert_close(tracks.sizes, torch.tensor([[4.4, 1.9, 1.5]], dtype=torch.float64))
    turned = 0.25 + math.atan2(1.5, 11.4) / (2 * math.pi)  # from the left to the car, which is ahead on the right
    ends = 0.12 + 5 * TURN * torch.arange(3)  # of the sweeps; time 0 is 0.1 s before the first pose
    assert float((tracks.times - (ends - TURN + TURN * turned)).abs().max()) < 0.001


def test_a_part_of_a_scene(whole: Path) -> None:
    config = DataConfig(
        kind="nuscenes",
        root=str(whole),
        drive=NAME,
        cameras=["CAM_BACK"],
        downscale=2,
        poses=PosesChoice(source="capture"),
    )
    capture = read_capture(config)
    assert [c.name for c in capture.cameras] == ["CAM_BACK"] and capture.images[0].load().shape == (16, 24, 3)


def test_key_frames_alone_are_a_finding(root: Path) -> None:
    shutil.rmtree(root / "sweeps")
    capture = read_nuscenes(root, drive="0")
    assert len(capture.sweeps) == 3
    assert capture.doubts[0].sentence == f"8 files of {NAME} are not there, so that sensors have fewer frames."


def test_a_name_that_no_file_system_takes_is_a_file_that_is_not_there(root: Path) -> None:
    table("sample_data", lambda rows: rows[0].update(filename="samples/" + 300 * "m"))(root)
    assert "1 file of scene-0007 is not there" in read_nuscenes(root, drive=NAME).doubts[0].sentence


def test_a_test_set_has_no_tracks(tmp_path: Path) -> None:
    assert read_nuscenes(write_scene(tmp_path, annotated=False), drive=NAME).tracks.ids == ()


def table(name: str, change: Callable[[list[dict[str, Any]]], object]) -> Callable[[Path], object]:
    def changed(root: Path) -> None:
        path = root / f"v1.0-mini/{name}.json"
        rows = json.loads(path.read_text())
        change(rows)
        path.write_text(json.dumps(rows))

    return changed


def cut(name: str) -> Callable[[Path], object]:
    return lambda root: (root / name).write_bytes((root / name).read_bytes()[:-7])


def pipe(name: str) -> Callable[[Path], object]:
    def changed(root: Path) -> None:
        (root / f"v1.0-mini/{name}.json").unlink()
        os.mkfifo(root / f"v1.0-mini/{name}.json")

    return changed


def two_places(root: Path) -> None:
    """An image of the front camera has a mounting of its own."""
    table("calibrated_sensor", lambda rows: rows.append(rows[1] | {"token": "other", "translation": [9, 9, 9]}))(root)
    table("sample_data", lambda rows: rows[1].update(calibrated_sensor_token="other"))(root)


FLAWS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no tables": (lambda root: shutil.rmtree(root / "v1.0-mini"), "holds no tables such as v1.0-mini"),
    "a table that is cut off": (cut("v1.0-mini/sample_data.json"), "is no whole list of rows"),
    "an empty table": (lambda root: (root / "v1.0-mini/sample.json").write_bytes(b""), "cannot be read (it is empty)"),
    "a table that is missing": (lambda root: (root / "v1.0-mini/ego_pose.json").unlink(), "cannot be read (No such file"),
    "a pipe as a table": (pipe("sample"), "sample.json cannot be read (no regular file)"),
    "a pipe as boxes": (pipe("sample_annotation"), "sample_annotation.json cannot be read (no regular file)"),
    "a file elsewhere": (table("sample_data", lambda rows: rows[0].update(filename="../../x")), "names the file '../../x'"),
    "no rotation": (table("ego_pose", lambda rows: rows[0].update(rotation=[0, 0, 0, 0])), "is no quaternion"),
    "a time of 400 digits": (
        lambda root: (root / "v1.0-mini/ego_pose.json").write_text(
            (root / "v1.0-mini/ego_pose.json").read_text().replace('"timestamp": 1', f'"timestamp": 1{400 * "0"}', 1)
        ),
        "has a row that is no JSON (a number of",
    ),
    "a scene without a token": (table("scene", lambda rows: rows[0].pop("token")), "'token' of row"),
    "a sweep of zeros": (
        lambda root: (root / "samples/LIDAR_TOP/0.pcd.bin").write_bytes(bytes(20 * 50)), "holds no point but the origin; copy the file",
    ),
    "a sweep of no bytes": (
        lambda root: (root / "samples/LIDAR_TOP/0.pcd.bin").write_bytes(b""), "0.pcd.bin is empty; copy the file",
    ),
    "points of signalling NaN": (
        lambda root: (root / "samples/LIDAR_TOP/0.pcd.bin").write_bytes(b"\x01\x00\xa0\x7f" * 50), "holds points that are not finite",
    ),
    "a pose of words": (table("ego_pose", lambda rows: rows[0].update(translation="here")), "'translation' of row"),
    "a lens of zeros": (
        table("calibrated_sensor", lambda rows: rows[1].update(camera_intrinsic=[[0, 0, 0]] * 3)), "is no camera of 48x32",
    ),
    "a box without a size": (table("sample_annotation", lambda rows: rows[0].update(size=[0, 1, 1])), "must be metres above 0"),
    "a sweep that is cut off": (cut("samples/LIDAR_TOP/0.pcd.bin"), "no multiple of a point's 20"),
    "a sweep of other rings": (
        lambda root: (root / "samples/LIDAR_TOP/0.pcd.bin").write_bytes(np.full(50, 99, "<f4").tobytes()), "rings other than 0 to 31",
    ),
    "poses without rows": (table("ego_pose", lambda rows: rows.pop()), "ego_pose.json has no row of the token"),
    "a camera that sits nowhere": (table("calibrated_sensor", lambda rows: rows.pop()), "calibrated_sensor.json has no row of the token"),
    "a sensor without a channel": (table("sensor", lambda rows: rows.pop()), "sensor.json has no row of the token"),
    "two places of a camera": (two_places, "has two places of CAM_FRONT in"),
    "an image of another day": (table("sample_data", lambda rows: rows[1].update(timestamp=7)), "sample_data.json has rows at other times"),
    "key frames of another day": (table("sample", lambda rows: rows[1].update(timestamp=7)), "sample.json has rows at other times"),
    "a point beyond 10 km": (
        lambda root: (root / "samples/LIDAR_TOP/0.pcd.bin").write_bytes(np.array([1e30, 1, 1, 9, 3] * 9, "<f4").tobytes()), "beyond 10 km",
    ),
    "no files": (lambda root: [shutil.rmtree(root / name) for name in ("samples", "sweeps")], "holds none of the 17 files"),
}  # fmt: skip


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_flaw_is_a_sentence(root: Path, flaw: str) -> None:
    change, said = FLAWS[flaw]
    change(root)
    with pytest.raises(CaptureError) as refused:
        read_nuscenes(root, drive=NAME)
    assert said in str(refused.value) and "; " in str(refused.value) and str(refused.value).isprintable()


@pytest.mark.parametrize(
    ("drive", "said"), [(None, "holds 2 scenes"), ("scene-0001", "holds 2 scenes"), ("scene-0009", "has no row of")]
)
def test_a_scene_must_be_chosen(whole: Path, drive: str | None, said: str) -> None:
    with pytest.raises(CaptureError, match=said):
        read_nuscenes(whole, drive=drive)


def test_a_folder_without_tables_is_passed_over(root: Path) -> None:
    (root / "v1.0-test").mkdir()
    assert read_nuscenes(root, drive=NAME).name == f"nuscenes_{NAME}"


@pytest.mark.parametrize("drive", [NAME, "scene-0007"[:10], "0"])
def test_a_scene_by_name_or_place(whole: Path, drive: str) -> None:
    assert read_nuscenes(whole, drive=drive).name == f"nuscenes_{NAME}"


@given(st.data())
def test_a_damaged_file_is_refused_or_read(whole: Path, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(path for path in whole.rglob("*.*") if path.is_file())))
    before = path.read_bytes()
    overwrite(path, data.draw(mutated(before)))
    try:
        read_or_refuse(lambda: checked(whole), "")
    finally:
        overwrite(path, before)


def checked(root: Path) -> None:
    capture = read_nuscenes(root, drive=NAME)
    check_capture(capture, root.name)
    for frame in (*capture.images, *capture.sweeps[:2]):
        frame.load()


@pytest.mark.skipif(not REAL.is_dir(), reason="the sample of nuScenes is not here")
def test_a_real_key_frame() -> None:
    capture = read_nuscenes(REAL)
    check_capture(capture, "nuscenes")
    assert capture.name == "nuscenes_scene-0061" and len(capture.cameras) == 6 and len(capture.sweeps) == 1
    frame, lidar = capture.sweeps[0], capture.lidars[0]
    sweep = frame.load()
    known = sweep.select(sweep.returned)
    azimuth, elevation = azimuth_elevation(known.directions.double()).unbind(-1)
    assert float(torch.rad2deg(elevation - lidar.elevations[known.rings]).abs().quantile(0.9)) < 0.03
    late = torch.remainder((known.times - frame.time_start) / TURN - lidar.spin_fraction(azimuth) + 0.5, 1) - 0.5
    assert float(late.abs().quantile(0.95)) < 0.005
    assert set(CAMERAS) <= {c.name for c in capture.cameras} and stamp(0) > 0
