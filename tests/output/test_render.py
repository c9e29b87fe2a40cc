# SPDX-License-Identifier: Apache-2.0
"""The command render: it draws the renders of the stages, and files lie in their places."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import imageio.v3 as imageio
import numpy as np
import pytest
import torch
from PIL import Image
from rounding import assert_pictures_alike
from tiny_capture import tiny_capture, tiny_scene
from torch import Tensor

from nurec_lite.base.errors import ConfigError
from nurec_lite.base.folders import MARKER
from nurec_lite.base.left_out import LeftOut
from nurec_lite.capture.types import Capture
from nurec_lite.cli.reconstruction import Reconstruction
from nurec_lite.config import RenderConfig
from nurec_lite.evaluation.measure import image_of
from nurec_lite.evaluation.pictures import to_picture
from nurec_lite.output.plan import Plan, make_plan
from nurec_lite.output.sweeps import rendered_sweeps
from nurec_lite.render import render as rendered
from nurec_lite.scene.edit import without_actors
from nurec_lite.scene.scene import Scene
from nurec_lite.splat.views import lidar_view
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.checkpoint import scene_to
from nurec_lite.training.step import render_sweep


def reconstruction(
    out: Path, capture: Capture | None = None, scene: Scene | None = None, **keys: Any
) -> Reconstruction:
    config = RenderConfig(checkpoint="none.pt", out=str(out), device="cpu", **keys)
    return Reconstruction(
        config,
        reference_stages(),
        scene or tiny_scene(),
        capture or tiny_capture(),
        torch.device("cpu"),
        {"step": 7.0},
        [],
    )


def render(run: Reconstruction) -> tuple[Plan, Path]:
    """Renders, and no picture fails."""
    left_out = LeftOut()
    plan, folder = rendered(run, left_out)
    assert left_out.sentences == []
    return plan, folder


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if p.name not in ("config.yaml", MARKER))


def picture(path: Path) -> np.ndarray:
    with Image.open(path) as file:
        return np.asarray(file.convert("RGB"))


# Drawings


def test_own_frames_are_what_evaluate_renders_bitwise(tmp_path: Path) -> None:
    capture, scene = tiny_capture(), tiny_scene()
    render(reconstruction(tmp_path, subset="test", sensors=["camera_0", "camera_1"]))
    assert names(tmp_path) == [f"camera_{c}_{k:04d}.png" for c in (0, 1) for k in (4, 9)]
    assert capture.split is not None
    for frame in (capture.images[i] for i in capture.split.test_images):
        expected = to_picture(image_of(reference_stages(), scene, capture, frame))
        np.testing.assert_array_equal(picture(tmp_path / f"{frame.sensor}_{frame.index:04d}.png"), expected)


def test_own_sweeps_are_rendered_along_the_measured_rays(tmp_path: Path) -> None:
    capture, scene = tiny_capture(), tiny_scene()
    render(reconstruction(tmp_path, subset="test", sensors=["lidar"], formats=["npz"]))
    assert names(tmp_path) == ["lidar_0004.npz", "lidar_0009.npz"]
    frame = capture.sweeps[4]
    sweep = frame.load()
    with torch.no_grad():
        returns = render_sweep(reference_stages(), scene, lidar_view(capture, frame, sweep, "cpu"))
    with np.load(tmp_path / "lidar_0004.npz") as file:
        np.testing.assert_array_equal(file["ranges"], returns.median.numpy())
        np.testing.assert_array_equal(file["directions"], sweep.directions.numpy())
        np.testing.assert_array_equal(file["times"], sweep.times.numpy())
        np.testing.assert_array_equal(file["measured_ranges"], sweep.ranges.numpy())


@pytest.mark.parametrize(
    "keys", [{"shift": [0.0, 0.5, 0.0]}, {"remove": ["000"]}, {"move": ["000:1:0:0:0"]}, {"times": [0.45]}]
)
def test_measured_ranges_are_left_out_where_the_render_shows_something_else(
    tmp_path: Path, keys: dict[str, Any]
) -> None:
    render(reconstruction(tmp_path, subset="test", sensors=["lidar"], formats=["npz"], **keys))
    for path in tmp_path.glob("*.npz"):
        with np.load(path) as file:
            assert "measured_ranges" not in file and "ranges" in file


def still(capture: Capture, offset: Tensor) -> Capture:
    """Driven with an offset in the rig's axes."""
    T = torch.eye(4, dtype=torch.float64)
    T[:3, 3] = offset
    images = tuple(
        replace(f, T_world_rig_start=f.T_world_rig_start @ T, T_world_rig_end=f.T_world_rig_end @ T)
        for f in capture.images
    )
    return replace(capture, images=images)


def test_a_shift_renders_what_a_rig_that_drove_there_sees(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"subset": "test", "sensors": ["camera_0"]}
    render(reconstruction(tmp_path / "shifted", shift=[0.5, 1.0, 0.25], **keys))
    driven = still(tiny_capture(), torch.tensor([0.5, 1.0, 0.25], dtype=torch.float64))
    render(reconstruction(tmp_path / "driven", capture=driven, **keys))
    render(reconstruction(tmp_path / "plain", **keys))
    shifted, other, plain = (picture(tmp_path / n / "camera_0_0004.png") for n in ("shifted", "driven", "plain"))
    assert_pictures_alike(shifted, other)
    assert (shifted != plain).mean() > 0.1


def test_times_render_every_sensor_at_each_moment(tmp_path: Path) -> None:
    plan, _ = render(reconstruction(tmp_path, times=[0.3, 0.5], fps=10))
    moments = [f"t0000.{t}00.png" for t in (3, 4, 5)]
    sensors = ("camera_0", "camera_1", "lidar", "lidar_above")
    assert names(tmp_path) == sorted(f"{sensor}_{moment}" for sensor in sensors for moment in moments)
    assert len(plan) == 9
    assert [shot.frame.time_mid for shot in plan.sweeps["lidar"]] == pytest.approx([0.3, 0.4, 0.5])


def test_a_lidar_between_sweeps_sends_the_rays_of_the_nearest(tmp_path: Path) -> None:
    capture = tiny_capture()
    shot = make_plan(RenderConfig(times=[0.47], sensors=["lidar"]), capture).sweeps["lidar"][0]
    (sweep,) = rendered_sweeps(reference_stages(), tiny_scene(), capture, [shot.frame])
    assert shot.captured is capture.sweeps[4] and not shot.own
    assert torch.equal(sweep.rays.directions, capture.sweeps[4].load().directions)


def test_removed_actors_are_gone_from_images(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"subset": "test", "sensors": ["camera_0"]}
    scene = tiny_scene()
    render(reconstruction(tmp_path / "less", remove=["actors"], **keys))
    render(reconstruction(tmp_path / "other", scene=without_actors(scene, scene.tracks.ids), **keys))
    for name in names(tmp_path / "less"):
        np.testing.assert_array_equal(picture(tmp_path / "less" / name), picture(tmp_path / "other" / name))


def test_compare_puts_the_captured_image_above(tmp_path: Path) -> None:
    render(reconstruction(tmp_path, subset="test", sensors=["camera_0"], compare=True, shift=[0.0, 1.0, 0.0]))
    both, captured = picture(tmp_path / "camera_0_0004.png"), tiny_capture().images[8].load().numpy()
    factor = 1000 // 40
    upper = both[24 : 24 + 24 * factor]
    np.testing.assert_array_equal(upper[::factor, ::factor], captured)


def test_compare_is_left_out_where_nothing_was_captured(tmp_path: Path) -> None:
    render(reconstruction(tmp_path, times=[0.42], sensors=["camera_0"], compare=True))
    assert picture(tmp_path / "camera_0_t0000.420.png").shape == (24, 40, 3)


# Files


def test_one_animation_for_each_sensor(tmp_path: Path) -> None:
    render(reconstruction(tmp_path, times=[0.2, 0.6], fps=5, formats=["gif", "apng", "mp4"]))
    sensors = ("camera_0", "camera_1", "lidar", "lidar_above")
    assert names(tmp_path) == sorted(f"{s}.{kind}" for s in sensors for kind in ("gif", "apng", "mp4"))
    for sensor in sensors:
        with Image.open(tmp_path / f"{sensor}.apng") as file:
            assert file.n_frames == 3  # type: ignore[attr-defined]
            width, height = file.size
        film = list(imageio.imiter(tmp_path / f"{sensor}.mp4", plugin="FFMPEG"))
        assert [one.shape for one in film] == [(height + height % 2, width + width % 2, 3)] * 3


def test_points_of_lidars_alone_render_no_camera(tmp_path: Path) -> None:
    plan, _ = render(reconstruction(tmp_path, times=[0.45], formats=["ply", "npz"]))
    assert names(tmp_path) == ["lidar_t0000.450.npz", "lidar_t0000.450.ply"] and not plan.images


def test_the_folder_says_what_was_asked(tmp_path: Path) -> None:
    render(reconstruction(tmp_path, times=[0.45], sensors=["camera_0"], move=["000:0:1:0:0"]))
    assert "- 000:0:1:0:0" in (tmp_path / "config.yaml").read_text()


@pytest.mark.gpu
def test_a_gpu_renders_the_same(tmp_path: Path) -> None:
    keys: dict[str, Any] = {
        "times": [0.45],
        "formats": ["png", "npz", "ply"],
        "remove": ["000"],
        "move": ["001:1:0:0:9"],
    }
    render(reconstruction(tmp_path / "cpu", **keys))
    render(reconstruction(tmp_path / "gpu", scene=scene_to(tiny_scene(), "cuda"), **keys))
    assert names(tmp_path / "cpu") == names(tmp_path / "gpu")
    here, there = (picture(tmp_path / where / "camera_0_t0000.450.png").astype(int) for where in ("cpu", "gpu"))
    assert abs(here - there).max() <= 2


def test_a_capture_without_lidar(tmp_path: Path) -> None:
    capture = replace(tiny_capture(), lidars=(), sweeps=()).with_split("interp")
    render(reconstruction(tmp_path, capture=capture, times=[0.45]))
    assert names(tmp_path) == ["camera_0_t0000.450.png", "camera_1_t0000.450.png"]


@pytest.mark.parametrize(
    "keys, sentence",
    [
        ({"times": [7.0]}, "the drive spans"),
        ({"remove": ["x"]}, "remove names 'x', but the ids .* 000, 001"),
        ({"move": ["x:0:0:0:0"]}, "move names 'x', but the ids .* 000, 001"),
        ({"move": ["000"]}, "move holds '000', but takes ID:FORWARD"),
    ],
)
def test_mistakes_write_nothing(tmp_path: Path, keys: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        render(reconstruction(tmp_path, **keys))
    assert not list(tmp_path.iterdir())
