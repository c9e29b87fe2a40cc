# SPDX-License-Identifier: Apache-2.0
"""Lidars that are no HDL-64E, whose sweeps were written in KITTI's layout: beams, order and returns are read from the points."""

import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from lidar_files import Change, Points, in_columns, read, rings, shuffled, simulated, stored, twice
from torch import Tensor

from nurec_lite.capture.kitti.scan import Scan, on_vehicle
from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.lidar import Sweep, azimuth_elevation

KINDS = {  # beams: rays in a turn, lowest and highest beam, seed
    16: (450, (-15.0, 15.0), 1),
    32: (300, (-30.0, 10.0), 4),
    40: (300, (-16.0, 7.0), 6),
    64: (450, (-25.0, 3.0), 2),
    128: (256, (-25.0, 15.0), 3),
}
CLOCKWISE = "does not say which way the lidar turns"


@pytest.fixture(scope="module")
def street() -> list[Points]:
    return simulated(16, *KINDS[16])


@pytest.fixture(scope="module")
def drive(kitti_root: Path) -> list[Points]:
    files = sorted(kitti_root.glob("2*/*/velodyne_points/data/*.bin"))[::20]
    return [np.fromfile(path, "<f4").reshape(-1, 4) for path in files]


def keys(sweep: Sweep) -> Tensor:
    """Keys of rays in the order of ring and azimuth, in any order of the file."""
    return torch.cat([sweep.directions.double(), sweep.ranges.double()[:, None]], dim=1)


def assert_same(a: list[Sweep], b: list[Sweep]) -> None:
    for one, other in zip(a, b, strict=True):
        assert len(one) == len(other) and torch.equal(one.rings, other.rings)
        torch.testing.assert_close(keys(one), keys(other), atol=1e-6, rtol=0)
        torch.testing.assert_close(one.times, other.times, atol=1e-9, rtol=0)


@pytest.fixture(scope="module")
def right(street: list[Points], tmp_path_factory: pytest.TempPathFactory) -> list[Sweep]:
    return read(tmp_path_factory.mktemp("street"), street)[1]


@pytest.fixture(scope="module")
def right_drive(drive: list[Points], tmp_path_factory: pytest.TempPathFactory) -> tuple[Scan, list[Sweep]]:
    return read(tmp_path_factory.mktemp("drive"), drive)


@pytest.mark.parametrize("beams", KINDS)
def test_beams_and_steps_are_those_of_the_file(tmp_path: Path, beams: int) -> None:
    steps, (low, high), _ = KINDS[beams]
    files = simulated(beams, *KINDS[beams])
    scan, sweeps = read(tmp_path, files)
    expected = torch.deg2rad(torch.linspace(high, low, beams, dtype=torch.float64))
    torch.testing.assert_close(scan.elevations, expected, atol=1e-5, rtol=0)
    assert abs(scan.azimuth_steps - steps) <= 1 and scan.notes == ()
    for points, sweep in zip(files, sweeps, strict=True):  # whole again but for the vehicle and rays that it blocks
        own = int(on_vehicle(torch.from_numpy(points)).sum())
        assert own <= beams * steps - len(sweep) <= 1.1 * own + 0.002 * beams * steps
        elevation = azimuth_elevation(sweep.directions.double())[:, 1]
        torch.testing.assert_close(elevation, scan.elevations[sweep.rings], atol=1e-4, rtol=0)


@pytest.mark.parametrize("every", [2, 4])
def test_beams_of_every_second_and_fourth_ring_of_kitti(
    tmp_path: Path, drive: list[Points], right_drive: tuple[Scan, list[Sweep]], every: int
) -> None:
    scan, sweeps = read(tmp_path, drive, lambda points: points[rings(points) % every == 0])
    assert len(scan.elevations) == 64 // every and scan.notes == () and scan.azimuth_steps == 2048
    torch.testing.assert_close(scan.elevations, right_drive[0].elevations[::every], atol=1e-3, rtol=0)
    for sweep, whole in zip(sweeps, right_drive[1], strict=True):
        kept = torch.bincount(whole.rings[whole.returned], minlength=64)[::every]
        assert (torch.bincount(sweep.rings[sweep.returned]) - kept).abs().max() <= 2


def test_a_sweep_without_a_ring_keeps_the_beams_of_the_drive(
    tmp_path: Path, drive: list[Points], right_drive: tuple[Scan, list[Sweep]]
) -> None:
    """Frame 40 stands near houses: there the upper half of the elevations lies 0.6 degrees lower than before, nearly two beams."""
    scan, sweeps = read(tmp_path, [*drive[:2], drive[2][rings(drive[2]) != 30]])
    right = right_drive[1][2].select(right_drive[1][2].rings != 30)
    assert len(scan.elevations) == 64
    assert (torch.bincount(sweeps[2].rings, minlength=64) - torch.bincount(right.rings, minlength=64)).abs().max() <= 2
    assert_same(sweeps[:2], right_drive[1][:2])


def test_a_ring_cut_in_two_stays_one_beam(
    tmp_path: Path, drive: list[Points], right_drive: tuple[Scan, list[Sweep]]
) -> None:
    """Azimuth falls at a point that comes late, as it does at the end of a ring."""
    place = int(np.flatnonzero(rings(drive[2]) == 20)[500])
    late = np.insert(np.delete(drive[2], place, axis=0), place + 60, drive[2][place], axis=0)
    scan, sweeps = read(tmp_path, [*drive[:2], late])
    assert len(scan.elevations) == 64 and torch.equal(
        sweeps[2].rings[sweeps[2].returned], right_drive[1][2].rings[right_drive[1][2].returned]
    )


ORDERS: dict[str, Change] = {
    "from behind": partial(stored, start=math.pi),
    "from elsewhere": partial(stored, start=0.65),
    "clockwise": partial(stored, sense=-1),
    "clockwise from behind": partial(stored, start=math.pi, sense=-1),
    "from the bottom": partial(stored, up=True),
    "clockwise from behind and the bottom": partial(stored, start=math.pi, sense=-1, up=True),
}  # fmt: skip


@pytest.mark.parametrize("order", ORDERS)
def test_rings_in_other_orders(tmp_path: Path, street: list[Points], right: list[Sweep], order: str) -> None:
    scan, sweeps = read(tmp_path, street, ORDERS[order])
    assert_same(sweeps, right)
    assert scan.clockwise and (CLOCKWISE in "".join(scan.notes)) == ("clockwise" in order)


@pytest.mark.parametrize("order", ORDERS)
def test_rings_of_kitti_in_other_orders(
    tmp_path: Path, drive: list[Points], right_drive: tuple[Scan, list[Sweep]], order: str
) -> None:
    scan, sweeps = read(tmp_path, drive, ORDERS[order])
    torch.testing.assert_close(scan.elevations, right_drive[0].elevations, atol=1e-4, rtol=0)
    assert CLOCKWISE in "".join(scan.notes)
    for sweep, right in zip(sweeps, right_drive[1], strict=True):
        assert abs(len(sweep) - len(right)) < 10
        assert (torch.bincount(sweep.rings, minlength=64) - torch.bincount(right.rings, minlength=64)).abs().max() < 4


def test_columns_are_in_the_order_of_time(tmp_path: Path, street: list[Points], right: list[Sweep]) -> None:
    scan, sweeps = read(tmp_path, street, partial(in_columns, step=2 * math.pi / 450))
    assert_same(sweeps, right)
    assert scan.clockwise and scan.start == pytest.approx(math.pi) and scan.notes == ()


def test_columns_of_a_lidar_that_turns_counter_clockwise(tmp_path: Path, street: list[Points]) -> None:
    scan, sweeps = read(tmp_path, street, partial(in_columns, step=2 * math.pi / 450, clockwise=False))
    assert not scan.clockwise and scan.start == pytest.approx(-math.pi) and scan.forward_fraction == 0.5
    azimuth = azimuth_elevation(sweeps[0].directions.double())[:, 0]
    torch.testing.assert_close(sweeps[0].times, 7 + 0.1 * azimuth / (2 * math.pi), atol=1e-8, rtol=0)


def test_columns_that_begin_ahead(tmp_path: Path, street: list[Points]) -> None:
    scan, sweeps = read(tmp_path, street, partial(in_columns, step=2 * math.pi / 450, start=2 * math.pi))
    assert scan.clockwise and abs(scan.start) < math.radians(2)
    azimuth = azimuth_elevation(sweeps[0].directions.double())[:, 0]
    later = torch.where(azimuth < -math.radians(3), -azimuth, 2 * math.pi - azimuth)
    clear = (azimuth - scan.start).abs() > math.radians(3)
    torch.testing.assert_close(sweeps[0].times[clear], (7 + 0.1 * later / (2 * math.pi))[clear], atol=1e-8, rtol=0)


def test_shuffled_points_find_their_beams_by_elevation(
    tmp_path: Path, street: list[Points], right: list[Sweep]
) -> None:
    scan, sweeps = read(tmp_path, street, shuffled)
    assert_same(sweeps, right)
    assert CLOCKWISE in "".join(scan.notes)


@pytest.mark.parametrize("change", [shuffled, in_columns])
def test_points_whose_beams_are_lost_are_refused(tmp_path: Path, drive: list[Points], change: Change) -> None:
    """Elevations of an HDL-64E overlap."""
    with pytest.raises(
        CaptureError, match=r"0000000000\.bin holds points .* neither .*; write them ring by ring from the top"
    ):
        read(tmp_path, drive, change)


@pytest.mark.parametrize("blocks", [False, True])
def test_the_strongest_of_several_returns_is_kept(
    tmp_path: Path, street: list[Points], right: list[Sweep], blocks: bool
) -> None:
    scan, sweeps = read(tmp_path, street, partial(twice, blocks=blocks))
    assert_same(sweeps, right)
    assert scan.several and "several returns" in scan.notes[0]


@pytest.mark.parametrize("blocks", [False, True])
def test_several_returns_of_kittis_lidar(
    tmp_path: Path, drive: list[Points], right_drive: tuple[Scan, list[Sweep]], blocks: bool
) -> None:
    scan, sweeps = read(tmp_path, drive, partial(twice, blocks=blocks))
    assert len(scan.elevations) == 64 and scan.several
    for sweep, right in zip(sweeps, right_drive[1], strict=True):
        assert (torch.bincount(sweep.rings, minlength=64) - torch.bincount(right.rings, minlength=64)).abs().max() <= 12
        assert abs(int(sweep.returned.sum()) - int(right.returned.sum())) <= 10


def test_several_returns_in_columns(tmp_path: Path, street: list[Points], right: list[Sweep]) -> None:
    change = partial(in_columns, step=2 * math.pi / 450)
    _, sweeps = read(tmp_path, street, lambda points: twice(change(points), blocks=False))
    assert_same(sweeps, right)


def test_sweeps_of_a_few_points(tmp_path: Path) -> None:
    few = [np.array([[9, 1, 0, 0.5]], "f4"), np.array([[9, 1, 0, 0.5], [-9, 1, 1, 0]], "f4")]
    scan, sweeps = read(tmp_path, few)
    assert [int(sweep.returned.sum()) for sweep in sweeps] == [1, 2] and len(scan.elevations) <= 2
