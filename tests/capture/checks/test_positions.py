# SPDX-License-Identifier: Apache-2.0
"""Positions that jump, stand still or drift against the velocities that the same unit measured: one sentence with frame and size."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from wrong_poses import street, with_position

from nurec_lite.capture.checks import driving, poses, positions
from nurec_lite.capture.checks.run import CHECKS
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.kitti.raw import read_kitti_raw
from nurec_lite.capture.measured import Measured
from nurec_lite.capture.trajectory import trajectory_of
from nurec_lite.capture.types import Capture, Frame
from nurec_lite.geometry.se3 import matrix_to_quat

Change = Callable[[Tensor], Tensor]  # seconds [n] -> metres to the side [n]
SPEED = 8.0  # metres a second, of the small street


def doubts(capture: Capture) -> list[Verdict]:
    sample = Sample(capture)
    for name in (positions.NAME, driving.NAME, poses.NAME):
        sample.found.extend(CHECKS[name](sample))
    return [v for v in sample.found if v.level in (Level.CERTAIN, Level.LIKELY)]


def measured(capture: Capture, moved: Callable[[Tensor, Tensor], Tensor], poses_too: bool = True) -> Capture:
    """A capture whose unit measures ten times a second. `moved` makes positions [n, 3] of right ones and their times."""
    path = trajectory_of(capture)
    times = torch.arange(0.05, 1.6, 0.1, dtype=torch.float64)
    T = torch.stack([path.at(float(t)) for t in times])
    velocities = torch.tensor([[SPEED, 0.0, 0.0]], dtype=torch.float64).expand(len(times), -1)
    unit = Measured(times, velocities, attitudes=matrix_to_quat(T[:, :3, :3]), positions=moved(T[:, :3, 3], times))

    def posed(frame: Frame) -> Frame:
        at = torch.tensor([frame.time_start, frame.time_end], dtype=torch.float64)
        old = [frame.T_world_rig_start, frame.T_world_rig_end]
        new = moved(torch.stack([T[:3, 3] for T in old]), at)
        return replace(
            frame, T_world_rig_start=with_position(old[0], new[0]), T_world_rig_end=with_position(old[1], new[1])
        )

    odd = replace(capture, measured=unit)
    return (
        replace(odd, images=tuple(map(posed, odd.images)), sweeps=tuple(map(posed, odd.sweeps))) if poses_too else odd
    )


def jump(metres: float) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda places, times: (
        places + metres * (times > 0.8)[:, None] * torch.tensor([0.0, 1, 0], dtype=torch.float64)
    )


def freeze(places: Tensor, times: Tensor) -> Tensor:
    """Positions that stand still from 0.6 to 1 s."""
    inside = (times > 0.6) & (times < 1.0)
    return torch.where(inside[:, None], places[inside][0], places)


def drift(places: Tensor, times: Tensor) -> Tensor:
    return places + 3.0 * times[:, None] * torch.tensor([0.0, 1, 0], dtype=torch.float64)


@pytest.mark.parametrize("metres", [2.0, 10.0, 40.0])
def test_a_jump_is_named_once(metres: float) -> None:
    (found,) = doubts(measured(street(), jump(metres)))
    assert found.level is Level.CERTAIN and found.check == positions.NAME
    assert f"Positions jump by {metres:.1f} m before frame 8" in found.sentence
    assert found.remedy is not None and "data.poses.source=lidar" in found.remedy


def test_a_jump_that_poses_do_not_follow_is_a_finding() -> None:
    (found,) = doubts(measured(street(), jump(10.0), poses_too=False))
    assert found.level is Level.LIKELY and "the poses that are used do not follow them" in found.sentence


def test_positions_that_stand_still_are_named() -> None:
    found = doubts(measured(street(), freeze, poses_too=False))
    assert [v.level for v in found] == [Level.LIKELY]
    assert "stand still from frame" in found[0].sentence and found[0].figures["frozen_m"] == pytest.approx(2.4, abs=0.1)


def test_positions_that_drift_are_named() -> None:
    found = doubts(measured(street(), drift, poses_too=False))
    assert [v.level for v in found] == [Level.LIKELY] and "Positions drift by" in found[0].sentence
    assert found[0].figures["drift_m"] == pytest.approx(4.5, abs=0.5)


def test_right_positions_are_not_doubted() -> None:
    assert doubts(measured(street(), lambda places, times: places)) == []


# ---- a real drive


def with_oxts(kitti_root: Path, folder: Path, change: Callable[[int, list[str]], None]) -> Path:
    """The first 20 frames by links, and rows of oxts that are altered."""
    drive = "2011_09_26/2011_09_26_drive_0009_sync"
    for path in (kitti_root / "2011_09_26").rglob("*"):
        copy = folder / path.relative_to(kitti_root)
        if path.is_file() and (path.parent.name != "data" or int(path.stem) < 20):
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.symlink_to(path.resolve())
    for path in sorted((folder / drive / "oxts/data").iterdir()):
        row = path.read_text().split()
        change(int(path.stem), row)
        path.unlink()
        path.write_text(" ".join(row) + "\n")
    return folder


def of_kitti(root: Path) -> list[Verdict]:
    return doubts(read_kitti_raw(root, downscale=8, frames=range(20), cameras=("image_02",)))


@pytest.mark.parametrize("metres", [0, 2, 19])
def test_gps_of_kitti_that_jumps_is_named_once(metres: int, kitti_root: Path, tmp_path: Path) -> None:
    def moved(frame: int, row: list[str]) -> None:
        row[0] = repr(float(row[0]) + (metres / 111_200 if frame >= 10 else 0.0))

    found = of_kitti(with_oxts(kitti_root, tmp_path, moved))
    if metres:
        assert [(v.level, v.check) for v in found] == [(Level.CERTAIN, positions.NAME)]
        assert "before frame 10" in found[0].sentence and found[0].figures["jump_m"] == pytest.approx(metres, abs=0.2)
    else:
        assert found == []
    shutil.rmtree(tmp_path)


def test_gps_of_kitti_that_stands_still_is_named_once(kitti_root: Path, tmp_path: Path) -> None:
    kept: list[str] = []

    def stuck(frame: int, row: list[str]) -> None:
        kept[:] = row[:3] if frame == 8 else kept
        row[:3] = kept if 8 <= frame < 14 else row[:3]

    found = of_kitti(with_oxts(kitti_root, tmp_path, stuck))
    assert {v.level for v in found} == {Level.CERTAIN} and len(found) == 1
