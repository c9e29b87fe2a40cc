# SPDX-License-Identifier: Apache-2.0
"""Sequences of NCore v4 that other converters write become the drive that they were made from."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("ncore")
import numpy as np
import torch
from ncore.data import FThetaCameraModelParameters
from ncore.data.v4 import SequenceComponentGroupsReader
from ncore.impl.data.types import ShutterType
from ncore.sensors import CameraModel
from PIL import Image
from tiny_ncore import (
    CAR,
    COLUMNS,
    ELEVATIONS,
    FRAMES,
    NAME,
    OFFSETS,
    ROWS,
    SIZE,
    SPEED,
    START,
    WALL,
    fisheye,
    front_pose,
    ftheta,
    image,
    lens,
    lidar_pose,
    scan,
    usual_boxes,
    write_sequence,
)

from nurec_lite.capture.check import check_capture
from nurec_lite.capture.deskew import world_points
from nurec_lite.capture.images import decode_image
from nurec_lite.capture.ncore.lenses import NAMES as SHUTTERS
from nurec_lite.capture.ncore.lenses import camera_model
from nurec_lite.capture.ncore.read import read_ncore
from nurec_lite.capture.types import Capture, CaptureError, Encoded
from nurec_lite.config import DataConfig, PosesChoice
from nurec_lite.geometry.camera import lens_flaw, unproject
from nurec_lite.geometry.lidar import azimuth_elevation
from nurec_lite.readers import read_capture


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ncore")
    write_sequence(path)
    return path


@pytest.fixture(scope="module")
def capture(folder: Path) -> Capture:
    return read_ncore(folder)


def test_sensors_sit_where_they_do(capture: Capture) -> None:
    check_capture(capture, "tiny")
    assert (
        capture.name == f"ncore_{NAME}" and len(capture.images) == len(capture.sweeps) == FRAMES and not capture.doubts
    )
    torch.testing.assert_close(capture.lidars[0].T_rig_lidar, lidar_pose(), atol=1e-9, rtol=0)
    camera = capture.cameras[0]
    torch.testing.assert_close(camera.T_rig_cam, front_pose(), atol=1e-9, rtol=0)
    assert (camera.width, camera.height, camera.fx, camera.fy, camera.cx, camera.cy) == (*SIZE, 40, 41, 24, 16)
    assert camera.distortion == pytest.approx((0.1, -0.02, 1e-3, 2e-3, 0.001)) and camera.shutter == "bottom_to_top"


def test_frames_stand_where_the_rig_was(capture: Capture) -> None:
    for frame in (*capture.images, *capture.sweeps):
        for time, pose in ((frame.time_start, frame.T_world_rig_start), (frame.time_end, frame.T_world_rig_end)):
            torch.testing.assert_close(pose[:3, 3], torch.tensor([SPEED * time, 0, 0]).double(), atol=1e-6, rtol=0)
    assert [f.time_start for f in capture.images] == pytest.approx([0.04, 0.14, 0.24], abs=1e-9)
    assert [f.time_end - f.time_start for f in capture.sweeps] == pytest.approx([0.1] * FRAMES)


@pytest.mark.parametrize("turn", ["cw", "ccw"])
def test_rays_hit_what_they_hit_and_those_that_are_missing_did_not_return(tmp_path: Path, turn: str) -> None:
    write_sequence(tmp_path, turn=turn)
    capture = read_ncore(tmp_path)
    frame, lidar = capture.sweeps[1], capture.lidars[0]
    sweep = frame.load()
    assert len(sweep) == ROWS * COLUMNS and 0 < int(sweep.returned.sum()) < ROWS * COLUMNS
    known = sweep.select(sweep.returned)
    world = world_points(frame, known, lidar)
    assert float(torch.minimum(world[:, 2].abs(), (world[:, 1].abs() - WALL).abs()).max()) < 1e-3
    azimuth, elevation = azimuth_elevation(sweep.directions.double()).unbind(-1)
    torch.testing.assert_close(elevation, ELEVATIONS[sweep.rings], atol=1e-6, rtol=0)
    late = (
        torch.remainder(
            lidar.spin_fraction(azimuth - OFFSETS[sweep.rings]) - (sweep.times - frame.time_start) / 0.1 + 0.5, 1
        )
        - 0.5
    )
    assert float(late.abs().max()) < 1 / COLUMNS and lidar.clockwise == (turn == "cw")


def test_a_car_that_drives_is_a_track_and_a_parked_one_is_not(capture: Capture) -> None:
    tracks = capture.tracks
    assert tracks.ids == ("track-0",) and tracks.classes == ("automobile",), f"{CAR} is no name of a file"
    torch.testing.assert_close(tracks.sizes, torch.tensor([[4.4, 1.9, 1.5]]).double())
    torch.testing.assert_close(tracks.times, 0.03 + 0.1 * torch.arange(FRAMES).double(), atol=1e-9, rtol=0)
    torch.testing.assert_close(tracks.translations[:, 0], 5 + 12 * tracks.times, atol=1e-5, rtol=0)
    assert float(tracks.quaternions[:, 1:].abs().max()) < 1e-6, "it looks along the street, as the lidar does not"


def test_images_are_those_of_the_store(capture: Capture) -> None:
    for k, frame in enumerate(capture.images):
        assert torch.equal(frame.load(), decode_image(Encoded(image(k), "made", SIZE, 1)))


@pytest.mark.parametrize("place", ["a folder of stores", "a store", "folders of files"])
def test_a_sequence_by_its_files(folder: Path, tmp_path: Path, place: str) -> None:
    if place == "a store":  # which lacks the sensors, that have stores of their own
        alone = read_ncore(folder / f"{NAME}.ncore4.zarr.itar")
        assert not alone.images and not alone.sweeps
        return
    if place == "folders of files":
        write_sequence(tmp_path, store="directory")
    config = DataConfig(
        kind="ncore", root=str(folder if place == "a folder of stores" else tmp_path), downscale=2, frames=[1, 3],
        cameras=["front"], poses=PosesChoice(source="capture"),
    )  # fmt: skip
    capture = read_capture(config)
    assert capture.images[0].load().shape == (16, 24, 3) and len(capture.images) == len(capture.sweeps) == 2


def test_a_sequence_by_the_list_of_its_stores(folder: Path, tmp_path: Path) -> None:
    """The format's own library writes such a list."""
    listed = SequenceComponentGroupsReader(sorted(folder.iterdir())).get_sequence_meta().to_json()
    for store in folder.iterdir():
        (tmp_path / store.name).symlink_to(store)
    (tmp_path / f"{NAME}.json").write_text(listed)
    assert len(read_ncore(tmp_path / f"{NAME}.json").images) == FRAMES
    (tmp_path / f"{NAME}.json").write_text(listed.replace(f"{NAME}.ncore4-top", f"../{NAME}.ncore4-top"))
    with pytest.raises(CaptureError, match=r"lists no stores of NCore v4 in its own folder"):
        read_ncore(tmp_path / f"{NAME}.json")


def test_a_sequence_by_its_name(folder: Path, tmp_path: Path) -> None:
    for store in folder.iterdir():
        (tmp_path / store.name).symlink_to(store)
        (tmp_path / store.name.replace(NAME, "another")).symlink_to(store)
    with pytest.raises(CaptureError, match=r"holds 2 sequences \(another, drive-7\); choose one by data.drive"):
        read_ncore(tmp_path)
    assert [len(read_ncore(tmp_path, drive=name).images) for name in (NAME, "0")] == [FRAMES, FRAMES]


@pytest.mark.parametrize("name", SHUTTERS)
def test_a_shutter_of_every_direction(tmp_path: Path, name: str) -> None:
    write_sequence(tmp_path, camera=lens(shutter_type=ShutterType[name]))
    capture = read_ncore(tmp_path)
    frame = capture.images[0]
    assert capture.cameras[0].shutter == SHUTTERS[name]
    assert frame.time_end - frame.time_start == pytest.approx(0 if name == "GLOBAL" else 0.02)


LENSES = {
    "ftheta": ftheta,
    "ftheta, exact backwards": lambda: ftheta(
        reference_poly=FThetaCameraModelParameters.PolynomialType.PIXELDIST_TO_ANGLE,
        pixeldist_to_angle_poly=np.array([0, 0.04, 1e-5, 2e-6], np.float32),
        angle_to_pixeldist_poly=np.array([0.3, 24.0], np.float32),  # a rough fit with a constant, as recordings have it
        linear_cde=np.array([1.01, 0.002, -0.003], np.float32),
        max_angle=1.6,
    ),
    "fisheye": fisheye,
    "rational": lambda: lens(radial_coeffs=np.array([0.1, 0, 0, 0.2, 0, 0], np.float32)),
    "thin prism": lambda: lens(thin_prism_coeffs=np.array([0.1, 0, 0.02, 0], np.float32)),
}


@pytest.mark.parametrize("what", LENSES)
def test_lenses_as_the_library_of_the_format_has_them(tmp_path: Path, what: str) -> None:
    """Rays of the camera that is read, and of the one that is written again, are those of NCore's own model."""
    stored = LENSES[what]()
    write_sequence(tmp_path, camera=stored)
    camera = read_ncore(tmp_path).cameras[0]
    at = torch.rand(50, 2, dtype=torch.float64) * torch.tensor(SIZE)
    for model in (stored, camera_model(camera)):
        theirs = CameraModel.from_parameters(model, device="cpu", dtype=torch.float64)
        torch.testing.assert_close(theirs.image_points_to_camera_rays(at), unproject(camera, at), atol=3e-6, rtol=0)
    assert lens_flaw(camera) is None


@pytest.mark.parametrize("which", ["angle_to_pixeldist_poly", "pixeldist_to_angle_poly"])
def test_a_polynomial_that_is_not_read_is_named(tmp_path: Path, which: str) -> None:
    back = FThetaCameraModelParameters.PolynomialType.PIXELDIST_TO_ANGLE
    change = {"reference_poly": back} if which.startswith("pixel") else {}
    write_sequence(tmp_path, camera=ftheta(**change, **{which: np.array([0.5, 40], np.float32)}))
    with pytest.raises(CaptureError, match=f"camera front has {which} with the constant 0.5"):
        read_ncore(tmp_path)


def test_a_lens_that_folds_is_refused_before_training(tmp_path: Path) -> None:
    write_sequence(tmp_path, camera=fisheye(radial_coeffs=np.array([-0.9, 0, 0, 0], np.float32)))
    with pytest.raises(CaptureError, match="a fisheye lens that ends 35 degrees from its axis"):
        check_capture(read_ncore(tmp_path), "tiny")


def test_masks_of_a_camera_are_read_together(tmp_path: Path) -> None:
    ego, rig, photo = (np.zeros(SIZE[::-1], np.uint8) for _ in range(3))
    ego[25:], rig[:, :4], photo[:] = 255, 1, np.arange(SIZE[0])
    write_sequence(tmp_path, masks={n: Image.fromarray(m) for n, m in (("ego", ego), ("rig", rig), ("photo", photo))})
    capture = read_ncore(tmp_path, downscale=2)
    expected = torch.zeros(16, 24, dtype=torch.bool)
    expected[12:], expected[:, :2] = True, True
    assert capture.cameras[0].mask is not None and torch.equal(capture.cameras[0].mask, expected)
    assert "The mask photo of camera front is not used: " in capture.doubts[0].sentence
    assert "is no mask: 96 % of its pixels are neither black nor white" in capture.doubts[0].sentence


@pytest.mark.parametrize("turn", ["cw", "ccw"])
def test_beams_of_a_lidar_without_rows_and_columns_are_found(tmp_path: Path, turn: str) -> None:
    write_sequence(tmp_path, elements=False, turn=turn)
    capture = read_ncore(tmp_path)
    check_capture(capture, "tiny")
    frame, lidar = capture.sweeps[1], capture.lidars[0]
    sweep = frame.load()
    torch.testing.assert_close(lidar.elevations, ELEVATIONS, atol=1e-6, rtol=0)
    known = sweep.select(sweep.returned)
    world = world_points(frame, known, lidar)
    assert float(torch.minimum(world[:, 2].abs(), (world[:, 1].abs() - WALL).abs()).max()) < 1e-3, "at their own times"
    assert (
        len(known) == scan(1, turn)["direction"].shape[0]
        and lidar.clockwise == (turn == "cw")
        and abs(lidar.azimuth_steps - COLUMNS) < 2
    )


def test_a_lidar_without_clear_beams_is_left_out(tmp_path: Path) -> None:
    write_sequence(tmp_path, elements=False, reach=5.0)
    capture = read_ncore(tmp_path)
    assert not capture.sweeps and not capture.lidars and "The lidar top is left out" in capture.doubts[0].sentence
    with pytest.raises(CaptureError, match="hold too few returns to tell beams"):
        read_ncore(tmp_path, lidars=("top",))


def test_an_unknown_camera_is_refused(folder: Path) -> None:
    with pytest.raises(CaptureError, match=r"data\.cameras names 'rear', but .* has front"):
        read_ncore(folder, cameras=("rear",))


def test_the_first_moment_is_the_start_of_the_sequence(capture: Capture) -> None:
    sweep = capture.sweeps[0].load()
    assert (
        START > 0
        and 0 <= float(sweep.times.min()) < 0.01
        and math.isclose(capture.sweeps[0].time_start, 0, abs_tol=1e-9)
    )


def test_frames_beyond_the_poses_are_a_finding(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nurec_lite.capture.ncore.read.BEYOND", -0.1)
    found = read_ncore(folder)
    assert len(found.images) == 1 and [doubt.subject for doubt in found.doubts] == ["top", "front"]
    assert found.doubts[1].sentence == "2 of the frames of front lie beyond the poses, and are left out."


# ---- boxes of other programs


def test_a_second_box_of_an_object_at_one_time_is_a_finding(capture: Capture, tmp_path: Path) -> None:
    rows = usual_boxes()
    again = [replace(row, bbox3=replace(row.bbox3, centroid=(50.0, 0.0, 0.0))) for row in rows[:2]]
    write_sequence(tmp_path, boxes=[*rows, *again])
    found = read_ncore(tmp_path)
    assert torch.equal(found.tracks.translations, capture.tracks.translations)
    assert [d.sentence.partition(" of ")[2][-71:] for d in found.doubts] == [
        "cuboids/default have the track and the time of an earlier one, and are not used."[-71:]
    ]


def test_names_of_objects_that_cannot_be_names_here(capture: Capture, tmp_path: Path) -> None:
    rows = usual_boxes()
    for name in ("actors", "Scene", "../x", "=1", "plain 7"):
        write_sequence(
            tmp_path / "x", boxes=[replace(row, track_id=name) for row in rows if row.track_id == rows[0].track_id]
        )
        found = read_ncore(tmp_path / "x")
        check_capture(found, "x")
        assert found.tracks.ids == (name if name == "plain 7" else "track-0",)
        shutil.rmtree(tmp_path / "x")


def test_names_of_objects_that_differ_in_case(tmp_path: Path) -> None:
    rows = [row for row in usual_boxes() if row.track_id == usual_boxes()[0].track_id]
    names = ("ab", "AB", "track-5")
    write_sequence(tmp_path, boxes=[replace(row, track_id=name) for name in names for row in rows])
    found = read_ncore(tmp_path)
    check_capture(found, "x")
    assert found.tracks.ids == ("track--0", "track--1", "track-5")


def test_boxes_of_several_groups_without_a_default_are_a_finding(tmp_path: Path) -> None:
    write_sequence(tmp_path, groups=("auto", "manual"))
    found = read_ncore(tmp_path)
    assert not len(found.tracks) and [d.sentence for d in found.doubts] == [
        "Boxes of auto, manual are not read: none of these groups is called default."
    ]


# ---- stores as people have them


@pytest.mark.parametrize(("gone", "cameras", "lidars"), [("front", [], ["top"]), ("top", ["front"], [])])
def test_a_list_names_stores_that_are_not_downloaded(
    tmp_path: Path, gone: str, cameras: list[str], lidars: list[str]
) -> None:
    known = SequenceComponentGroupsReader(write_sequence(tmp_path)).get_sequence_meta().to_dict()
    (tmp_path / "all.json").write_text(json.dumps(known))
    next(tmp_path.glob(f"*-{gone}.zarr.itar")).unlink()
    found = read_ncore(tmp_path / "all.json")
    assert ([c.name for c in found.cameras], [s.name for s in found.lidars]) == (cameras, lidars)
    assert [d.sentence for d in found.doubts] == [f"Stores of its list are not there: {NAME}.ncore4-{gone}.zarr.itar."]
    for path in tmp_path.glob("*.itar"):
        path.unlink()
    with pytest.raises(CaptureError, match="cannot be read"):
        read_ncore(tmp_path / "all.json")


def test_the_folders_of_recordings_and_hidden_files(capture: Capture, tmp_path: Path) -> None:
    (tmp_path / "clips/one").mkdir(parents=True)
    for path in write_sequence(tmp_path / "clips/one"):
        path.with_name(f"._{path.name}").write_bytes(b"x")
    for root in (tmp_path, tmp_path / "clips", tmp_path / "clips/one"):
        found = read_ncore(root)
        assert found.name == capture.name and len(found.images) == len(capture.images)
