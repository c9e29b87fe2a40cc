# SPDX-License-Identifier: Apache-2.0
"""`TrainedScene` renders the same as the command render, and takes batches, arrays and poses of one's own."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_capture import tiny_capture, tiny_scene

from nurec_lite import Camera, ConfigError, Lidar, TrainedScene, UserError
from nurec_lite.capture.trajectory import frame_at, shifted, trajectory_of
from nurec_lite.cli.reconstruction import Reconstruction
from nurec_lite.config import RenderConfig
from nurec_lite.evaluation.measure import image_of
from nurec_lite.output.sweeps import rendered_sweeps
from nurec_lite.scene.calibration import none_known
from nurec_lite.scene.edit import Move, with_moved_actors, without_actors
from nurec_lite.scene.scene import Scene
from nurec_lite.training.baseline import reference_stages

TIME = 0.43


def camera_frame(camera: str, time: float = TIME) -> Any:
    capture = tiny_capture()
    return frame_at([f for f in capture.images if f.sensor == camera], trajectory_of(capture), time)


# ---- cameras


def test_a_camera_on_its_path_is_what_the_verb_renders_bitwise(scene: TrainedScene) -> None:
    expected = image_of(reference_stages(), tiny_scene(), tiny_capture(), camera_frame("camera_1"))
    assert torch.equal(scene.render("camera_1", time=TIME).colour, expected)


def test_a_pose_of_one_s_own_is_that_of_the_sensor(scene: TrainedScene) -> None:
    """Both ends of the readout, from a metre to the left."""
    frame = shifted(camera_frame("camera_0"), (0.0, 1.0, 0.0))
    start, end = (scene.pose("camera_0", t, shift=(0, 1, 0)) for t in (frame.time_start, frame.time_end))
    found = scene.render("camera_0", start.numpy(), TIME, end_pose=end.tolist())
    expected = image_of(reference_stages(), tiny_scene(), tiny_capture(), frame)
    torch.testing.assert_close(found.colour, expected, rtol=0, atol=1e-5)


def test_poses_may_be_any_dense_array(scene: TrainedScene) -> None:
    pose = scene.pose("camera_0", TIME)
    kinds = [
        pose.numpy()[::-1, ::-1][::-1, ::-1],
        np.asfortranarray(pose.numpy()),
        pose.tolist(),
        pose.requires_grad_(),
    ]
    first = scene.render("camera_0", kinds[0], np.float64(TIME)).opacity
    assert all(
        torch.equal(scene.render("camera_0", kind, torch.tensor(TIME).double()).opacity, first) for kind in kinds[1:]
    )


def test_a_batch_is_its_views_one_by_one(scene: TrainedScene) -> None:
    poses, times = scene.pose("camera_0", [0.2, 0.5]), np.array([0.5, 0.2])
    batch = scene.render("camera_0", poses, times, outputs=["colour", "depth", "normals", "opacity", "classes"])
    for k in range(2):
        one = scene.render(
            "camera_0", poses[k], float(times[k]), outputs=["colour", "depth", "normals", "opacity", "classes"]
        )
        for name, values in vars(one).items():
            assert torch.equal(getattr(batch, name)[k], values), name


def test_one_pose_serves_many_times(scene: TrainedScene) -> None:
    found = scene.render("camera_0", scene.pose("camera_0", 0.3), [0.3, 0.6])
    assert found.colour is not None and found.colour.shape == (2, 24, 40, 3)
    assert found.normals is None and found.classes is None


def test_a_camera_of_one_s_own_sees_the_same_with_twice_the_pixels(scene: TrainedScene) -> None:
    """A pixel of the coarse image is the mean of four of the fine one, nearly; a new name exposes as the mean of all cameras."""
    own = scene.cameras["camera_0"]
    fine = replace(own, name="fine", width=80, height=48, fx=2 * own.fx, fy=2 * own.fy, cx=2 * own.cx, cy=2 * own.cy)
    pose = scene.pose(own, TIME)
    opacities = [scene.render(camera, pose, TIME).opacity for camera in (own, fine)]
    coarse = torch.nn.functional.avg_pool2d(opacities[1][None], 2)[0]
    assert float((coarse - opacities[0]).abs().mean()) < 0.02


def test_poses_are_in_the_world_of_the_capture_s_files() -> None:
    """Far from the origin, where float32 has steps of half a metre."""
    far = (5_000_000.0, 400_000.0, 100.0)
    near, moved = scene_about((0.0, 0.0, 0.0)), scene_about(far)
    step = torch.tensor(far, dtype=torch.float64)
    assert torch.equal(moved.pose("camera_0", TIME)[:3, 3], near.pose("camera_0", TIME)[:3, 3] + step)
    images = [one.render("camera_0", one.pose("camera_0", TIME), TIME).colour for one in (near, moved)]
    torch.testing.assert_close(images[1], images[0], rtol=0, atol=1e-4)
    torch.testing.assert_close(moved.tracks.translations, near.tracks.translations + step, rtol=0, atol=1e-8)
    points = [one.render_lidar("lidar", time=TIME) for one in (near, moved)]
    torch.testing.assert_close(points[1].points - step, points[0].points, rtol=0, atol=1e-6, equal_nan=True)


def scene_about(origin: tuple[float, float, float], scene: Scene | None = None) -> TrainedScene:
    capture, scene = replace(tiny_capture(), origin=origin), replace(scene or tiny_scene(), origin=origin)
    run = Reconstruction(RenderConfig(), reference_stages(), scene, capture, torch.device("cpu"), {}, [])
    return TrainedScene(run, Path("none"))


def test_sensors_of_one_s_own_move_with_a_rig_that_was_corrected() -> None:
    """A pose that training moved by 0.3 m shows the same as the corrected pose; exposures are the mean of the learned ones."""
    scene, capture = tiny_scene(), tiny_capture()
    known = none_known(capture, 0.5, "cpu")
    known.rig_translations += torch.tensor([0.0, 0.3, 0.0])
    known.exposure_drift[0] += 0.1
    corrected = scene_about((0.0, 0.0, 0.0), replace(scene, calibration=known))
    plain = scene_about((0.0, 0.0, 0.0))
    own = replace(corrected.cameras["camera_0"], name="own", shutter="global")
    there = plain.render(own, plain.pose(own, TIME, shift=(0.0, 0.3, 0.0)), TIME)
    here = corrected.render(own, corrected.pose(own, TIME), TIME)
    torch.testing.assert_close(here.opacity, there.opacity, rtol=0, atol=2e-3)
    named = corrected.render(replace(own, name="camera_0"), corrected.pose(own, TIME), TIME)
    torch.testing.assert_close(here.colour, named.colour, rtol=0, atol=1e-5)


# ---- lidars


def test_a_lidar_on_its_path_is_what_the_verb_renders(scene: TrainedScene) -> None:
    capture = tiny_capture()
    frame = frame_at([f for f in capture.sweeps if f.sensor == "lidar"], trajectory_of(capture), TIME)
    (expected,) = rendered_sweeps(reference_stages(), tiny_scene(), capture, [frame])
    found = scene.render_lidar("lidar", time=TIME)
    assert torch.equal(found.ranges, expected.sweep.ranges) and torch.equal(found.times, expected.rays.times)
    assert torch.equal(found.points[found.returned], expected.points_world())
    assert bool(found.points[~found.returned].isnan().all())


def test_a_lidar_of_one_s_own_sends_its_pattern(scene: TrainedScene) -> None:
    own = scene.lidars["lidar"]
    few = Lidar("few", own.T_rig_lidar, own.elevations[:3], azimuth_steps=90, azimuth_start=0.0, clockwise=False)
    found = scene.render_lidar(few, scene.pose(own, TIME), TIME, seconds=0.2)
    assert found.ranges.shape == (270,) and found.rings[:4].tolist() == [0, 1, 2, 0]
    assert float(found.times[0]) == pytest.approx(TIME - 0.1 + 0.1 / 90) and bool((found.times.diff() >= 0).all())
    azimuths = torch.atan2(found.directions[::3, 1], found.directions[::3, 0])
    assert torch.rad2deg(azimuths[:2]).tolist() == pytest.approx([2.0, 6.0], abs=1e-3)


def test_sensors_from_files_have_their_pattern_mounting_and_readout(scene: TrainedScene, tmp_path: Path) -> None:
    """A camera with the numbers of camera_0 sees the same as a still camera_0."""
    own = scene.cameras["camera_0"]
    lens = {key: getattr(own, key) for key in ("width", "height", "fx", "fy", "cx", "cy")}
    mount = {"mounting": {"relative_to": "camera_0"}}
    (tmp_path / "c.yaml").write_text(json.dumps({"kind": "camera", "name": "twin"} | lens | mount))
    twin = scene.sensor(tmp_path / "c.yaml")
    pose = scene.pose("camera_0", TIME)
    torch.testing.assert_close(scene.pose(twin, TIME), pose)
    global_shutter = replace(own, name="still", shutter="global")
    images = [scene.render(camera, pose, TIME).depth for camera in (twin, global_shutter)]
    torch.testing.assert_close(images[0], images[1], rtol=0, atol=1e-5)
    few = {"beams": 4, "elevation_deg": [-20, 5], "azimuth_steps": 40, "azimuth_deg": [-90, 90], "rate_hz": 5}
    (tmp_path / "l.yaml").write_text(json.dumps({"kind": "lidar", "name": "few"} | few | mount))
    found = scene.render_lidar(scene.sensor(tmp_path / "l.yaml"), time=[TIME, 0.6])
    assert found.ranges.shape == (2, 80) and float(found.times[0].max() - found.times[0].min()) == pytest.approx(
        0.1 * 19 / 20, abs=1e-3
    )
    with pytest.raises(ConfigError, match="lidar is a NovelSensor, but the lidars are lidar"):
        scene.render_lidar(twin, time=TIME)


def test_a_batch_of_sweeps_is_filled_up(scene: TrainedScene) -> None:
    shorter = replace(
        tiny_capture(), sweeps=tuple(_halved(f) if k < 5 else f for k, f in enumerate(tiny_capture().sweeps))
    )
    other = TrainedScene(replace(scene._run, capture=shorter), scene._folder)
    found = other.render_lidar("lidar", time=[0.1, 0.9])
    half = found.ranges.shape[1] // 2
    assert (
        found.ranges.shape[0] == 2
        and bool((found.rings[0, half:] == -1).all())
        and not bool(found.returned[0, half:].any())
    )
    single = other.render_lidar("lidar", time=0.1)
    assert torch.equal(found.ranges[0, :half], single.ranges)


def _halved(frame: Any) -> Any:
    from tiny_capture import Loaded

    sweep = frame.load()
    return replace(frame, load=Loaded(sweep.select(slice(0, len(sweep) // 2))))


# ---- actors


def test_actors_are_taken_away_and_moved(scene: TrainedScene) -> None:
    run, other = tiny_scene(), without_actors(tiny_scene(), ["000"])
    stages, capture, frame = reference_stages(), tiny_capture(), camera_frame("camera_0")
    assert torch.equal(
        scene.without("000").render("camera_0", time=TIME).colour, image_of(stages, other, capture, frame)
    )
    assert scene.without("000").tracks.ids == ("001", "002", "003") and scene.without("actors").tracks.ids == ()
    moved = with_moved_actors(run, [("001", Move(1.0, 0.5, 0.0, 0.0))])
    found = scene.moved("001", forward=1.0, left=0.5)
    assert torch.equal(found.render("camera_0", time=TIME).colour, image_of(stages, moved, capture, frame))
    assert scene.tracks.ids == ("000", "001", "002", "003"), "the scene itself stays"


# ---- mistakes


def own_camera(**flaw: Any) -> Callable[[], Camera]:
    """Makes a camera when a test runs: its capture is not cast while tests are collected."""
    return lambda: replace(tiny_capture().camera("camera_0"), name="own", **flaw)


@pytest.mark.parametrize("text", ["{broken", "[]", '{"psnr": 1, "psnr": 2}'])
def test_damaged_figures_are_a_sentence(scene: TrainedScene, tmp_path: Path, text: str) -> None:
    damaged = TrainedScene(scene._run, tmp_path)
    assert damaged.metrics == {}
    (tmp_path / "metrics.json").write_text(text)
    with pytest.raises(UserError, match=r"metrics.json .*; restore it, or remove it"):
        _ = damaged.metrics


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        ({"camera": "camera_7"}, "camera is 'camera_7', but the cameras are camera_0, camera_1"),
        ({"camera": 3}, "camera is an int"),
        ({"camera": own_camera(width=0)}, "camera own has images of 0x24 pixels"),
        ({"camera": own_camera(fx=float("nan"))}, "camera own has fx, fy = nan"),
        ({"camera": own_camera(T_rig_cam=np.zeros((4, 4)))}, "camera own has a T_rig_cam that is no rigid pose"),
        ({"camera": own_camera(T_rig_cam=torch.zeros(4, 4))}, "camera own has a T_rig_cam that is no rigid pose"),
        ({"time": 7.0}, "time is 7 s, but the drive spans 0.000 to 1.000 s"),
        ({"time": None}, "time is missing; the drive spans"),
        ({"time": [[0.1]]}, r"time has shape \[1, 1\], but must be a number of seconds, or \[B\]"),
        ({"time": float("nan")}, "time holds a number that is not finite"),
        ({"time": []}, "time is empty"),
        ({"pose": np.eye(3)}, r"pose has shape \[3, 3\], but must be \[4, 4\], or \[B, 4, 4\]"),
        ({"pose": np.eye(4) + np.pad([[1e9]], ((0, 3), (3, 0)))}, r"pose lies farther than 1e\+08 m from the origin"),
        ({"pose": 2 * np.eye(4)}, "row 0, 0, 0, 1"),
        ({"pose": np.diag([1, 1, -1, 1.0])}, "no rigid motion"),
        ({"pose": np.stack([np.eye(4)] * 2), "time": [0.1, 0.2, 0.3]}, "pose has 2 and time has 3 entries"),
        ({"pose": "here"}, "pose must hold numbers"),
        ({"pose": torch.eye(4, dtype=torch.complex64)}, "pose must hold numbers"),
        ({"pose": torch.eye(4).to_sparse()}, "pose must hold numbers"),
        ({"pose": [[1, 2], [3]]}, "pose must hold numbers"),
        ({"time": 10**400}, "time must hold numbers"),
        ({"time": np.datetime64("2026-01-01")}, "time must hold numbers"),
        ({"seconds": [0.1, 0.2]}, r"seconds is \[0.1, 0.2\], but must be a number between 0 and 1000"),
        ({"outputs": None}, "outputs is None, but takes a list"),
        ({"end_pose": np.eye(4)}, "end_pose is given without pose"),
        ({"outputs": ["flow"]}, "outputs holds 'flow', but takes a list of some of colour, depth"),
        ({"outputs": "depth"}, "outputs is 'depth', but takes a list"),
        ({"seconds": -1.0}, "seconds is -1.0, but must be a number between 0 and 1000"),
    ],
)
def test_mistakes_are_sentences(scene: TrainedScene, arguments: dict[str, Any], sentence: str) -> None:
    given = {name: value() if callable(value) else value for name, value in arguments.items()}
    with pytest.raises(ConfigError, match=sentence):
        scene.render(**({"camera": "camera_0", "time": 0.3} | given))


def test_mistakes_of_actors_and_lidars_are_sentences(scene: TrainedScene) -> None:
    with pytest.raises(ConfigError, match=r"without\(\) names 'x', but the ids of the tracks are 000, 001"):
        scene.without("x")
    with pytest.raises(ConfigError, match=r"without\(\) names '0', but the ids"):
        scene.without(0)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="left holds a number that is not finite"):
        scene.moved("000", left=float("nan"))
    with pytest.raises(ConfigError, match="up must hold numbers"):
        scene.moved("000", up="x")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"shift is \(1, 2\), but must be 3 numbers between"):
        scene.pose("camera_0", 0.3, shift=(1, 2))
    with pytest.raises(ConfigError, match="file is a NoneType, but must be a path"):
        scene.sensor(None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="lidar is 'camera_0', but the lidars are lidar"):
        scene.render_lidar("camera_0", time=0.3)
    with pytest.raises(ConfigError, match="seconds is for a lidar of your own"):
        scene.render_lidar("lidar", time=0.3, seconds=0.1)
    with pytest.raises(ConfigError, match="lidar own has elevations that do not lie within"):
        scene.render_lidar(replace(scene.lidars["lidar"], name="own", elevations=torch.tensor([-25.0, 15.0])), time=0.3)
    with pytest.raises(ConfigError, match="lidar is a Camera"):
        scene.render_lidar(scene.cameras["camera_0"], time=0.3)  # type: ignore[arg-type]
    assert isinstance(scene.cameras["camera_0"], Camera)
