# SPDX-License-Identifier: Apache-2.0
"""A path that is drawn in the viewer: its file is read back in the world of the files, in the run's folder alone, and replaces none."""

import os
from pathlib import Path

import pytest
import torch

from nurec_lite.base.errors import ConfigError
from nurec_lite.output.camera_path import Pinhole, read_camera_path
from nurec_lite.viewer.drawn_path import DrawnPath, flown, path_file, save_path, text_of

LENS = Pinhole(64, 36, 0.9)


def drawn(count: int = 3) -> DrawnPath:
    path = DrawnPath()
    for k in range(count):
        T = torch.eye(4, dtype=torch.float64)
        T[0, 3] = 2.0 * k
        path.add(T, 0.1 * k)
    return path


def test_what_is_drawn_is_saved_in_the_world_of_the_files(tmp_path: Path) -> None:
    file = path_file(tmp_path, "flight")
    save_path(file, text_of(drawn().film(LENS, 1.5), (100.0, 0.0, 5.0)))
    found = read_camera_path(tmp_path / "paths/flight.yaml")
    assert [(key.film, key.time) for key in found.keys] == [(0.0, 0.0), (1.5, 0.1), (3.0, 0.2)]
    torch.testing.assert_close(found.keys[1].T_world_cam[:3, 3], torch.tensor([102.0, 0, 5], dtype=torch.float64))


def test_a_preview_runs_from_the_first_pose_to_the_last() -> None:
    keys = flown(drawn().film(LENS, 1.0))
    assert (
        len(keys) == 61
        and float(keys[0].T_world_cam[0, 3]) == 0
        and float(keys[-1].T_world_cam[0, 3]) == pytest.approx(4)
    )
    assert drawn().line().shape == (41, 3) and drawn(1).line().shape == (0, 3)


def test_one_pose_is_no_path() -> None:
    path = drawn(2)
    path.remove_last()
    with pytest.raises(ConfigError, match="at least two poses"):
        path.film(LENS, 1.0)
    path.remove_last()
    path.remove_last()
    assert path.keys == []


@pytest.mark.parametrize(
    "name", ["", "../out", "a/b", "/etc/cron.d/x", ".hidden", "a\\b", "x" * 65, "a\0b", "..", "=1"]
)
def test_a_file_lies_in_the_folder_of_paths_alone(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the name of a path"):
        path_file(tmp_path, name)


def test_no_path_replaces_another(tmp_path: Path) -> None:
    file = path_file(tmp_path, "flight")
    save_path(file, "one\n")
    save_path(file, "one\n")
    with pytest.raises(ConfigError, match="holds another path; choose another name"):
        save_path(file, "two\n")
    assert file.read_text() == "one\n"
    for other in (os.mkfifo, lambda place: place.symlink_to("/dev/zero"), Path.mkdir):
        file.unlink()
        other(file)
        with pytest.raises(ConfigError, match="holds another path; choose another name"):
            save_path(file, "two\n")
        assert os.path.lexists(file)


def test_a_deleted_run_is_not_begun_again(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="press Download"):
        save_path(path_file(tmp_path / "gone", "flight"), "one\n")
    assert not (tmp_path / "gone").exists()
