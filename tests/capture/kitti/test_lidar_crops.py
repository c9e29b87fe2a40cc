# SPDX-License-Identifier: Apache-2.0
"""Points cut away from sweeps are named, and are not learned as rays without return; true rays without return still are."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from lidar_files import Change, Points, azimuth, box, distance, front, frustum, read, rings, simulated, thinned, voxels

from nurec_lite.capture.checks import files
from nurec_lite.capture.checks.run import verdicts
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level
from nurec_lite.capture.crops import find_cuts, is_thinned
from nurec_lite.capture.kitti.raw import read_kitti_raw
from nurec_lite.capture.kitti.scan import Scan
from nurec_lite.geometry.lidar import Sweep, azimuth_elevation

Drive = tuple[list[Points], Scan, list[Sweep]]


@pytest.fixture(scope="module")
def kitti(kitti_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Drive:
    files = sorted(kitti_root.glob("2*/*/velodyne_points/data/*.bin"))[::16]
    points = [np.fromfile(path, "<f4").reshape(-1, 4) for path in files]
    return points, *read(tmp_path_factory.mktemp("drive"), points)


@pytest.fixture(scope="module")
def street(tmp_path_factory: pytest.TempPathFactory) -> Drive:
    points = simulated(64, 400, (-25.0, 3.0), 2, n=4)
    return points, *read(tmp_path_factory.mktemp("street"), points)


CUTS: dict[str, tuple[Change, str]] = {
    "a quarter": (front, r"azimuth -4\d to 4\d degrees"),
    "an image": (frustum, r"azimuth -4\d to 4\d degrees"),
    "a half": (lambda p: p[p[:, 0] > 0], r"azimuth -9\d to 9\d degrees"),
    "three quarters": (lambda p: p[(azimuth(p) < 1.5) | (azimuth(p) > 3)], r"azimuth 17\d to 44\d degrees"),
    "near": (lambda p: p[distance(p) < 20], r"range < 20\.0"),
    "far": (lambda p: p[distance(p) > 5], r"range > 5\.0"),
    "above the ground": (lambda p: p[p[:, 2] > -1.5], r"z > -1\.5"),
    "below branches": (lambda p: p[p[:, 2] < 0.5], r"z < 0\.5"),
    "the road": (lambda p: p[np.abs(p[:, 1]) < 8], r"y > -8\.0\d m, y < (8\.0|7\.9)"),
    "a box": (box, r"x > 0\.0.* z < 1\.0"),
    "near and ahead": (lambda p: front(p[distance(p) < 20]), r"range < (20\.0|19\.9)"),
}  # fmt: skip


PAIRS = [(drive, cut) for drive in ("street", "kitti") for cut in CUTS]
PAIRS.remove(("street", "near and ahead"))  # four sweeps of 5 000 returns show it too seldom


@pytest.mark.parametrize(("drive", "cut"), PAIRS)
def test_what_was_cut_away_is_no_empty_ray_and_is_said(
    tmp_path: Path, request: pytest.FixtureRequest, drive: str, cut: str
) -> None:
    points, _, whole = request.getfixturevalue(drive)
    change, sentence = CUTS[cut]
    scan, sweeps = read(tmp_path, points, change)
    assert len(scan.notes) == 1

    assert re.search(sentence, scan.notes[0]), scan.notes
    taught = sum(false_rays(sweep, right) for sweep, right in zip(sweeps, whole, strict=True))
    gone = sum(int(right.returned.sum() - sweep.returned.sum()) for sweep, right in zip(sweeps, whole, strict=True))
    assert gone > 1000 and taught < 0.01 * gone


def false_rays(sweep: Sweep, whole: Sweep) -> int:
    """Rays said not to have returned that did return before points were removed: their cell of 0.2 x 0.4 degrees holds returns only."""
    empty, full = (cells(whole.select(mask)) for mask in (~whole.returned, whole.returned))
    missing = cells(sweep.select(~sweep.returned))
    return int((torch.isin(missing, full) & ~torch.isin(missing, empty)).sum())


def cells(sweep: Sweep) -> torch.Tensor:  # [R]
    angles = torch.rad2deg(azimuth_elevation(sweep.directions.double()))
    return ((angles[:, 0] + 180) / 0.45).long() * 1000 + ((angles[:, 1] + 90) / 0.4).long()


@pytest.mark.parametrize("drive", ["kitti", "street"])
def test_a_whole_drive_has_no_cut(request: pytest.FixtureRequest, drive: str) -> None:
    assert request.getfixturevalue(drive)[1].notes == ()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("beams", "elevation_deg"), [(16, (-15.0, 15.0)), (32, (-30.0, 10.0))])
def test_streets_have_no_cut(tmp_path: Path, beams: int, elevation_deg: tuple[float, float], seed: int) -> None:
    scan, _ = read(tmp_path, simulated(beams, 300, elevation_deg, seed))
    assert scan.notes == () and not scan.blocked.all()


def test_what_did_not_return_is_still_taught(tmp_path: Path, kitti: Drive) -> None:
    """The rest still holds the sky over a quarter of the sweep, and every fourth ring."""
    points, _, whole = kitti
    for change, share in ((front, 0.2), (lambda p: p[rings(p) % 4 == 0], 0.2)):
        sweeps = read(tmp_path, points, change)[1]
        kept, before = (sum(int((~sweep.returned).sum()) for sweep in some) for some in (sweeps, whole))
        assert kept > share * before


@pytest.mark.parametrize("share", [0.3, 0.5, 0.9])
@pytest.mark.parametrize("drive", ["kitti", "street"])
def test_points_removed_at_random(tmp_path: Path, request: pytest.FixtureRequest, drive: str, share: float) -> None:
    points = request.getfixturevalue(drive)[0]
    scan, sweeps = read(tmp_path, points, lambda p: thinned(p, share))
    assert scan.notes[0].startswith("Sweeps lack points at random")
    assert all(bool(sweep.returned.all()) for sweep in sweeps)
    assert len(scan.elevations) == 64


def test_points_of_a_voxel_filter(tmp_path: Path, kitti: Drive) -> None:
    scan, sweeps = read(tmp_path, kitti[0], voxels)
    assert "keeps one point of a voxel" in scan.notes[0]
    for sweep, points in zip(sweeps, kitti[0], strict=True):
        assert sweep.returned.all() and 0.9 * len(voxels(points)) < len(sweep) <= len(voxels(points))
        away = azimuth_elevation(sweep.directions.double())[:, 1] - scan.elevations[sweep.rings]
        assert away.abs().median() < 0.01


def test_a_wall_and_a_row_of_parked_cars_are_no_cut() -> None:
    """A wall is a peak with noise about it; cars are near on one side alone."""
    rng = np.random.default_rng(0)
    n = 40_000
    x, z = rng.uniform(-40, 40, n), rng.uniform(-1.5, 3, n)
    wall = np.stack([x, 12 + 0.02 * rng.standard_normal(n), z], axis=1)
    cars = np.stack([x, -2.2 - np.abs(rng.standard_normal(n)) * 0.3, z], axis=1)
    points = torch.from_numpy(np.concatenate([wall, cars]))
    names = [cut.sentence for cut in find_cuts(points, torch.arange(len(points)) % 8)]
    assert not [name for name in names if name.startswith(("y <", "range >"))], names


def test_thin_where_surfaces_lose_rays() -> None:
    step, ranges = 0.003, torch.full((1000, 2), 8.0)
    gaps = torch.full((1000,), step)
    gaps[::10] = 2 * step
    assert is_thinned(gaps, ranges, step) and not is_thinned(gaps, ranges + 30, step)
    gaps[::10] = step
    gaps[::50] = 2 * step
    assert not is_thinned(gaps, ranges, step)


def test_notes_are_findings(kitti_root: Path, tmp_path: Path) -> None:
    drive = next(kitti_root.glob("2*/*_sync"))
    copy = tmp_path / drive.parent.name / drive.name
    (copy / "velodyne_points" / "data").mkdir(parents=True)
    for path in (*drive.parent.glob("calib*"), drive / "oxts", drive / "image_02"):
        (tmp_path / path.relative_to(drive.parent.parent)).symlink_to(path)
    for path in drive.glob("velodyne_points/*.txt"):
        (copy / "velodyne_points" / path.name).symlink_to(path)
    for path in sorted(drive.glob("velodyne_points/data/*.bin"))[:3]:
        points = front(np.fromfile(path, "<f4").reshape(-1, 4))
        (copy / "velodyne_points" / "data" / path.name).write_bytes(points.tobytes())
    capture = read_kitti_raw(tmp_path, frames=(0, 3), cameras=("image_02",))
    found = [v for v in verdicts(Sample(capture)) if v.check == files.NAME]
    assert [v.level for v in found] == [Level.LIKELY] and "azimuth -45 to 45 degrees" in found[0].sentence
