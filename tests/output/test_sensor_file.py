# SPDX-License-Identifier: Apache-2.0
"""Cameras and lidars from YAML files: meanings of the keys, refusals, and renders of the examples of docs/sensors.md."""

import math
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from test_render import names, reconstruction, render
from tiny_capture import tiny_capture

from nurec_lite.base.errors import ConfigError, UserError
from nurec_lite.capture.types import SweepFrame
from nurec_lite.geometry.camera import Camera, pixel_directions
from nurec_lite.geometry.lidar import Lidar, azimuth_elevation
from nurec_lite.output.sensor_file import _CAMERA, _LIDAR, read_sensor
from nurec_lite.output.sensors import NovelSensor

PAGE = Path(__file__).resolve().parents[2] / "docs/sensors.md"
LIDAR = {"kind": "lidar", "name": "own", "beams": 4, "elevation_deg": [-20, 10], "azimuth_steps": 36, "mounting": {}}
CAMERA = {"kind": "camera", "name": "own", "width": 20, "height": 10, "fx": 12.0, "mounting": {}}


def made(folder: Path, values: Any) -> NovelSensor:
    path = folder / "own.yaml"
    path.write_text(values if isinstance(values, str) else yaml.safe_dump(values))
    return read_sensor(path, tiny_capture())


def rays(sensor: NovelSensor) -> Any:
    frame = sensor.frame(1.0, torch.eye(4), torch.eye(4))
    assert isinstance(frame, SweepFrame)
    return frame.load()


# ---- keys


def test_numbers_with_an_exponent_are_numbers_and_names_stay_texts(tmp_path: Path) -> None:
    text = "{kind: camera, name: 1e3, width: 20, height: 10, fx: 12e0, distortion: [1e-3, -2E-4, 0, 0, .5e-3], mounting: {}}"
    camera = made(tmp_path, text).sensor
    assert isinstance(camera, Camera) and camera.name == "1e3"
    assert camera.distortion == (1e-3, -2e-4, 0, 0, 5e-4) and camera.fx == 12
    assert made(tmp_path, text.replace("1e3", "007")).sensor.name == "007"


def test_beams_steps_rate_and_direction(tmp_path: Path) -> None:
    sensor = made(tmp_path, LIDAR | {"rate_hz": 20, "first_azimuth_deg": 90, "clockwise": False, "max_range_m": 50})
    assert isinstance(sensor.sensor, Lidar) and sensor.sensor.max_range == 50
    sweep = rays(sensor)
    angles = torch.rad2deg(azimuth_elevation(sweep.directions.double()))
    assert len(sweep) == 144 and angles[:4, 1].tolist() == pytest.approx([-20, -10, 0, 10], abs=1e-4)
    assert angles[::4, 0][:2].tolist() == pytest.approx([95, 105], abs=1e-4)
    assert float(sweep.times[0]) == pytest.approx(1 - 0.025 + 0.05 / 72) and float(sweep.times[-1]) < 1.025
    assert [sweep.rings[k].item() for k in (0, 3, 4)] == [0, 3, 0]


def test_rays_of_a_file_are_sent_at_their_times(tmp_path: Path) -> None:
    (tmp_path / "rays.csv").write_text("# azimuth, elevation, part of the sweep\n0, 0, 0.5\n90, 0, 0.25\n0, 45, 1\n")
    given = {"kind": "lidar", "name": "own", "rays": "rays.csv", "rate_hz": 20, "max_range_m": 50, "mounting": {}}
    sensor, half = made(tmp_path, given), math.sqrt(0.5)
    assert isinstance(sensor.sensor, Lidar) and not sensor.sensor.spins and sensor.sensor.max_range == 50
    sweep = rays(sensor)
    assert sweep.times.tolist() == pytest.approx([0.9875, 1.0, 1.025])
    expected = torch.tensor([[0, 1.0, 0], [1, 0, 0], [half, 0, half]])
    torch.testing.assert_close(sweep.directions, expected, atol=1e-6, rtol=0)
    with pytest.raises(ConfigError, match="gives both rays and beams"):
        made(tmp_path, given | {"beams": 4})
    with pytest.raises(UserError, match="cannot be read"):
        made(tmp_path, given | {"rays": "none.csv"})


@pytest.mark.parametrize("edges", [(-60, 60), (120, 240), (-180, 180), (330, 360)])
def test_a_field_of_view_holds_the_steps_between_its_edges(tmp_path: Path, edges: tuple[int, int]) -> None:
    azimuths = torch.rad2deg(
        azimuth_elevation(rays(made(tmp_path, LIDAR | {"azimuth_deg": list(edges)})).directions)[:, 0]
    )
    middle = 0.5 * sum(edges)
    assert len(azimuths) == 4 * (edges[1] - edges[0]) // 10
    assert bool(((azimuths - middle + 180) % 360 - 180).abs().max() < 0.5 * (edges[1] - edges[0]))


def test_a_field_of_view_in_degrees_is_a_focal_length(tmp_path: Path) -> None:
    camera = made(tmp_path, {k: v for k, v in CAMERA.items() if k != "fx"} | {"horizontal_fov_deg": 90}).sensor
    assert isinstance(camera, Camera) and (camera.fx, camera.fy, camera.cx, camera.cy) == (
        pytest.approx(10),
        pytest.approx(10),
        10,
        5,
    )
    left = pixel_directions(camera, torch.float64)[:, 0].mean(0)
    assert math.degrees(math.atan2(-float(left[0]), float(left[2]))) == pytest.approx(math.degrees(math.atan(9.5 / 10)))


@pytest.mark.parametrize(
    "mount, forward, place",
    [
        ({}, (1, 0, 0), (0, 0, 0)),
        ({"yaw_deg": 90, "left_m": 2}, (0, 1, 0), (0, 2, 0)),
        ({"pitch_deg": 90, "up_m": 1.5}, (0, 0, 1), (0, 0, 1.5)),
        ({"yaw_deg": 90, "pitch_deg": 45}, (0, math.sqrt(0.5), math.sqrt(0.5)), (0, 0, 0)),
    ],
)
@pytest.mark.parametrize("kind", [CAMERA, LIDAR])
def test_mountings_are_in_the_vehicle_s_words(tmp_path: Path, kind: Any, mount: Any, forward: Any, place: Any) -> None:
    sensor = made(tmp_path, kind | {"mounting": mount}).sensor
    T, axis = (sensor.T_rig_cam, 2) if isinstance(sensor, Camera) else (sensor.T_rig_lidar, 0)
    assert T[:3, axis].tolist() == pytest.approx(forward, abs=1e-9) and T[:3, 3].tolist() == pytest.approx(
        place, abs=1e-9
    )


def test_roll_lifts_the_left_side(tmp_path: Path) -> None:
    T = made(tmp_path, LIDAR | {"mounting": {"roll_deg": 90}}).sensor.T_rig_lidar
    assert T[:3, 1].tolist() == pytest.approx([0, 0, 1], abs=1e-9)


def test_a_sensor_is_mounted_relative_to_another(tmp_path: Path) -> None:
    known = tiny_capture().camera("camera_1")
    same = made(tmp_path, CAMERA | {"mounting": {"relative_to": "camera_1"}}).sensor
    ahead = made(tmp_path, LIDAR | {"mounting": {"relative_to": "camera_1", "forward_m": 2.0}}).sensor
    torch.testing.assert_close(same.T_rig_cam, known.T_rig_cam.double())
    torch.testing.assert_close(
        ahead.T_rig_lidar[:3, 3], (known.T_rig_cam.double() @ torch.tensor([0, 0, 2.0, 1]).double())[:3]
    )


# ---- refusals


@pytest.mark.parametrize(
    "change, sentence",
    [
        ({"beems": 3}, "key beems is unknown; did you mean beams?"),
        ({"beams": 0}, "beams is 0, but must be a whole number and lie between 1 and 4096"),
        ({"beams": 2.5}, "beams is 2.5, but must be a whole number"),
        ({"beams": True}, "beams is True, but must"),
        ({"elevation_deg": [10, -20]}, "the first must be the lower one"),
        ({"elevation_deg": -20}, "elevation_deg must be a list of 2 numbers"),
        ({"elevation_deg": [-20, 95]}, "elevation_deg is 95, but must"),
        ({"elevations_deg": [1, 2]}, "gives both elevations_deg and elevation_deg"),
        ({"azimuth_deg": [60, -60]}, "must name the right edge of the field and then the left one"),
        ({"azimuth_deg": [1, 2]}, "and no step falls between"),
        ({"azimuth_steps": [3]}, "azimuth_steps must be one value"),
        ({"azimuth_steps": 1_000_000, "beams": 4096}, "more than 20000000 rays"),
        ({"rate_hz": float("nan")}, "rate_hz is nan, but must lie between"),
        ({"max_range_m": "far"}, "max_range_m is 'far', but must"),
        ({"clockwise": "yes"}, "clockwise is 'yes', but must be true or false"),
        ({"name": "camera_0"}, "name is 'camera_0', which is a sensor of street_0"),
        ({"name": "a/b"}, "name 'a/b'"),
        ({"name": "a\nb"}, r"name 'a\nb' is not 1 to 64 printable characters; choose another"),
        ({"name": None}, "name is missing"),
        ({"kind": "radar"}, "kind is 'radar', but must be one of camera, lidar"),
        ({"kind": None}, "kind is missing"),
        ({"mounting": None}, "mounting is missing"),
        ({"mounting": {"up": 1}}, "key mounting.up is unknown; did you mean mounting.up_m?"),
        (
            {"mounting": {"relative_to": "roof"}},
            "relative_to is 'roof', but must be one of rig, camera_0, camera_1, lidar",
        ),
        ({"mounting": {"up_m": 1e9}}, "mounting.up_m is 1000000000.0, but must lie between"),
    ],
)
def test_mistakes_of_a_lidar_are_sentences(tmp_path: Path, change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=rf"own\.yaml:? .*{re.escape(sentence)}"):
        made(tmp_path, LIDAR | change)


@pytest.mark.parametrize(
    "change, sentence",
    [
        ({"model": "brown"}, "model is 'brown', but must be one of pinhole, fisheye, mei, ftheta"),
        (
            {"model": "fisheye", "distortion": [0.1] * 5},
            "distortion has 5 numbers, but those of a fisheye lens are 4 or 8",
        ),
        ({"model": "fisheye", "distortion": [-0.9, 0, 0, 0]}, "a fisheye lens that ends 35 degrees from its axis"),
        ({"fx": None, "horizontal_fov_deg": 200}, "fx is missing"),
        ({"model": "ftheta"}, "fx is given, which a ftheta lens does not have; leave it out"),
        ({"linear_cde": [1, 0, 0]}, "linear_cde is given, which a pinhole lens does not have"),
        ({"width": 0}, "width is 0, but must be a whole number and lie between 1 and 65500"),
        ({"width": 60000, "height": 60000}, "more than 100000000; make the image smaller"),
        ({"horizontal_fov_deg": 90}, "gives both horizontal_fov_deg and fx"),
        ({"fx": None}, "fx is missing"),
        ({"distortion": [0.1]}, "distortion must be a list of 4 or 5 or 8 or 12 numbers"),
        ({"distortion": [-3.0, 0, 0, 0]}, "a distortion that folds the image"),
        ({"shutter": "top_to_bottom"}, "shutter is top_to_bottom and readout_s is 0"),
        ({"readout_s": 0.1}, "shutter is global and readout_s is 0.1"),
        ({"beams": 3}, "key beams is unknown"),
    ],
)
def test_mistakes_of_a_camera_are_sentences(tmp_path: Path, change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=rf"own\.yaml:? .*{re.escape(sentence)}"):
        made(tmp_path, CAMERA | change)


@pytest.mark.parametrize("text", ["", "[1, 2]", "kind: [", "kind: &a lidar\nname: *a\n", "just words"])
def test_what_is_no_mapping_is_a_sentence(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError, match=r"own\.yaml"):
        made(tmp_path, text)


ODD = st.one_of(
    st.none(), st.booleans(), st.integers(), st.just(16**6000), st.floats(), st.text(max_size=20), st.lists(st.floats(), max_size=5),
    st.lists(st.lists(st.integers())), st.dictionaries(st.text(max_size=5), st.integers(), max_size=2), st.dates(), st.binary(max_size=4),
)  # fmt: skip


@given(
    st.sampled_from([CAMERA, LIDAR]),
    st.sampled_from([*_CAMERA, *_LIDAR, "kind", "name", "mounting"]),
    ODD,
    st.booleans(),
)
@settings(max_examples=60)
def test_whatever_a_key_holds_ends_in_a_sensor_or_a_sentence(kind: Any, key: str, value: Any, mounted: bool) -> None:
    values = kind | ({"mounting": {"yaw_deg": value, key: value}} if mounted else {key: value})
    try:
        text = yaml.safe_dump(values)
    except ValueError:  # too many digits
        text = "kind: lidar\nwidth: 0x" + 6000 * "f"
    with tempfile.TemporaryDirectory() as folder:
        try:
            sensor = made(Path(folder), text)
        except UserError as error:
            assert "own.yaml" in str(error) and len(str(error)) < 1000
        else:
            assert sensor.sensor.name and sensor.seconds >= 0


# ---- the command


def test_the_examples_of_the_page_render(tmp_path: Path) -> None:
    files = []
    for text in re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        name = text.split()[1]
        text = re.sub(r"(width|height|azimuth_steps): (\d+)", lambda found: f"{found[1]}: {int(found[2]) // 8}", text)
        (tmp_path / name).write_text(text)
        files.append(str(tmp_path / name))
    assert len(files) == 2
    plan, out = render(
        reconstruction(tmp_path / "out", sensor=files, times=[0.4], formats=["png", "npz"], shift=[0.0, 1.0, 0.0])
    )
    assert names(out) == [
        "beams32_above_t0000.400.png",
        "beams32_t0000.400.npz",
        "beams32_t0000.400.png",
        "wide_t0000.400.png",
    ]
    with Image.open(out / "wide_t0000.400.png") as image:
        assert image.size == (80, 45)
    with np.load(out / "beams32_t0000.400.npz") as file:
        assert len(file["ranges"]) == 32 * 64 and file["returned"].any() and "measured_ranges" not in file
        expected = tiny_capture().lidar("lidar").T_rig_lidar.double()
        rig = plan.sweeps["beams32"][0].frame.T_world_rig_start
        assert file["T_world_lidar_start"][:3, 3] == pytest.approx(
            (rig @ expected)[:3, 3] + (rig @ expected)[:3, 2] * 0.4
        )


def test_own_sensors_look_at_the_moments_of_the_subset(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(LIDAR))
    plan, out = render(
        reconstruction(tmp_path / "out", sensor=[str(tmp_path / "own.yaml")], subset="test", formats=["npz"])
    )
    assert names(out) == ["own_0004.npz", "own_0009.npz"] and not plan.images
    assert [s.frame.time_mid for s in plan.sweeps["own"]] == [s.captured.time_mid for s in plan.sweeps["own"]]


def test_own_sensors_with_those_of_the_capture_and_twice(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(CAMERA))
    keys: dict[str, Any] = {"sensors": ["camera_0"], "times": [0.4]}
    _, out = render(reconstruction(tmp_path / "out", sensor=[str(tmp_path / "own.yaml")], **keys))
    assert names(out) == ["camera_0_t0000.400.png", "own_t0000.400.png"]
    with pytest.raises(ConfigError, match="two sensors 'own'"):
        render(reconstruction(tmp_path / "twice", sensor=[str(tmp_path / "own.yaml")] * 2, **keys))
    with pytest.raises(ConfigError, match="'own' is a camera, but formats asks for points of lidars alone"):
        render(
            reconstruction(
                tmp_path / "points",
                sensor=[str(tmp_path / "own.yaml")],
                times=[0.4],
                sensors=["lidar"],
                formats=["npz"],
            )
        )
