# SPDX-License-Identifier: Apache-2.0
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from lidar_returns import seen_returns
from scipy.spatial import cKDTree
from torch import Tensor

from nurec_lite.capture.types import Capture, ImageFrame
from nurec_lite.evaluation import metrics as metrics_module
from nurec_lite.evaluation.metrics import (
    Crops,
    ImageMetrics,
    LidarMetrics,
    actor_crops,
    as_unit,
    box_corners,
    chamfer,
    moving_tracks,
    psnr,
    to_json,
)
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lidar import Sweep
from nurec_lite.geometry.tracks import Tracks
from nurec_lite.splat.render import LidarReturns
from nurec_lite.training.losses import ssim

F64 = torch.float64
T_RIG_CAM = torch.tensor([[0.0, 0, 1, 0], [-1, 0, 0, 0], [0, -1, 0, 0], [0, 0, 0, 1]], dtype=F64)  # looks along x
CAMERA = Camera("front", width=60, height=40, fx=20, fy=20, cx=30, cy=20, T_rig_cam=T_RIG_CAM)


def no_image() -> Tensor:
    raise AssertionError("metrics do not decode images")


def frame_at(time: float, readout: float = 0.0, travel: float = 0.0) -> ImageFrame:
    """The rig stands at the world's origin, or moves `travel` metres forward while the image is read."""
    start, end = torch.eye(4, dtype=F64), torch.eye(4, dtype=F64)
    start[0, 3], end[0, 3] = -travel / 2, travel / 2
    return ImageFrame("front", 0, time - readout / 2, time + readout / 2, start, end, no_image)


def tracks_of(**paths: list[tuple[float, float, float]]) -> Tracks:
    """Boxes of 4 x 2 x 1 m, axes as the world's, with a keyframe every second from time 0."""
    lengths = [len(path) for path in paths.values()]
    times = torch.cat([torch.arange(n, dtype=F64) for n in lengths])
    return Tracks(
        ids=tuple(paths),
        classes=("Car",) * len(paths),
        sizes=torch.tensor([4.0, 2, 1], dtype=F64).expand(len(paths), 3),
        offsets=(0, *np.cumsum(lengths).tolist()),
        times=times,
        translations=torch.tensor([point for path in paths.values() for point in path], dtype=F64),
        quaternions=torch.tensor([1.0, 0, 0, 0], dtype=F64).expand(len(times), 4),
    )


def capture_of(tracks: Tracks) -> Capture:
    return Capture("made", (CAMERA,), (), (), (), tracks)


DRIVING = [(10.0, 0, 0), (14.0, 0, 0)]  # at 0.5 s the box reaches from x = 10 to 14, y = -1 to 1, z = -0.5 to 0.5


def test_psnr_by_hand() -> None:
    target = torch.full((4, 5, 3), 51, dtype=torch.uint8)  # 0.2
    assert psnr(torch.full((4, 5, 3), 0.3), target) == pytest.approx(20, abs=1e-4)
    assert psnr(torch.full((4, 5, 3), 7.0), torch.ones(4, 5, 3)) == 100  # clipped to 1; equal images have 100 dB
    assert psnr(torch.full((4, 5, 3), 7.0), target) == pytest.approx(-20 * math.log10(0.8), abs=1e-4)


def test_image_metrics_are_means_over_images() -> None:
    metrics, capture = ImageMetrics(), capture_of(Tracks.empty())
    target = torch.randint(0, 256, (40, 60, 3), dtype=torch.uint8)
    renders = [(as_unit(target) + noise * torch.randn(40, 60, 3)).requires_grad_() for noise in (0.02, 0.2)]
    for rendered in renders:
        metrics.add(rendered, target, capture, frame_at(0))
    summary = metrics.summary()
    assert summary["psnr"] == pytest.approx(np.mean([psnr(r, target) for r in renders]))
    assert summary["ssim"] == pytest.approx(np.mean([ssim(as_unit(r), as_unit(target)).item() for r in renders]))
    assert math.isnan(summary["psnr_actors"]) and summary["psnr_per_actor"] == {}


def test_nothing_measured_becomes_null() -> None:
    summary = to_json(ImageMetrics().summary() | LidarMetrics().summary())
    assert set(summary) == {
        "psnr", "ssim", "psnr_actors", "psnr_per_actor", "lidar_median_abs_m", "lidar_mean_abs_m", "lidar_median_sq_m2",
        "lidar_opacity_half", "intensity_rmse", "drop_accuracy", "chamfer_m",
    }  # fmt: skip
    assert summary.pop("psnr_per_actor") == {}
    assert json.loads(json.dumps(summary, allow_nan=False)) == dict.fromkeys(summary)
    assert to_json({"a": [1, 2.5, math.inf], "b": {"c": math.nan, "d": "x"}}) == {
        "a": [1, 2.5, None],
        "b": {"c": None, "d": "x"},
    }


def test_moving_tracks_by_the_two_keyframes_farthest_apart() -> None:
    tracks = tracks_of(
        parked=[(0, 0, 0), (0.5, 0, 0), (1.9, 0, 0)],
        back_again=[(0, 0, 0), (0, 2, 0), (0, 0, 0)],
        once=[(5, 5, 5)],
        off=DRIVING,
    )
    assert moving_tracks(tracks) == [1, 3]


def test_box_corners_turn_with_the_box() -> None:
    half = math.sqrt(0.5)
    tracks = tracks_of(a=[(10, 0, 0), (12, 0, 0)])
    tracks = replace(tracks, quaternions=torch.tensor([[half, 0, 0, half]] * 2, dtype=F64))  # 90 degrees about z
    (corners,), (valid,) = box_corners(tracks, [0.5])
    assert valid.tolist() == [True]
    expected = torch.tensor([[10.0, -2, -0.5], [12, 2, 0.5]], dtype=F64)
    torch.testing.assert_close(torch.stack([corners[0].min(0).values, corners[0].max(0).values]), expected)


def crops_of(tracks: Tracks, camera: Camera, frame: ImageFrame) -> Crops:
    return actor_crops(tracks, camera, [frame], moving_tracks(tracks))[0]


def test_actor_crop_by_hand() -> None:
    """The near face, 10 m away, spans +-1 m in y and +-0.5 m in z: +-2 and +-1 pixels with fx = 20, too few to measure; with
    fx = 100 it spans +-10 and +-5, that is columns 20 to 39 and rows 15 to 24."""
    assert crops_of(tracks_of(a=DRIVING), CAMERA, frame_at(0.5)) == {}
    long = replace(CAMERA, fx=100, fy=100)
    assert crops_of(tracks_of(a=DRIVING), long, frame_at(0.5)) == {"a": (slice(15, 25), slice(20, 40))}
    assert crops_of(tracks_of(a=DRIVING), long, frame_at(1.5)) == {}  # no longer there
    assert crops_of(tracks_of(a=[DRIVING[0]] * 2), long, frame_at(0.5)) == {}  # parked


def test_actor_crop_takes_pixels_whose_centres_lie_inside() -> None:
    camera = replace(CAMERA, fx=104, fy=96)  # +-10.4 columns: 19.6 to 40.4; +-4.8 rows: 15.2 to 24.8
    assert crops_of(tracks_of(a=DRIVING), camera, frame_at(0.5)) == {"a": (slice(15, 25), slice(20, 40))}
    camera = replace(CAMERA, fx=106, fy=94)  # 19.4 to 40.6; 15.3 to 24.7
    assert crops_of(tracks_of(a=DRIVING), camera, frame_at(0.5)) == {"a": (slice(15, 25), slice(19, 41))}


def test_actor_crop_is_clipped_to_the_image() -> None:
    camera = replace(CAMERA, fx=100, fy=100)
    left = tracks_of(a=[(x, 2.5, 0) for x, _, _ in DRIVING])  # y from 1.5 to 3.5: columns -5 to 30 - 150 / 14 = 19.3
    assert crops_of(left, camera, frame_at(0.5)) == {"a": (slice(15, 25), slice(0, 19))}
    for x, y, z in [(10, 20, 0), (10, -20, 0), (10, 0, 20), (10, 0, -20), (-14, 0, 0)]:
        gone = tracks_of(a=[(x, y, z), (x + 4.0, y, z)])
        assert crops_of(gone, camera, frame_at(0.5)) == {}, (x, y, z)


def test_a_box_that_reaches_the_camera_is_not_measured() -> None:
    assert crops_of(tracks_of(a=[(0.0, 0, 0), (4.8, 0, 0)]), CAMERA, frame_at(0.5)) == {}  # nearest corner at 0.4 m
    assert list(crops_of(tracks_of(a=[(0.0, 0, 0), (5.2, 0, 0)]), CAMERA, frame_at(0.5))) == ["a"]  # at 0.6 m


def test_actor_crop_follows_the_rolling_shutter() -> None:
    camera = replace(CAMERA, fx=100, fy=100, shutter="left_to_right")
    rows, columns = crops_of(tracks_of(a=DRIVING), camera, frame_at(0.5, readout=0.05, travel=6.0))["a"]
    assert columns == slice(
        21, 41
    )  # the left edge is read from farther back, so it lies farther in, the right one farther out
    assert rows == slice(14, 26)


@pytest.mark.parametrize("shutter", ["global", "top_to_bottom", "right_to_left"])
def test_actor_crops_of_many_frames_are_those_of_each(shutter: str) -> None:
    camera = replace(CAMERA, fx=100, fy=100, shutter=shutter)
    tracks = tracks_of(a=DRIVING, b=[(19.0, 3, 0), (16.0, 3, 0)], behind=[(-9.0, 0, 0), (-14.0, 0, 0)])
    frames = [frame_at(0.1 * k, readout=0.02 * k, travel=0.5 * k) for k in range(13)]
    found = actor_crops(tracks, camera, frames, moving_tracks(tracks))
    assert found == [crops_of(tracks, camera, frame) for frame in frames]
    assert {name for crops in found for name in crops} == {"a", "b"} and {} in found


def test_actors_of_the_next_images_are_found_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call finds them for AT_ONCE images of a sensor. The figures stay the same."""
    capture = replace(capture_of(tracks_of(a=DRIVING)), cameras=(replace(CAMERA, fx=100, fy=100),))
    frames, target = [frame_at(0.1 * k, travel=0.1 * k) for k in range(9)], torch.zeros(40, 60, 3)
    rendered, calls = torch.rand(40, 60, 3, generator=torch.Generator().manual_seed(0)), list[int]()
    monkeypatch.setattr(metrics_module, "AT_ONCE", 4)
    of_frames = metrics_module.actor_crops

    def counted(tracks: Tracks, camera: Camera, some: list[ImageFrame], moving: list[int]) -> list[Crops]:
        calls.append(len(some))
        return of_frames(tracks, camera, some, moving)

    monkeypatch.setattr(metrics_module, "actor_crops", counted)
    together, apart = ImageMetrics(coming=frames), ImageMetrics()
    for frame in frames:
        together.add(rendered, target, capture, frame)
    assert calls == [4, 4, 1]
    for frame in frames:
        apart.add(rendered, target, capture, frame)
    assert together.summary() == apart.summary() and together.summary()["psnr_per_actor"]


def test_actor_errors_are_pooled_over_images() -> None:
    """Errors of 0.1 and of 0.3 in crops of equal size: the mean squared error is 0.05, 13.01 dB, not the mean of 20 and 10.46."""
    camera = replace(CAMERA, fx=100, fy=100)
    tracks = tracks_of(a=DRIVING, b=[(40.0, 3, 0), (44.0, 3, 0)], parked=[(10.0, 0, 0)] * 2)
    capture = replace(capture_of(tracks), cameras=(camera,))
    metrics, target = ImageMetrics(), torch.full((40, 60, 3), 102, dtype=torch.uint8)  # 0.4
    for error in (0.1, 0.3):
        rendered = torch.zeros(40, 60, 3)
        rendered[15:25, 20:40] = 0.4 + error
        metrics.add(rendered, target, capture, frame_at(0.5))
    summary = metrics.summary()
    assert summary["psnr_per_actor"] == {"a": pytest.approx(-10 * math.log10(0.05), abs=1e-4)}  # b is too small
    assert summary["psnr_actors"] == pytest.approx(-10 * math.log10(0.05), abs=1e-4)


def test_psnr_actors_is_the_mean_over_actors() -> None:
    camera = replace(CAMERA, fx=100, fy=100)
    tracks = tracks_of(right=[(x, -2.0, 0) for x, _, _ in DRIVING], left=[(x, 2.0, 0) for x, _, _ in DRIVING])
    capture = replace(capture_of(tracks), cameras=(camera,))
    target, rendered = torch.zeros(40, 60, 3), torch.zeros(40, 60, 3)
    rendered[:, :30], rendered[:, 30:] = 0.1, 0.01
    metrics = ImageMetrics()
    metrics.add(rendered, target, capture, frame_at(0.5))
    summary = metrics.summary()
    assert summary["psnr_per_actor"] == {"right": pytest.approx(40, abs=1e-4), "left": pytest.approx(20, abs=1e-4)}
    assert summary["psnr_actors"] == pytest.approx(30, abs=1e-4)


def sweep_of(ranges: list[float], intensities: list[float] | None = None) -> Sweep:
    """Rays along x, y, z, ...; a range of 0 did not return."""
    r = torch.tensor(ranges)
    directions = torch.eye(3).repeat(2, 1)[: len(r)]
    values = torch.tensor(intensities) if intensities else torch.zeros(len(r))
    return Sweep(directions, r, values, torch.zeros(len(r), dtype=F64), torch.zeros(len(r)).long(), r > 0)


def returns_of(median: list[float], drop: list[float], intensity: list[float], opacity: list[float]) -> LidarReturns:
    m = torch.tensor(median, requires_grad=True)
    return seen_returns(99 * torch.ones(len(m)), m, torch.tensor(intensity), torch.tensor(drop), torch.tensor(opacity))


def test_lidar_metrics_by_hand() -> None:
    metrics = LidarMetrics()
    metrics.add(
        returns_of([10.5, 0.0, 7.0], drop=[0.1, 0.2, 0.7], intensity=[0.5, 0.2, 0.9], opacity=[0.9, 0.4, 0.6]),
        sweep_of([10.0, 20.0, 0.0], [0.2, 0.6, 0.0]),
    )
    metrics.add(
        returns_of([4.0, 31.0], drop=[0.6, 0.5], intensity=[0.0, 0.0], opacity=[0.5, 0.499]), sweep_of([5.0, 0.0])
    )
    summary = metrics.summary()  # errors 0.5, |80 - 20| and 1
    assert summary["lidar_median_abs_m"] == pytest.approx(1)
    assert summary["lidar_mean_abs_m"] == pytest.approx(61.5 / 3)
    assert summary["lidar_median_sq_m2"] == pytest.approx(1)
    assert summary["lidar_opacity_half"] == pytest.approx(2 / 3)
    assert summary["intensity_rmse"] == pytest.approx(math.sqrt((0.09 + 0.16) / 3), abs=1e-6)
    assert summary["drop_accuracy"] == pytest.approx(3 / 5)  # right, right, right; wrong, wrong (0.5 is not above 0.5)


def test_median_of_an_even_number_of_rays() -> None:
    metrics = LidarMetrics()
    metrics.add(returns_of([1.0, 4.0], [0.0, 0.0], [0.0, 0.0], [1.0, 1.0]), sweep_of([2.0, 7.0]))
    assert metrics.summary()["lidar_median_abs_m"] == pytest.approx(2)
    assert metrics.summary()["lidar_median_sq_m2"] == pytest.approx(5)


def test_chamfer_by_hand() -> None:
    """Predicted 0 and 3, measured 1 (on one axis): there (1 + 2) / 2, back 1."""
    points = torch.tensor([[0.0, 0, 0], [3, 0, 0]])
    assert float(chamfer(points, torch.tensor([[1.0, 0, 0]]))) == pytest.approx(2.5)
    assert chamfer(points, points) == 0
    assert chamfer(torch.zeros(0, 3), points) == math.inf


def test_chamfer_is_of_predicted_returns_and_a_mean_over_sweeps() -> None:
    metrics = LidarMetrics()
    one, zero = [1.0] * 3, [0.0] * 3
    metrics.add(
        returns_of([2.5, 0.0, 9.0], [0.5, 0.0, 0.6], zero, one), sweep_of([2.0, 0.0, 0.0])
    )  # 0.5 there, 0.5 back
    metrics.add(returns_of([2.0, 3.0, 4.0], zero, zero, one), sweep_of([2.0, 3.0, 4.0]))
    metrics.add(returns_of([2.0, 3.0, 4.0], zero, zero, one), sweep_of(zero))  # nothing measured: left out
    assert metrics.summary()["chamfer_m"] == pytest.approx(0.5)
    metrics.add(returns_of(zero, one, zero, zero), sweep_of(one))  # nothing predicted
    assert metrics.summary()["chamfer_m"] == math.inf


def test_results_are_plain_floats() -> None:
    metrics = LidarMetrics()
    metrics.add(returns_of([1.0], [0.0], [0.0], [1.0]), sweep_of([2.0]))
    images = ImageMetrics()
    images.add(torch.zeros(40, 60, 3), torch.zeros(40, 60, 3), capture_of(tracks_of(a=DRIVING)), frame_at(0.5))
    results = metrics.summary() | images.summary()
    assert {type(value) for key, value in results.items() if key != "psnr_per_actor"} == {float}


def test_a_real_sized_sweep_has_the_figures_that_numpy_and_a_tree_give() -> None:
    """Some points lie far from all others."""
    torch.manual_seed(0)
    n = 4000
    directions = torch.nn.functional.normalize(torch.randn(n, 3) * torch.tensor([1.0, 1.0, 0.2]), dim=1)
    ranges = (5 + 40 * torch.rand(n)) * (torch.rand(n) > 0.2)
    median = (ranges + 0.3 * torch.randn(n) + 30 * (torch.rand(n) > 0.98)) * (torch.rand(n) > 0.1)
    drop, intensity = torch.rand(n), torch.rand(n)
    sweep = Sweep(directions, ranges, torch.rand(n), torch.zeros(n, dtype=F64), torch.zeros(n).long(), ranges > 0)
    metrics = LidarMetrics()
    metrics.add(seen_returns(median, median, intensity, drop, torch.rand(n)), sweep)
    found, hit = metrics.summary(), sweep.returned.numpy()
    wrong = np.abs(np.where(median > 0, median, 80.0) - ranges.numpy())[hit]
    points = directions.numpy() * ranges.numpy()[:, None], directions.numpy() * median.numpy()[:, None]
    a, b = points[0][hit], points[1][((drop <= 0.5) & (median > 0)).numpy()]
    distance = cKDTree(a).query(b)[0].mean() + cKDTree(b).query(a)[0].mean()
    assert found["chamfer_m"] == pytest.approx(distance, abs=1e-6)
    assert found["lidar_median_abs_m"] == pytest.approx(np.median(wrong), abs=1e-6)
    assert found["lidar_median_sq_m2"] == pytest.approx(np.median(wrong**2), abs=1e-5)
    assert found["lidar_mean_abs_m"] == pytest.approx(wrong.mean(), abs=1e-6)
