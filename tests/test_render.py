# SPDX-License-Identifier: Apache-2.0
"""The verb render: what it draws is what the stages render, files lie where they should, and mistakes end in one sentence."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_capture import ROOT, tiny_capture, tiny_scene, tiny_state
from torch import Tensor

import nurec_lite.animation
import nurec_lite.reconstruction
from nurec_lite.capture.pack import write_pack
from nurec_lite.capture.types import Capture
from nurec_lite.command import command
from nurec_lite.config import ConfigError, RenderConfig
from nurec_lite.measure import image_of
from nurec_lite.pictures import to_picture
from nurec_lite.reconstruction import Reconstruction
from nurec_lite.render import HELP, render, rendered_sweep, work
from nurec_lite.scene.edit import without_actors
from nurec_lite.scene.scene import Scene
from nurec_lite.shots import make_plan
from nurec_lite.splat.views import lidar_view
from nurec_lite.stages import Stages, render_sweep
from nurec_lite.train import save

with_ffmpeg = pytest.mark.skipif(find_spec("imageio_ffmpeg") is None, reason="needs the extra `video`")


def reconstruction(
    out: Path, capture: Capture | None = None, scene: Scene | None = None, **keys: Any
) -> Reconstruction:
    config = RenderConfig(checkpoint="none.pt", out=str(out), device="cpu", **keys)
    return Reconstruction(
        config, Stages(), scene or tiny_scene(), capture or tiny_capture(), torch.device("cpu"), {}, []
    )


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if p.name != "config.yaml")


def picture(path: Path) -> np.ndarray:
    with Image.open(path) as file:
        return np.asarray(file.convert("RGB"))


# What is drawn


def test_own_frames_are_what_evaluate_renders_bitwise(tmp_path: Path) -> None:
    capture, scene = tiny_capture(), tiny_scene()
    render(reconstruction(tmp_path, subset="test", sensors=["camera_0", "camera_1"]))
    assert names(tmp_path) == [f"camera_{c}_{k:04d}.png" for c in (0, 1) for k in (4, 9)]
    assert capture.split is not None
    for frame in (capture.images[i] for i in capture.split.test_images):
        expected = to_picture(image_of(Stages(), scene, capture, frame))
        np.testing.assert_array_equal(picture(tmp_path / f"{frame.sensor}_{frame.index:04d}.png"), expected)


def test_own_sweeps_are_rendered_along_the_measured_rays(tmp_path: Path) -> None:
    capture, scene = tiny_capture(), tiny_scene()
    render(reconstruction(tmp_path, subset="test", sensors=["lidar"], formats=["npz"]))
    assert names(tmp_path) == ["lidar_0004.npz", "lidar_0009.npz"]
    frame = capture.sweeps[4]
    sweep = frame.load()
    with torch.no_grad():
        returns = render_sweep(Stages(), scene, lidar_view(capture, frame, sweep, "cpu"))
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
    np.testing.assert_array_equal(shifted, other)
    assert (shifted != plain).any()


def test_times_render_every_sensor_at_each_moment(tmp_path: Path) -> None:
    plan, _ = render(reconstruction(tmp_path, times=[0.3, 0.5], fps=10))
    moments = [f"t0000.{t}00.png" for t in (3, 4, 5)]
    sensors = ("camera_0", "camera_1", "lidar", "lidar_above")
    assert names(tmp_path) == sorted(f"{sensor}_{moment}" for sensor in sensors for moment in moments)
    assert len(plan) == 9
    assert [shot.frame.time_mid for shot in plan.sweeps["lidar"]] == pytest.approx([0.3, 0.4, 0.5])


def test_the_moment_of_a_frame_renders_that_frame(tmp_path: Path) -> None:
    capture = tiny_capture()
    frame = capture.images[8]
    plan = make_plan(RenderConfig(times=[frame.time_mid], sensors=[frame.sensor]), capture)
    image = image_of(Stages(), tiny_scene(), capture, plan.images[frame.sensor][0].frame)
    torch.testing.assert_close(image, image_of(Stages(), tiny_scene(), capture, frame), rtol=0, atol=1e-3)


def test_a_lidar_between_sweeps_sends_the_rays_of_the_nearest(tmp_path: Path) -> None:
    capture = tiny_capture()
    shot = make_plan(RenderConfig(times=[0.47], sensors=["lidar"]), capture).sweeps["lidar"][0]
    sweep = rendered_sweep(Stages(), tiny_scene(), capture, shot.frame)
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


@with_ffmpeg
def test_one_animation_for_each_sensor(tmp_path: Path) -> None:
    import imageio_ffmpeg

    render(reconstruction(tmp_path, times=[0.2, 0.6], fps=5, formats=["gif", "apng", "mp4"]))
    sensors = ("camera_0", "camera_1", "lidar", "lidar_above")
    assert names(tmp_path) == sorted(f"{s}.{kind}" for s in sensors for kind in ("gif", "apng", "mp4"))
    for sensor in sensors:
        with Image.open(tmp_path / f"{sensor}.apng") as file:
            assert file.n_frames == 3  # type: ignore[attr-defined]
            width, height = file.size
        reader = imageio_ffmpeg.read_frames(str(tmp_path / f"{sensor}.mp4"))
        assert next(reader)["size"] == (width + width % 2, height + height % 2)
        assert sum(1 for _ in reader) == 3


def test_points_of_lidars_alone_render_no_camera(tmp_path: Path) -> None:
    plan, _ = render(reconstruction(tmp_path, times=[0.45], formats=["ply", "npz"]))
    assert names(tmp_path) == ["lidar_t0000.450.npz", "lidar_t0000.450.ply"] and not plan.images


def test_the_folder_says_what_was_asked(tmp_path: Path) -> None:
    render(reconstruction(tmp_path, times=[0.45], sensors=["camera_0"], move=["000:0:1:0:0"]))
    assert "- 000:0:1:0:0" in (tmp_path / "config.yaml").read_text()


# Captures that lack something


def bare(**changes: Any) -> Capture:
    """A capture without lidar."""
    capture = replace(tiny_capture(), lidars=(), sweeps=())
    return replace(capture, **changes).with_split("interp")


def test_a_capture_without_lidar(tmp_path: Path) -> None:
    render(reconstruction(tmp_path, capture=bare(), times=[0.45]))
    assert names(tmp_path) == ["camera_0_t0000.450.png", "camera_1_t0000.450.png"]
    with pytest.raises(ConfigError, match=r"formats asks for ply.*lidar"):
        make_plan(RenderConfig(formats=["png", "ply"]), bare())
    with pytest.raises(ConfigError, match=r"sensors names 'lidar', but the sensors of .* are camera_0, camera_1"):
        make_plan(RenderConfig(sensors=["lidar"]), bare())


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


# Mistakes


@pytest.mark.parametrize(
    "keys, sentence",
    [
        ({"sensors": ["camera_9"]}, r"sensors names 'camera_9', but .* camera_0, camera_1, lidar"),
        ({"sensors": []}, "sensors is empty.*camera_0, camera_1, lidar"),
        ({"formats": ["jpg"]}, "formats holds 'jpg', but takes some of png, gif, apng, mp4; of lidars also npz, ply"),
        ({"formats": []}, "formats is empty"),
        ({"formats": ["npz"], "sensors": ["camera_0"]}, "formats asks for npz"),
        ({"times": [7.0]}, r"times asks for 7 s, but the drive spans 0.000 to 1.000 s"),
        ({"times": [-1.0, 0.5]}, r"times asks for -1 s, but the drive spans"),
        ({"times": [0.5, 0.2]}, "times is .*first and the last"),
        ({"times": [0.1, 0.2, 0.3]}, "times is .*one moment or"),
        ({"times": []}, "times is .*one moment or"),
        ({"times": [float("nan")]}, "times"),
        ({"fps": 0.0}, "fps is 0"),
        ({"fps": 1e6}, r"fps is 1e\+06"),
        ({"fps": float("nan")}, "fps is nan"),
        ({"shift": [1.0]}, r"shift is \[1.0\]"),
        ({"shift": [1.0, 2.0, float("inf")]}, "shift is"),
        ({"remove": ["x"]}, "remove names 'x', but the ids .* 000, 001"),
        ({"move": ["x:0:0:0:0"]}, "move names 'x', but the ids .* 000, 001"),
        ({"move": ["000"]}, "move holds '000', but takes ID:FORWARD"),
    ],
)
def test_mistakes_name_the_key_and_the_choices_and_write_nothing(
    tmp_path: Path, keys: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        render(reconstruction(tmp_path, **keys))
    assert not list(tmp_path.iterdir())


def test_times_at_the_ends_of_the_span_as_it_is_printed() -> None:
    plan = make_plan(RenderConfig(times=[0.0, 1.0], fps=1, sensors=["lidar"]), tiny_capture())
    assert len(plan) == 2


# The command line


Call = Callable[..., int]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs the verb on a checkpoint of the tiny capture; returns its exit code."""
    save(tiny_state(), tmp_path / "run" / "checkpoint.pt")
    monkeypatch.setattr(nurec_lite.reconstruction, "open_capture", lambda config: tiny_capture())

    def run(*arguments: str) -> int:
        line = ["render", f"checkpoint={tmp_path / 'run' / 'checkpoint.pt'}", "device=cpu", *arguments]
        monkeypatch.setattr(sys, "argv", line)
        try:
            command("render", HELP, work)
        except SystemExit as error:
            return int(error.code or 0)
        return 0

    return run


def test_results_lie_beside_the_checkpoint_unless_told(
    call: Call, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert call("times=[0.45]", "sensors=[camera_0]") == 0
    assert names(tmp_path / "run" / "render") == ["camera_0_t0000.450.png"]
    assert f"1 frames of camera_0 in {tmp_path / 'run' / 'render'}: png" in capsys.readouterr().out
    assert call("times=[0.45]", "sensors=[camera_0]", f"out={tmp_path / 'else'}") == 0
    assert names(tmp_path / "else") == ["camera_0_t0000.450.png"]


def test_ids_and_moves_as_they_are_written_on_a_command_line(call: Call, tmp_path: Path) -> None:
    here = [f"out={tmp_path / 'else'}", "times=[0.45]", "sensors=[camera_0]"]
    assert call(*here, "remove=[000,001]", "move=[002:-1.5:1:0:90,003:0:1e-1:0:0]") == 0
    assert call(*here, "remove=actors", "shift=[0,1,0]") == 0


def test_lists_may_be_written_without_brackets(call: Call, tmp_path: Path) -> None:
    out = tmp_path / "else"
    arguments = [
        "times=0.4,0.5",
        "sensors=camera_0",
        "shift=-1,0,.5",
        "remove=000,001",
        "move=002:-1:1:0:9,003:0:1:0:0",
    ]
    assert call(f"out={out}", *arguments) == 0
    assert names(out) == ["camera_0_t0000.400.png", "camera_0_t0000.500.png"]
    bracketed = [f"{k}=[{v}]" for k, v in (argument.split("=") for argument in arguments)]
    assert call(f"out={tmp_path / 'same'}", *bracketed) == 0
    for name in names(out):
        assert (out / name).read_bytes() == (tmp_path / "same" / name).read_bytes()


@pytest.mark.parametrize(
    "argument, sentence",
    [
        ("remove=[3]", "remove names '3', but the ids of the tracks are 000"),
        ("move=[3:0:0:0:0]", "move names '3'"),
        ("sensors=[x]", "sensors names 'x'"),
        ("times=99", "the drive spans"),
        ("times=1,0", "first and the last"),
        ("formats=png,bmp", "formats holds 'bmp'"),
        ("times=soon", "times"),
        ("shift=[a,b,c]", "shift"),
        ("formats=[bmp]", "formats holds 'bmp'"),
        ("subset=some", "subset is 'some'"),
        ("shfit=[0,1,0]", "did you mean shift"),
    ],
)
def test_mistakes_end_with_one_sentence_and_code_2(
    call: Call, capsys: pytest.CaptureFixture, tmp_path: Path, argument: str, sentence: str
) -> None:
    assert call(argument) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1 and said[0].startswith("error: ") and sentence in said[0]
    assert not (tmp_path / "run" / "render").exists()


def test_mp4_without_the_extra_ends_with_one_sentence(
    call: Call, capsys: pytest.CaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(nurec_lite.animation, "import_module", without)
    assert call("formats=[png,mp4]") == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1 and "pip install imageio-ffmpeg" in said[0]
    assert not (tmp_path / "run" / "render").exists()


@with_ffmpeg
@pytest.mark.slow
def test_ctrl_c_leaves_whole_pictures_and_no_encoder(tmp_path: Path) -> None:
    save(tiny_state(), tmp_path / "checkpoint.pt")
    write_pack(tiny_capture(), tmp_path / "tiny.pack")
    line = [sys.executable, "-m", "nurec_lite.render", f"checkpoint={tmp_path / 'checkpoint.pt'}", "data=pack"]
    line += [f"data.root={tmp_path / 'tiny.pack'}", "device=cpu", "times=0,1", "fps=1000", "formats=png,gif,apng,mp4"]
    listening = partial(
        signal.signal, signal.SIGINT, signal.default_int_handler
    )  # also where a shell started this in the background
    process = subprocess.Popen(line, cwd=ROOT, stderr=subprocess.PIPE, text=True, preexec_fn=listening)
    out = tmp_path / "render"
    while process.poll() is None and len(list(out.glob("*.png"))) < 3:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 2 and "error: interrupted" in said
    assert all(path.suffix in (".png", ".yaml") for path in out.iterdir())
    for path in out.glob("*.png"):
        assert picture(path).shape == (24, 40, 3)
