# SPDX-License-Identifier: Apache-2.0
"""Drives with wrong metadata, from the command line. The run ends with code 2 before training, and the sentence names the mistake and its
remedy. For each drive only the checks that can tell it run."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from shell import FAST, Shell, assert_mendable
from tiny_capture import Loaded
from wrong_poses import posed, with_rays

from nurec_lite.capture.checks import cameras, driving, files, poses, rays, run
from nurec_lite.capture.kitti.calibration import read_rig
from nurec_lite.capture.pack import write_pack
from nurec_lite.capture.types import Capture
from nurec_lite.config import DataConfig
from nurec_lite.geometry.se3 import invert
from nurec_lite.readers import open_capture

DRIVE = "2011_09_26/2011_09_26_drive_0009_sync"
Only = Callable[[tuple[str, ...]], None]
POSES = (rays.NAME, driving.NAME, poses.NAME)


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Only:
    """Runs these checks alone."""
    known = dict(run.CHECKS)
    return lambda names: monkeypatch.setattr(run, "CHECKS", {name: known[name] for name in names})


# ---- drive 0009 of KITTI, 30 frames of it


@pytest.fixture
def drive(kitti_root: Path, tmp_path: Path) -> Path:
    """Links to its first 30 frames; texts are copies."""
    root = tmp_path / "drive"
    for path in (kitti_root / "2011_09_26").rglob("*"):
        copy, number = root / path.relative_to(kitti_root), path.stem
        if not path.is_file() or (path.parent.name == "data" and int(number) >= 30):
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".txt":
            text = path.read_text()
            copy.write_text("".join(text.splitlines(keepends=True)[:30]) if "timestamps" in path.name else text)
        else:
            copy.symlink_to(path.resolve())
    rows = (kitti_root / "extra/poses_velo.txt").read_text().splitlines(keepends=True)
    (root / "poses.txt").write_text("".join(rows[:30]))
    return root


def matrices(root: Path) -> torch.Tensor:  # [30, 4, 4]
    rows = torch.from_numpy(np.loadtxt(root / "poses.txt")).view(-1, 3, 4)
    return torch.cat([rows, torch.tensor([0.0, 0, 0, 1]).double().expand(len(rows), 1, 4)], dim=1)


def of_camera_0(root: Path) -> None:
    T_rig_lidar, T_rig_rect = read_rig(root / "2011_09_26")
    A = invert(T_rig_rect) @ T_rig_lidar
    np.savetxt(root / "poses.txt", (A @ matrices(root) @ invert(A))[:, :3].flatten(1).numpy())


def a_row_for_each_sweep(root: Path) -> None:
    rows = (root / "poses.txt").read_text().splitlines(keepends=True)
    (root / "poses.txt").write_text("".join(rows[:7] + rows[11:]))
    for i in range(7, 11):
        (root / DRIVE / f"velodyne_points/data/{i:010d}.bin").unlink()
    for path in (root / DRIVE / "velodyne_points").glob("*.txt"):
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join("\n" if 7 <= i < 11 else line for i, line in enumerate(lines)))


KITTI: dict[str, tuple[Callable[[Path], None], tuple[str, ...], str]] = {
    "poses of camera 0": (
        of_camera_0, POSES, r"they fit within 0\.\d+ m if they are those of camera 0 .*give data\.poses\.convention=camera",
    ),
    "a row for each sweep that exists": (
        a_row_for_each_sweep, (files.NAME,), r"poses\.txt has 26 rows, as many as the drive has sweeps, but row i belongs to frame i",
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", KITTI)
def test_a_drive_of_kitti_that_is_wrong_ends_the_run(case: str, drive: Path, shell: Shell, only: Only) -> None:
    change, checks, sentence = KITTI[case]
    change(drive)
    only(checks)
    given = [
        "data=kitti_raw",
        f"data.root={drive}",
        "data.downscale=6",
        "data.frames=[0,25]",
        f"data.poses.file={drive}/poses.txt",
    ]
    given += ["data.poses.source=capture", "data.tracks.source=capture"]
    ended = shell("train", *given, f"out={drive.parent}/run", *FAST)
    assert_mendable(ended, sentence)
    assert "data.trust=true" in ended.error and not (drive.parent / "run/checkpoint.pt").exists()


# ---- packs of the simulated street


@pytest.fixture(scope="module")
def street() -> Iterator[Capture]:
    """20 moments at a third of the size, in memory."""
    capture = open_capture(DataConfig(downscale=3, frames=[0, 20]))
    yield replace(
        capture,
        images=tuple(replace(f, load=Loaded(f.load())) for f in capture.images),
        sweeps=tuple(replace(f, load=Loaded(f.load())) for f in capture.sweeps),
    )


def in_axes_of_opengl(capture: Capture) -> Capture:
    axes = torch.diag(torch.tensor([1.0, -1, -1, 1], dtype=torch.float64))
    return replace(capture, cameras=tuple(replace(c, T_rig_cam=c.T_rig_cam @ axes) for c in capture.cameras))


def inverted_mountings(capture: Capture) -> Capture:
    return replace(capture, cameras=tuple(replace(c, T_rig_cam=invert(c.T_rig_cam)) for c in capture.cameras))


def of_the_large_image(capture: Capture) -> Capture:
    return replace(
        capture, cameras=tuple(replace(c, fx=3 * c.fx, fy=3 * c.fy, cx=3 * c.cx, cy=3 * c.cy) for c in capture.cameras)
    )


PACKS: dict[str, tuple[Callable[[Capture], Capture], tuple[str, ...], str]] = {
    "axes of OpenGL": (in_axes_of_opengl, (cameras.CHECK,), r"if the mounting has the axes of OpenGL .*multiply T_rig_cam by diag"),
    "mounting inverted": (inverted_mountings, (cameras.CHECK,), r"if the mounting is the inverse"),
    "intrinsics of the large image": (of_the_large_image, (cameras.CHECK,), r"principal point .* lies outside .*image 3 times as large"),
    "rays with x and y exchanged": (lambda c: with_rays(c, [1, 0, 2]), POSES, r"give their directions as \(y, x, z\)"),
    "poses inverted": (lambda c: posed(c, invert), POSES, r"if they are inverted \(T_rig_world\); invert them"),
}  # fmt: skip


@pytest.mark.parametrize("case", PACKS)
def test_a_pack_that_is_wrong_ends_the_run(
    case: str, street: Capture, shell: Shell, tmp_path: Path, only: Only
) -> None:
    change, checks, sentence = PACKS[case]
    odd = change(street)
    only(checks)
    write_pack(odd, tmp_path / "street.pack", image_format="png")
    given = [
        "data=pack",
        f"data.root={tmp_path}/street.pack",
        "data.poses.source=capture",
        "data.tracks.source=capture",
    ]
    assert_mendable(shell("train", *given, f"out={tmp_path}/run", *FAST), sentence)


# ---- the map in the documents


def test_every_test_that_the_document_names_exists() -> None:
    root = Path(__file__).parents[2]
    named = re.findall(r"`(\w+\.py)::(\w+)", (root / "docs/reliability.md").read_text())
    sources = {path.name: path.read_text() for path in (root / "tests").rglob("test_*.py")}
    missing = [f"{file}::{test}" for file, test in named if f"def {test}(" not in sources.get(file, "")]
    assert len(named) > 60 and missing == []
