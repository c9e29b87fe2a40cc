# SPDX-License-Identifier: Apache-2.0
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from lidar_returns import seen_returns
from PIL import Image

from nurec_lite.evaluation.pictures import (
    ERROR_MAP,
    RANGE_MAP,
    Bar,
    comparison,
    enlarged,
    pair,
    range_image,
    range_picture,
    save_png,
    sweep_picture,
    to_picture,
)
from nurec_lite.geometry.lidar import Lidar, Sweep, unit_directions

ELEVATIONS = np.array([-0.2, 0.1, -0.1])  # of rings 0, 1, 2: ring 1 is the highest, ring 0 the lowest


def lightness(colours: np.ndarray) -> np.ndarray:
    """CIE L*, from linear luminance (Rec. 709)."""
    c = colours / 255
    linear = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]
    return 116 * np.cbrt(linear) - 16


@pytest.mark.parametrize("colours", [RANGE_MAP, ERROR_MAP])
def test_colour_maps_grow_lighter_in_even_steps(colours: np.ndarray) -> None:
    steps = np.diff(lightness(colours))
    assert (steps > 0).all() and steps.max() < 2 * steps.min() + 3


def test_bar_paints_anchors_between_them_beyond_them_and_nothing() -> None:
    bar = Bar(np.array([(0, 0, 0), (100, 50, 0), (200, 250, 100)]), 10, 20)
    painted = bar.paint(np.array([10, 15, 17.5, 20, 5, 99, np.inf, np.nan]))
    expected = (
        [(0, 0, 0), (100, 50, 0), (150, 150, 50), (200, 250, 100), (0, 0, 0)] + 2 * [(200, 250, 100)] + [(0, 0, 0)]
    )
    assert painted.dtype == np.uint8 and painted.tolist() == [list(c) for c in expected]
    assert Bar(RANGE_MAP, 0, 1).paint(np.array([np.nan, 0.0])).tolist() == [[0, 0, 0], RANGE_MAP[0].tolist()]


def test_to_picture_clips_and_rounds() -> None:
    assert to_picture(torch.tensor([[[-1.0, 0.5, 2.0]]])).tolist() == [[[0, 128, 255]]]
    assert to_picture(torch.tensor([[[7, 8, 9]]], dtype=torch.uint8)).tolist() == [[[7, 8, 9]]]


def test_range_image_rows_and_columns() -> None:
    azimuths = np.array([math.pi, 0.75 * math.pi, -0.99 * math.pi])
    image = range_image(np.array([1.0, 2.0, 3.0]), np.array([1, 2, 0]), azimuths, ELEVATIONS, 100)
    assert image.shape == (3, 100)
    assert image[0, 0] == 1  # ring 1 is on top; azimuth pi on the left
    assert image[1, 12] == 2
    assert image[2, 99] == 3
    assert np.isnan(image[0, 50]) and np.isfinite(image).sum() == 3 * 5


def test_range_image_fills_gaps_with_the_nearest_ray_and_wraps() -> None:
    centres = math.pi - (np.arange(8) + 0.5) / 8 * 2 * math.pi
    image = range_image(np.array([10.0, 30.0]), np.array([0, 0]), centres[[0, 3]], np.zeros(1), 8)
    np.testing.assert_array_equal(image[0], [10, 10, 30, 30, 30, 30, 10, 10])


def test_range_image_keeps_rays_without_value_but_prefers_values() -> None:
    azimuths = math.pi - (np.array([0, 1, 1, 2]) + 0.5) / 4 * 2 * math.pi
    image = range_image(np.array([1.0, np.nan, 5.0, np.nan]), np.zeros(4, int), azimuths, np.zeros(1), 4)
    np.testing.assert_array_equal(image[0], [1, 5, np.nan, np.nan])
    reverse = range_image(np.array([1.0, 5.0, np.nan, np.nan]), np.zeros(4, int), azimuths, np.zeros(1), 4)
    np.testing.assert_array_equal(reverse[0], image[0])


def make_sweep(steps: int, returned: bool = True) -> tuple[Sweep, Lidar]:
    """Three beams, ranges 5 m everywhere."""
    lidar = Lidar("top", torch.eye(4, dtype=torch.float64), torch.tensor(ELEVATIONS), azimuth_steps=steps)
    azimuth, ring = (
        math.pi - (torch.arange(steps).repeat(3) + 0.5) / steps * 2 * math.pi,
        torch.arange(3).repeat_interleave(steps),
    )
    angles = torch.stack([azimuth, lidar.elevations.float()[ring]], dim=-1)
    hit = torch.full((3 * steps,), returned)
    return Sweep(unit_directions(angles), 5.0 * hit, 0.5 * hit, azimuth.double(), ring, hit), lidar


def test_range_picture() -> None:
    sweep, lidar = make_sweep(500)
    median = torch.full((1500,), 5.5)
    median[:500] = 0  # ring 0, the lowest, never crosses
    drop = torch.zeros(1500)
    drop[500:1000] = 1  # ring 1, the highest, is predicted not to return
    picture = range_picture(sweep, seen_returns(median, median, drop, drop, 1 - drop), lidar)
    strip, header = 3 * 64, 24
    assert picture.shape == (3 * (strip + header) + 2 * 3, 1000, 3) and picture.dtype == np.uint8
    measured, rendered, error = (picture[k * (strip + header + 3) + header :][:strip] for k in range(3))
    assert (measured == Bar(RANGE_MAP, 0, 10).paint(np.array(5.0))).all()
    assert (rendered[:64] == 0).all() and (rendered[128:] == 0).all()
    assert (rendered[64:128] == Bar(RANGE_MAP, 0, 10).paint(np.array(5.5))).all()
    assert (error[:128] == Bar(ERROR_MAP, 0, 2).paint(np.array(0.5))).all()
    assert (error[128:] == ERROR_MAP[-1]).all()


def test_range_picture_of_a_sweep_without_returns_is_black() -> None:
    sweep, lidar = make_sweep(40, returned=False)
    zero = torch.zeros(120)
    picture = range_picture(sweep, seen_returns(zero, zero, zero, zero, zero), lidar)
    assert (picture[24 : 24 + 3 * 64] == 0).all()


def test_comparison_of_a_narrow_image_stands_side_by_side() -> None:
    truth = torch.full((40, 50, 3), 255, dtype=torch.uint8)
    picture = comparison(truth, torch.full((40, 50, 3), 0.7, requires_grad=True))
    factor = 7  # 3 x 50 pixels become about 1000
    assert picture.shape == (24 + 40 * factor, 3 * 50 * factor + 2 * 3, 3)
    below = picture[24:]
    assert (below[:, :350] == 255).all() and (below[:, 353:703] == 178).all()
    assert (below[:, 706:] == ERROR_MAP[-1]).all()  # an error of 0.3
    assert (picture[:24] > 200).any()  # labels


def test_comparison_of_a_wide_image_stands_on_top_of_each_other() -> None:
    truth = torch.randint(0, 256, (30, 100, 3), dtype=torch.uint8)
    picture = comparison(truth, truth.float() / 255)
    height = 24 + 300
    assert picture.shape == (3 * height + 2 * 3, 1000, 3)
    np.testing.assert_array_equal(picture[24:height], enlarged(truth.numpy(), 10, 10))
    assert (picture[-300:] == ERROR_MAP[0]).all()


def test_large_images_keep_their_size() -> None:
    assert comparison(torch.zeros(100, 1600, 3), torch.zeros(100, 1600, 3)).shape[1] == 1600


def test_save_png_replaces_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.png"
    for value in (10, 20):
        save_png(path, np.full((4, 5, 3), value, np.uint8))
        assert (np.asarray(Image.open(path)) == value).all()
    assert list(path.parent.iterdir()) == [path]


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    save_png(path, np.zeros((4, 5, 3), np.uint8))
    before = path.read_bytes()
    with pytest.raises(TypeError):
        save_png(path, np.zeros((4, 5, 7), np.float64))
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_sweep_picture_shows_range_above_intensity() -> None:
    sweep, lidar = make_sweep(500)
    hit = sweep.returned.clone()
    hit[:500] = False  # ring 0, the lowest
    picture = sweep_picture(replace(sweep, returned=hit), lidar, "rendered", far=50)
    strip, header = 3 * 64, 24
    ranges, intensities = (picture[k * (strip + header + 3) + header :][:strip] for k in range(2))
    assert picture.shape == (2 * (strip + header) + 3, 1000, 3)
    assert (ranges[:128] == Bar(RANGE_MAP, 0, 50).paint(np.array(5.0))).all() and (ranges[128:] == 0).all()
    assert (intensities[:128] == Bar(RANGE_MAP, 0, 1).paint(np.array(0.5))).all() and (intensities[128:] == 0).all()


def test_pair_shows_the_captured_image_above_the_render() -> None:
    captured = torch.randint(0, 256, (30, 100, 3), dtype=torch.uint8)
    picture = pair(captured, torch.full((30, 100, 3), 0.2), "rendered")
    np.testing.assert_array_equal(picture[24 : 24 + 300], enlarged(captured.numpy(), 10, 10))
    assert picture.shape == (2 * 324 + 3, 1000, 3) and (picture[-300:] == 51).all()
