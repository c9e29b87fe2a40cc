# SPDX-License-Identifier: Apache-2.0
"""Poses that climb or drift by a percent of the way, which each motion alone does not show."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from kept_sweeps import kept_street
from torch import Tensor

from nurec_lite.capture.checks.poses import check_poses
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.types import POSITIONED, Capture, Frame, SweepFrame
from nurec_lite.geometry.lidar import Sweep


def doubts(capture: Capture) -> list[Verdict]:
    return [v for v in check_poses(Sample(capture)) if v.level in (Level.LIKELY, Level.CERTAIN)]


def placed(capture: Capture, place: Callable[[Tensor], Tensor]) -> Capture:
    """Poses with other places in the world."""

    def of(frame: Frame) -> dict[str, Tensor]:
        ends = {name: getattr(frame, name).clone() for name in ("T_world_rig_start", "T_world_rig_end")}
        for T in ends.values():
            T[:3, 3] = place(T[:3, 3])
        return ends

    images, sweeps = (tuple(replace(f, **of(f)) for f in frames) for frames in (capture.images, capture.sweeps))
    return replace(capture, images=images, sweeps=sweeps)


def climbing(part: float) -> Capture:
    return placed(kept_street(), lambda p: p + torch.tensor([0.0, 0.0, part]) * p[0])


@pytest.mark.parametrize(("part", "way", "poses"), [(0.012, "down", "climb"), (-0.03, "up", "sink")])
def test_poses_that_climb_are_named(part: float, way: str, poses: str) -> None:
    (found,) = doubts(climbing(part))
    assert found.level is Level.LIKELY and found.remedy is not None
    assert found.figures["aside"] == pytest.approx(-part, abs=0.002)
    assert found.sentence.startswith(f"By the sweeps lidar moves farther {way} than the poses say, by")
    assert (
        f": the poses {poses}, or lidar looks {abs(math.degrees(found.figures['aside'])):.1f}° farther"
        in found.sentence
    )
    assert found.sentence.endswith(f" {'up' if way == 'down' else 'down'} than T_rig_lidar says.")


def test_a_percent_too_long_is_named() -> None:
    (found,) = doubts(placed(kept_street(), lambda p: 1.01 * p))
    assert "lidar moves less than the poses say, by 1.0 % or more" in found.sentence


def test_a_lidar_that_is_turned_by_a_degree_is_named() -> None:
    angle = torch.deg2rad(torch.tensor(1.0, dtype=torch.float64))
    turn = torch.eye(4, dtype=torch.float64)
    turn[:2, :2] = torch.stack([torch.stack([angle.cos(), -angle.sin()]), torch.stack([angle.sin(), angle.cos()])])
    odd = replace(
        kept_street(), lidars=tuple(replace(x, T_rig_lidar=x.T_rig_lidar @ turn) for x in kept_street().lidars)
    )
    (found,) = doubts(odd)
    assert "farther left" in found.sentence
    assert found.sentence.endswith("or lidar looks 1.0° farther right than T_rig_lidar says.")
    right = torch.linalg.inv(turn)
    assert doubts(replace(odd, lidars=tuple(replace(x, T_rig_lidar=x.T_rig_lidar @ right) for x in odd.lidars))) == []


def with_two_lidars() -> Capture:
    """The second one sits farther right, and is turned: it measures the points of the first one."""
    lidar, X = kept_street().lidars[0], torch.eye(4, dtype=torch.float64)
    X[:3] = torch.tensor([[0.8, -0.6, 0.0, 0.6], [0.6, 0.8, 0.0, -0.7], [0.0, 0.0, 1.0, -0.3]])
    T_to = torch.linalg.inv(X).float()

    def seen(sweep: Sweep) -> Sweep:
        points = sweep.directions * sweep.ranges.clamp(min=1.0)[:, None] @ T_to[:3, :3].T + T_to[:3, 3]
        ranges = points.norm(dim=1)
        return replace(sweep, directions=points / ranges[:, None], ranges=torch.where(sweep.returned, ranges, 0))

    def of_second(frame: SweepFrame) -> SweepFrame:
        return replace(frame, sensor="second", load=lambda: seen(frame.load()))

    second = replace(lidar, name="second", T_rig_lidar=lidar.T_rig_lidar.double() @ X, spins=False)
    sweeps = (*kept_street().sweeps, *map(of_second, kept_street().sweeps))
    return replace(kept_street(), lidars=(lidar, second), sweeps=sweeps)


def test_mountings_of_two_lidars_that_are_exchanged_are_named() -> None:
    right = with_two_lidars()
    a, b = right.lidars
    odd = replace(right, lidars=(replace(a, T_rig_lidar=b.T_rig_lidar), replace(b, T_rig_lidar=a.T_rig_lidar)))
    (found,) = doubts(odd)
    assert found.level is Level.CERTAIN and "if T_rig_lidar of both are exchanged" in found.sentence
    assert doubts(right) == []


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ((0.0, 2.0, 0.0), "2.0 m farther right"),
        ((1.0, 0.0, 0.0), "1.0 m farther back"),
        ((0.0, 0.0, 1.0), "1.0 m farther down"),
    ],
)
def test_a_second_lidar_that_sits_elsewhere_is_named(way: tuple[float, float, float], words: str) -> None:
    """Motions along a straight are those of the right mounting."""
    right = with_two_lidars()
    a, b = right.lidars
    T = b.T_rig_lidar.clone()
    T[:3, 3] += torch.tensor(way, dtype=torch.float64)
    odd = replace(right, lidars=(a, replace(b, T_rig_lidar=T)))
    (found,) = doubts(odd)
    assert found.level is Level.LIKELY
    assert found.sentence == f"Sweeps of second lie on those of lidar if second sits {words}, not as the capture says."
    assert found.remedy == "correct T_rig_lidar of second, or of lidar, where the capture was made"


def test_half_a_percent_is_right() -> None:
    """Right poses of KITTI, of the street and of its seeds are within 0.2 %."""
    assert doubts(climbing(0.005)) == [] and doubts(kept_street()) == []


def test_poses_of_satellites_may_drift() -> None:
    assert doubts(replace(climbing(0.02), poses_from=POSITIONED)) == []


@pytest.mark.parametrize("count", [0, 1, 4])
def test_few_sweeps_tell_nothing(count: int) -> None:
    assert doubts(replace(climbing(0.02), sweeps=climbing(0.02).sweeps[:count])) == []
