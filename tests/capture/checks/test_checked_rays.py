# SPDX-License-Identifier: Apache-2.0
"""Arrays of sweeps that are in another unit, order or time than they must be, each with the sentence that names it."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from pandaset_drive import needs_pandaset, read_pandaset
from tiny_capture import ROOT
from wrong_poses import MIRROR, in_axes, posed, street, with_rays
from wrong_rays import (
    Change,
    at_one_time,
    by_column,
    changed,
    compensated,
    cropped,
    from_its_start,
    in_degrees,
    points,
    reversed_times,
    shuffled,
    times_in,
    two_turns,
    with_arrays,
)

from nurec_lite.capture.checks import driving, poses, ray_crops, ray_times, rays
from nurec_lite.capture.checks.ground import upside_down
from nurec_lite.capture.checks.ordered import ordered
from nurec_lite.capture.checks.run import CHECKS
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.trust import doubts_about
from nurec_lite.capture.checks.turns import turns
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.kitti.raw import read_kitti_raw
from nurec_lite.capture.pack import read_pack, write_pack
from nurec_lite.capture.types import Capture, CaptureError
from nurec_lite.config import DataConfig
from nurec_lite.geometry.lidar import Sweep, unit_directions
from nurec_lite.geometry.se3 import invert
from nurec_lite.readers import read_capture

BEAMS = 24  # of the small street
OF_RAYS = (rays.NAME, ray_crops.NAME, poses.NAME, driving.NAME, ray_times.NAME)


def doubts(capture: Capture, names: tuple[str, ...] = OF_RAYS) -> list[Verdict]:
    """Verdicts of these checks; each check sees those before it."""
    sample = Sample(capture, sweeps=6)
    for name in names:
        sample.found.extend(CHECKS[name](sample))
    return [v for v in sample.found if v.level in (Level.CERTAIN, Level.LIKELY)]


WRONG: dict[str, tuple[Change, str]] = {
    "points": (points, "directions have another length than 1, .*they are points: divide each by its length"),
    "millimetres": (
        with_arrays(lambda s: {"ranges": 1000 * s.ranges}), r"Ranges are \S+ m in the median .*millimetres: divide ranges by 1000",
    ),
    "centimetres": (with_arrays(lambda s: {"ranges": 100 * s.ranges}), "centimetres: divide ranges by 100"),
    "kilometres": (with_arrays(lambda s: {"ranges": s.ranges / 1000}), "they are not in metres"),
    "8 bits": (with_arrays(lambda s: {"intensities": 255 * s.intensities}), r"Intensities go from .*divide intensities by 255"),
    "16 bits": (with_arrays(lambda s: {"intensities": 65535 * s.intensities}), "divide intensities by 65535"),
    "divided twice": (with_arrays(lambda s: {"intensities": s.intensities / 255}), "at most.*here perhaps multiplied by 255"),
    "negative": (with_arrays(lambda s: {"intensities": s.intensities - 0.5}), "give intensities of 0 to 1"),
    "returned inverted": (with_arrays(lambda s: {"returned": ~s.returned}), "the array returned is inverted"),
    "all returned": (with_arrays(lambda s: {"returned": s.ranges >= 0}), "are marked as returned but have no range"),
    "rings from 1": (with_arrays(lambda s: {"rings": s.rings + 1}), "subtract 1 from rings"),
    "rings of columns": (with_arrays(lambda s: {"rings": s.rings + 100}), "lidar has beams 0 to 23 .* give for each ray"),
    "rings reversed": (with_arrays(lambda s: {"rings": BEAMS - 1 - s.rings}), r"Rays lie \S+° from the beams .*ring numbers are reversed"),
    "rings in another order": (with_arrays(lambda s: {"rings": (5 * s.rings) % 24}), "in another order than rings are numbered"),
    "no rings": (with_arrays(lambda s: {"rings": 0 * s.rings}), "All rays belong to 1 of 24 beams"),
    "rings by column": (
        with_arrays(lambda s: {"rings": torch.arange(len(s)) * BEAMS // len(s)}), 
        "Rays of one ring span .* rings and directions are in different orders",
    ),
    "z reversed": (with_arrays(lambda s: {"directions": s.directions * torch.tensor([1.0, 1, -1])}), "turn the sign of their z"),
    "degrees": (in_degrees, "angles were taken as radians but are in degrees"),
    "ranges in another order": (shuffled, "ranges and directions are in different orders"),
    "ranges in reversed order": (
        with_arrays(lambda s: {k: getattr(s, k).flip(0) for k in ("ranges", "intensities", "returned")}),
        "ranges are in reversed order: store ranges, intensities and returns in the order of directions",
    ),
    "ranges by column": (by_column, "ranges and directions are in different orders"),
    "milliseconds": (times_in(1e3), "in milliseconds: divide them by 1000"),
    "microseconds": (times_in(1e6), "in microseconds: divide them by 1000000"),
    "nanoseconds": (times_in(1e9), "in nanoseconds"),
    "from the start of each sweep": (from_its_start, "times of its rays count from the start of the sweep: add"),
    "reversed times": (reversed_times, "turns counter-clockwise, .* turns a sweep, but it says clockwise; times of the rays are reversed"),
    "one time": (at_one_time, "All rays of a sweep of lidar have one time, but it moves 0.8"),
    "compensated to the middle": (compensated(0.5), r"motion-compensated already .(0\.9|1\.0)\d of the 0\.8"),
    "compensated to the end": (compensated(1.0), "motion-compensated already"),
    "x and y exchanged": (with_arrays(lambda s: {"directions": s.directions[:, [1, 0, 2]]}), r"give their directions as \(y, x, z\)"),
    "a sector": (
        cropped(lambda p: (p[:, 0] > 0) & (p[:, 1].abs() < p[:, 0])),
        r"azimuth -4\d to 4\d degrees, but \d+ of \d+ rays .*learned as empty",
    ),
    "a distance": (cropped(lambda p: p.norm(dim=1) < 20), "range < 20.00 m"),
    "a height": (cropped(lambda p: p[:, 2] > -1.5), "z > -1.50 m"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_named_once(case: str) -> None:
    change, sentence = WRONG[case]
    (found,) = doubts(changed(street(), change))
    assert re.search(sentence, found.text), found.text
    assert found.subject == "lidar" and found.remedy is not None
    assert found.level is (Level.LIKELY if case.startswith("a ") else Level.CERTAIN)


def test_two_turns_in_a_sweep_are_named() -> None:
    (found,) = doubts(two_turns(street()), (rays.NAME, ray_times.NAME))
    assert found.level is Level.CERTAIN and "holds 2.0 turns" in found.sentence
    (found,) = doubts(changed(two_turns(street()), at_one_time), (rays.NAME, ray_times.NAME))
    assert "50 % of the rays of lidar have the direction of another ray" in found.sentence


def test_points_that_were_moved_to_the_one_time_of_their_rays_are_right() -> None:
    assert doubts(changed(street(), compensated(0.5, one_time=True))) == []


def test_rays_of_a_lidar_that_turns_the_other_way_are_right() -> None:
    mirrored = posed(with_rays(street(), [0, 1, 2], (1, -1, 1)), lambda T: in_axes(MIRROR, T))
    (lidar,) = mirrored.lidars
    assert doubts(replace(mirrored, lidars=(replace(lidar, clockwise=False),))) == []


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 5])
def test_right_rays_are_not_doubted(seed: int) -> None:
    assert doubts(street(seed), ALONE) == []


ALONE = (rays.NAME, ray_crops.NAME, ray_times.NAME)


def test_rays_of_the_bundled_street_are_not_doubted() -> None:
    assert doubts(read_pack(ROOT / "data/street.pack"), ALONE) == []


def test_rays_of_kitti_are_not_doubted(kitti_root: Path) -> None:
    poses_file = kitti_root / "extra/poses_velo.txt"
    assert doubts(read_kitti_raw(kitti_root, downscale=8, poses_file=poses_file), ALONE) == []


@needs_pandaset
def test_rays_of_pandaset_are_not_doubted() -> None:
    assert doubts(read_pandaset(downscale=8), ALONE) == []


@pytest.mark.parametrize("case", ["8 bits", "millimetres", "rings from 1"])
def test_a_pack_is_refused_with_the_same_sentence(case: str, tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=WRONG[case][1].split(".*")[-1]):
        write_pack(replace(changed(street(), WRONG[case][0]), images=()), tmp_path / "drive.pack")


@pytest.mark.parametrize(
    ("odd", "sentence"),
    [
        (lambda street: posed(street, invert), r"if they are inverted \(T_rig_world\); invert them"),
        (lambda street: changed(street, WRONG["rings reversed"][0]), "ring numbers are reversed"),
    ],
)
def test_training_on_a_pack_stops_with_the_sentence(
    odd: Callable[[Capture], Capture], sentence: str, tmp_path: Path
) -> None:
    write_pack(replace(odd(street()), images=()), tmp_path / "drive.pack")
    capture = read_capture(DataConfig(kind="pack", root=str(tmp_path / "drive.pack")))
    with pytest.raises(CaptureError, match=f"{sentence}.*data.trust=true"):
        doubts_about(capture, "drive.pack", trust=False)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_lidar_on_its_head_is_named(axis: int) -> None:
    turn = -torch.eye(4, dtype=torch.float64)
    turn[axis, axis] = turn[3, 3] = 1.0
    lidars = (replace(x, T_rig_lidar=x.T_rig_lidar.double() @ turn) for x in street().lidars)
    odd = replace(street(), lidars=tuple(lidars))
    (verdict,) = rays.check_rays(Sample(odd))
    assert verdict.level is Level.CERTAIN and "The road seems to lie 1." in verdict.sentence
    assert upside_down(street().lidars[0], []) is None


@pytest.mark.parametrize(
    ("ceiling", "side", "degrees"), [(0.7, 3.0, 15), (0.7, 6.0, 15), (1.5, 6.0, 15), (2.5, 6.0, 25)]
)
def test_a_ceiling_is_no_road(ceiling: float, side: float, degrees: float) -> None:
    """A lidar that looks up as far as down, between walls, nearer to the ceiling than to the floor."""
    azimuth = torch.linspace(-math.pi, math.pi, 900)[:, None].expand(900, 16)
    elevation = torch.deg2rad(torch.linspace(-degrees, degrees, 16)).expand(900, 16)
    rays = unit_directions(torch.stack([azimuth, elevation], dim=-1).flatten(0, 1))
    height = torch.where(rays[:, 2] < 0, 1.8, ceiling)
    ranges = torch.minimum(height / rays[:, 2].abs(), side / rays[:, 1].abs())
    sweep = Sweep(rays, ranges, torch.ones(len(rays)), torch.zeros(len(rays), dtype=torch.float64),
                  torch.arange(16).repeat(900), ranges < 100)  # fmt: skip
    lidar = replace(street().lidars[0], T_rig_lidar=torch.eye(4, dtype=torch.float64))
    assert upside_down(lidar, [ordered(sweep)]) is None


@pytest.mark.parametrize("mixed", [False, True])
def test_a_fine_beam_turns_though_rays_change_places(mixed: bool) -> None:
    """Stamps and poses are coarser than the steps of a Pandar64, so that 15 % of its rays change places."""
    torch.manual_seed(1)
    n = 2000
    azimuth = -2 * math.pi * (torch.arange(n).double() + 0.7 * torch.randn(n)) / n
    times = 0.1 * torch.arange(n).double() / n
    times = times[torch.randperm(n)] if mixed else times
    ways = unit_directions(torch.stack([azimuth, 0 * azimuth], dim=1)).float()
    one = Sweep(ways, torch.ones(n), torch.zeros(n), times, torch.zeros(n, dtype=torch.long), torch.ones(n).bool())
    way = turns(one)
    assert way is None if mixed else way == pytest.approx(-1, abs=0.02)
