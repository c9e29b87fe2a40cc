# SPDX-License-Identifier: Apache-2.0
"""Edges of sweeps on edges of images: turns of 0.3 degrees and clocks 20 ms off are found in the bundled street. An edge of its lidar lies
within half a degree, an image's within a pixel of as much: the mean of some thousands of them tells a tenth of that."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from odd_captures import (
    that_stood_first,
    with_a_camera_turned,
    with_a_late_camera,
    with_the_lidar_turned,
    without_lidar,
)
from tiny_capture import tiny_capture

from nurec_lite.capture.checks import agreement as near_by
from nurec_lite.capture.checks import cameras
from nurec_lite.capture.checks.agreement import SECONDS, VIEWS, Agreement, agreement
from nurec_lite.capture.checks.alignment import views_of
from nurec_lite.capture.checks.cameras import check_cameras
from nurec_lite.capture.checks.edges import View, edge_points, image_edges, ranks
from nurec_lite.capture.checks.fine import LATE, LATE_FIGURE, TURNED, TURNED_FIGURE
from nurec_lite.capture.checks.ordered import ordered
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level
from nurec_lite.capture.trajectory import Velocities
from nurec_lite.capture.types import Capture, ImageFrame, SweepFrame
from nurec_lite.cli.command import composed
from nurec_lite.geometry.lidar import Lidar, Sweep, unit_directions
from nurec_lite.readers import open_capture

IMAGES = 24  # at most


@pytest.fixture(scope="module")
def street() -> Capture:
    return open_capture(composed("train", []).data)


def found(capture: Capture, camera: int) -> Agreement:
    images = [frame for frame in capture.images if frame.sensor == capture.cameras[camera].name]
    some = replace(capture, images=tuple(images[:: -(-len(images) // IMAGES)]))
    views = views_of(Sample(some, images=None, sweeps=None), capture.cameras[camera])
    result = agreement(capture, capture.cameras[camera], views)
    assert result is not None
    return result


def disagreements(capture: Capture) -> tuple[list[str], list[str]]:
    """Sentences about cameras that are turned, and about clocks."""
    verdicts = [v for v in check_cameras(Sample(capture)) if v.level in (Level.LIKELY, Level.CERTAIN)]
    return [v.sentence for v in verdicts if TURNED_FIGURE in v.figures], [
        v.sentence for v in verdicts if LATE_FIGURE in v.figures
    ]


def test_a_capture_without_mistakes_has_none(street: Capture) -> None:
    for camera in range(2):
        own = found(street, camera)
        assert abs(own.degrees) < 0.05 and own.degrees_error < 0.05
        assert abs(own.seconds) < LATE and own.seconds_error < 0.003
    assert disagreements(street) == ([], [])


def test_a_camera_that_is_turned(street: Capture) -> None:
    """It says that it looks 0.3 degrees farther right than it does."""
    odd = with_a_camera_turned(street)
    assert found(odd, 0).degrees == pytest.approx(0.3, abs=0.08)
    (sentence,), late = disagreements(odd)
    assert sentence.startswith("The lidar shows camera_0 about 0.")
    assert sentence.endswith("° farther left than the capture says.")
    assert late == []


def test_a_lidar_that_is_turned(street: Capture) -> None:
    odd = with_the_lidar_turned(street)
    assert [found(odd, k).degrees for k in range(2)] == pytest.approx([0.3, 0.3], abs=0.08)
    doubts = [v for v in check_cameras(Sample(odd)) if v.level is Level.LIKELY]
    assert ", ".join(v.subject for v in doubts) == "camera_0, camera_1"
    assert all(v.figures[TURNED_FIGURE] == pytest.approx(0.3, abs=0.08) for v in doubts)


def test_a_clock_that_is_off(street: Capture) -> None:
    odd = with_a_late_camera(street)
    assert found(odd, 1).seconds - found(street, 1).seconds == pytest.approx(-0.02, abs=0.004)
    turned, (sentence,) = disagreements(odd)
    assert (
        turned == []
        and sentence.startswith("The clock of camera_1 is about 2")
        and sentence.endswith(" ms ahead of the lidar's.")
    )


def test_a_vehicle_that_stands_tells_no_time(street: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near_by, "FASTEST", 1e3)
    own = found(with_a_late_camera(street), 1)
    assert own.seconds == 0 and own.seconds_error == math.inf
    assert abs(own.degrees) < 0.05


@pytest.mark.parametrize("standing", [1, 12])
def test_a_vehicle_that_stands_and_drives(street: Capture, standing: int) -> None:
    """Images taken while it stands tell turns, those taken while it drives tell turns and times."""
    odd = that_stood_first(first_moments(street, 20), standing)
    assert disagreements(odd) == ([], [])
    late = found(with_a_late_camera(odd), 1)
    assert late.seconds - found(odd, 1).seconds == pytest.approx(-0.02, abs=0.005) and late.seconds_error < 0.005
    assert abs(late.degrees) < TURNED


def test_few_images_of_a_vehicle_that_drives_tell_no_time(street: Capture) -> None:
    odd = that_stood_first(first_moments(with_a_camera_turned(street), VIEWS - 1), 12)
    own = found(odd, 0)
    assert own.degrees == pytest.approx(0.3, abs=0.1)
    assert own.seconds == 0 and own.seconds_error == math.inf


def first_moments(capture: Capture, moments: int) -> Capture:
    images = tuple(frame for frame in capture.images if frame.index < moments)
    return replace(capture, images=images, sweeps=tuple(f for f in capture.sweeps if f.index < moments))


def test_what_chance_may_be_is_not_said(street: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cameras, "agreement", lambda *args: Agreement(0.3, 0.11, 0.02, 0.007))
    assert disagreements(street) == ([], [])
    monkeypatch.setattr(cameras, "agreement", lambda *args: Agreement(-0.3, 0.09, 0.02, 0.006))
    turned, late = disagreements(street)
    assert turned == ["The lidar shows camera_0 and camera_1 about 0.30° farther right than the capture says."]
    assert late == ["The clock of camera_0 and camera_1 is about 20 ms behind the lidar's."]


def peaks(seconds: torch.Tensor) -> torch.Tensor:  # [V] -> [V, 3, K]
    """Scores of images whose edges agree best at those offsets."""
    noise = 0.02 * torch.randn(len(seconds), 3, len(SECONDS))
    return (
        torch.exp(-(((SECONDS - seconds[:, None]) / 0.03) ** 2))[:, None].expand(-1, 3, -1)
        * torch.tensor([[0.9], [1.0], [0.9]])
        + noise
    )


SPEEDS = torch.tensor([1.6, 1.9, 2.5, 3.0, 3.5, 3.6, 4.1], dtype=torch.float64)


def test_a_clock_that_is_off_is_distinguished_from_a_camera_that_sits_elsewhere() -> None:
    """The sign is how far edges lie beside one another at 1.6 to 4.1 m/s: a clock moves them farther the faster the vehicle is."""
    degrees = torch.tensor([-0.1, 0.0, 0.1])
    clock = near_by._by_speed(peaks(torch.full((7,), 0.04)), SPEEDS, degrees)
    place = near_by._by_speed(peaks((0.11 / SPEEDS).float()), SPEEDS, degrees)
    assert clock is not None and place is not None
    assert clock[0] == pytest.approx(0.04, abs=0.006) and place[0] == pytest.approx(0, abs=0.012)
    assert Agreement(0, 0.01, 0.04, 0.003, clock).is_clock and not Agreement(0, 0.01, 0.04, 0.003, place).is_clock


def test_a_speed_that_hardly_varies_does_not_tell_them_apart() -> None:
    assert near_by._by_speed(peaks(torch.full((7,), 0.04)), 8 + 0.1 * SPEEDS, torch.zeros(3)) is None
    assert Agreement(0, 0.01, 0.04, 0.003).is_clock


def few_images(capture: Capture) -> Capture:
    return replace(capture, images=capture.images[:VIEWS])


def other_moments(capture: Capture) -> Capture:
    return replace(
        capture,
        images=tuple(replace(f, time_start=f.time_start + 99, time_end=f.time_end + 99) for f in capture.images),
    )


def far_off(capture: Capture) -> Capture:
    """Beyond all offsets that are tried."""
    T = torch.eye(4, dtype=torch.float64)
    T[:2, :2] = torch.tensor([[0.96, -0.28], [0.28, 0.96]])
    (lidar,) = capture.lidars
    return replace(capture, lidars=(replace(lidar, T_rig_lidar=lidar.T_rig_lidar @ T),))


def one_image(capture: Capture) -> Capture:
    return replace(capture, images=capture.images[:1])


def _with_sweeps(capture: Capture, change: Callable[[Sweep], Sweep]) -> Capture:
    def changed(frame: SweepFrame) -> SweepFrame:
        return replace(frame, load=lambda: change(frame.load()))

    return replace(capture, sweeps=tuple(map(changed, capture.sweeps)))


def no_ray(capture: Capture) -> Capture:
    return _with_sweeps(capture, lambda sweep: sweep.select(torch.arange(0)))


def one_ray(capture: Capture) -> Capture:
    return _with_sweeps(capture, lambda sweep: sweep.select(torch.arange(1)))


def no_sweep(capture: Capture) -> Capture:
    return replace(capture, sweeps=())


def backwards(capture: Capture) -> Capture:
    """No lidar point falls into an image whose camera looks at the sky."""
    T = torch.eye(4, dtype=torch.float64)
    T[1, 1], T[1, 2], T[2, 1], T[2, 2] = 0, -1, 1, 0
    cameras = tuple(replace(camera, T_rig_cam=camera.T_rig_cam @ T.T) for camera in capture.cameras)
    return replace(capture, cameras=cameras)


@pytest.mark.parametrize("odd", [few_images, one_image, other_moments, no_ray, one_ray, no_sweep, backwards])
def test_too_little_says_nothing(odd: Callable[[Capture], Capture], street: Capture) -> None:
    capture = odd(street)
    camera = capture.cameras[0]
    assert agreement(capture, camera, views_of(Sample(capture), camera)) is None
    assert disagreements(capture) == ([], [])


@pytest.mark.parametrize("odd", [far_off, without_lidar])
def test_what_cannot_be_decided_is_not_said(odd: Callable[[Capture], Capture]) -> None:
    turned, late = disagreements(odd(tiny_capture()))
    assert (turned, late) == ([], [])


def test_a_lidar_of_one_beam(street: Capture) -> None:
    """Its edges are few: nothing wrong is said."""
    odd = _with_sweeps(street, lambda sweep: sweep.select(sweep.rings == 14))
    assert disagreements(odd) == ([], [])


def test_images_of_half_the_size_tell_the_same(street: Capture) -> None:
    def halved(frame: ImageFrame) -> ImageFrame:
        return replace(frame, load=lambda: frame.load()[::2, ::2]) if frame.index % 3 == 0 else frame

    odd = with_a_camera_turned(replace(street, images=tuple(map(halved, street.images))))
    assert found(odd, 0).degrees == pytest.approx(0.3, abs=0.12)


@pytest.mark.parametrize("size", [(1, 1), (2, 2), (1, 40), (40, 1)])
def test_images_of_a_pixel_or_two_have_edges_or_none(size: tuple[int, int]) -> None:
    camera = replace(tiny_capture().cameras[0], height=size[0], width=size[1])
    assert image_edges(torch.zeros(*size, 3, dtype=torch.uint8), camera).shape == size


def test_a_point_behind_a_camera_that_was_farther_ahead_is_outside(
    street: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 100 m/s a camera passes a point 5 m ahead within 60 ms; its image is then no longer that of the point."""
    fast = Velocities([0.0], torch.tensor([[0.0, 0, 0, 0, 0, 100.0]]))
    monkeypatch.setattr(near_by, "velocities", lambda *args: fast)
    view = View(street.images[0], torch.zeros(0, 3), torch.ones(20, 40), torch.ones(20, 40))
    scores = near_by._scores(street, street.cameras[0], view, torch.tensor([[0.0, 0, 5.0]]), torch.zeros(1))
    passed = SECONDS * 100 >= 5.0
    assert (scores[0, passed] == 0).all() and (scores[0, ~passed] == 1).all()


def test_edges_of_a_sweep() -> None:
    """Between a post at 5 m and a wall at 20 m: at the post's range, and not where a ray is missing or another beam begins."""
    steps = 360
    azimuth = torch.arange(-10, 10) * (2 * torch.pi / steps)
    ranges = torch.full((2, 20), 20.0)
    ranges[0, 8:12] = 5.0
    ranges[1] = 21.0
    ranges[1, 3] = 0.0
    angles = torch.stack([azimuth.expand(2, -1), torch.tensor([0.0, 0.1])[:, None].expand(-1, 20)], dim=-1)
    rings = torch.tensor([0, 1])[:, None].expand(-1, 20)
    flat = [
        unit_directions(angles).flatten(0, 1),
        ranges.flatten(),
        torch.zeros(40),
        torch.zeros(40).double(),
        rings.flatten(),
    ]
    sweep = Sweep(*flat, ranges.flatten() > 0)  # type: ignore[arg-type]
    eye = torch.eye(4, dtype=torch.float64)
    lidar = Lidar("lidar", eye, torch.tensor([0.0, 0.1]), azimuth_steps=steps)
    frame = replace(tiny_capture().sweeps[0], T_world_rig_start=eye, T_world_rig_end=eye)
    points = edge_points(frame, ordered(sweep.select(torch.randperm(40))), lidar)
    assert points.norm(dim=1).tolist() == pytest.approx([5.0, 5.0])
    seen = torch.rad2deg(torch.atan2(points[:, 1], points[:, 0])).tolist()
    assert sorted(seen) == pytest.approx([-2.5, 1.5], abs=1e-4)


def test_edges_of_an_image_are_those_from_left_to_right() -> None:
    camera = replace(tiny_capture().cameras[0], width=12, height=9)
    image = torch.zeros(9, 12, 3, dtype=torch.uint8)
    image[:, 6:] = 200
    own = image_edges(image, camera)
    assert own.mean() == pytest.approx(1) and own[4].argmax() in (5, 6) and own[4, 2] == 0
    order = ranks(own)
    assert order.mean() == pytest.approx(0.5) and order[4].argmax() in (5, 6) and order[4, 2] == order[4, 9] < 0.5
    across = replace(camera, width=9, height=12)
    assert not image_edges(image.transpose(0, 1).contiguous(), across)[:, 1:-1].any()
    nothing = image_edges(torch.zeros_like(image), camera)
    assert not nothing.any() and (ranks(nothing) == 0.5).all()


def test_images_are_reduced_to_pixels_of_an_eighth_of_a_degree() -> None:
    camera = replace(tiny_capture().cameras[0], width=600, height=400, fx=2000.0)
    assert image_edges(torch.zeros(400, 600, 3, dtype=torch.uint8), camera).shape == (95, 143)


def test_images_of_one_place_are_evidence_of_one(street: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight images within 3 m were off by a third of a degree all alike, on a right drive."""
    monkeypatch.setattr(cameras, "agreement", lambda *args: Agreement(-0.33, 0.01, 0.0, 0.001))
    assert disagreements(street)[0] != []
    few = replace(street, images=tuple(f for f in street.images if f.index < 5))
    assert disagreements(few) == ([], [])
