# SPDX-License-Identifier: Apache-2.0
"""Images and lenses of a recording: encodings, mosaics, and the coefficients of each lens."""

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tiny_bag import START, Recording, stamp_of
from tiny_capture import tiny_capture

from nurec_lite.capture.rosbag.cameras import camera_of, intrinsics_of, lens_of
from nurec_lite.capture.rosbag.images import BAYER, demosaiced, pixels_of
from nurec_lite.capture.rosbag.library import IMAGE
from nurec_lite.capture.rosbag.mapping import CameraEntry, Intrinsics
from nurec_lite.capture.rosbag.read import read_rosbag
from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.camera import project_points

CAPTURE = tiny_capture()
ENTRY = CameraEntry("front", "/images", "/info")


def recording(**kinds: object) -> Recording:
    return Recording(CAPTURE).images(**kinds).mountings().odometry()  # type: ignore[arg-type]


@pytest.mark.parametrize("encoding", ["rgb8", "bgr8", "mono8", *BAYER])
def test_raw_images_keep_their_pixels(encoding: str, tmp_path: Path) -> None:
    read = read_rosbag(recording(compressed=None, encoding=encoding).write(tmp_path / "bag", "mcap"), downscale=1)
    true = next(f for f in CAPTURE.images if f.sensor == "camera_0").load()
    image = read.images[0].load()
    assert image.shape == true.shape and read.images[0].encoded() is None
    if encoding == "mono8":
        assert torch.equal(image, true[..., 1:2].expand_as(true))
    elif encoding in BAYER:
        for k, colour in enumerate(BAYER[encoding]):  # where the filter lets a colour through, it is known
            own = (
                image[k // 2 :: 2, k % 2 :: 2, "rgb".index(colour)].int()
                - true[k // 2 :: 2, k % 2 :: 2, "rgb".index(colour)].int()
            )
            assert float(own.abs().float().mean()) < 12  # the kernel smooths
    else:
        assert torch.equal(image, true)


def test_a_mosaic_of_one_colour_is_that_colour() -> None:
    mosaic = torch.empty(6, 8, dtype=torch.uint8)
    for k, colour in enumerate("grbg"):
        mosaic[k // 2 :: 2, k % 2 :: 2] = {"r": 200, "g": 120, "b": 40}[colour]
    assert torch.equal(demosaiced(mosaic, "grbg"), torch.tensor([200, 120, 40], dtype=torch.uint8).expand(6, 8, 3))


def message_of(encoding: str, data: np.ndarray, channels: int, bigendian: int = 0) -> SimpleNamespace:
    height, width = data.shape[0], data.shape[1] // channels
    pixels = np.frombuffer(data.tobytes(), np.uint8)
    step = len(pixels) // height
    return SimpleNamespace(
        encoding=encoding, height=height, width=width, step=step, is_bigendian=bigendian, data=pixels
    )


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(("encoding", "places"), [("mono16", (0, 0, 0)), ("rgb16", (0, 1, 2)), ("bgra16", (2, 1, 0))])
def test_two_bytes_a_channel_become_one(encoding: str, places: tuple[int, ...], order: str) -> None:
    channels = {"mono16": 1, "rgb16": 3, "bgra16": 4}[encoding]
    true = np.random.default_rng(0).integers(0, 65536, (5, 7 * channels)).astype(order + "u2")
    image = pixels_of(message_of(encoding, true, channels, int(order == ">")), "here")
    high = (true.astype(int) // 256).reshape(5, 7, channels)[..., list(places)]
    assert np.array_equal(image.numpy(), high)


def test_a_mosaic_of_two_bytes_is_that_of_their_high_ones() -> None:
    mosaic = np.random.default_rng(0).integers(0, 256, (6, 8)).astype("u1")
    wide = pixels_of(message_of("bayer_grbg16", mosaic.astype("<u2") * 256 + 17, 1), "here")
    assert torch.equal(wide, demosaiced(torch.from_numpy(mosaic), "grbg"))


@pytest.mark.parametrize(
    ("encoding", "order"), [("yuv422", [1, 0, 2, 0]), ("UYVY", [1, 0, 2, 0]), ("yuv422_yuy2", [0, 1, 0, 2])]
)
@pytest.mark.parametrize("width", [2, 6])
def test_pairs_of_pixels_share_their_colour(encoding: str, order: list[int], width: int) -> None:
    """Red and grey of BT.601."""
    for yuv, rgb in (((81, 90, 240), (254, 0, 0)), ((126, 128, 128), (128, 128, 128))):
        row = np.array([yuv[k] for k in order] * width, np.uint8)[: 2 * width]
        image = pixels_of(message_of(encoding, np.tile(row, (3, 1)), 2), "here")
        assert image.shape == (3, width, 3)
        assert (image.int() - torch.tensor(rgb)).abs().max() <= 1


def test_half_a_pair_of_pixels_is_damage() -> None:
    with pytest.raises(CaptureError, match="is 5 pixels wide, but yuv422 has pairs"):
        pixels_of(message_of("yuv422", np.zeros((3, 10), np.uint8), 2), "here")


def test_jpeg_stays_jpeg(tmp_path: Path) -> None:
    read = read_rosbag(recording(compressed="jpeg").write(tmp_path / "bag", "mcap"), downscale=2)
    encoded = read.images[0].encoded()
    assert encoded is not None and encoded.data.startswith(b"\xff\xd8") and encoded.downscale == 2
    assert read.images[0].load().shape == (12, 20, 3) and (read.cameras[0].width, read.cameras[0].height) == (20, 12)


def lens(model: str, *D: float) -> Intrinsics:
    return lens_of(Intrinsics(320, 200, 260.0, 262.0, 158.3, 101.2, model, D), "here")


@pytest.mark.parametrize(
    ("given", "count"),
    [
        (lens("plumb_bob"), 0),
        (lens("plumb_bob", -0.3, 0.1, 0.001, -0.002), 5),
        (lens("rational_polynomial", -0.3, 0.1, 0.001, 0, 0.01, 0, 0, 0), 5),
        (lens("rational_polynomial", 0.4, -0.2, 0.001, -0.002, 0.01, 0.7, -0.1, 0.02), 8),
        (lens("rational_polynomial", 0.4, -0.2, 0.001, -0.002, 0.01, 0.7, -0.1, 0.02, 1e-3, 0, 0, 1e-3, 0, 0), 12),
        (lens("equidistant", -0.03, 0.01, -0.004, 0.001), 4),
    ],
)
def test_lenses_keep_the_coefficients_that_count(given: Intrinsics, count: int) -> None:
    camera = camera_of(ENTRY, given, torch.eye(4, dtype=torch.float64))
    assert len(camera.distortion) == count and (camera.lens == "fisheye") == (given.model == "equidistant")


def test_pixels_of_a_rational_polynomial_are_opencv_s() -> None:
    k1, k2, p1, p2, k3, k4, k5, k6 = D = (0.4, -0.2, 0.001, -0.002, 0.01, 0.7, -0.1, 0.02)
    camera = camera_of(ENTRY, lens("rational_polynomial", *D), torch.eye(4, dtype=torch.float64))
    x, y = 0.3, -0.2
    r2 = x * x + y * y
    radial = (1 + k1 * r2 + k2 * r2**2 + k3 * r2**3) / (1 + k4 * r2 + k5 * r2**2 + k6 * r2**3)
    u = x * radial + 2 * p1 * x * y + p2 * (r2 + 2 * x * x)
    v = y * radial + p1 * (r2 + 2 * y * y) + 2 * p2 * x * y
    pixels, _ = project_points(camera, torch.tensor([[x, y, 1.0]], dtype=torch.float64))
    assert pixels[0].tolist() == pytest.approx([260 * u + 158.3 + 0.5, 262 * v + 101.2 + 0.5])


def test_a_fisheye_recording_keeps_its_images_and_its_lens(tmp_path: Path) -> None:
    made = Recording(CAPTURE).images(info=False).mountings().odometry()
    for camera in CAPTURE.cameras:
        made.info(f"/{camera.name}/camera_info", START, camera, "equidistant", (0.01, 0.0, 0.0, 0.0))
    read = read_rosbag(made.write(tmp_path / "bag", "mcap"), downscale=2)
    camera, true = read.cameras[0], CAPTURE.cameras[0]
    assert (camera.lens, camera.distortion) == ("fisheye", (0.01, 0.0, 0.0, 0.0))
    assert read.images[0].load().shape == (12, 20, 3) and read.images[0].encoded() is not None
    pixels, _ = project_points(camera, torch.tensor([[1.0, 0.0, 1.0]], dtype=torch.float64))  # 45 degrees to the right
    angle = math.pi / 4
    assert float(pixels[0, 0]) == pytest.approx(0.5 * (true.fx * angle * (1 + 0.01 * angle**2) + true.cx))


def info(**values: object) -> SimpleNamespace:
    roi = SimpleNamespace(x_offset=0, y_offset=0, width=0, height=0)
    K, P = [300.0, 0, 100, 0, 310, 80, 0, 0, 1], [290.0, 0, 98, 0, 0, 295, 79, 0, 0, 0, 1, 0]
    known = {"width": 640, "height": 480, "distortion_model": "plumb_bob", "d": [0.1] * 5, "k": K, "p": P}
    known |= {"binning_x": 0, "binning_y": 0, "roi": roi}
    return SimpleNamespace(**known | values)


def test_rectified_images_are_those_of_the_projection_matrix() -> None:
    found = intrinsics_of(info(), CameraEntry("front", "/images", "/info", rectified=True), "here")
    assert (found.fx, found.cy, found.distortion) == (290.0, 79.0, ())


def test_binning_and_regions_move_the_principal_point() -> None:
    region = SimpleNamespace(x_offset=20, y_offset=10, width=320, height=240)
    found = intrinsics_of(info(binning_x=2, binning_y=2, roi=region), ENTRY, "here")
    assert (found.width, found.height, found.fx) == (160, 120, 150.0)
    assert found.cx == pytest.approx((100 - 20 + 0.5) / 2 - 0.5) and found.cy == pytest.approx(
        (80 - 10 + 0.5) / 2 - 0.5
    )


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"k": [300.0, 0, 0, 0, 300.0, 0, 0, 0, 1]}, r"its centre is 0, 0, .*; give cameras\.front\.intrinsics"),
        ({"d": [float("nan")] * 5}, r"its coefficients are nan, .*; give cameras\.front\.intrinsics"),
        ({"width": 0, "height": 0}, r"has no size \(it is 0x0 pixels\); give cameras\.front\.intrinsics"),
        ({"k": [0.0] * 9}, r"has no calibration .*; give cameras\.front\.intrinsics"),
        (
            {"distortion_model": "double_sphere"},
            r"has the distortion model 'double_sphere', but .*; rectify the images",
        ),
    ],
)
def test_what_cannot_be_used_is_named(values: dict[str, object], sentence: str) -> None:
    with pytest.raises(CaptureError, match=sentence):
        intrinsics_of(info(**values), ENTRY, "here: /info")


@pytest.mark.parametrize(("model", "count"), [("rational_polynomial", 14), ("equidistant", 5)])
def test_coefficients_that_no_lens_has_are_named(model: str, count: int) -> None:
    """A tilted sensor has such coefficients."""
    with pytest.raises(CaptureError, match=rf"has {count} coefficients, but {model} has .*; rectify the images"):
        lens_of(Intrinsics(8, 8, 1, 1, 0, 0, model, (0.1,) * count), "here")


@pytest.mark.parametrize(
    ("encoding", "step", "sentence"),
    [
        ("16UC1", 80, r"holds images of the encoding '16UC1', but the encodings that are read are rgb8"),
        ("rgb8", 60, r"claims 40x24 pixels in rows of 60 bytes"),
    ],
)
def test_images_that_cannot_be_read(encoding: str, step: int, sentence: str, tmp_path: Path) -> None:
    made = recording()
    made.rows = [row for row in made.rows if "image_raw" not in row[1]]
    for frame in CAPTURE.images:
        stamp = stamp_of(frame.time_mid)
        header = made.header(stamp, f"{frame.sensor}_optical")
        message = made.make(IMAGE, header=header, height=24, width=40, encoding=encoding, is_bigendian=0, step=step,
                            data=np.zeros(24 * step, np.uint8))  # fmt: skip
        made.add(f"/{frame.sensor}/image_raw", IMAGE, stamp, message)
    path = made.write(tmp_path / "bag", "mcap")
    (tmp_path / "m.yaml").write_text(
        "cameras: {a: {images: /camera_0/image_raw, info: /camera_0/camera_info}}\nposes: {topic: /odom}\n"
    )
    with pytest.raises(CaptureError, match=sentence):
        read_rosbag(path, mapping=tmp_path / "m.yaml").images[0].load()
