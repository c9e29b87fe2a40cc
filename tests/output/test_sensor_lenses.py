# SPDX-License-Identifier: Apache-2.0
"""Cameras of a YAML file with lenses beyond the pinhole."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tiny_capture import tiny_capture

from nurec_lite.base.errors import ConfigError
from nurec_lite.geometry.camera import Camera, project_points, unproject
from nurec_lite.output.sensor_file import read_sensor

CAMERA = {"kind": "camera", "name": "own", "width": 80, "height": 60, "mounting": {"relative_to": "rig"}}
POLYNOMIAL = [0, 25.0, 0.5, -1.0, 0.1, 0.02]


def made(folder: Path, **keys: Any) -> Camera:
    path = folder / "own.yaml"
    path.write_text(yaml.safe_dump(CAMERA | keys))
    sensor = read_sensor(path, tiny_capture()).sensor
    assert isinstance(sensor, Camera)
    return sensor


def test_a_fisheye_by_its_field_of_view(tmp_path: Path) -> None:
    """The middles of the left and the right edge are 200 degrees apart."""
    camera = made(tmp_path, model="fisheye", horizontal_fov_deg=200)
    left, right = unproject(camera, torch.tensor([[0.0, 30.0], [80.0, 30.0]], dtype=torch.float64))
    assert math.degrees(math.atan2(float(right[0]), float(right[2]))) == pytest.approx(100)
    torch.testing.assert_close(left * left.new_tensor([-1, 1, 1]), right)


def test_a_polynomial_from_angles_to_pixels(tmp_path: Path) -> None:
    camera = made(tmp_path, model="ftheta", angle_to_pixels=POLYNOMIAL, linear_cde=[1.01, 0.002, -0.003])
    theta = 1.7
    r = sum(a * theta**k for k, a in enumerate(POLYNOMIAL))
    at, _ = project_points(camera, torch.tensor([[math.sin(theta), 0, math.cos(theta)]], dtype=torch.float64))
    torch.testing.assert_close(at, torch.tensor([[40 + 1.01 * r, 30 - 0.003 * r]], dtype=torch.float64))


def test_all_coefficients_of_opencv(tmp_path: Path) -> None:
    numbers = [0.3, 0.02, 0.001, -0.002, 0.01, 0.35, 0.05, 0.003, 2e-3, -1e-3, 3e-3, 5e-4]
    assert made(tmp_path, fx=60, distortion=numbers).distortion == tuple(numbers)
    assert made(tmp_path, fx=60, distortion=numbers[:4]).distortion == (*numbers[:4], 0.0)


@pytest.mark.parametrize(
    "keys, sentence",
    [
        ({"horizontal_fov_deg": 200}, "a pinhole sees less than 180 degrees; use model: fisheye"),
        ({"model": "ftheta"}, "angle_to_pixels is missing"),
        ({"model": "ftheta", "angle_to_pixels": [1, 25]}, "must begin with 0 and a positive number"),
        ({"model": "ftheta", "angle_to_pixels": [0, 25], "linear_cde": [1, 2, 3]}, "which mirrors the image"),
        ({"model": "ftheta", "angle_to_pixels": [0, 25, -10]}, "a ftheta lens that ends 72 degrees from its axis"),
    ],
)
def test_mistakes_are_sentences(tmp_path: Path, keys: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        made(tmp_path, **keys)
