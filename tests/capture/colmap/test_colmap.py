# SPDX-License-Identifier: Apache-2.0
"""A reconstruction in COLMAP's layout becomes the drive that it was made from; damage is a sentence."""

import math
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mutations import bounded_memory, mutated, mutated_text, overwrite, read_or_refuse
from tiny_colmap import (
    CAMERAS,
    FRAMES,
    LENSES,
    RATE,
    SIZE,
    UNIT,
    camera,
    points,
    poses,
    rig_at,
    world_turn,
    write_project,
)

from nurec_lite.capture.check import check_capture
from nurec_lite.capture.colmap.lenses import camera_of
from nurec_lite.capture.colmap.model import MODELS, Lens, Shot
from nurec_lite.capture.colmap.names import cameras_by_name, stamped
from nurec_lite.capture.colmap.read import read_colmap
from nurec_lite.capture.types import Capture, CaptureError
from nurec_lite.config import DataConfig, ModelConfig
from nurec_lite.geometry.camera import project_points
from nurec_lite.geometry.lens import COEFFICIENTS
from nurec_lite.geometry.se3 import invert, transform
from nurec_lite.readers import open_capture, read_capture
from nurec_lite.scene.init import make_scene
from nurec_lite.scene.unmeasured import unmeasured_positions


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_project(tmp_path_factory.mktemp("colmap") / "street")


@pytest.fixture(scope="module")
def capture(whole: Path) -> Capture:
    found = read_colmap(whole, rate=RATE, unit=UNIT)
    check_capture(found, "tiny")
    return found


@pytest.fixture
def root(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "street"))


def test_cameras_sit_where_they_do(capture: Capture) -> None:
    assert [c.name for c in capture.cameras] == list(CAMERAS) and not capture.doubts and not capture.lidars
    for found in capture.cameras:
        torch.testing.assert_close(found.T_rig_cam, camera(found.name), atol=1e-6, rtol=0)
    assert capture.cameras[0].distortion == (-0.1, 0.02, 0.001, -0.002, 0.0) and capture.cameras[1].fx == 39.0
    assert capture.images[0].load().shape == (SIZE[1], SIZE[0], 3)


def test_the_rig_drives_as_it_did_in_metres_with_z_up(capture: Capture) -> None:
    for frame in capture.images:
        assert frame.time_start == pytest.approx(frame.index / RATE)
        torch.testing.assert_close(frame.T_world_rig_start, rig_at(frame.index / RATE), atol=1e-6, rtol=0)
    assert len(capture.images) == 2 * FRAMES and capture.points is not None
    torch.testing.assert_close(capture.points, points(), atol=1e-6, rtol=0)


def test_points_fall_into_images_where_they_are(capture: Capture) -> None:
    """In pixels as the reconstruction itself projects them."""
    assert capture.points is not None
    old = (points() @ world_turn()[:3, :3].T + world_turn()[:3, 3]) / UNIT
    for frame in capture.images:
        sensor = capture.camera(frame.sensor)
        pixels, depth = project_points(
            sensor, transform(invert(frame.T_world_rig_start @ sensor.T_rig_cam), capture.points)
        )
        true, _ = project_points(sensor, transform(poses()[f"{sensor.name}/{frame.index:04d}.jpg"], old))
        assert int((depth > 1).sum()) > 5
        torch.testing.assert_close(pixels[depth > 1], true[depth > 1], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(("text", "rename"), [(True, False), (False, True)])
def test_texts_and_times_as_names_are_the_same_drive(
    capture: Capture, tmp_path: Path, text: bool, rename: bool
) -> None:
    found = read_colmap(write_project(tmp_path, text, rename), rate=None if rename else RATE, unit=UNIT)
    assert [c.name for c in found.cameras] == list(CAMERAS) and not found.doubts
    for one, other in zip(found.images, capture.images, strict=True):
        assert one.time_start == pytest.approx(other.time_start, abs=1e-5) and one.index == other.index
        torch.testing.assert_close(one.T_world_rig_start, other.T_world_rig_start, atol=1e-4, rtol=0)


def test_without_a_rate_it_is_assumed_and_said(whole: Path) -> None:
    found = read_colmap(whole)
    assert found.images[1].time_start == pytest.approx(0.1) and "10 images a second" in found.doubts[0].sentence


def test_training_starts_from_the_points(whole: Path) -> None:
    config = DataConfig(
        kind="colmap", root=str(whole), rate=RATE, unit_metres=UNIT, cameras=["left", "front"], split="half"
    )
    found = open_capture(config)
    assert [c.name for c in found.cameras] == ["left", "front"] and found.points is not None
    start = unmeasured_positions(found, 300, 50.0, 0)
    near = torch.cdist(start, points()).amin(dim=1) < 1e-5
    assert len(start) == 300 and int(near.sum()) == len(points())
    scene = make_scene(found, ModelConfig(points=300, raised_points=0, far_points=10, sky_height=8), 0, "cpu")
    assert len(scene.gaussians.means) > 50


def test_a_part_of_a_drive(whole: Path) -> None:
    config = DataConfig(
        kind="colmap", root=str(whole / "sparse"), rate=RATE, cameras=["front"], seconds=[0.3, 0.9], downscale=2
    )
    found = read_capture(config)
    assert [f.index for f in found.images] == [2, 3, 4] and found.images[0].load().shape == (16, 24, 3)


# ---- lenses and names


@pytest.mark.parametrize(("model", "count"), MODELS.values())
def test_each_model_is_a_camera_or_refused_by_its_name(model: str, count: int) -> None:
    lens = Lens(3, model, 64, 48, (50.0, *[0.01 * k for k in range(1, count)])[:count])
    try:
        found = camera_of(lens, "front", torch.eye(4, dtype=torch.float64), "cameras.bin")
    except CaptureError as error:
        assert model in str(error) and "image_undistorter" in str(error)
        assert model in ("FOV", "RAD_TAN_THIN_PRISM_FISHEYE")
        return
    assert found.fx == 50.0 and (found.lens == "fisheye") == ("FISHEYE" in model)


def test_parameters_have_colmaps_order() -> None:
    opencv = camera_of(
        Lens(1, "FULL_OPENCV", 64, 48, (50, 51, 32, 24, 0.1, 0.2, 0.3, 0.4, 0.5, 0, 0, 0)), "a", torch.eye(4), "x"
    )
    assert (opencv.fx, opencv.fy, opencv.cx, opencv.cy) == (50, 51, 32, 24)
    assert opencv.distortion == (0.1, 0.2, 0.3, 0.4, 0.5)
    rational = camera_of(Lens(1, "FULL_OPENCV", 64, 48, (50, 51, 32, 24, *range(1, 9))), "a", torch.eye(4), "x")
    assert rational.distortion == tuple(range(1, 9))
    fisheye = camera_of(Lens(1, "OPENCV_FISHEYE", 64, 48, (50, 51, 32, 24, 1, 2, 3, 4)), "a", torch.eye(4), "x")
    assert (fisheye.lens, fisheye.distortion) == ("fisheye", (1, 2, 3, 4))
    prism = camera_of(Lens(1, "THIN_PRISM_FISHEYE", 64, 48, (50, 51, 32, 24, *range(1, 9))), "a", torch.eye(4), "x")
    assert dict(zip(COEFFICIENTS["fisheye"][0], prism.distortion, strict=True)) == {
        "k1": 1, "k2": 2, "p1": 3, "p2": 4, "k3": 5, "k4": 6, "s1": 7, "s3": 8,
    }  # fmt: skip
    radial = camera_of(Lens(1, "RADIAL", 64, 48, (50, 32, 24, 0.1, 0.2)), "a", torch.eye(4), "x")
    assert (radial.fx, radial.fy, radial.cx, radial.distortion) == (50, 50, 32, (0.1, 0.2, 0.0, 0.0, 0.0))


def shots(*names: str, lens: int = 1) -> list[Shot]:
    return [Shot(name, lens, (1.0, 0, 0, 0), (0.0, 0, 0)) for name in names]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (shots("front/1.jpg", "left/1.jpg", "front/2.jpg"), {"front": [0, 2], "left": [1]}),
        (shots("front_1.jpg", "left_1.jpg", "front_2.jpg"), {"front": [0, 2], "left": [1]}),
        (shots("image_02/data/01.png", "image_03/data/01.png"), {"image_02_data": [0], "image_03_data": [1]}),
        (shots("1.jpg", "2.jpg", lens=4), {"camera_4": [0, 1]}),
        (shots("a1.jpg", "a2.jpg") + shots("b1.jpg", lens=2), {"a": [0, 1], "b": [2]}),
    ],
)
def test_names_of_images_tell_cameras(given: list[Shot], named: dict[str, list[int]]) -> None:
    assert cameras_by_name(given) == named


@pytest.mark.parametrize(
    ("names", "times"),
    [
        (["1600000000.25.jpg", "1600000000.75.jpg"], [0, 0.5]),
        (["cam0_1600000000123456789.jpg", "cam0_1600000000123456999.jpg"], [0, 210e-9]),
        (["1600000000123.jpg", "1600000000323.jpg"], [0, 0.2]),
        (["0007.jpg", "0009.jpg"], [0.7, 0.9]),
    ],
)
def test_names_of_images_tell_times(names: list[str], times: list[float]) -> None:
    found = stamped(shots(*names), {"a": [0, 1]}, None, "images.bin")
    assert found.times == pytest.approx(times, abs=1e-12) and found.guessed == (names[0] == "0007.jpg")


# ---- damage


def cut(name: str, size: int) -> Callable[[Path], object]:
    return lambda root: overwrite(root / "sparse/0" / name, (root / "sparse/0" / name).read_bytes()[:size])


def put(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda root: overwrite(root / "sparse/0" / name, data)


def lens_of_model(number: int) -> bytes:
    return struct.pack("<QiiQQ12d", 1, 1, number, *SIZE, *[40.0] * 12)


def linked_to_nothing(root: Path) -> None:
    path = root / "sparse/0/points3D.bin"
    path.unlink()
    path.symlink_to("elsewhere")


FLAWS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no reconstruction": (lambda root: shutil.rmtree(root / "sparse"), "holds no reconstruction"),
    "cameras that are cut off": (cut("cameras.bin", 40), "is no file of COLMAP"),
    "images that are cut off": (cut("images.bin", 300), "is no file of COLMAP"),
    "points that are cut off": (cut("points3D.bin", 99), "is no file of COLMAP"),
    "an empty file": (put("images.bin", b""), "it is empty"),
    "billions of images": (put("images.bin", struct.pack("<Q", 1 << 40)), "claims 1099511627776 entries"),
    "no images": (put("images.bin", struct.pack("<Q", 0)), "has no image"),
    "a model that is unknown": (put("cameras.bin", lens_of_model(77)), "model of the unknown number 77"),
    "a camera without a size": (
        put("cameras.bin", struct.pack("<QiiQQ3d", 1, 1, 0, 0, 9, 1, 1, 1)),
        "has a size or parameters without meaning",
    ),
    "cameras of another one": (put("cameras.bin", lens_of_model(10)), "an image is of camera 7, which cameras.bin lacks"),
    "a camera twice": (
        put("cameras.bin", struct.pack("<Q", 2) + b"".join(struct.pack("<iiQQ3d", 7, 0, *SIZE, f, 24, 16) for f in (40, 41))),
        "camera 7 is there twice",
    ),
    "points by a link to nothing": (linked_to_nothing, "points3D.bin cannot be read"),
    "an image elsewhere": (
        lambda root: put("images.bin", (root / "sparse/0/images.bin").read_bytes().replace(b"front/0000", b"../nt/0000"))(root),
        "names the image '../nt/0000.jpg', which lies elsewhere",
    ),
    "no files": (lambda root: shutil.rmtree(root / "images"), "holds none of the 12 images"),
    "images of another size": (
        lambda root: overwrite(
            root / "sparse/0/cameras.bin",
            (root / "sparse/0/cameras.bin").read_bytes().replace(struct.pack("<Q", 48), struct.pack("<Q", 49)),
        ),
        "is 48x32 pixels, but the reconstruction is for 49x32",
    ),
}  # fmt: skip


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_flaw_is_a_sentence(root: Path, flaw: str) -> None:
    change, said = FLAWS[flaw]
    change(root)
    with pytest.raises(CaptureError) as refused:
        read_colmap(root)
    assert said in str(refused.value) and "; " in str(refused.value) and str(refused.value).isprintable()


def test_a_lens_that_is_not_read_is_named(root: Path) -> None:
    data = struct.pack("<QiiQQ5diiQQ4d", 2, 1, 7, *SIZE, *[40.0] * 5, 7, 8, *SIZE, *[40.0] * 4)
    put("cameras.bin", data)(root)
    with pytest.raises(
        CaptureError, match="camera 1 is of the model FOV, but the models that are read are SIMPLE_PINHOLE"
    ):
        read_colmap(root)


def test_a_camera_for_each_image_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "sparse/0"
    folder.mkdir(parents=True)
    lenses = "\n".join(f"{k} SIMPLE_PINHOLE 48 32 40 24 16" for k in range(5))
    (folder / "cameras.txt").write_text(lenses)
    (folder / "images.txt").write_text("\n".join(f"{k} 1 0 0 0 0 0 {k} {k} {k}.jpg\n" for k in range(5)))
    with pytest.raises(CaptureError, match="single_camera_per_folder 1"):
        read_colmap(tmp_path)


def test_images_that_are_not_there_are_a_finding(root: Path) -> None:
    (root / "images/front/0003.jpg").unlink()
    found = read_colmap(root, rate=RATE)
    assert len(found.images) == 2 * FRAMES - 1 and found.doubts[0].sentence.startswith(
        "1 image of the reconstruction is not"
    )


def test_a_name_that_no_file_system_takes_is_an_image_that_is_not_there(root: Path) -> None:
    put("images.bin", (root / "sparse/0/images.bin").read_bytes().replace(b"front/0003", b"front/" + 300 * b"3"))(root)
    assert len(read_colmap(root, rate=RATE).images) == 2 * FRAMES - 1


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_project(tmp_path_factory.mktemp("texts") / "street", text=True)


@settings(max_examples=60)
@given(st.data())
def test_a_damaged_file_is_refused_or_read(whole: Path, texts: Path, data: st.DataObject) -> None:
    place = data.draw(st.sampled_from((whole, texts)))
    path = data.draw(st.sampled_from(sorted((place / "sparse/0").iterdir())))
    before = path.read_bytes()
    overwrite(path, data.draw((mutated_text if place == texts else mutated)(before)))
    try:
        with bounded_memory(300 << 20):
            read_or_refuse(lambda: checked(place), "")
    finally:
        overwrite(path, before)


def checked(place: Path) -> None:
    check_capture(read_colmap(place, rate=RATE), place.name)


def test_lenses_are_those_of_the_sensors() -> None:
    assert {LENSES[lens][0] for lens, _ in CAMERAS.values()} == {"OPENCV", "SIMPLE_RADIAL"} and math.isclose(RATE, 5)
