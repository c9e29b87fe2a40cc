# SPDX-License-Identifier: Apache-2.0
"""Captures made in Python: numbers, arrays and lists of any kind are taken; anything else is one sentence."""

import math
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_capture import Loaded, tiny_capture

from nurec_lite.base.errors import UserError
from nurec_lite.capture.pack import read_pack, write_pack
from nurec_lite.capture.types import Capture, CaptureError
from nurec_lite.capture.user_loaders import with_checked_loads
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lidar import Lidar, Sweep

CAMERA, LIDAR = tiny_capture().cameras[0], tiny_capture().lidars[0]
IMAGE, SWEEP = tiny_capture().images[0], tiny_capture().sweeps[0]


@pytest.mark.parametrize(
    ("record", "name", "value", "kind"),
    [
        (CAMERA, "width", np.int64(40), int),
        (CAMERA, "fx", np.float32(60), float),
        (CAMERA, "fy", torch.tensor(60.0), float),
        (CAMERA, "T_rig_cam", CAMERA.T_rig_cam.numpy(), torch.Tensor),
        (CAMERA, "T_rig_cam", CAMERA.T_rig_cam.tolist(), torch.Tensor),
        (CAMERA, "distortion", np.zeros(5), tuple),
        (CAMERA, "distortion", [0.1, 0, 0, 0, 0], tuple),
        (CAMERA, "T_rig_cam", CAMERA.T_rig_cam.half(), torch.Tensor),
        (CAMERA, "mask", np.eye(CAMERA.height, CAMERA.width, dtype=bool), torch.Tensor),
        (CAMERA, "mask", np.eye(CAMERA.height, CAMERA.width, dtype=bool).tolist(), torch.Tensor),
        (LIDAR, "elevations", LIDAR.elevations.tolist(), torch.Tensor),
        (LIDAR, "azimuth_steps", np.int32(64), int),
        (LIDAR, "clockwise", np.True_, bool),
        (IMAGE, "index", np.uint8(7), int),
        (IMAGE, "time_start", np.float32(0), float),
        (IMAGE, "T_world_rig_start", np.eye(4), torch.Tensor),
        (IMAGE, "T_world_rig_end", torch.eye(4, dtype=torch.int64), torch.Tensor),
    ],
)
def test_numbers_and_arrays_are_taken(record: Any, name: str, value: Any, kind: type) -> None:
    found = getattr(replace(record, **{name: value}), name)
    assert type(found) is kind
    assert np.allclose(found, value)
    hash(replace(CAMERA, distortion=[0.0] * 5))  # type: ignore[arg-type]  # as caches of rays do


@pytest.mark.parametrize(
    ("record", "name", "value", "sentence"),
    [
        (CAMERA, "width", 40.5, "width is 40.5, but must be a whole number"),
        (CAMERA, "height", "24", "height is '24', but must be a whole number"),
        (CAMERA, "fx", "60", "fx is '60', but must be a number"),
        (CAMERA, "cx", None, "cx is None, but must be a number"),
        (CAMERA, "cy", 1j, "cy is 1j, but must be a number"),
        (CAMERA, "name", 3, "name is 3, but must be a text"),
        (CAMERA, "T_rig_cam", None, "T_rig_cam is None, but must be an array or a tensor of numbers"),
        (CAMERA, "T_rig_cam", [["a"]], "but must be an array or a tensor of numbers"),
        (CAMERA, "mask", "bonnet.png", "mask is 'bonnet.png', but must be an array or a tensor of true and false"),
        (CAMERA, "mask", np.eye(3), "but must be an array or a tensor of true and false"),
        (CAMERA, "distortion", None, "distortion is None, but must be a list of numbers"),
        (CAMERA, "distortion", "abcde", "distortion is 'abcde', but must be a list of numbers"),
        (CAMERA, "distortion", torch.zeros(2, 5), "but must be a list of numbers"),
        (CAMERA, "distortion", (0.1,), "distortion has 1 coefficients"),
        (CAMERA, "shutter", "rolling", "shutter is 'rolling', but must be one of"),
        (LIDAR, "clockwise", "no", "clockwise is 'no', but must be true or false"),
        (LIDAR, "azimuth_steps", 64.0, "azimuth_steps is 64.0, but must be a whole number"),
        (LIDAR, "max_range", "far", "max_range is 'far', but must be a number"),
        (IMAGE, "index", "0", "index is '0', but must be a whole number"),
        (IMAGE, "time_start", None, "time_start is None, but must be a number"),
        (IMAGE, "sensor", None, "sensor is None, but must be a text"),
        (SWEEP, "T_world_rig_start", torch.eye(4, dtype=torch.complex64), "an array or a tensor of numbers"),
        (SWEEP, "T_world_rig_end", torch.ones(4, 4, dtype=torch.bool), "an array or a tensor of numbers"),
        (tiny_capture(), "images", None, "images holds None, but must hold ImageFrame objects"),
        (tiny_capture(), "images", tiny_capture().sweeps, "but must hold ImageFrame objects"),
        (tiny_capture(), "cameras", CAMERA, None),
        (tiny_capture(), "tracks", [], "tracks must be Tracks"),
        (tiny_capture(), "split", "interp", "choose one by with_split"),
    ],
)
def test_other_values_are_one_sentence(record: Any, name: str, value: Any, sentence: str | None) -> None:
    if sentence is None:  # a single one in place of a list
        assert getattr(replace(record, **{name: value}), name) == (value,)
        return
    with pytest.raises(UserError) as error:
        replace(record, **{name: value})
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def with_load(load: Any, of: str) -> Capture:
    frames = list(getattr(tiny_capture(), of))
    frames[0] = replace(frames[0], load=load)
    return replace(tiny_capture(), **{of: tuple(frames)})


def broken() -> None:
    raise FileNotFoundError(2, "No such file or directory", "image.jpg")


GREY = np.zeros((CAMERA.height, CAMERA.width), np.uint8)


@pytest.mark.parametrize(
    ("load", "sentence"),
    [
        (None, "load is None, but must be a function"),
        ("a.jpg", "load is 'a.jpg', but must be a function"),
        (lambda: None, "is loaded as None, which is no image"),
        (lambda: b"abc", "which is no image"),
        (broken, "cannot be loaded"),
        (lambda: GREY, r"would be torch.uint8 \[24, 40\], but the camera makes uint8 \[24, 40, 3\]"),
        (lambda: np.zeros((24, 40, 3)), r"would be torch.float64"),
    ],
)
def test_what_is_no_image_is_one_sentence(load: Any, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=sentence):
        write_pack(with_load(load, "images"), tmp_path / "a.pack")
    with pytest.raises(CaptureError, match=sentence):  # as training takes it
        with_checked_loads(with_load(load, "images")).images[0].load()


def changed(**values: Callable[[Any], Any]) -> Callable[[], Any]:
    sweep = SWEEP.load()
    return lambda: replace(sweep, **{name: change(getattr(sweep, name)) for name, change in values.items()})


@pytest.mark.parametrize(
    ("load", "sentence"),
    [
        (lambda: None, "is loaded as None, which is no Sweep"),
        (lambda: np.zeros((9, 4)), "which is no Sweep"),
        (changed(ranges=lambda v: None), "ranges holds None, but must hold numbers"),
        (changed(ranges=lambda v: v[:, None]), r"ranges has shape \[\d+, 1\], but must have \[\d+\]"),
        (changed(times=lambda v: v[:-1]), r"times has shape \[\d+\], but must have \[\d+\]"),
        (changed(times=lambda v: v * math.nan), "times holds numbers that are not finite"),
        (changed(directions=lambda v: v[:, :2]), r"directions has shape \[\d+, 2\], but must have \[\d+, 3\]"),
        (changed(rings=lambda v: v + 0.5), "rings must hold torch.int64"),
        (changed(returned=lambda v: v * math.nan), "returned must hold torch.bool"),
    ],
)
def test_what_is_no_sweep_is_one_sentence(load: Any, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=sentence):
        write_pack(with_load(load, "sweeps"), tmp_path / "a.pack")
    with pytest.raises(CaptureError, match=sentence):
        with_checked_loads(with_load(load, "sweeps")).sweeps[0].load()


def test_sweeps_of_lists_and_other_types_are_sweeps() -> None:
    wide = changed(**{f.name: lambda v: v.double() for f in fields(Sweep)})
    plain = changed(**{f.name: lambda v: v.tolist() for f in fields(Sweep)})
    for load in (wide, plain):
        found = with_checked_loads(with_load(load, "sweeps")).sweeps[0].load()
        for f in fields(Sweep):
            values, expected = getattr(found, f.name), getattr(SWEEP.load(), f.name)
            assert values.dtype == expected.dtype
            assert torch.equal(values, expected)


def test_pictures_of_pillow_are_images(tmp_path: Path) -> None:
    picture = Image.fromarray(IMAGE.load().numpy())
    write_pack(with_load(Loaded(picture), "images"), tmp_path / "a.pack", image_format="png")
    assert torch.equal(read_pack(tmp_path / "a.pack").images[0].load(), IMAGE.load())


@pytest.mark.parametrize(
    ("record", "name"), [(CAMERA, "T_rig_cam"), (LIDAR, "T_rig_lidar"), (IMAGE, "T_world_rig_start")]
)
def test_poses_are_float64(record: Any, name: str) -> None:
    """Products of poses of two types end in an error of torch."""
    found = getattr(replace(record, **{name: getattr(record, name).float()}), name)
    assert found.dtype == torch.float64 and torch.equal(found, getattr(record, name).float().double())


def test_sensors_keep_their_tensors() -> None:
    """Caches find a sensor by the identity of its tensors."""
    assert isinstance(CAMERA, Camera)
    assert isinstance(LIDAR, Lidar)
    assert replace(CAMERA, width=41).T_rig_cam is CAMERA.T_rig_cam
    assert replace(LIDAR, azimuth_steps=65).elevations is LIDAR.elevations
