# SPDX-License-Identifier: Apache-2.0
"""400 damaged files for each reader of KITTI's texts: each is refused by one sentence with its name and a remedy, or its content makes
sense."""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kitti_drive import (
    CALIBRATION,
    TRACKLETS,
    label,
    stamp,
)
from mutations import bounded_memory, folder_of, hundreds, mutated_text, overwrite, read_or_refuse
from torch import Tensor

from nurec_lite.capture.kitti.calibration import read_camera, read_rig
from nurec_lite.capture.kitti.poses import Clock, read_clock, read_oxts, read_poses_file
from nurec_lite.capture.kitti.tracks import Box, check_frames, read_label_file, read_tracklets, world_tracks

TIMES = [0.0, 0.1, 0.2]
EYE = torch.eye(4, dtype=torch.float64)


@pytest.fixture(autouse=True)
def memory() -> Iterator[None]:
    with bounded_memory(300 << 20):
        yield


def stamps(shift: float) -> bytes:
    return "".join(stamp(time + shift) + "\n" for time in TIMES).encode()


def are_rigid(T: Tensor) -> bool:  # [..., 4, 4]
    R = T[..., :3, :3]
    orthonormal = torch.allclose(R @ R.mT, torch.eye(3, dtype=T.dtype).expand_as(R), atol=5e-3)
    return orthonormal and bool(T.isfinite().all()) and bool((torch.linalg.det(R) > 0).all())


# ---- calibration, times, poses


@pytest.mark.parametrize("name", sorted(CALIBRATION))
def test_calibration(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    folder = tmp_path_factory.mktemp("date")
    for file, text in CALIBRATION.items():
        (folder / file).write_text(text)

    @hundreds
    @given(mutated_text(CALIBRATION[name].encode()))
    def check(data: bytes) -> None:
        overwrite(folder / name, data)
        read = read_or_refuse(
            lambda: (read_rig(folder), read_camera(folder / "calib_cam_to_cam.txt", "image_02", EYE)), name
        )
        if read is not None:
            rig, camera = read
            assert all(map(are_rigid, (*rig, camera.T_rig_cam))) and min(camera.width, camera.height) > 0
            assert min(camera.fx, camera.fy) > 0 and math.isfinite(camera.fx + camera.fy + camera.cx + camera.cy)

    check()


CLOCK = {"timestamps.txt": stamps(0), "timestamps_start.txt": stamps(-0.05), "timestamps_end.txt": stamps(0.05)}


@hundreds
@given(st.sampled_from(sorted(CLOCK)).flatmap(lambda name: st.tuples(st.just(name), mutated_text(CLOCK[name]))))
def test_clock(tmp_path_factory: pytest.TempPathFactory, damaged: tuple[str, bytes]) -> None:
    folder = folder_of(tmp_path_factory, "clock")
    for name, data in (CLOCK | dict([damaged])).items():
        overwrite(folder / name, data)
    clock = read_or_refuse(lambda: read_clock(folder), damaged[0])
    if clock is not None:
        known = np.isfinite(clock.forward)
        assert clock.forward[known][0] == 0 and (np.diff(clock.forward[known]) > 0).all()
        assert ((clock.period[known] > 0) & (clock.period[known] <= 1)).all()


@hundreds
@given(mutated_text(stamps(0.012)))
def test_time_stamps(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = folder_of(tmp_path_factory, "times") / "timestamps.txt"
    overwrite(path, data)
    clock = Clock(np.array(TIMES), np.full(3, 0.1), np.datetime64("2030-01-02T10:00:30", "ns"), "timestamps.txt")
    times = read_or_refuse(lambda: clock.seconds(path, [0, 1, 2]), path.name)
    if times is not None:
        assert times.dtype == torch.float64 and (times.diff() > 0).all()
        assert (times - torch.tensor(TIMES)).abs().max() <= 1


@hundreds
@given(mutated_text(b"49.015 8.43 112.8 0.035 -0.017 -2.6 1.5 -3.1 3.5 0.1 0 0 0 0.2 9.8 0 4\n"))
def test_oxts(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = folder_of(tmp_path_factory, "oxts")
    overwrite(folder / "0000000000.txt", b"49 8 100 0 0 0\n")
    overwrite(folder / "0000000001.txt", data)
    read = read_or_refuse(lambda: read_oxts(folder), "0000000001.txt")
    assert read is None or (read[0] == [0, 1] and read[1].shape == (2, 4, 4) and are_rigid(read[1]))


@hundreds
@given(mutated_text(b"1 0 0 0.5 0 1 0 0 0 0 1 0\n0 -1 0 9.5e-1 1 0 0 -1e-2 0 0 1 7.25\n0 -1 0 20 1 0 0 0 0 0 1 0\n"))
def test_poses_file(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = folder_of(tmp_path_factory, "poses") / "poses.txt"
    overwrite(path, data)
    poses = read_or_refuse(lambda: read_poses_file(path, 3), path.name)
    assert poses is None or (len(poses) >= 3 and are_rigid(poses))


# ---- tracks

LABELS = "".join(label(i, -5 + i, 1.5, 9.75, -1.5) + label(i, 3, 1.5, 20 - i, 0.1, "Van", track=4) for i in range(3))
LABELS += "0 -1 DontCare -1 -1 -10 1 2 3 4 -1000 -1000 -1000 -10 -1 -1 -1\n"


def check_boxes(path: Path, boxes: list[Box]) -> None:
    tracks = world_tracks(boxes, {i: (TIMES[i], 0.1) for i in range(3)}, lambda times: EYE.expand(len(times), 4, 4))
    tensors = (tracks.times, tracks.translations, tracks.quaternions, tracks.sizes)
    assert all(tensor.isfinite().all() for tensor in tensors) and (tracks.sizes > 0).all()
    assert torch.allclose(tracks.quaternions.norm(dim=1), torch.ones(len(tracks.times), dtype=torch.float64))
    assert all(
        (tracks.times[a:b].diff() > 0).all() and a < b for a, b in zip(tracks.offsets, tracks.offsets[1:], strict=False)
    )


@hundreds
@given(mutated_text(LABELS.encode()))
def test_label_file(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = folder_of(tmp_path_factory, "labels") / "0001.txt"
    overwrite(path, data)
    boxes = read_or_refuse(lambda: checked(path, read_label_file(path, EYE)), path.name)
    if boxes is not None:
        check_boxes(path, boxes)


@hundreds
@given(mutated_text(TRACKLETS.encode()))
def test_tracklets(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = folder_of(tmp_path_factory, "tracklets") / "tracklet_labels.xml"
    overwrite(path, data)
    boxes = read_or_refuse(lambda: checked(path, read_tracklets(path)), path.name)
    if boxes is not None:
        check_boxes(path, boxes)


def checked(path: Path, boxes: list[Box]) -> list[Box]:
    check_frames(path, boxes, range(3))
    return boxes
