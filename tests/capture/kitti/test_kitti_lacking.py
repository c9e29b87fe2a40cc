# SPDX-License-Identifier: Apache-2.0
"""Drives that lack a sensor, or frames: the rest is read, and a sentence names a missing part that is needed."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from broken_kitti import load
from kitti_drive import CALIBRATION, DRIVE, N_FRAMES, TRACKLETS, label, write_drive
from PIL import Image

from nurec_lite.capture.kitti.raw import read_kitti_raw
from nurec_lite.capture.types import POSITIONED, UNKNOWN, CaptureError
from nurec_lite.config import DataConfig
from nurec_lite.readers import open_capture

POSES = "".join(f"1 0 0 {i} 0 1 0 0 0 0 1 0\n" for i in range(N_FRAMES))  # 1 m ahead a frame


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_drive(tmp_path)


def without(root: Path, *folders: str) -> Path:
    for name in folders:
        shutil.rmtree(root / DRIVE / name)
    return root


def with_poses(root: Path) -> Path:
    (root / "poses.txt").write_text(POSES)
    return root / "poses.txt"


# ---- without a lidar


@pytest.mark.parametrize("gone", ["velodyne_points", "velodyne_points/data"])
def test_cameras_alone_have_the_poses_and_times_that_they_have_with_a_lidar(root: Path, gone: str) -> None:
    whole, alone = load(root), load(without(root, gone))
    assert alone.lidars == () and alone.sweeps == () and len(alone.images) == len(whole.images) == 2 * N_FRAMES
    for a, b in zip(whole.images, alone.images, strict=True):
        assert (a.sensor, a.index, a.time_mid) == pytest.approx((b.sensor, b.index, b.time_mid), abs=1e-6)
        torch.testing.assert_close(a.T_world_rig_start, b.T_world_rig_start, atol=1e-5, rtol=0)


def test_cameras_alone_take_poses_from_a_file(root: Path) -> None:
    poses = with_poses(root)
    whole, alone = load(root, poses_file=poses), load(without(root, "velodyne_points", "oxts"), poses_file=poses)
    for a, b in zip(whole.images, alone.images, strict=True):
        torch.testing.assert_close(a.T_world_rig_start, b.T_world_rig_start, atol=1e-5, rtol=0)
    assert float(alone.images[1].T_world_rig_start[0, 3] - alone.images[0].T_world_rig_start[0, 3]) == pytest.approx(1)


def test_cameras_alone_have_tracks(root: Path) -> None:
    (root / DRIVE / "tracklet_labels.xml").write_text(TRACKLETS)
    whole, alone = load(root).tracks, load(without(root, "velodyne_points")).tracks
    assert alone.ids == whole.ids
    torch.testing.assert_close(alone.translations, whole.translations, atol=1e-4, rtol=0)


def test_a_lidar_folder_without_sweeps_is_named(root: Path) -> None:
    without(root, "velodyne_points/data")
    (root / DRIVE / "velodyne_points/data").mkdir()
    with pytest.raises(
        CaptureError, match=r"data holds no file \*\.bin .*; restore the folder, or remove it to go without"
    ):
        read_kitti_raw(root)


# ---- without poses or times


def test_without_oxts_the_key_for_poses_is_named(root: Path) -> None:
    for gone in ("oxts/data", "oxts"):
        with pytest.raises(
            CaptureError, match=r"oxts/data is no folder; .* give the poses by data\.poses\.file: a row"
        ):
            read_kitti_raw(without(root, gone))
    assert len(load(root, poses_file=with_poses(root)).sweeps) == N_FRAMES


def test_images_without_times_are_named(root: Path) -> None:
    without(root, "velodyne_points")
    (root / DRIVE / "image_02/timestamps.txt").unlink()
    with pytest.raises(
        CaptureError, match=r"image_02/timestamps\.txt cannot be read .*; restore the drive's time stamps"
    ):
        read_kitti_raw(root)
    (root / DRIVE / "image_02/timestamps.txt").write_text("\n\n\n")
    with pytest.raises(CaptureError, match=r"image_02/timestamps\.txt "):
        read_kitti_raw(root)


# ---- cameras


def test_no_cameras_named_means_those_that_are_there(root: Path) -> None:
    without(root, "image_03/data")
    assert [camera.name for camera in load(root).cameras] == ["image_02"]
    without(root, "image_03")
    assert [camera.name for camera in load(root).cameras] == ["image_02"]
    with pytest.raises(CaptureError, match=r"data\.cameras names 'image_03', but .* has image_02; choose"):
        read_kitti_raw(root, cameras=("image_02", "image_03"))


def test_a_named_camera_without_images_is_named(root: Path) -> None:
    without(root, "image_03/data")
    with pytest.raises(
        CaptureError, match=r"image_03/data is no folder; restore .*, or choose other cameras by data\.cameras"
    ):
        read_kitti_raw(root, cameras=("image_02", "image_03"))


def test_grey_cameras_are_read_where_no_others_are(root: Path) -> None:
    calibration = (root / DRIVE).parent / "calib_cam_to_cam.txt"
    calibration.write_text(CALIBRATION[calibration.name].replace("rect_02", "rect_00").replace("rect_03", "rect_01"))
    for old, new in (("image_02", "image_00"), ("image_03", "image_01")):
        (root / DRIVE / old).rename(root / DRIVE / new)
    for path in (root / DRIVE).glob("image_0?/data/*.png"):
        Image.fromarray(np.arange(96, dtype=np.uint8).reshape(8, 12)).save(path)
    capture = load(root)
    assert [camera.name for camera in capture.cameras] == ["image_00", "image_01"]
    assert capture.images[0].load()[3, 5].tolist() == [41, 41, 41]


def test_a_drive_without_images_is_named(root: Path) -> None:
    without(root, "image_02", "image_03")
    with pytest.raises(
        CaptureError, match=r"_sync has no images in image_00/data to image_03/data; complete the drive"
    ):
        read_kitti_raw(root)


# ---- frames


def thinned(root: Path, kept: range, frames: int) -> Path:
    """A drive of so many frames that has lost all but a few; those keep their numbers."""
    drive = root / DRIVE
    for path in drive.glob("*/timestamps*.txt"):
        first = np.datetime64(path.read_text().splitlines()[0], "ns")
        stamps = [first + np.timedelta64(100_000_000 * i, "ns") for i in range(frames)]
        path.write_text("".join(str(s).replace("T", " ") + "\n" for s in stamps))
    for folder in drive.glob("*/data"):
        (path,) = folder.glob("0000000000.*")
        data = path.read_bytes()
        for other in folder.iterdir():
            other.unlink()
        for i in kept:
            (folder / f"{i:010d}{path.suffix}").write_bytes(data)
    return root


@pytest.mark.parametrize("kept", [range(0, 51, 5), range(0, 100, 10), range(3, 51, 5)])
def test_a_thinned_drive_is_split_by_the_moments_that_are_there(root: Path, kept: range) -> None:
    thinned(root, kept, 101)
    capture = open_capture(DataConfig(kind="kitti_raw", root=str(root)))
    split = capture.split
    assert split is not None and [f.index for f in capture.sweeps] == list(kept)
    assert {capture.images[i].index for i in split.test_images} == set(kept[4::5])
    assert {capture.sweeps[i].index for i in split.test_sweeps} == set(kept[4::5])


def test_frames_may_have_a_stride(root: Path) -> None:
    thinned(root, range(101), 101)
    capture = open_capture(DataConfig(kind="kitti_raw", root=str(root), frames=[10, 61, 5]))
    assert [f.index for f in capture.sweeps] == list(range(10, 61, 5))
    assert capture.split is not None
    assert [capture.sweeps[i].index for i in capture.split.test_sweeps] == [30, 55]
    with pytest.raises(CaptureError, match=r"holds no file of the frames 200 to 300 in steps of 7; choose others by"):
        read_kitti_raw(root, frames=range(200, 301, 7))


def test_tracks_between_the_frames_of_a_thinned_drive_are_left_out(root: Path) -> None:
    """One in a hole that frames were lost in is an error, as the file may be another drive's."""
    path = root / "labels.txt"
    path.write_text(label(0, 0, 0, 9, 0, track=1) + label(5, 0, 0, 9, 0, track=1) + label(2, 3, 0, 9, 0, track=2))
    thinned(root, range(0, 51, 5), 51)
    assert read_kitti_raw(root, tracks_file=path).tracks.ids == ("1",)
    thinned(root, range(51), 51)
    for i in range(1, 4):
        for file in (root / DRIVE).glob(f"*/data/{i:010d}.*"):
            file.unlink()
    with pytest.raises(CaptureError, match=r"track 2 refers to no frame of the drive"):
        read_kitti_raw(root, tracks_file=path)


@pytest.mark.parametrize("bad", [(1,), tuple(range(N_FRAMES))])
def test_rows_of_oxts_that_are_no_numbers_can_be_removed_where_sweeps_show_poses(
    root: Path, bad: tuple[int, ...]
) -> None:
    """The sentence names a remedy, until the drive is read: first the files, then the empty folder."""
    folder = root / DRIVE / "oxts/data"
    for frame in bad:
        (folder / f"{frame:010d}.txt").write_text(" ".join(["nan"] * 30))
    for frame in bad:
        with pytest.raises(CaptureError, match=rf"{frame:010d}\.txt .*; restore or remove it \(the sweeps show poses"):
            load(root, poses_needed=False)
        (folder / f"{frame:010d}.txt").unlink()
    if len(bad) == N_FRAMES:
        with pytest.raises(CaptureError, match=r"oxts/data holds no .*; restore or remove it"):
            load(root, poses_needed=False)
        folder.rmdir()
    read = load(root, poses_needed=False)
    assert len(read.sweeps) == N_FRAMES
    assert read.poses_from == (UNKNOWN if len(bad) == N_FRAMES else POSITIONED)
