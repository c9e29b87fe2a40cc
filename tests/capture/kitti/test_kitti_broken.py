# SPDX-License-Identifier: Apache-2.0
"""Ways to break a KITTI drive: for each, one sentence that names the file or the key and the remedy."""

import os
from pathlib import Path

import numpy as np
import pytest
from broken_kitti import BIN, PNG, Damage, change, check, copy, cut, folder, load, put, refusals, remove
from kitti_drive import DRIVE, stamp, write_drive

from nurec_lite.capture.files import MAX_BYTES
from nurec_lite.capture.kitti.raw import read_kitti_raw
from nurec_lite.capture.types import CaptureError

POSE = "1 0 0 0 0 1 0 0 0 0 1 0\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_drive(tmp_path, steps=12)


def points(*rows: tuple[float, float, float, float]) -> bytes:
    return np.array(rows, dtype="<f4").tobytes()


def stamps(*seconds: float) -> str:
    return "".join(stamp(s) + "\n" for s in seconds)


@refusals(
    (remove("../calib_cam_to_cam.txt"), r"calib_cam_to_cam\.txt cannot be read \(No such file or directory\); put the cal"),
    (folder("../calib_imu_to_velo.txt"), r"calib_imu_to_velo\.txt is no file; put the calibration files"),
    (put("../calib_imu_to_velo.txt", " \n"), r"calib_imu_to_velo\.txt is empty; put the calibration files"),
    (put("../calib_imu_to_velo.txt", b"R: \xff"), r"calib_imu_to_velo\.txt is no text in UTF-8; put the calibration files"),
    (put("../calib_cam_to_cam.txt", "R_rect_00: 1 0 0 0 1 0 0 0 1\n"), r"cam_to_cam\.txt lacks 'P_rect_02' with 12 .*; use"),
    (put("../calib_velo_to_cam.txt", "R: 1 0 0\nT: 0 0 0\n"), r"velo_to_cam\.txt lacks 'R' with 9 finite numbers; use the"),
    (put("../calib_velo_to_cam.txt", "R: 1 0 0 0 1 0 0 0 1\nT: 0 0 nan\n"), r"velo_to_cam\.txt lacks 'T' with 3 finite"),
    (put("../calib_velo_to_cam.txt", "R: 1 0 0 0 1 0 0 0 2\nT: 0 0 0\n"), r"velo_to_cam\.txt: 'R' is not a rotation; use"),
    (put("../calib_imu_to_velo.txt", "R: 1 0 0 0 1 0 0 0 -1\nT: 0 0 0\n"), r"imu_to_velo\.txt: 'R' is not a rotation; use"),
    (put("../calib_imu_to_velo.txt", "R: 0 0 0 0 0 0 0 0 0\nT: 0 0 0\n"), r"imu_to_velo\.txt: 'R' is not a rotation; use"),
    (put("../calib_imu_to_velo.txt", "R: 1 0 0 0 1 0 0 0 1\nT: 1e30 0 0\n"), r"imu_to_velo\.txt: 'T' puts .* 1e\+30 m .*; use"),
    (put("../calib_imu_to_velo.txt", "T: 0 0 0\nT: 1 0 0\n"), r"calib_imu_to_velo\.txt holds 'T' twice; use the calibration"),
    (change("../calib_cam_to_cam.txt", "_00: 1 0 0", "_00: 0 0 1"), r"cam_to_cam\.txt: 'R_rect_00' is not a rotation; use"),
    (change("../calib_cam_to_cam.txt", "_02: 10 0", "_02: 0 0"), r"'P_rect_02' is not fx 0 cx .* focal lengths of 1 to .*; use"),
    (change("../calib_cam_to_cam.txt", "_02: 10 0", "_02: -10 0"), r"cam_to_cam\.txt: 'P_rect_02' is not fx 0 cx .*; use the"),
    (change("../calib_cam_to_cam.txt", "0 0 1 0\nS", "0 0 0 0\nS"), r"cam_to_cam\.txt: 'P_rect_02' is not fx 0 cx .*; use the"),
    (change("../calib_cam_to_cam.txt", "6 5 0", "6 5e9 0"), r"cam_to_cam\.txt: 'P_rect_02' puts a sensor 5e\+08 m away .*; use"),
    (change("../calib_cam_to_cam.txt", "12 8", "0 8"), r"cam_to_cam\.txt: 'S_rect_02' is not a width and a height .*; use the"),
    (change("../calib_cam_to_cam.txt", "12 8", "12.5 8"), r"cam_to_cam\.txt: 'S_rect_02' is not a width and a height .*; use"),
    (change("../calib_cam_to_cam.txt", "12 8", "1e5 8"), r"cam_to_cam\.txt: 'S_rect_02' is not a width and a height .*; use"),
    (change("../calib_cam_to_cam.txt", "12 8", "1_2 8"), r"cam_to_cam\.txt lacks 'S_rect_02' with 2 finite numbers; use"),
)  # fmt: skip
def test_calibration(root: Path, damage: Damage, message: str) -> None:
    check(root, damage, message)


FORWARD, START, END = (f"velodyne_points/timestamps{part}.txt" for part in ("", "_start", "_end"))


@refusals(
    (remove("oxts/timestamps.txt"), r"oxts/timestamps\.txt cannot be read \(No such file or directory\); restore the drive's"),
    (put(FORWARD, "\n"), r"velodyne_points/timestamps\.txt is empty; restore the drive's time stamps"),
    (put(FORWARD, stamps(0)), r"timestamps_start\.txt and timestamps\.txt do not stamp the same frames; restore the drive's"),
    (cut(END, 30), r"timestamps_end\.txt and timestamps\.txt do not stamp the same frames; restore the drive's time stamps"),
    (lambda root: [cut(path, 30)(root) for path in (FORWARD, START, END)], r"points/timestamps\.txt .* frame 2; restore it, or"),
    (put("image_02/timestamps.txt", stamps(0)), r"image_02/timestamps\.txt has no time stamp for frame 1; restore it, or"),
    (put("oxts/timestamps.txt", stamps(0, 0.1)), r"oxts/timestamps\.txt has no time stamp for frame 2; restore it, or"),
    (put(END, "noon\n"), r"timestamps_end\.txt line 1 is no time stamp \('noon'\); restore the drive's time stamps"),
    (put(END, "now\n"), r"timestamps_end\.txt line 1 is no time stamp \('now'\); restore"),
    (put(END, "x" * 9999), r"timestamps_end\.txt line 1 is no time stamp \('x{57}\.\.\.'\); restore"),
    (put(END, "2030-02-30 10:00:30.0\n"), r"timestamps_end\.txt line 1 is no time stamp .*; restore"),
    (put(END, "9999-01-02 10:00:30.0\n"), r"timestamps_end\.txt line 1 is no time stamp .*; restore"),
    (put("oxts/timestamps.txt", stamps(0, 0.2, 0.1)), r"oxts/timestamps\.txt line 3 is not later .*; restore the drive's time"),
    (put("oxts/timestamps.txt", stamps(0, 0.1, 0.1)), r"oxts/timestamps\.txt line 3 is not later .*; restore the drive's time"),
    (put("image_03/timestamps.txt", stamps(0, -1, 1)), r"image_03/timestamps\.txt line 2 is not later .*; restore the drive's"),
    (put(FORWARD, stamps(0, 0.2, 0.1)), r"velodyne_points/timestamps\.txt line 3 is not later .*; restore the drive's"),
    (put(START, stamps(0, 0, 0.2)), r"timestamps_start\.txt line 2 is not later .*; restore the drive's time stamps"),
    (put(END, stamps(0.3, 0.2, 0.1)), r"timestamps_end\.txt line 2 is not later .*; restore the drive's time stamps"),
    (put(END, stamps(-0.05, 0.05, 0.15)), r"timestamps\.txt line 1 .* from .*_start\.txt to .*_end\.txt; restore the three files"),
    (put(START, stamps(-9, -8, -7)), r"timestamps\.txt line 1 does not lie within a turn of at most 1 s, .*; restore the three"),
    (put("image_02/timestamps.txt", stamps(5, 6, 7)), r"image_02/timestamps\.txt stamps frame 2 6\.8 s after .*; restore the"),
)  # fmt: skip
def test_time_stamps(root: Path, damage: Damage, message: str) -> None:
    check(root, damage, message)


OXTS = "oxts/data/0000000001.txt"


@refusals(
    (put(OXTS, "49 8 nan 0 0 0\n"), r"0000000001\.txt does not begin with 6 finite numbers; restore it, or give other poses by data"),
    (put(OXTS, "49 8 0 0 0 inf\n"), r"0000000001\.txt does not begin with 6 finite numbers; restore it, or give other poses by data"),
    (put(OXTS, "49 8 0 0 0\n"), r"0000000001\.txt does not begin with 6 finite numbers; restore it, or give other poses by data"),
    (put(OXTS, "91 8 0 0 0 0\n"), r"0000000001\.txt does not begin with latitude, .* can have; restore it, or give other poses by data"),
    (put(OXTS, "49 8 0 0 0 1e5\n"), r"0000000001\.txt does not begin with latitude, .* can have; restore it, or give other poses"),
    (put(OXTS, ""), r"0000000001\.txt is empty; restore it, or give other poses by data"),
    (put(OXTS, b"\xff\xfe"), r"0000000001\.txt is no text in UTF-8; restore it, or give other poses by data"),
    (folder(OXTS), r"0000000001\.txt is no file; restore it, or give other poses by data"),
    (remove(OXTS), r"oxts/data has no pose of frame 1; restore it, or give other poses by data"),
    (copy(OXTS, "1.txt"), r"oxts/data holds 0000000001\.txt and 1\.txt for one frame; remove one of them"),
    (lambda root: [remove(f"oxts/data/{i:010d}.txt")(root) for i in range(3)], r"oxts/data holds no file \*\.txt .*; restore"),
)  # fmt: skip
def test_oxts(root: Path, damage: Damage, message: str) -> None:
    check(root, damage, message)


@refusals(
    (cut(BIN), r"0000000000\.bin is .* bytes long, not a multiple of 16; it is truncated, copy it again"),
    (put(BIN, b""), r"0000000000\.bin is empty; restore the file"),
    (folder(BIN), r"0000000000\.bin is no file; restore the file"),
    (put(BIN, bytes(32)), r"0000000000\.bin holds no point but the origin; copy it again, or remove the file"),
    (put(BIN, points((9, 0, 0, 0), (1, float("nan"), 0, 0))), r"0000000000\.bin point 1 is 1, nan, 0, 0, but must .*; copy it"),
    (put(BIN, points((float("inf"), 9, 0, 0))), r"0000000000\.bin point 0 is inf, 9, 0, 0, but must .*; copy it again"),
    (put(BIN, points((1e30, 9, 0, 0))), r"0000000000\.bin point 0 is 1e\+30, 9, 0, 0, but must lie within 250 m .*; copy it"),
    (put(BIN, points((9, 9, 0, 1e30))), r"0000000000\.bin point 0 is 9, 9, 0, 1e\+30, but must .* reflect 0 to 1; copy it again"),
    (put(BIN, points((9, 9, 0, float("nan")))), r"0000000000\.bin point 0 is 9, 9, 0, nan, but must .*; copy it again"),
    (put(BIN, points(*[(9, 0, 0, 0), (-9, 1, 0, 0), (-9, -1, 0, 0)] * 200)), r"0000000000\.bin holds more than 4 points .*; keep"),
    (copy(BIN, "0.bin"), r"velodyne_points/data holds 0\.bin and 0000000000\.bin for one frame; remove one of them"),
    (copy(BIN, "0000000007.bin"), r"oxts/data has no pose of frame 7; restore it, or give other poses by data"),
)  # fmt: skip
def test_sweeps(root: Path, damage: Damage, message: str) -> None:
    check(root, damage, message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (POSE, r"poses\.txt has 1 rows, but 3 are needed; write one row for each frame"),
        (POSE + "\n" + POSE * 2, r"poses\.txt line 2 is not 12 finite numbers .*; each row must be a 3x4 matrix"),
        ("1 0 0 nan 0 1 0 0 0 0 1 0\n" * 3, r"poses\.txt line 1 is not 12 finite numbers .*; each row must be"),
        ("1 0 0 0 0 1 0 -inf 0 0 1 0\n" * 3, r"poses\.txt line 1 is not 12 finite numbers .*; each row must be"),
        (POSE * 2 + "1 0 0 1e30 0 1 0 0 0 0 1 0\n", r"poses\.txt line 3 is not 12 finite numbers .*; each row must be"),
        ("1 0 0 0 0 1 0 0\n" * 3, r"poses\.txt line 1 is not 12 finite numbers .*; each row must be"),
        ("1 0 0 x\n" * 3, r"poses\.txt line 1 is not 12 finite numbers .*; each row must be"),
        ("2 0 0 0 0 1 0 0 0 0 1 0\n" * 3, r"poses\.txt holds a matrix that is not a rotation; each row must be rigid|a rigid"),
        ("-1 0 0 0 0 1 0 0 0 0 1 0\n" * 3, r"poses\.txt holds a matrix that is not a rotation; each row must be a rigid"),
        ("", r"poses\.txt is empty; name an existing poses_file"),
        ("\x00" * 9, r"poses\.txt line 1 is not 12 finite numbers .*; each row must be"),
    ],
)  # fmt: skip
def test_poses_file(root: Path, text: str, message: str) -> None:
    (root / "poses.txt").write_text(text)
    with pytest.raises(CaptureError, match=message):
        load(root, poses_file=root / "poses.txt")


def test_root(root: Path) -> None:
    for wrong, message in (
        (root / "nowhere", r"nowhere does not exist; data\.root must be the folder that holds the dates of KITTI raw"),
        (root / ("x" * 5000), r" does not exist; data\.root must be"),
        (root / DRIVE / PNG, r"0000000000\.png is no folder; data\.root must be the folder that holds the dates"),
        (
            root / DRIVE / "oxts",
            r"oxts holds no folder \*/\*_drive_\*_sync; data\.root must be the folder that holds the dates",
        ),
    ):
        with pytest.raises(CaptureError, match=message):
            read_kitti_raw(wrong)


def test_a_camera_that_is_named_twice_is_read_once(root: Path) -> None:
    assert [c.name for c in read_kitti_raw(root, cameras=("image_03", "image_03")).cameras] == ["image_03"]


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"drive": 8}, r"holds no folder \*/\*_drive_0008_sync; data\.root must be"),
        ({"drive": "seven"}, r"data\.drive is 'seven', .*; write it as in data\.drive=0009"),
        ({"date": "../*"}, r"data\.date is '\.\./\*', .*; write it as in data\.date=2011_09_26"),
        ({"cameras": ("image_07",)}, r"data\.cameras names 'image_07', but .* has image_02, image_03; choose"),
        ({"frames": range(5, 9)}, r"velodyne_points/data holds no file of the frames 5 to 8; choose others by data\.frames"),
        ({"downscale": 9}, r"data\.downscale is 9, but image_02 has 12x8 pixels; choose"),
        ({"downscale": 0}, r"data\.downscale is 0, but image_02 has 12x8 pixels; choose"),
        ({"image_delay": float("nan")}, r"data\.image_delay is nan, but must be a second at most; KITTI's is 0\.0075"),
        ({"poses_file": Path("nowhere.txt")}, r"nowhere\.txt cannot be read \(No such file .*\); name an existing poses_file"),
        ({"tracks_file": Path("nowhere.txt")}, r"nowhere\.txt cannot be read \(No such file .*\); give the file label_02"),
        ({"tracks_file": Path("/dev/zero")}, r"/dev/zero is no file; give the file label_02"),
    ],
)  # fmt: skip
def test_choices(root: Path, choice: dict[str, object], message: str) -> None:
    with pytest.raises(CaptureError, match=message):
        read_kitti_raw(root, **choice)


def test_several_drives(root: Path) -> None:
    for number in range(8, 99):
        (root / f"2030_01_02/2030_01_02_drive_{number:04d}_sync").mkdir()
    with pytest.raises(CaptureError, match=r"holds 92 drives \(.*, \.\.\.\); choose by data\.date and data\.drive"):
        read_kitti_raw(root)
    for date in ("2030_01_02", "20300102"):  # the command line turns the first into the second
        assert read_kitti_raw(root, date=date, drive="0007").name == "2030_01_02_drive_0007"


def test_frames_are_in_the_order_of_their_numbers(root: Path) -> None:
    """The order holds where names have different lengths."""
    for path in (root / DRIVE).glob("*/data/*"):
        path.rename(path.with_name(path.name[9 if "1" in path.name else 0 :]))
    assert [frame.index for frame in load(root).sweeps] == [0, 1, 2]


def test_neither_pipes_nor_huge_files_are_read(root: Path) -> None:
    path = root / "labels.txt"
    path.write_bytes(b"")
    os.truncate(path, MAX_BYTES + 1)
    with pytest.raises(CaptureError, match=r"labels\.txt has 64 MiB, more than any .*; give the file"):
        read_kitti_raw(root, tracks_file=path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(CaptureError, match=r"labels\.txt is no file; give the file"):
        read_kitti_raw(root, tracks_file=path)
