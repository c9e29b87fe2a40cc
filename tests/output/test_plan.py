# SPDX-License-Identifier: Apache-2.0
"""The renders that a configuration asks for, and refusals."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from tiny_capture import tiny_capture, tiny_scene

from nurec_lite.base.errors import ConfigError
from nurec_lite.config import RenderConfig
from nurec_lite.evaluation.measure import image_of
from nurec_lite.output.plan import make_plan
from nurec_lite.training.baseline import reference_stages


def test_all_sensors_and_all_frames_by_default() -> None:
    capture = tiny_capture()
    plan = make_plan(RenderConfig(), capture)
    assert len(plan) == len(capture.images) + len(capture.sweeps)
    shots = [shot for shots in (*plan.images.values(), *plan.sweeps.values()) for shot in shots]
    assert all(shot.own and shot.frame.load is shot.captured.load for shot in shots)
    assert [shot.label for shot in plan.images["camera_1"]] == [f"{k:04d}" for k in range(10)]


def test_subsets_follow_the_split() -> None:
    plans = {
        name: make_plan(RenderConfig(subset=name, sensors=["lidar"]), tiny_capture()) for name in ("test", "train")
    }
    indices = {name: [shot.frame.index for shot in plan.sweeps["lidar"]] for name, plan in plans.items()}
    assert indices == {"test": [4, 9], "train": [0, 1, 2, 3, 5, 6, 7, 8]}


@pytest.mark.parametrize(
    "times, fps, expected", [([0.3], 10, [0.3]), ([0.3, 0.5], 10, [0.3, 0.4, 0.5]), ([0.2, 0.69], 5, [0.2, 0.4, 0.6])]
)
def test_moments(times: list[float], fps: float, expected: list[float]) -> None:
    shots = make_plan(RenderConfig(times=times, fps=fps), tiny_capture()).sweeps["lidar"]
    assert [shot.frame.time_mid for shot in shots] == pytest.approx(expected)
    assert [shot.label for shot in shots] == [f"t000{t:.3f}" for t in expected]
    assert not any(shot.own for shot in shots)


def test_the_moment_of_a_frame_renders_that_frame() -> None:
    capture = tiny_capture()
    frame = capture.images[8]
    plan = make_plan(RenderConfig(times=[frame.time_mid], sensors=[frame.sensor]), capture)
    image = image_of(reference_stages(), tiny_scene(), capture, plan.images[frame.sensor][0].frame)
    torch.testing.assert_close(image, image_of(reference_stages(), tiny_scene(), capture, frame), rtol=0, atol=1e-3)


def test_a_lidar_without_sweeps_is_left_out_unless_it_is_named() -> None:
    capture = replace(tiny_capture(), sweeps=()).with_split("interp")
    assert list(make_plan(RenderConfig(times=[0.45]), capture).sweeps) == []
    with pytest.raises(ConfigError, match="sensors names 'lidar', which has no frame"):
        make_plan(RenderConfig(times=[0.45], sensors=["lidar"]), capture)


def test_a_sensor_outside_the_subset() -> None:
    capture = tiny_capture().with_split("side")
    assert list(make_plan(RenderConfig(subset="test"), capture).images) == ["camera_1"]
    with pytest.raises(ConfigError, match=r"'camera_0', which has no frame here \(subset=test"):
        make_plan(RenderConfig(subset="test", sensors=["camera_0"]), capture)
    with pytest.raises(ConfigError, match="subset=all"):
        make_plan(RenderConfig(subset="test", formats=["npz"]), capture)


def test_times_at_the_ends_of_the_span_as_it_is_printed() -> None:
    plan = make_plan(RenderConfig(times=[0.0, 1.0], fps=1, sensors=["lidar"]), tiny_capture())
    assert len(plan) == 2


@pytest.mark.parametrize(
    "keys, sentence",
    [
        ({"sensors": ["camera_9"]}, r"sensors names 'camera_9', but .* camera_0, camera_1, lidar"),
        ({"sensors": []}, "sensors is empty.*camera_0, camera_1, lidar"),
        (
            {"formats": ["jpg"]},
            "formats holds 'jpg', but takes some of png, gif, apng, mp4; of cameras also exr, of lidars npz, ply",
        ),
        ({"formats": []}, "formats is empty"),
        ({"formats": ["npz"], "sensors": ["camera_0"]}, "formats asks for npz"),
        ({"formats": ["npz"], "sensors": ["camera_0", "lidar"]}, "'camera_0' is a camera.* add png"),
        ({"formats": ["ply"], "outputs": ["depth"]}, "'camera_0' is a camera.* add png"),
        ({"times": [7.0]}, r"times asks for 7 s, but the drive spans 0.000 to 1.000 s"),
        ({"times": [-1.0, 0.5]}, r"times asks for -1 s, but the drive spans"),
        ({"times": [0.5, 0.2]}, "times is .*first and the last"),
        ({"times": [0.1, 0.2, 0.3]}, "times is .*one moment or"),
        ({"times": []}, "times is .*one moment or"),
        ({"times": [float("nan")]}, "times"),
        ({"fps": 0.0}, "fps is 0"),
        ({"fps": 1e6}, r"fps is 1e\+06"),
        ({"fps": float("nan")}, "fps is nan"),
        ({"times": [0.3], "fps": 30.0}, "fps=30 is for films and for times=FIRST,LAST; leave it out"),
        (
            {"sensors": ["lidar"], "outputs": ["depth"]},
            "outputs chooses images of cameras, but none is among the sensors",
        ),
        ({"sensors": ["lidar"], "compare": True}, "compare=true needs pictures of a camera of the drive"),
        ({"outputs": ["depth"], "compare": True}, "compare=true needs pictures of a camera of the drive"),
        ({"shift": [1.0]}, r"shift is \[1.0\]"),
        ({"shift": [1.0, 2.0, float("inf")]}, "shift is"),
    ],
)
def test_mistakes_name_the_key_and_the_choices(keys: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        make_plan(RenderConfig(**keys), tiny_capture())


def test_a_lidar_that_is_not_there() -> None:
    capture = replace(tiny_capture(), lidars=(), sweeps=()).with_split("interp")
    with pytest.raises(ConfigError, match=r"formats asks for ply.*lidar"):
        make_plan(RenderConfig(formats=["png", "ply"]), capture)
    with pytest.raises(ConfigError, match=r"sensors names 'lidar', but the sensors of .* are camera_0, camera_1"):
        make_plan(RenderConfig(sensors=["lidar"]), capture)
    with pytest.raises(ConfigError, match=r"are camera_0, camera_1; give a file by sensor=wide\.yaml"):
        make_plan(RenderConfig(sensors=["wide.yaml"]), capture)
