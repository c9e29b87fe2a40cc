# SPDX-License-Identifier: Apache-2.0
"""Right drives as people have them: other endings of images, hidden files of other systems, parts that are not downloaded, other roots.
They are read like the drive as its authors publish it."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import kitti_drive
import pytest
import tiny_argoverse2
import tiny_colmap
import tiny_kitti360
import tiny_pandaset
import tiny_waymo
import torch
from PIL import Image

from nurec_lite.capture.argoverse2.read import read_argoverse2
from nurec_lite.capture.check import check_capture
from nurec_lite.capture.colmap.read import read_colmap
from nurec_lite.capture.kitti.raw import find_drive, read_kitti_raw
from nurec_lite.capture.kitti360.read import read_kitti360
from nurec_lite.capture.pandaset import read as pandaset
from nurec_lite.capture.types import Capture, CaptureError
from nurec_lite.capture.waymo.read import read_waymo


@dataclass(frozen=True)
class Kind:
    write: Callable[[Path], object]
    read: Callable[[Path], Capture]


KINDS = {
    "pandaset": Kind(tiny_pandaset.write_sequence, pandaset.read_pandaset),
    "argoverse2": Kind(tiny_argoverse2.write_log, read_argoverse2),
    "waymo": Kind(tiny_waymo.write_segment, read_waymo),
    "kitti360": Kind(tiny_kitti360.write_drive, lambda root: read_kitti360(root, drive=tiny_kitti360.NAME)),
    "colmap": Kind(tiny_colmap.write_project, read_colmap),
    "kitti_raw": Kind(kitti_drive.write_drive, read_kitti_raw),
}


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pandaset, "WIDTH", tiny_pandaset.SIZE[0])
    monkeypatch.setattr(pandaset, "HEIGHT", tiny_pandaset.SIZE[1])


@pytest.fixture
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param in ("argoverse2", "waymo"):
        pytest.importorskip("pyarrow")
    folder = tmp_path / "Große Fahrt #1 [a]"
    folder.mkdir()
    KINDS[request.param].write(folder)
    return folder


def parts(capture: Capture) -> tuple[object, ...]:
    check_capture(capture, "variant")
    for frame in (*capture.images[:2], *capture.sweeps[:2]):
        frame.load()
    frames = [(f.sensor, f.index, f.time_start) for f in (*capture.images, *capture.sweeps)]
    return [c.name for c in capture.cameras], [s.name for s in capture.lidars], frames, capture.tracks.ids


every = pytest.mark.parametrize(("root", "kind"), [(name, name) for name in KINDS], indirect=["root"])
of_images = pytest.mark.parametrize(
    ("root", "kind"), [(k, k) for k in ("pandaset", "argoverse2", "kitti360", "kitti_raw")], indirect=["root"]
)


@every
def test_hidden_files_of_other_systems(root: Path, kind: str) -> None:
    before = parts(KINDS[kind].read(root))
    for path in list(root.rglob("*")):
        name = path / ".DS_Store" if path.is_dir() else path.with_name(f"._{path.name}")
        name.write_bytes(b"\0\5\26\7")
    assert parts(KINDS[kind].read(root)) == before


@of_images
@pytest.mark.parametrize("ending", [".JPG", ".jpeg", ".png", ".PNG"])
def test_images_with_other_endings(root: Path, kind: str, ending: str) -> None:
    before = parts(KINDS[kind].read(root))
    for path in [p for p in root.rglob("*") if p.suffix in (".jpg", ".png")]:
        picture = Image.open(path)
        picture.load()
        path.unlink()
        picture.save(path.with_suffix(ending), "PNG" if ending.lower() == ".png" else "JPEG")
    assert parts(KINDS[kind].read(root)) == before


@of_images
def test_one_image_twice_is_refused_or_read_once(root: Path, kind: str) -> None:
    count = len(KINDS[kind].read(root).images)
    path = next(p for p in sorted(root.rglob("*")) if p.suffix in (".jpg", ".png") and "image_03" not in str(p))
    shutil.copy(path, path.with_suffix(".jpeg"))
    try:
        assert len(KINDS[kind].read(root).images) == count
    except CaptureError as error:
        assert "for one frame; remove one of them" in str(error)


@pytest.mark.parametrize("root", ["pandaset"], indirect=True)
def test_poses_of_another_camera_of_pandaset(root: Path) -> None:
    before = pandaset.read_pandaset(root)
    shutil.rmtree(next(root.rglob("front_camera")))
    found = pandaset.read_pandaset(root)
    assert [c.name for c in found.cameras] == [c.name for c in before.cameras if c.name != "front_camera"]
    for a, b in zip(before.sweeps, found.sweeps, strict=True):
        torch.testing.assert_close(a.T_world_rig_start, b.T_world_rig_start, atol=0.01, rtol=0)


@pytest.mark.parametrize("root", ["kitti360"], indirect=True)
def test_the_fisheyes_of_kitti_360_alone(root: Path) -> None:
    for name in ("image_00", "image_01"):
        shutil.rmtree(next(root.rglob(f"{tiny_kitti360.NAME}/{name}")))
    found = read_kitti360(root, drive=tiny_kitti360.NAME)
    assert [c.name for c in found.cameras] == ["image_02"] and found.cameras[0].lens == "mei"
    parts(found)


@pytest.mark.parametrize("root", ["kitti360"], indirect=True)
def test_the_right_camera_of_kitti_360_alone(root: Path) -> None:
    shutil.rmtree(next(root.rglob(f"{tiny_kitti360.NAME}/image_00/data_rect")))
    assert [c.name for c in read_kitti360(root, drive=tiny_kitti360.NAME).cameras] == ["image_01"]


@pytest.mark.parametrize("root", ["colmap"], indirect=True)
def test_the_folders_of_nerfstudio(root: Path) -> None:
    before = parts(read_colmap(root))
    (root / "colmap").mkdir()
    shutil.move(root / "sparse", root / "colmap/sparse")
    assert parts(read_colmap(root)) == before
    assert parts(read_colmap(root / "colmap/sparse/0")) == before


@pytest.mark.parametrize("root", ["kitti_raw"], indirect=True)
def test_roots_and_names_of_a_drive_of_kitti(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drive = root / kitti_drive.DRIVE
    for place in (root, drive.parent, drive):
        for name in (None, "7", "0007", drive.name, drive.name.removesuffix("_sync")):
            assert find_drive(place, None, name) == drive
    monkeypatch.chdir(drive)
    assert find_drive(Path(), None, None) == drive
    for name in ("8", "2030_01_03_drive_0007_sync", "2031_01_02_drive_0007"):
        with pytest.raises(CaptureError, match="holds no folder"):
            find_drive(root, None, name)
    with pytest.raises(CaptureError, match="holds no folder"):
        find_drive(drive, None, "8")
