# SPDX-License-Identifier: Apache-2.0
"""A sequence in PandaSet's layout becomes the street that it was made from."""

import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_pandaset import (
    CAMERAS,
    CAR,
    ELEVATIONS,
    FRAMES,
    SIZE,
    SPEED,
    T_RIG_GT,
    car_at,
    mounting,
    rig_at,
    write_sequence,
)

from nurec_lite.base.paths import resource
from nurec_lite.capture.check import check_capture
from nurec_lite.capture.deskew import world_points
from nurec_lite.capture.pandaset import read
from nurec_lite.capture.pandaset.read import read_pandaset
from nurec_lite.capture.types import Capture, CaptureError
from nurec_lite.config import DataConfig, PosesChoice
from nurec_lite.readers import read_capture


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "WIDTH", SIZE[0])
    monkeypatch.setattr(read, "HEIGHT", SIZE[1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sequence(tmp_path_factory.mktemp("pandaset"))


def test_cameras_look_where_they_are_mounted(folder: Path) -> None:
    capture = read_pandaset(folder)
    check_capture(capture, "tiny")
    assert [camera.name for camera in capture.cameras] == ["front_camera", "left_camera", "back_camera"]
    for camera in capture.cameras:
        torch.testing.assert_close(camera.T_rig_cam, mounting(camera.name), atol=1e-9, rtol=0)
    assert len(capture.images) == 3 * FRAMES and capture.images[0].load().shape == (SIZE[1], SIZE[0], 3)


def test_the_rig_drives_as_it_did(folder: Path) -> None:
    for frame in read_pandaset(folder).sweeps:
        times = torch.tensor([frame.time_start, frame.time_end]).double()
        found = torch.stack([frame.T_world_rig_start, frame.T_world_rig_end])
        torch.testing.assert_close(found, rig_at(times), atol=1e-6, rtol=0)


def test_points_lie_where_they_were_and_rays_that_are_missing_are_filled(folder: Path) -> None:
    capture = read_pandaset(folder)
    frame, lidar = capture.sweeps[1], capture.lidars[0]
    sweep = frame.load()
    known = sweep.select(sweep.returned)
    world = world_points(frame, known, lidar)
    ground, wall = (world[:, 2] - 10.2).abs() < 0.02, ((world[:, 0] - 500).abs() - 12).abs() < 0.02
    assert float((ground | wall).float().mean()) > 0.99
    assert float((known.intensities - 0.2).abs().max()) < 1e-6
    torch.testing.assert_close(lidar.elevations, ELEVATIONS, atol=2e-4, rtol=0)
    assert 100 < int((~sweep.returned).sum()) < len(known), "above the walls nothing returns"


def test_the_lidar_ahead_is_read_where_it_is_asked_for(folder: Path) -> None:
    capture = read_pandaset(folder, lidars=["pandargt", "pandar64"])
    assert [lidar.name for lidar in capture.lidars] == ["pandargt", "pandar64"]
    frame, lidar = capture.sweeps[1], capture.lidars[0]
    sweep = frame.load()
    torch.testing.assert_close(lidar.T_rig_lidar[:3, 3], T_RIG_GT[:3, 3], atol=1e-9, rtol=0)
    world = world_points(frame, sweep, lidar)
    ground, wall = (world[:, 2] - 10.2).abs() < 0.02, ((world[:, 0] - 500).abs() - 12).abs() < 0.02
    assert bool((ground | wall).all()) and bool(sweep.returned.all()), "nothing tells its rays that did not return"
    assert sweep.rings.unique().numel() > 8


def test_a_car_that_drives_is_a_track_and_others_are_not(folder: Path) -> None:
    tracks = read_pandaset(folder).tracks
    assert tracks.ids == (CAR,) and tracks.classes == ("Car",)
    torch.testing.assert_close(tracks.sizes, torch.tensor([[4.4, 1.9, 1.5]]).double())
    axis = torch.tensor(
        [math.sqrt(0.5), 0, 0, math.sqrt(0.5)], dtype=torch.float64
    )  # the length lies along the world's y
    torch.testing.assert_close(tracks.quaternions, axis.expand(FRAMES, 4), atol=1e-9, rtol=0)
    torch.testing.assert_close(
        tracks.translations, car_at(torch.arange(FRAMES).double() * 0.1 + 0.05), atol=1e-6, rtol=0
    )
    assert bool(((tracks.times * 10) % 1 - 0.5).abs().max() < 0.1), (
        "the lidar looks ahead in the middle of a revolution"
    )


def same(a: Capture, b: Capture) -> bool:
    sweeps = zip(a.sweeps, b.sweeps, strict=True)
    return all(torch.equal(f.load().ranges, g.load().ranges) for f, g in sweeps) and a.tracks.ids == b.tracks.ids


@pytest.mark.parametrize(("late", "packed"), [(True, True), (False, False)])
def test_tables_of_any_pandas_are_the_same(folder: Path, tmp_path: Path, late: bool, packed: bool) -> None:
    assert same(read_pandaset(write_sequence(tmp_path, late=late, packed=packed)), read_pandaset(folder))


def test_a_part_of_a_sequence(folder: Path) -> None:
    config = DataConfig(
        kind="pandaset", root=str(folder), frames=[0, 2], downscale=2, poses=PosesChoice(source="capture")
    )
    capture = read_capture(replace(config, cameras=["back_camera", "front_camera"]))
    assert [camera.name for camera in capture.cameras] == ["back_camera", "front_camera"]
    assert len(capture.images) == 4 and len(capture.sweeps) == 2 and capture.images[0].load().shape == (16, 24, 3)


def test_one_of_several_sequences(tmp_path: Path) -> None:
    write_sequence(tmp_path, "007")
    shutil.copytree(tmp_path / "007", tmp_path / "012")
    for drive in ("012", "12", "01", "1"):  # its name, number, first letters, place
        assert read_pandaset(tmp_path, drive=drive).name == "pandaset_012"
    with pytest.raises(CaptureError, match=r"holds 2 sequences \(007, 012\); choose one by data.drive"):
        read_pandaset(tmp_path)


def test_sweeps_and_images_may_be_missing(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder.parent, tmp_path / "copy")) / folder.name
    (copy / "lidar/01.pkl.gz").unlink()
    (copy / "camera/left_camera/02.jpg").unlink()
    shutil.rmtree(copy / "annotations")
    capture = read_pandaset(copy)
    assert (
        [f.index for f in capture.sweeps] == [0, 2] and len(capture.images) == 3 * FRAMES - 1 and not capture.tracks.ids
    )


def test_an_empty_folder_is_no_camera(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder.parent, tmp_path / "copy")
    (tmp_path / "copy/007/camera/top_camera").mkdir()
    assert [c.name for c in read_pandaset(tmp_path / "copy/007").cameras] == [
        c.name for c in read_pandaset(folder).cameras
    ]


def test_its_speed_is_that_of_the_path(folder: Path) -> None:
    first, last = (frame.T_world_rig_start[:3, 3] for frame in read_pandaset(folder).sweeps[:: FRAMES - 1])
    assert float((last - first).norm()) == pytest.approx(SPEED * 0.2, abs=1e-6)


def test_the_configuration_names_it() -> None:
    assert (resource("conf") / "data/pandaset.yaml").is_file() and set(CAMERAS) <= set(read.ORDER)
