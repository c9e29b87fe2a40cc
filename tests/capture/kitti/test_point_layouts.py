# SPDX-License-Identifier: Apache-2.0
"""Files whose values are not four float32 a point are refused by a sentence that names their layout."""

import re
from pathlib import Path

import numpy as np
import pytest
from lidar_files import Points, simulated

from nurec_lite.capture.kitti.points import read_points
from nurec_lite.capture.types import CaptureError


@pytest.fixture(scope="module")
def points() -> Points:
    return simulated(16, 128, (-15.0, 15.0), 1, n=1)[0]


def columns(points: Points, n: int) -> np.ndarray:
    """x, y, z, reflectance of 0 to 255, ring, time and more, as nuScenes and others have them."""
    ring = np.arange(len(points)) % 16
    more = [ring, np.linspace(0, 0.1, len(points)), ring * 0, ring + 0.5]
    return np.concatenate([points[:, :3], np.round(points[:, 3:] * 255), np.stack(more, axis=1)], axis=1)[:, :n]


def refused(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "0000000000.bin"
    path.write_bytes(data)
    with pytest.raises(CaptureError, match=r"0000000000\.bin " + message) as caught:
        read_points(path)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "rest", range(4)
)  # of a number of points divided by 4: a file may be as long as one of KITTI's
@pytest.mark.parametrize("n", [5, 6, 7, 8])
def test_more_columns(tmp_path: Path, points: Points, n: int, rest: int) -> None:
    kept = columns(points, n)[: len(points) // 4 * 4 - rest]
    refused(
        tmp_path, kept.astype("<f4").tobytes(), rf"holds {n} values of float32 a point; write four values .*float32"
    )


@pytest.mark.parametrize("rest", range(4))
def test_no_reflectance(tmp_path: Path, points: Points, rest: int) -> None:
    kept = points[: len(points) // 4 * 4 - rest, :3]
    refused(
        tmp_path, kept.astype("<f4").tobytes(), r"holds 3 values of float32 a point; write four values a point: x, y"
    )


@pytest.mark.parametrize("n", [3, 4, 5])
def test_double_precision(tmp_path: Path, points: Points, n: int) -> None:
    refused(tmp_path, columns(points, n).astype("<f8").tobytes(), rf"holds {n} values of float64 a point; write four")


def test_the_other_byte_order(tmp_path: Path, points: Points) -> None:
    refused(tmp_path, points.astype(">f4").tobytes(), r"holds 4 values of float32 a point in big-endian order; write")


def test_reflectances_in_counts(tmp_path: Path, points: Points) -> None:
    data = columns(points, 4).astype("<f4")
    refused(tmp_path, data.tobytes(), rf"has reflectances up to {data[:, 3].max():g}, but must have 0 to 1; .* by 255")


def test_points_without_return(tmp_path: Path, points: Points) -> None:
    """Clouds with a point for every ray keep them so."""
    data = points.copy()
    data[::3] = np.nan
    refused(
        tmp_path, data.tobytes(), r"point 0 is nan, nan, nan, nan, but must .*; copy it again, or leave out the points"
    )
    data[:] = np.nan
    refused(
        tmp_path, data.tobytes(), r"point 0 is nan, nan, nan, nan, but must .*; copy it again, or leave out the points"
    )


def test_a_damaged_point_is_no_other_layout(tmp_path: Path, points: Points) -> None:
    for value in (-1.0, 2.0, 1e30):
        data = points.copy()
        data[7, 3] = value
        refused(
            tmp_path,
            data.tobytes(),
            rf"point 7 is .*, {re.escape(f'{value:.3g}')}, but must lie within 250 m and reflect 0 to 1; copy it",
        )


def test_a_file_cut_short(tmp_path: Path, points: Points) -> None:
    refused(tmp_path, points.tobytes()[:-5], r"is \d+ bytes long, not a multiple of 16; it is truncated, copy it again")
    refused(tmp_path, points.tobytes()[:7], r"is 7 bytes long, not a multiple of 16; it is truncated, copy it again")
