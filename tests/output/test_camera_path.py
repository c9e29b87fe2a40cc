# SPDX-License-Identifier: Apache-2.0
"""Camera paths by file are read back as written, run through their poses, and are drawn by `render path=FILE`."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rounding import assert_pictures_alike
from test_render import names, picture, reconstruction, render
from tiny_capture import tiny_capture

from nurec_lite.api.scene import TrainedScene
from nurec_lite.base.errors import UserError
from nurec_lite.evaluation.pictures import to_picture
from nurec_lite.geometry.se3 import matrix_to_quat
from nurec_lite.output.camera_path import CameraPath, Key, Pinhole, path_text, read_camera_path
from nurec_lite.output.mounting import FORWARD_FROM_OPTICAL, angles, turned
from nurec_lite.output.path_plan import path_plan
from nurec_lite.output.sensor_file import read_sensor

LENS = "width: 32\nheight: 20\nvertical_fov_deg: 40\n"
POSES = """poses:
  - {film_s: 0, time_s: 0.2, x_m: 0, y_m: 0, z_m: 1.5}
  - {film_s: 0.5, time_s: 0.6, x_m: 2, y_m: 0, z_m: 1.5, yaw_deg: 20}
"""
ANGLE = st.floats(-math.pi, math.pi)


def written(folder: Path, text: str) -> Path:
    path = folder / "flight.yaml"
    path.write_text(text)
    return path


def key(film: float, time: float, x: float, yaw: float = 0.0, pitch: float = 0.0, roll: float = 0.0) -> Key:
    T = turned(yaw, pitch, roll) @ FORWARD_FROM_OPTICAL
    T[:3, 3] = torch.tensor([x, 2.0, 1.5])
    return Key(film, time, T)


@settings(max_examples=50, deadline=None)
@given(ANGLE, st.floats(-math.pi / 2, math.pi / 2), ANGLE)
def test_angles_are_those_of_the_rotation(yaw: float, pitch: float, roll: float) -> None:
    T = turned(yaw, pitch, roll)
    torch.testing.assert_close(turned(*angles(T)), T, rtol=0, atol=1e-6)


@pytest.mark.parametrize("lens", [Pinhole(640, 360, 0.9), "02"])
def test_what_is_written_is_read_back(lens: Pinhole | str, tmp_path: Path) -> None:
    """That holds for places of a map, and for the name of a camera that looks like a number."""
    path = CameraPath(lens, (key(0, 0.1, 4e6, 0.3, -1.2, 2.0), key(2.5, 0.1, 4e6 + 1, -3.0, math.pi / 2)))
    found = read_camera_path(written(tmp_path, path_text(path)))
    if isinstance(lens, Pinhole):
        assert isinstance(found.lens, Pinhole) and found.lens.vertical_fov == pytest.approx(lens.vertical_fov, abs=1e-6)
        assert (found.lens.width, found.lens.height) == (lens.width, lens.height)
    else:
        assert found.lens == lens
    for one, other in zip(found.keys, path.keys, strict=True):
        assert (one.film, one.time) == (other.film, other.time)
        torch.testing.assert_close(one.T_world_cam, other.T_world_cam, rtol=0, atol=1e-4)


def test_a_film_runs_through_the_keys_and_never_beyond_them() -> None:
    keys = (key(0, 0.2, 0.0), key(1, 0.2, 5.0, 3.0), key(3, 0.8, 5.0, -3.0), key(4, 0.9, 9.0, -3.0))
    film = CameraPath(Pinhole(8, 8, 1.0), keys).sampled(10)
    assert [one.film for one in film] == pytest.approx([n / 10 for n in range(41)])
    for one in keys:
        at = film[round(10 * one.film)]
        assert at.time == pytest.approx(one.time)
        torch.testing.assert_close(at.T_world_cam, one.T_world_cam, rtol=0, atol=1e-9)
    x = np.array([one.T_world_cam[0, 3] for one in film])
    assert bool((np.diff(x) >= -1e-9).all()) and bool(x[10:31] == pytest.approx(5.0))
    R = torch.stack([one.T_world_cam[:3, :3] for one in film])
    torch.testing.assert_close(R @ R.mT, torch.eye(3, dtype=torch.float64).expand_as(R), rtol=0, atol=1e-9)
    turns = (matrix_to_quat(R)[1:] * matrix_to_quat(R)[:-1]).sum(1).abs()
    assert float(torch.arccos(turns.clamp(max=1)).max()) < 0.5  # from 3.0 to -3.0 radians is a short way


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is empty"),
        ("[1, 2]", "must hold a lens and poses"),
        (LENS, "poses is missing"),
        (POSES, "width is missing"),
        (LENS + "poses: 3", "poses is 3, but must be a list"),
        (LENS + "poses: [{film_s: 0, time_s: 0, x_m: 0, y_m: 0, z_m: 0}]", "poses has 1 entries, but takes 2 to 10000"),
        (LENS + POSES.replace("0.5, time", "0, time"), r"poses\[1\].film_s is 0, but must be after 0"),
        (LENS + POSES.replace("yaw_deg", "yaw"), r"key poses\[1\].yaw is unknown; did you mean poses\[1\].yaw_deg"),
        (LENS + POSES.replace("x_m: 2, ", ""), r"poses\[1\].x_m is missing"),
        (LENS + POSES.replace("x_m: 2", "x_m: .nan"), r"poses\[1\].x_m is nan, but must lie between"),
        (LENS + POSES.replace("x_m: 2", "x_m: [2]"), r"poses\[1\].x_m is a list of 1, but must lie between"),
        (LENS.replace("32", "32.5") + POSES, "width is 32.5, but must be a whole number"),
        (LENS.replace("32", "0") + POSES, "width is 0, but must lie between"),
        ("width: 16384\nheight: 16384\nvertical_fov_deg: 50\n" + POSES, "16384 x 16384 pixels are more than 100000000"),
        (LENS + POSES.replace("film_s: 0.5", "film_s: 3600"), "at fps=60 has 216001 moments, but may have 200000; lower fps"),
        (LENS + "lens: wide\n" + POSES, "key lens is unknown"),
        ("camera: camera_0\n" + LENS + POSES, "gives both camera and width"),
        ("camera: 7\n" + POSES, "camera is '7', but the cameras of"),
        (LENS + POSES.replace("0.6", "60"), r"poses\[1\].time_s is 60, but the drive spans"),
        (LENS + "poses: [3, 4]", r"poses\[0\] is 3, but must hold keys and values"),
        (LENS + "width: 3\n" + POSES, "line 4 holds width twice"),
    ],
)  # fmt: skip
def test_mistakes_are_sentences(text: str, sentence: str, tmp_path: Path) -> None:
    config = reconstruction(tmp_path, path=str(written(tmp_path, text)), fps=60.0).config
    with pytest.raises(UserError, match=sentence) as error:
        path_plan(config, tiny_capture(), [])
    assert "flight.yaml" in str(error.value)


@pytest.mark.parametrize(
    "others", [{"times": [0.4]}, {"shift": [0.0, 1.0, 0.0]}, {"sensors": ["lidar"]}, {"subset": "test"}]
)
def test_other_keys_that_choose_frames_are_refused(others: dict[str, Any], tmp_path: Path) -> None:
    run = reconstruction(tmp_path / "out", path=str(written(tmp_path, LENS + POSES)), **others)
    with pytest.raises(UserError, match=f"has its own times and places; leave out {next(iter(others))}"):
        render(run)


def test_a_path_on_the_drive_is_the_drive(tmp_path: Path) -> None:
    """A camera's own lens, at its own pose of a moment, in the world of the files: the picture of a camera that stands there."""
    capture = tiny_capture()
    frame = next(f for f in capture.images if f.sensor == "camera_0" and f.index == 4)
    T = frame.T_world_rig_start.double() @ capture.camera("camera_0").T_rig_cam.double()
    moved = T.clone()
    moved[:3, 3] += torch.tensor([100.0, -7.0, 3.0], dtype=torch.float64)
    far = replace(capture, origin=(100.0, -7.0, 3.0))
    film = CameraPath("camera_0", (Key(0, frame.time_mid, moved), Key(0.2, frame.time_mid, moved)))
    run = reconstruction(tmp_path / "out", far, path=str(written(tmp_path, path_text(film))), formats=["png", "gif"])
    render(run)
    assert names(tmp_path / "out") == ["camera_0.gif", *(f"camera_0_{k:04d}.png" for k in range(3))]
    still = TrainedScene(reconstruction(tmp_path, capture), tmp_path).render("camera_0", T, frame.time_mid, seconds=0)
    assert still.colour is not None
    for k in range(3):
        assert_pictures_alike(picture(tmp_path / f"out/camera_0_{k:04d}.png"), to_picture(still.colour))


def test_maps_along_a_path_and_a_lens_of_a_file(tmp_path: Path) -> None:
    sensor = tmp_path / "wide.yaml"
    sensor.write_text(
        "kind: camera\nname: wide\nwidth: 30\nheight: 18\nhorizontal_fov_deg: 120\nmounting: {relative_to: rig}\n"
    )
    asked = {
        "path": str(written(tmp_path, "camera: wide\n" + POSES)),
        "fps": 2.0,
        "formats": ["npz"],
        "outputs": ["depth"],
    }
    render(reconstruction(tmp_path / "out", sensor=[str(sensor)], **asked))
    assert names(tmp_path / "out") == ["wide_0000.npz", "wide_0001.npz"]
    with np.load(tmp_path / "out/wide_0001.npz") as found:
        assert found["depth"].shape == (18, 30)
    run = reconstruction(tmp_path / "no", path=str(written(tmp_path, LENS + POSES)))
    with pytest.raises(UserError, match=r"sensor gives 'wide', which .* does not use"):
        path_plan(run.config, run.capture, [read_sensor(sensor, run.capture)])
