# SPDX-License-Identifier: Apache-2.0
"""Parts of a data set that lie on another disk, by a link: one that leads to nothing is no part that is absent."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny_argoverse2
import tiny_kitti360
import tiny_pandaset
import tiny_waymo

from nurec_lite.capture.argoverse2.read import read_argoverse2
from nurec_lite.capture.files import has_folder
from nurec_lite.capture.kitti360.read import read_kitti360
from nurec_lite.capture.pandaset import read as pandaset
from nurec_lite.capture.types import Capture, CaptureError
from nurec_lite.capture.waymo.read import read_waymo

pytest.importorskip("pyarrow")


def test_a_folder_is_there_or_not_or_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("elsewhere")
    (tmp_path / "good").symlink_to(tmp_path)
    assert has_folder(tmp_path / "good") and not has_folder(tmp_path / "a/b") and not has_folder(tmp_path / ("a" * 300))
    for name in ("file", "file/a/b", "link", "link/a/b"):
        with pytest.raises(CaptureError, match=f"{name.split('/')[0]} is no folder, or a link to nothing; restore it"):
            has_folder(tmp_path / name)


def in_pandaset(root: Path) -> Capture:
    return pandaset.read_pandaset(root / "007")


def in_kitti360(root: Path) -> Capture:
    return read_kitti360(root, drive="7")


DRIVES: dict[str, tuple[Callable[[Path], object], Callable[[Path], Capture]]] = {
    "007/annotations/cuboids": (tiny_pandaset.write_sequence, in_pandaset),
    "7fab-made/sensors/lidar": (tiny_argoverse2.write_log, read_argoverse2),
    "7fab-made/sensors/cameras": (tiny_argoverse2.write_log, read_argoverse2),
    "data_3d_raw": (tiny_kitti360.write_drive, in_kitti360),
    "data_3d_bboxes": (tiny_kitti360.write_drive, in_kitti360),
    "lidar_box": (tiny_waymo.write_segment, read_waymo),
    "lidar_pose": (tiny_waymo.write_segment, read_waymo),
    "lidar": (tiny_waymo.write_segment, read_waymo),
}


@pytest.mark.parametrize("folder", DRIVES)
def test_a_part_that_is_a_link_to_nothing_is_refused(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pandaset, "WIDTH", tiny_pandaset.SIZE[0])
    monkeypatch.setattr(pandaset, "HEIGHT", tiny_pandaset.SIZE[1])
    write, read = DRIVES[folder]
    write(tmp_path)
    assert read(tmp_path).name
    shutil.rmtree(tmp_path / folder)
    (tmp_path / folder).symlink_to("elsewhere")
    with pytest.raises(CaptureError, match=f"{folder} is no folder, or a link to nothing; restore it"):
        read(tmp_path)
