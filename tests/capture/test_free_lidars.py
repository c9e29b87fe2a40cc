# SPDX-License-Identifier: Apache-2.0
"""A lidar without rows and columns in captures: its bands, its pack, its record, and the checks that know that it has no rows."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_capture import TINY, Loaded, tiny_capture

from nurec_lite.base.errors import ConfigError
from nurec_lite.capture.checks.ray_times import check_ray_times
from nurec_lite.capture.checks.rays import check_rays
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level
from nurec_lite.capture.digest import Digest, SensorFrames
from nurec_lite.capture.ncore import read
from nurec_lite.capture.ncore.read import read_ncore
from nurec_lite.capture.ncore.write import write_ncore
from nurec_lite.capture.pack import read_pack, write_pack
from nurec_lite.capture.types import Capture
from nurec_lite.geometry.free_lidar import bands_of, free_lidar, rosette, same_rays
from nurec_lite.geometry.lidar import Sweep
from nurec_lite.output.sensors import NovelSensor
from nurec_lite.training.capture_record import check_record, digest_from, record_of

CONFIG = replace(TINY, frames=6, cameras=1, width=8, height=6, beams=12, azimuth_steps=96, pattern="rosette")


@pytest.fixture(scope="module")
def capture() -> Capture:
    return tiny_capture(CONFIG)


@pytest.mark.parametrize("rays", [1, 2, 33, 5000])
def test_bands_hold_about_equally_many_rays(rays: int) -> None:
    directions = rosette(rays, 1.2).directions
    lidar = free_lidar("l", torch.eye(4).double(), directions)
    counts = torch.bincount(bands_of(lidar, directions), minlength=len(lidar.elevations))
    assert len(counts) == len(lidar.elevations) and counts.min() > 0 and counts.max() <= 3 * rays / len(counts) + 1
    assert rays < 100 or 4 < len(lidar.cells()) / len(lidar.cells().of(directions).unique()) < 40


def test_a_rosette_fills_its_field() -> None:
    away = torch.acos(rosette(4000, 1.0, (31, -20)).directions[:, 0])
    assert 0.49 < away.max() <= 0.5 + 1e-6 and away.min() < 0.02


def test_rays_of_one_time_and_direction_are_one() -> None:
    directions = torch.nn.functional.normalize(torch.tensor([[1.0, 0, 0], [1, 1e-5, 0], [1, 0.1, 0], [1, 0, 0]]), dim=1)
    assert same_rays(directions, torch.tensor([0.0, 0, 0, 1])).sum() == 1


def test_a_pack_keeps_its_rays_and_its_table(capture: Capture, tmp_path: Path) -> None:
    write_pack(capture, tmp_path / "a.pack")
    found = read_pack(tmp_path / "a.pack")
    was, now = capture.lidars[0], found.lidars[0]
    assert not now.spins and was.table is not None and now.table is not None
    torch.testing.assert_close(now.table.directions, was.table.directions, atol=5e-5, rtol=0)
    torch.testing.assert_close(now.table.fractions, was.table.fractions, atol=1e-6, rtol=0)
    a, b = capture.sweeps[1].load(), found.sweeps[1].load()
    assert a.returned.equal(b.returned) and a.rings.equal(b.rings)
    torch.testing.assert_close(b.ranges, a.ranges, atol=1.1e-3, rtol=0)
    torch.testing.assert_close(b.times, a.times, atol=1e-6, rtol=0)


@pytest.mark.parametrize("known", [True, False])
def test_a_checkpoint_keeps_the_lidar(known: bool) -> None:
    rays = rosette(100, 1.0)
    lidar = free_lidar("lidar", torch.eye(4).double(), rays.directions, table=rays if known else None)
    none = torch.zeros(0)
    frames = SensorFrames(
        none.long(), none.double().view(0, 2), none.double().view(0, 3, 4), none.long().view(0, 2), none.long(), none
    )
    record = record_of(Digest("d", (), (lidar,), {"lidar": frames}, None))
    check_record(record)
    found = digest_from(record).lidars[0]
    assert not found.spins and (found.table is not None) == known
    spinning = record_of(Digest("d", (), (replace(lidar, spins=True, table=None),), {"lidar": frames}, None))
    assert not {"spins", "table"} & spinning["lidars"][0].keys()  # older versions read it


# ---- checks


def verdicts(capture: Capture) -> list[tuple[Level, str]]:
    sample = Sample(capture)
    return [(v.level, v.sentence) for check in (check_rays, check_ray_times) for v in check(sample)]


def altered(capture: Capture, change: Callable[[Sweep], Sweep]) -> Capture:
    sweeps = tuple(replace(frame, load=Loaded(change(frame.load()))) for frame in capture.sweeps)
    return replace(capture, sweeps=sweeps)


def test_checks_know_that_it_has_no_rows(capture: Capture) -> None:
    found = verdicts(capture)
    assert [level for level, _ in found] == [Level.RIGHT, Level.UNKNOWN]
    assert all("no rows and columns" in sentence for _, sentence in found)


def test_checks_find_arrays_in_different_orders_and_repeated_rays(capture: Capture) -> None:
    order = torch.randperm(len(capture.sweeps[0].load()))

    def shuffle(sweep: Sweep) -> Sweep:
        return replace(sweep, directions=sweep.directions[order], rings=sweep.rings[order])

    shuffled = altered(capture, shuffle)
    assert verdicts(shuffled)[0][0] is Level.CERTAIN
    twice = altered(capture, lambda s: s.select(torch.arange(len(s)).repeat(2)))
    level, sentence = verdicts(twice)[1]
    assert level is Level.CERTAIN and "50 % of the rays" in sentence


# ---- NCore


def test_ncore_keeps_its_rays_and_reads_those_of_others(capture: Capture, tmp_path: Path) -> None:
    """Without our record the store says neither rows nor columns, as NCore's converters write solid-state lidars."""
    path = tmp_path / "a.ncore4.zarr.itar"
    write_ncore(capture, path, image_format="png")
    true = capture.sweeps[1].load()
    with pytest.MonkeyPatch.context() as patch:
        found = read_ncore(path)
        patch.setattr(read, "read_lidar", lambda *_: None)
        foreign = read_ncore(path)
    assert not any(one.lidars[0].spins for one in (found, foreign)) and found.doubts == foreign.doubts == ()
    own, other = (one.sweeps[1].load() for one in (found, foreign))
    assert own.directions.equal(true.directions) and own.ranges.equal(true.ranges) and own.rings.equal(true.rings)
    assert int((~other.returned).sum()) == int((~true.returned).sum()) and len(other) <= len(true)
    assert int(other.rings.max()) < len(foreign.lidars[0].elevations)


# ---- rendering


def test_a_sweep_that_was_not_captured_has_the_rays_of_the_table(capture: Capture) -> None:
    lidar, pose = capture.lidars[0], torch.eye(4).double()
    assert lidar.table is not None
    made = NovelSensor(lidar, 0.1).frame(1.0, pose, pose).load()
    assert made.directions.equal(lidar.table.directions) and not made.returned.any()
    torch.testing.assert_close(made.times, 0.95 + 0.1 * lidar.table.fractions)
    unknown = NovelSensor(replace(lidar, table=None), 0.1).frame(1.0, pose, pose)
    with pytest.raises(ConfigError, match="no rows and columns, and its rays differ from sweep to sweep"):
        unknown.load()
