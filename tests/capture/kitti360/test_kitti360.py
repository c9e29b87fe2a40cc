# SPDX-License-Identifier: Apache-2.0
"""A drive in KITTI-360's layout becomes the street that it was made from; damage is a sentence."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mutations import mutated_text, overwrite, read_or_refuse
from tiny_kitti360 import (
    CAR,
    FRAMES,
    IMAGE_DELAY,
    LORRY,
    MEI,
    NAME,
    POSED,
    SIZE,
    T_POSE_FISHEYE,
    T_POSE_VELO,
    WALL,
    box_at,
    boxes_xml,
    placed,
    rectified,
    rig_at,
    rotation,
    write_drive,
)

from nurec_lite.capture.check import check_capture, sensor_flaws
from nurec_lite.capture.deskew import world_points
from nurec_lite.capture.kitti360.read import read_kitti360
from nurec_lite.capture.types import Capture, CaptureError
from nurec_lite.config import DataConfig, PosesChoice
from nurec_lite.geometry.camera import project_points
from nurec_lite.geometry.se3 import invert, quat_to_matrix, transform
from nurec_lite.readers import read_capture

ZERO = IMAGE_DELAY  # seconds of the lidar's clock at the capture's time 0, the first image


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_drive(tmp_path_factory.mktemp("kitti360"))


@pytest.fixture(scope="module")
def capture(whole: Path) -> Capture:
    return read_kitti360(whole, drive="7")


@pytest.fixture
def root(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def test_sensors_sit_where_they_do(capture: Capture) -> None:
    check_capture(capture, "tiny")
    assert capture.name == "kitti360_2013_05_28_drive_0007" and [c.name for c in capture.cameras] == [
        "image_00",
        "image_01",
    ]
    for camera in capture.cameras:
        torch.testing.assert_close(camera.T_rig_cam, rectified(camera.name), atol=1e-9, rtol=0)
        assert (camera.width, camera.height, camera.fx, camera.fy, camera.cx, camera.cy) == (*SIZE, 40, 41, 24, 12)
    assert torch.equal(capture.lidars[0].T_rig_lidar, torch.eye(4).double()) and capture.lidars[0].clockwise


def test_the_rig_drives_as_it_did(capture: Capture) -> None:
    """In frames that have a pose."""
    for frame in capture.images:
        if frame.index in POSED:
            true = rig_at(torch.tensor([0.1 * frame.index + IMAGE_DELAY]).double())[0]
            torch.testing.assert_close(frame.T_world_rig_start, true, atol=1e-6, rtol=0)
            assert frame.time_start == pytest.approx(0.1 * frame.index, abs=1e-8)


def test_a_car_that_stands_has_the_poses_around(capture: Capture) -> None:
    """Frames 5 to 8 have none; the car hardly moves between frames 4 and 9. Frame 0 is before all poses by no more than a turn."""
    assert [f.index for f in capture.images if f.sensor == "image_00"] == list(range(FRAMES))
    for frame in capture.images:
        true = rig_at(torch.tensor([frame.time_start + ZERO]).double())[0]
        assert float((frame.T_world_rig_start - true)[:3, 3].norm()) < 0.4


def test_frames_far_from_all_poses_are_left_out(root: Path) -> None:
    """Without the poses from frame 9 on, frames after the first one without a pose have none."""
    path = root / f"data_poses/{NAME}/cam0_to_world.txt"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:4]))
    capture = read_kitti360(root, drive=NAME, cameras=("image_01",))
    assert [f.index for f in capture.images] == list(range(6)) and [f.index for f in capture.sweeps] == [1, 2, 3, 4]
    assert capture.doubts[-1].sentence == f"14 images and sweeps of {NAME} have no time or no pose, and are left out."


def test_images_of_another_year_are_counted(root: Path) -> None:
    """Nothing is left of a camera, and the finding counts all its images."""
    stamps = root / STAMPS.replace("image_00", "image_01")
    overwrite(stamps, stamps.read_bytes().replace(b"2013-", b"2033-"))
    found = read_kitti360(root, drive=NAME)
    assert {f.sensor for f in found.images} == {"image_00"}
    assert found.doubts[-1].sentence == f"13 images and sweeps of {NAME} have no time or no pose, and are left out."


def test_rays_hit_the_walls(capture: Capture) -> None:
    frame, lidar = next(f for f in capture.sweeps if f.index == 3), capture.lidars[0]
    sweep = frame.load()
    known = sweep.select(sweep.returned)
    street = transform(invert(placed(rotation(0, 0, 0.4), 1000, 3000, 115)), world_points(frame, known, lidar).double())
    assert float((street[:, 1].abs() - WALL).abs().max()) < 1e-3 and int((~sweep.returned).sum()) > 10
    turned = torch.remainder(
        (known.times - frame.time_start) / 0.1
        - lidar.spin_fraction(torch.atan2(*known.directions.double().T[[1, 0]]))
        + 0.5,
        1,
    )
    assert float((turned - 0.5).abs().max()) < 1e-3


def test_what_moves_is_a_track_and_what_is_parked_is_not(capture: Capture) -> None:
    tracks = capture.tracks
    assert tracks.ids == (CAR, LORRY) and tracks.classes == ("car", "truck")
    torch.testing.assert_close(
        tracks.sizes, torch.tensor([[4.4, 1.9, 1.5], [9.0, 2.5, 3.0]]).double(), atol=1e-5, rtol=0
    )
    forward = 0.1 * torch.arange(1, 5).double() - ZERO
    for k, (name, late) in enumerate({CAR: 0.0, LORRY: -0.025}.items()):
        rows = slice(tracks.offsets[k], tracks.offsets[k + 1])
        torch.testing.assert_close(tracks.times[rows], forward + late, atol=1e-6, rtol=0)
        for i, T in enumerate(box_at(name, n) for n in range(1, 5)):
            torch.testing.assert_close(tracks.translations[rows][i], T[:3, 3], atol=1e-5, rtol=0)
            turn = quat_to_matrix(tracks.quaternions[rows][i])
            (
                torch.testing.assert_close(turn, T[:3, :3], atol=1e-5, rtol=0),
                "x looks along the way, as the lorry's y in the file",
            )


def test_a_mirrored_box_is_the_same_box(root: Path) -> None:
    path = root / f"data_3d_bboxes/train/{NAME}.xml"
    path.write_text(boxes_xml().replace("-0.5 -0.5 -0.5\n", "-0.5 0.5 -0.5\n"))
    assert read_kitti360(root, drive=NAME).tracks.ids == (CAR, LORRY)


def test_boxes_of_train_full_have_sequences_instead_of_instances(root: Path) -> None:
    before = read_kitti360(root, drive=NAME).tracks
    text = re.sub(
        r"<semanticId>.*?</semanticId><instanceId>(.*?)</instanceId>", r"<dynamicSeq>\1</dynamicSeq>", boxes_xml()
    )
    (root / BOXES).unlink()
    (root / "data_3d_bboxes/train_full").mkdir()
    (root / f"data_3d_bboxes/train_full/{NAME}.xml").write_text(text)
    found = read_kitti360(root, drive=NAME).tracks
    assert found.ids == before.ids and torch.equal(found.translations, before.translations)


def test_a_second_box_of_an_object_in_a_frame_is_a_finding(root: Path) -> None:
    path, before = root / BOXES, read_kitti360(root, drive=NAME)
    first = re.search(r"<object2>.*?</object2>", boxes_xml(), re.DOTALL)
    assert first is not None
    there = re.sub(r"object2", "object99", first[0]).replace("<timestamp>2<", "<timestamp>3<")
    path.write_text(boxes_xml().replace("</opencv_storage>", f"{there}\n</opencv_storage>"))
    found = read_kitti360(root, drive=NAME)
    assert torch.equal(found.tracks.times, before.tracks.times)
    assert torch.equal(found.tracks.translations, before.tracks.translations)
    assert [d.sentence for d in found.doubts if d not in before.doubts] == [
        f"1 box of {NAME}.xml has the track and the time of an earlier one, and is not used."
    ]


def test_a_part_of_a_drive(whole: Path) -> None:
    config = DataConfig(
        kind="kitti360", root=str(whole), drive="0007", cameras=["image_01"], downscale=2, frames=[2, 5],
        poses=PosesChoice(source="capture"),
    )  # fmt: skip
    capture = read_capture(config)
    assert [f.index for f in capture.images] == [f.index for f in capture.sweeps] == [2, 3, 4]
    assert capture.images[0].load().shape == (12, 24, 3)


def test_a_drive_without_sweeps_and_boxes(root: Path) -> None:
    shutil.rmtree(root / "data_3d_raw")
    capture = read_kitti360(root, drive="0")
    assert not capture.lidars and len(capture.images) == 2 * FRAMES and capture.tracks.ids == (CAR, LORRY)
    assert capture.tracks.times.tolist() == pytest.approx(2 * [0.1, 0.2, 0.3, 0.4]), "the times of camera 0"
    shutil.rmtree(root / "data_3d_bboxes")
    assert not read_kitti360(root, drive="0").tracks.ids


@pytest.mark.parametrize("drive", [None, "9", "2013"])
def test_a_drive_must_be_chosen(whole: Path, drive: str | None) -> None:
    with pytest.raises(CaptureError, match=r"holds 2 drives .*; choose one by data.drive"):
        read_kitti360(whole, drive=drive)


def test_a_fisheye_camera_is_read_if_it_is_asked_for(whole: Path) -> None:
    assert [c.name for c in read_kitti360(whole, drive="7").cameras] == ["image_00", "image_01"]
    capture = read_kitti360(whole, drive="7", cameras=("image_02",))
    (camera,) = capture.cameras
    assert camera.lens == "mei" and camera.mask is not None and capture.images[1].load().shape == (24, 24, 3)
    assert camera.mask[0, 0] and camera.mask[-1, -1] and not camera.mask[6:18, 6:18].any()
    assert not list(sensor_flaws(camera)), "corners without a direction are masked"
    torch.testing.assert_close(camera.T_rig_cam, invert(T_POSE_VELO) @ T_POSE_FISHEYE["image_02"])
    numbers = tuple(MEI[key] for key in ("xi", "k1", "k2", "p1", "p2"))
    ray = torch.tensor([[0.48, -0.6, 0.64]], dtype=torch.float64)
    x, y = (ray[:, :2] / (ray[:, 2:] + MEI["xi"]))[0].tolist()
    r2, (_, k1, k2, p1, p2) = x * x + y * y, numbers
    u = x * (1 + k1 * r2 + k2 * r2 * r2) + 2 * p1 * x * y + p2 * (r2 + 2 * x * x)
    pixels, _ = project_points(camera, 7 * ray)
    assert float(pixels[0, 0]) == pytest.approx(MEI["gamma1"] * u + MEI["u0"] + 0.5, abs=1e-3)


def test_a_fisheye_camera_with_a_broken_calibration_is_refused(root: Path) -> None:
    path = root / "calibration/image_02.yaml"
    path.write_text(path.read_text().replace("xi:", "chi:"))
    with pytest.raises(CaptureError, match=r"image_02.yaml lacks 'xi'; copy the folder calibration"):
        read_kitti360(root, drive="0", cameras=("image_02",))


def text(name: str, old: str, new: str) -> Callable[[Path], object]:
    def change(root: Path) -> None:
        path = root / name
        assert old in path.read_text(), name
        path.write_text(path.read_text().replace(old, new, 1))

    return change


def emptied(name: str) -> Callable[[Path], object]:
    return lambda root: overwrite(root / name, b"")


POSES, BOXES = f"data_poses/{NAME}/cam0_to_world.txt", f"data_3d_bboxes/train/{NAME}.xml"
STAMPS = f"data_2d_raw/{NAME}/image_00/timestamps.txt"
SWEEP = f"data_3d_raw/{NAME}/velodyne_points/data/0000000003.bin"
FLAWS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no images": (lambda root: shutil.rmtree(root / "data_2d_raw"), "holds no folder data_2d_raw"),
    "no poses": (lambda root: shutil.rmtree(root / "data_poses"), "cannot be read"),
    "empty poses": (emptied(POSES), "is empty"),
    "a pose of 15 numbers": (text(POSES, "\n", " 1\n"), "is no frame with the 16 numbers of its pose"),
    "a frame twice": (text(POSES, "\n2 ", "\n1 "), "no rising frame"),
    "no frame with a time": (lambda root: overwrite(root / POSES, b"999" + (root / POSES).read_bytes().split(b"\n")[0]), "has a time in"),
    "a pose that is no rotation": (text(POSES, "1 ", "1 9"), "the pose of frame 1 is no rotation"),
    "no calibration": (lambda root: (root / "calibration/perspective.txt").unlink(), "copy the folder calibration of KITTI-360 again"),
    "a lens of nothing": (text("calibration/perspective.txt", "P_rect_00: 40", "P_rect_00: 0"), "is no camera of 48x24"),
    "a mounting of words": (text("calibration/calib_cam_to_pose.txt", "image_01: ", "image_01: a "), "lacks 'image_01' with 12"),
    "a mounting that is cut off": (text("calibration/calib_cam_to_velo.txt", " ", "\n x"), "must hold 12 numbers"),
    "times that fall": (text(STAMPS, "08:46:02.1", "08:46:01.1"), "is not later than the stamp before"),
    "a sweep that is cut off": (lambda root: overwrite(root / SWEEP, (root / SWEEP).read_bytes()[:-5]), "it is truncated"),
    "boxes that are cut off": (lambda root: overwrite(root / BOXES, (root / BOXES).read_bytes()[:-90]), "is no file of boxes of KITTI-360"),
    "entities": (text(BOXES, "<opencv_storage>", '<!DOCTYPE a [<!ENTITY b "c">]><opencv_storage>'), "it defines entities"),
    "another XML": (lambda root: overwrite(root / BOXES, b"<a><b/></a>"), "it is no opencv_storage"),
    "a box without corners": (text(BOXES, "<vertices ", "<corners "), "is no file of boxes of KITTI-360"),
    "a box without a frame": (text(BOXES, "<timestamp>1</timestamp>", ""), "an object has no 'timestamp'"),
}  # fmt: skip


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_flaw_is_a_sentence(root: Path, flaw: str) -> None:
    change, said = FLAWS[flaw]
    change(root)
    with pytest.raises(CaptureError) as refused:
        checked(root)
    assert said in str(refused.value) and "; " in str(refused.value) and str(refused.value).isprintable()


@given(st.data())
def test_a_damaged_file_is_refused_or_read(whole: Path, data: st.DataObject) -> None:
    names = [path for path in sorted(whole.rglob("*.*")) if path.is_file() and path.suffix != ".png"]
    path = data.draw(st.sampled_from(names))
    before = path.read_bytes()
    overwrite(path, data.draw(mutated_text(before)))
    try:
        read_or_refuse(lambda: checked(whole), "")
    finally:
        overwrite(path, before)


def checked(root: Path) -> None:
    capture = read_kitti360(root, drive=NAME)
    check_capture(capture, root.name)
    for frame in capture.sweeps[:3]:
        frame.load()
