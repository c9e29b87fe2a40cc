# SPDX-License-Identifier: Apache-2.0
"""Depth, normals, opacity and classes as files of the command render: files hold the values of the maps."""

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from test_render import names, reconstruction, render
from tiny_capture import tiny_capture, tiny_scene

from nurec_lite.base.errors import ConfigError
from nurec_lite.output.map_files import DEPTH_STEPS
from nurec_lite.output.maps import OUTPUTS, CameraMaps, class_names, maps_of
from nurec_lite.training.baseline import reference_stages

with_exr = pytest.mark.skipif(find_spec("OpenEXR") is None, reason="needs the extra `exr`")
KEYS: dict[str, Any] = {"times": [0.45], "sensors": ["camera_0"]}
STEM = "camera_0_t0000.450"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, CameraMaps]:
    """The folder of a render of all outputs, and the maps."""
    plan, out = render(
        reconstruction(tmp_path_factory.mktemp("maps"), outputs=list(OUTPUTS), formats=["png", "npz"], **KEYS)
    )
    (shot,) = plan.images["camera_0"]
    (maps,) = maps_of(reference_stages(), tiny_scene(), tiny_capture(), [shot.frame], OUTPUTS)
    return out, maps


def pixels(path: Path) -> np.ndarray:
    with Image.open(path) as file:
        return np.asarray(file)


def test_a_file_for_each_output(written: tuple[Path, CameraMaps]) -> None:
    own = [f"{STEM}{name}" for name in (".npz", ".png", "_classes.png", "_depth.png", "_normals.png", "_opacity.png")]
    assert names(written[0]) == [*own, "classes.json"]


def test_depth_is_in_steps_of_a_256th_of_a_metre(written: tuple[Path, CameraMaps]) -> None:
    out, maps = written
    depth = pixels(out / f"{STEM}_depth.png")
    assert depth.dtype.itemsize >= 2 and depth.max() > 255
    np.testing.assert_allclose(depth / DEPTH_STEPS, maps.depth, rtol=0, atol=0.5 / DEPTH_STEPS + 1e-4)
    assert (depth == 0).sum() == int((maps.depth == 0).sum()) > 0


def test_normals_opacity_and_classes_are_bytes(written: tuple[Path, CameraMaps]) -> None:
    out, maps = written
    assert maps.normals is not None and maps.classes is not None
    np.testing.assert_allclose(pixels(out / f"{STEM}_normals.png") / 127.5 - 1, maps.normals, rtol=0, atol=0.6 / 127.5)
    np.testing.assert_allclose(pixels(out / f"{STEM}_opacity.png") / 255, maps.opacity, rtol=0, atol=0.6 / 255)
    np.testing.assert_array_equal(pixels(out / f"{STEM}_classes.png"), maps.classes)
    known = json.loads((out / "classes.json").read_text())
    assert tuple(known.values()) == class_names(tiny_scene()) and list(known) == [str(k) for k in range(len(known))]


def test_npz_holds_all_of_it_and_the_camera(written: tuple[Path, CameraMaps]) -> None:
    out, maps = written
    with np.load(out / f"{STEM}.npz") as file:
        for name in OUTPUTS:
            np.testing.assert_array_equal(file[name], getattr(maps, name))
        camera = tiny_capture().camera("camera_0")
        assert file["intrinsics"].tolist() == [[camera.fx, 0, camera.cx], [0, camera.fy, camera.cy], [0, 0, 1]]
        assert tuple(file["class_names"]) == class_names(tiny_scene())


def test_npz_holds_poses_in_the_world_of_the_capture_s_files(tmp_path: Path) -> None:
    far = (5_000_000.0, 400_000.0, 100.0)
    capture, scene = replace(tiny_capture(), origin=far), replace(tiny_scene(), origin=far)
    plan, out = render(reconstruction(tmp_path, capture, scene, outputs=["depth"], formats=["npz"], **KEYS))
    assert names(out) == [f"{STEM}.npz"]
    frame, T_rig_cam = plan.images["camera_0"][0].frame, capture.camera("camera_0").T_rig_cam
    with np.load(out / f"{STEM}.npz") as file:
        assert (float(file["time_start"]), float(file["time_end"])) == (frame.time_start, frame.time_end)
        for end in ("start", "end"):
            expected = (getattr(frame, f"T_world_rig_{end}") @ T_rig_cam).numpy()
            expected[:3, 3] += far
            np.testing.assert_allclose(file[f"T_world_camera_{end}"], expected, rtol=0, atol=1e-8)


def test_without_outputs_cameras_are_as_before(tmp_path: Path) -> None:
    render(reconstruction(tmp_path, times=[0.45], formats=["png", "npz"]))
    assert names(tmp_path) == [
        f"{STEM}.png",
        "camera_1_t0000.450.png",
        "lidar_above_t0000.450.png",
        "lidar_t0000.450.npz",
        "lidar_t0000.450.png",
    ]


def test_depth_alone_and_films_of_colour(tmp_path: Path) -> None:
    render(reconstruction(tmp_path / "depth", outputs=["depth"], formats=["png", "gif"], **KEYS))
    assert names(tmp_path / "depth") == [f"{STEM}_depth.png"]
    render(reconstruction(tmp_path / "both", outputs=["colour", "opacity"], formats=["gif", "png"], **KEYS))
    assert names(tmp_path / "both") == ["camera_0.gif", f"{STEM}.png", f"{STEM}_opacity.png"]


@with_exr
def test_exr_holds_all_of_it(written: tuple[Path, CameraMaps], tmp_path: Path) -> None:
    import OpenEXR

    _, maps = written
    _, out = render(reconstruction(tmp_path, outputs=list(OUTPUTS), formats=["exr"], **KEYS))
    assert names(out) == [f"{STEM}.exr"] and maps.normals is not None and maps.classes is not None
    with OpenEXR.File(str(out / f"{STEM}.exr"), separate_channels=True) as file:
        channels = {name: channel.pixels for name, channel in file.channels().items()}
    expected = {"Z": maps.depth, "opacity": maps.opacity, "class": maps.classes}
    expected |= dict(zip("RGB", maps.colour.unbind(-1), strict=True))
    expected |= dict(zip(("N.X", "N.Y", "N.Z"), maps.normals.unbind(-1), strict=True))
    assert channels.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(channels[name], values)


def test_exr_without_the_extra_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr("nurec_lite.output.map_files.import_module", without)
    with pytest.raises(
        ConfigError, match="formats=exr needs the extra `exr`, which is not installed: pip install openexr; or use npz"
    ):
        render(reconstruction(tmp_path, formats=["exr"], **KEYS))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "keys, sentence",
    [
        ({"outputs": ["flow"]}, "outputs holds 'flow', but takes some of colour, depth, normals, opacity, classes"),
        ({"outputs": []}, "outputs is empty"),
        ({"outputs": ["depth"], "formats": ["gif"]}, "gif alone, which shows the colour that outputs leaves out"),
        ({"outputs": ["depth"], "formats": ["ply"]}, "formats asks for ply, which holds points of a lidar"),
        ({"formats": ["exr"], "sensors": ["lidar"]}, "formats asks for exr, which holds images of a camera"),
        ({"formats": ["npz"]}, "formats asks for npz, which holds points of a lidar"),
    ],
)
def test_mistakes_are_sentences(tmp_path: Path, keys: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        render(reconstruction(tmp_path, **(KEYS | keys)))
    assert not list(tmp_path.iterdir())
