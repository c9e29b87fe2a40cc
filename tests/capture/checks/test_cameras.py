# SPDX-License-Identifier: Apache-2.0
"""Cameras that do not look where, when or how the capture says, each with the guess that is right. None of a capture that is right."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

import pytest
import torch
from pandaset_drive import needs_pandaset, read_pandaset
from torch import Tensor

from nurec_lite.capture.checks.alignment import Fit
from nurec_lite.capture.checks.cameras import _guessed, check_cameras
from nurec_lite.capture.checks.guesses import as_said, clocks
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.kitti.calibration import read_rigid
from nurec_lite.capture.kitti.raw import read_kitti_raw
from nurec_lite.capture.simulate import simulate
from nurec_lite.capture.simulate.world import SimulationConfig
from nurec_lite.capture.trajectory import trajectory_of
from nurec_lite.capture.types import Capture, ImageFrame, SweepFrame
from nurec_lite.cli.command import composed
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.se3 import invert
from nurec_lite.readers import open_capture

Odd = Callable[[Capture], Capture]
DOUBTS = (Level.LIKELY, Level.CERTAIN, Level.FAILED)


def kept(capture: Capture) -> Capture:
    """Its frames are decoded once."""
    images = tuple(replace(frame, load=lru_cache(frame.load)) for frame in capture.images)
    return replace(capture, images=images, sweeps=tuple(replace(f, load=lru_cache(f.load)) for f in capture.sweeps))


@lru_cache(maxsize=2)
def street(*keys: str) -> Capture:
    return kept(open_capture(composed("train", list(keys)).data))


SMALL = ("data.downscale=3", "data.frames=[0,20]")


def doubts(capture: Capture) -> list[Verdict]:
    return [verdict for verdict in check_cameras(Sample(capture)) if verdict.level in DOUBTS]


# ---- wrong captures


def cameras(change: Callable[[Camera], Camera], which: slice = slice(None)) -> Odd:
    def odd(capture: Capture) -> Capture:
        chosen = capture.cameras[which]
        return replace(capture, cameras=tuple(change(c) if c in chosen else c for c in capture.cameras))

    return odd


def mounted(change: Callable[[Tensor], Tensor], which: slice = slice(None)) -> Odd:
    return cameras(lambda camera: replace(camera, T_rig_cam=change(camera.T_rig_cam)), which)


def about_z(degrees: float) -> Tensor:
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return torch.tensor([[c, -s, 0, 0], [s, c, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], dtype=torch.float64)


def looking(degrees: float) -> Callable[[Tensor], Tensor]:
    """Returns a change of a mounting: the same place, turned farther left."""
    return lambda T: torch.cat([(about_z(degrees) @ T)[:, :3], T[:, 3:]], dim=1)


def scaled(k: float) -> Callable[[Camera], Camera]:
    return lambda c: replace(c, fx=c.fx * k, fy=c.fy * k, cx=c.cx * k, cy=c.cy * k)


def exchanged(capture: Capture) -> Capture:
    a, b = capture.cameras
    return replace(capture, cameras=(replace(a, T_rig_cam=b.T_rig_cam), replace(b, T_rig_cam=a.T_rig_cam)))


def stamped(seconds: float, all_of_them: bool = False) -> Odd:
    """Images of the first camera, or of all, have stamps and poses of another time."""

    def odd(capture: Capture) -> Capture:
        path, first = trajectory_of(capture), capture.cameras[0].name

        def late(frame: ImageFrame) -> ImageFrame:
            if frame.sensor != first and not all_of_them:
                return frame
            start, end = frame.time_start + seconds, frame.time_end + seconds
            poses = (path.at(start), path.at(end))
            return replace(frame, time_start=start, time_end=end, T_world_rig_start=poses[0], T_world_rig_end=poses[1])

        return replace(capture, images=tuple(map(late, capture.images)))

    return odd


def shown(change: Callable[[Tensor], Tensor]) -> Odd:
    """Images of the first camera."""

    def odd(capture: Capture) -> Capture:
        first = capture.cameras[0].name

        def changed(frame: ImageFrame) -> ImageFrame:
            return replace(frame, load=lambda: change(frame.load())) if frame.sensor == first else frame

        return replace(capture, images=tuple(map(changed, capture.images)))

    return odd


FIRST = slice(1)
OPENGL = torch.diag(torch.tensor([1.0, -1, -1, 1], dtype=torch.float64))
OPTICAL = torch.tensor([[0, 0, 1, 0], [-1, 0, 0, 0], [0, -1, 0, 0], [0, 0, 0, 1]], dtype=torch.float64)
WRONG: dict[str, tuple[Odd, str]] = {  # the mistake, and the sentence
    "OpenGL": (mounted(lambda T: T @ OPENGL), "has the axes of OpenGL"),
    "inverted": (mounted(invert), "the mounting is the inverse"),
    "inverted, one": (mounted(invert, FIRST), "the mounting is the inverse"),
    "vehicle's axes": (mounted(lambda T: T @ invert(OPTICAL)), "has the vehicle's axes"),
    "looks backwards": (mounted(looking(180), FIRST), "looks backwards"),
    "looks left": (mounted(looking(90), FIRST), "looks 90° farther right"),
    "looks right": (mounted(looking(-90), FIRST), "looks 90° farther left"),
    "looks aside": (mounted(looking(8), FIRST), "looks 8° farther right"),
    "on its head": (mounted(lambda T: T @ about_z(180), FIRST), "on its head"),
    "on its side": (mounted(lambda T: T @ about_z(90), FIRST), "on its right side"),
    "exchanged": (exchanged, "camera_0 and camera_1 are exchanged"),
    "three times as large": (cameras(scaled(3)), "of an image 3 times as large"),
    "1.5 times as large": (cameras(scaled(1.5)), "of an image 1.5 times as large"),
    "fy": (cameras(lambda c: replace(c, fy=2 * c.fy)), "fy is as large as fx"),
    "centimetres": (mounted(lambda T: torch.cat([T[:, :3], T[:, 3:] * torch.tensor([[100.0], [100], [100], [1]])], 1)),
                    "in centimetres"),
    "10 frames late": (stamped(1.0), "1.00 s (10 frames) earlier than their stamps say"),
    "half as large": (cameras(scaled(0.5)), "of an image 1/2 as large"),
    "cx and cy": (cameras(lambda c: replace(c, cx=c.cy, cy=c.cx)), "cx and cy are exchanged"),
    "cx and fx": (cameras(lambda c: replace(c, fx=c.cx, fy=c.cy, cx=c.fx, cy=c.fy)), "stand where fx and fy belong"),
    "twice the focal length": (cameras(lambda c: replace(c, fx=2 * c.fx, fy=2 * c.fy)), "fx and fy are 0.5 times"),
    "mirrored": (shown(lambda image: image.flip(1)), "the images are mirrored"),
    "upside down": (shown(lambda image: image.flip(0, 1)), "on its head"),
    "top to bottom": (shown(lambda image: image.flip(0)), "upside down and mirrored"),
    "3 frames late": (stamped(0.3), "0.30 s (3 frames) earlier than their stamps say"),
    "3 frames early": (stamped(-0.3), "0.30 s (3 frames) later than their stamps say"),
    "2 frames late": (stamped(0.2), "0.20 s (2 frames) earlier"),
    "1 frame late": (stamped(0.1), "0.10 s (1 frame) earlier"),
    "all late": (stamped(0.3, all_of_them=True), "camera_0 and camera_1 if the images were taken 0.30 s (3 frames) earlier"),
}  # fmt: skip


def test_a_place_that_is_missing_is_named_where_a_place_agrees_best() -> None:
    odd = mounted(lambda T: torch.cat([T[:, :3], torch.eye(4, dtype=torch.float64)[:, 3:]], 1), FIRST)
    (verdict,) = doubts(odd(street()))
    assert "if its place in the mounting, which is (0, 0, 0), is missing (contrast" in verdict.sentence
    assert verdict.remedy == "give its place in T_rig_cam"


def test_a_place_that_may_be_missing_is_named_beside_a_guess_that_agrees_as_well() -> None:
    camera = replace(street().cameras[0], T_rig_cam=torch.eye(4, dtype=torch.float64))
    fits = [Fit(guess, torch.full((8,), 0.1), 0.0, 900) for guess in (as_said(camera), clocks(camera, 0.1)[0])]
    found = _guessed(camera, *fits, Level.LIKELY)
    assert "their stamps say, or its place in the mounting, which is (0, 0, 0), is missing" in found.sentence
    assert found.remedy == "give its place in T_rig_cam, or correct its time stamps"


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_named(case: str) -> None:
    odd, sentence = WRONG[case]
    (verdict,) = doubts(odd(street()))
    assert verdict.level is Level.CERTAIN and sentence in verdict.sentence and verdict.remedy is not None
    assert (verdict.corrected is not None and "mirrored" in sentence) or doubts(verdict.corrected(odd(street()))) == []


def test_a_principal_point_in_the_corner_is_wrong() -> None:
    (verdict,) = doubts(cameras(lambda c: replace(c, cx=0.0, cy=0.0))(street()))
    assert verdict.level is Level.CERTAIN and "The principal point of camera_0 and camera_1, (0, 0)" in verdict.sentence


@pytest.mark.parametrize(
    "case", ["OpenGL", "vehicle's axes", "looks backwards", "three times as large", "3 frames late"]
)
def test_images_of_64x32_pixels_tell_it(case: str) -> None:
    odd, sentence = WRONG[case]
    first, *others = doubts(odd(street(*SMALL)))
    assert first.level is Level.CERTAIN and all(sentence in verdict.sentence for verdict in (first, *others))


def test_the_sentence_has_figures_and_a_remedy() -> None:
    (verdict,) = doubts(WRONG["OpenGL"][0](street()))
    assert verdict.text == (
        "Edges of the lidar agree with those of the images of camera_0 and camera_1 if the mounting has the axes of OpenGL "
        "(x right, y up, z back) (contrast 0.20), not as the capture says (0.01); "
        "multiply T_rig_cam by diag(1, -1, -1, 1) from the right."
    )


def tilted(degrees: float, T: Tensor) -> Tensor:
    """Looks so much farther down."""
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return T @ torch.tensor([[1, 0, 0, 0], [0, c, s, 0], [0, -s, c, 0], [0, 0, 0, 1]], dtype=torch.float64)


def moved(x: float, y: float, z: float, T: Tensor) -> Tensor:
    return torch.cat([T[:, :3], T[:, 3:] + torch.tensor([[x], [y], [z], [0.0]], dtype=torch.float64)], dim=1)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (partial(tilted, 8), "camera_0 if the camera looks 8° farther up "),
        (lambda T: T @ about_z(6), "camera_0 if the camera is turned 6° about its view, counter-clockwise "),
        (partial(tilted, 3), "camera_0 if the camera looks 3° farther up "),
        (partial(moved, 0, -1.5, 0), "camera_0 if the camera sits 1.5 m farther left "),
        (partial(moved, 1.5, 0, 0), "earlier than their stamps say, or the camera sits 1.5 m farther back "),
    ],
)
def test_a_mounting_that_is_off_by_some_amount_is_named(change: Callable[[Tensor], Tensor], sentence: str) -> None:
    (verdict,) = doubts(mounted(change, FIRST)(street()))
    assert verdict.level is Level.CERTAIN and sentence in verdict.sentence
    assert verdict.remedy is not None and "correct its mounting" in verdict.remedy


@pytest.mark.parametrize(("factor", "sentence"), [(1.2, "0.84 times"), (0.85, "1.19 times")])
def test_a_focal_length_that_is_off_by_some_amount_is_named(factor: float, sentence: str) -> None:
    """Edges agree a little as the capture says, and with a wrong clock a little more."""
    (verdict,) = doubts(cameras(lambda c: replace(c, fx=factor * c.fx, fy=factor * c.fy))(street()))
    assert verdict.level is Level.CERTAIN and verdict.subject == "camera_0, camera_1"
    assert f"if fx and fy are {sentence} those of the capture" in verdict.sentence


# ---- right and uncertain captures


def levels(capture: Capture) -> list[Level]:
    return [verdict.level for verdict in check_cameras(Sample(capture))]


def test_the_street_is_right() -> None:
    assert levels(street()) == [Level.RIGHT]


@pytest.mark.portable
@pytest.mark.parametrize("keys", [SMALL, ("data.downscale=2",), ("data.downscale=4",)])
def test_the_street_in_small_images_is_not_wrong(keys: tuple[str, ...]) -> None:
    assert doubts(street(*keys)) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
def test_other_streets_are_right(seed: int) -> None:
    assert doubts(simulate(SimulationConfig(seed=seed, samples=1))) == []


@pytest.mark.slow
def test_cameras_to_the_sides_of_a_fast_vehicle_are_right() -> None:
    """Rows that are read one after another shear the view to the side as much as a turn about it by 6 degrees."""
    config = SimulationConfig(seed=384, samples=1, cameras=4, frames=20, speed=25.0, azimuth_steps=800, parked_cars=5)
    assert doubts(simulate(config)) == []


@pytest.mark.slow
@pytest.mark.parametrize("downscale", [1, 2, 4, 6, 8])
def test_kitti_is_right(kitti_root: Path, downscale: int) -> None:
    poses = kitti_root / "extra" / "poses_velo.txt"
    assert set(levels(read_kitti_raw(kitti_root, downscale=downscale, poses_file=poses))) <= {
        Level.RIGHT,
        Level.UNKNOWN,
    }


@pytest.mark.slow
@needs_pandaset
def test_pandaset_is_right() -> None:
    assert set(levels(read_pandaset())) <= {Level.RIGHT, Level.UNKNOWN}


def test_a_camera_that_no_lidar_sees_is_unknown() -> None:
    """A lidar that looks ahead, and a camera that looks back."""
    capture = street()

    def ahead(frame: SweepFrame) -> SweepFrame:
        return replace(frame, load=lambda: (sweep := frame.load()).select(sweep.directions[:, 0] > 0.6))

    odd = mounted(lambda T: about_z(180) @ T, FIRST)(replace(capture, sweeps=tuple(map(ahead, capture.sweeps))))
    images = [replace(f, load=lambda: torch.zeros(96, 192, 3, dtype=torch.uint8)) for f in odd.images]
    first, _ = check_cameras(Sample(replace(odd, images=tuple(images))))
    assert first.level is Level.UNKNOWN and first.sentence == "No lidar point falls into the images of camera_0."


@pytest.mark.parametrize(("lacks", "said"), [("images", "There are no images to hold"), ("sweeps", "Without a lidar")])
def test_a_drive_of_one_kind_of_sensor_says_so(lacks: str, said: str) -> None:
    (verdict,) = check_cameras(Sample(replace(street(), **{lacks: ()})))
    assert verdict.level is Level.UNKNOWN and verdict.sentence.startswith(said)


@pytest.mark.filterwarnings("error")
def test_images_of_one_pixel_tell_nothing() -> None:
    capture = street(*SMALL)
    images = tuple(replace(f, load=lambda f=f: f.load()[:1, :1].contiguous()) for f in capture.images)
    one = replace(capture, cameras=tuple(c.resized(1, 1) for c in capture.cameras), images=images)
    assert doubts(one) == []


def test_images_of_one_colour_tell_nothing() -> None:
    assert doubts(shown(lambda image: torch.full_like(image, 255))(street())) == []


def test_cameras_are_not_blamed_where_poses_are() -> None:
    sample = Sample(WRONG["3 frames late"][0](street()))
    sample.found.append(Verdict("poses and sweeps", "street", Level.CERTAIN, "The poses are inverted."))
    (verdict,) = check_cameras(sample)
    assert verdict.level is Level.UNKNOWN and verdict.subject == "camera_0, camera_1"


# ---- KITTI's files


def copied(kitti_root: Path, folder: Path) -> tuple[Path, Path]:
    """Links to 20 frames of the drive, and copies of its text. The folder, and that of the drive's date."""
    drive = "2011_09_26/2011_09_26_drive_0009_sync"
    for path in (kitti_root / "2011_09_26").rglob("*"):
        copy = folder / path.relative_to(kitti_root)
        if path.is_file() and (path.parent.name != "data" or int(path.stem) < 20):
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.symlink_to(path) if path.parent.name == "data" else copy.write_bytes(path.read_bytes())
    return folder, folder / drive


def of_kitti(root: Path, kitti_root: Path) -> list[Verdict]:
    poses = kitti_root / "extra" / "poses_velo.txt"
    return doubts(read_kitti_raw(root, downscale=6, poses_file=poses, frames=range(20)))


def test_an_inverted_file_of_kitti_is_named(kitti_root: Path, tmp_path: Path) -> None:
    root, drive = copied(kitti_root, tmp_path)
    path = drive.parent / "calib_velo_to_cam.txt"
    T = invert(read_rigid(path))
    rows = {"R": T[:3, :3].flatten().tolist(), "T": T[:3, 3].tolist()}
    path.write_text("".join(f"{key}: {' '.join(map(str, row))}\n" for key, row in rows.items()))
    (verdict,) = of_kitti(root, kitti_root)
    assert verdict.level is Level.CERTAIN and "calib_velo_to_cam.txt holds the inverse" in verdict.sentence


def test_exchanged_files_of_kitti_are_named(kitti_root: Path, tmp_path: Path) -> None:
    root, drive = copied(kitti_root, tmp_path)
    a, b = (drive.parent / name for name in ("calib_velo_to_cam.txt", "calib_imu_to_velo.txt"))
    texts = b.read_text(), a.read_text()
    a.write_text(texts[0])
    b.write_text(texts[1])
    (verdict,) = of_kitti(root, kitti_root)
    assert verdict.level is Level.CERTAIN
    assert verdict.remedy == "exchange the contents of calib_velo_to_cam.txt and calib_imu_to_velo.txt"


def test_stamps_of_kitti_that_were_lost_at_the_start_are_named(kitti_root: Path, tmp_path: Path) -> None:
    root, drive = copied(kitti_root, tmp_path)
    path = drive / "image_02" / "timestamps.txt"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[3:]))
    (verdict,) = of_kitti(root, kitti_root)
    assert verdict.level is Level.CERTAIN and verdict.subject == "image_02" and "(3 frames) earlier" in verdict.sentence
