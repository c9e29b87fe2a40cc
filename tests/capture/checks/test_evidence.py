# SPDX-License-Identifier: Apache-2.0
"""Small images, coarse lidars and few frames are too little evidence to call a capture wrong."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from pandaset_drive import needs_pandaset, read_pandaset
from torch import Tensor

from nurec_lite.capture.checks.alignment import fit, together, views_of
from nurec_lite.capture.checks.cameras import check_cameras
from nurec_lite.capture.checks.edges import edge_points
from nurec_lite.capture.checks.evidence import CERTAIN, evidence
from nurec_lite.capture.checks.guesses import as_said
from nurec_lite.capture.checks.ordered import ordered
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.students import students
from nurec_lite.capture.checks.verdict import Level
from nurec_lite.capture.kitti.raw import read_kitti_raw
from nurec_lite.capture.simulate import simulate
from nurec_lite.capture.simulate.world import SimulationConfig
from nurec_lite.capture.trajectory import trajectory_of
from nurec_lite.capture.types import Capture, ImageFrame
from nurec_lite.cli.command import composed
from nurec_lite.readers import open_capture

PAGE = Path(__file__).resolve().parents[3] / "docs/your-data.md"
OPENGL = torch.diag(torch.tensor([1.0, -1, -1, 1], dtype=torch.float64))
WRONG = (Level.LIKELY, Level.CERTAIN, Level.FAILED)


@pytest.fixture(scope="module")
def street() -> Capture:
    return open_capture(composed("train", ["data.downscale=2", "data.frames=[0,15]"]).data)


def levels(capture: Capture) -> list[Level]:
    return [verdict.level for verdict in check_cameras(Sample(capture))]


def example(beams: int, steps: int) -> Capture:
    """The capture that the page makes in Python, with a lidar of so many beams and steps of azimuth."""
    code = next(
        text for text in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "write_pack(" in text
    )
    changes = {
        "-0.3, 0.1, 16)": f"-0.3, 0.1, {beams})",
        "arange(16)": f"arange({beams})",
        "azimuth_steps=360": f"azimuth_steps={steps}",
        "arange(360)": f"arange({steps})",
        "+ 0.5) / 360": f"+ 0.5) / {steps}",
    }
    for old, new in changes.items():
        assert old in code
        code = code.replace(old, new)
    names: dict[str, Any] = {"__name__": "example"}
    exec(code.replace("write_pack(capture", "(capture"), names)
    capture = names["capture"]
    assert isinstance(capture, Capture)
    return capture


@pytest.mark.parametrize("size", [(8, 90), (12, 120), (16, 120)])
def test_the_capture_of_the_page_is_not_wrong_with_a_coarser_lidar(size: tuple[int, int]) -> None:
    verdicts = check_cameras(Sample(example(*size), images=None, sweeps=None))
    assert [verdict.level for verdict in verdicts] == [Level.UNKNOWN]
    assert verdicts[0].sentence == "Too few edges show the direction of front."


def test_a_slanted_wall_has_no_edges_in_a_coarse_sweep() -> None:
    """Only the car in front of the wall has edges: two in each row that meets it."""
    capture = example(16, 90)
    frame = capture.sweeps[0]
    points = edge_points(frame, ordered(frame.load()), capture.lidars[0])
    assert len(points) > 0 and (points[:, 0] < 10).all() and (points[:, 1] > 0).all()


def mounted_wrong(capture: Capture) -> Capture:
    first, *others = capture.cameras
    return replace(capture, cameras=(replace(first, T_rig_cam=first.T_rig_cam @ OPENGL), *others))


def showing(capture: Capture, image: Callable[[ImageFrame], Tensor]) -> Capture:
    frames = (replace(frame, load=partial(image, frame)) for frame in capture.images)
    return replace(capture, images=tuple(frames))


def test_images_that_are_all_the_same_are_evidence_of_one(street: Capture) -> None:
    """Their edges agree with those of the lidar in the mean, but no image agrees with its own sweep better than with the others."""
    camera, path = street.cameras[0], trajectory_of(street)
    mean = torch.stack([frame.load().float() for frame in street.images if frame.sensor == camera.name]).mean(0).byte()
    for capture, shown in ((street, True), (showing(street, lambda _: mean), False)):
        views = together(views_of(Sample(capture, None, None), camera))
        right = fit(views, as_said(camera), path)
        wrong = fit(views, as_said(mounted_wrong(street).cameras[0]), path)
        found = evidence(views, right, wrong, path)
        assert found.shows(CERTAIN) == shown and bool((found.guess.abs() < 1e-6).all()) != shown


def test_a_vehicle_that_stands_shows_one_scene_which_is_not_certain() -> None:
    still = simulate(SimulationConfig(frames=10, cameras=1, speed=0.0, width=96, height=48, samples=1))
    assert levels(still) == [Level.RIGHT] and levels(mounted_wrong(still)) == [Level.LIKELY]


def test_a_vehicle_that_drives_shows_a_wrong_mounting_in_images_of_96x48_pixels(street: Capture) -> None:
    assert sorted(level.name for level in levels(mounted_wrong(street))) == ["CERTAIN", "RIGHT"]


def test_images_of_the_frame_before_are_named_though_the_first_is_right() -> None:
    """A few images leave it open; the gain of each of more images shows it."""
    street = open_capture(composed("train", []).data)
    files = {(f.sensor, f.index): f.load for f in street.images}
    late = tuple(replace(f, load=files[f.sensor, max(0, f.index - 1)]) for f in street.images)
    found = check_cameras(Sample(replace(street, images=late)))
    assert found[0].level is Level.LIKELY and "0.10 s (1 frame) earlier than their stamps say" in found[0].text


def test_few_values_need_more_standard_errors() -> None:
    """Quantiles of Student's distribution from its table, at the probability 0.975."""
    for freedom, quantile in ((5, 2.571), (7, 2.365), (10, 2.228), (30, 2.042)):
        assert students(1.95996, freedom) == pytest.approx(quantile, abs=4e-3)


# ---- real drives


def first_moments(capture: Capture, count: int) -> Capture:
    def some(sensor: str) -> list[ImageFrame]:
        return [frame for frame in capture.images if frame.sensor == sensor][:count]

    images = [frame for camera in capture.cameras for frame in some(camera.name)]
    return replace(capture, images=tuple(images), sweeps=capture.sweeps[:count])


@pytest.mark.slow
@needs_pandaset
@pytest.mark.parametrize("moments", [6, 7])
def test_seven_moments_of_pandaset_in_small_images_are_not_wrong(moments: int) -> None:
    """Edges of its back camera lie by chance on a pattern that all of its images have, if it has the vehicle's axes."""
    capture = read_pandaset(cameras=("back_camera",), downscale=8)
    assert not set(levels(first_moments(capture, moments))) & set(WRONG)


@pytest.mark.slow
@pytest.mark.parametrize("frames", [range(7), range(20, 28)])
def test_kitti_in_images_of_103x31_pixels_is_not_wrong(kitti_root: Path, frames: range) -> None:
    poses = kitti_root / "extra" / "poses_velo.txt"
    capture = read_kitti_raw(kitti_root, downscale=12, poses_file=poses, frames=frames)
    assert not set(levels(capture)) & set(WRONG)
