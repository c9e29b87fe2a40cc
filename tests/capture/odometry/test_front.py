# SPDX-License-Identifier: Apache-2.0
"""The first path of a rig at a speed that nothing names."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from nurec_lite.capture.measured import Measured
from nurec_lite.capture.odometry.clouds import Cloud
from nurec_lite.capture.odometry.estimate import estimated
from nurec_lite.capture.odometry.front import scan_to_map
from nurec_lite.capture.odometry.reckoning import Twists
from nurec_lite.capture.types import Sweep, SweepFrame
from nurec_lite.geometry.lidar import Lidar

SPEED = 30.0  # metres a second


def box(x: float, y: float, size: tuple[float, float, float], step: float) -> Tensor:  # [n, 3]
    along, across, up = (start + torch.arange(0, n, step) for start, n in zip((x, y, 0.3), size, strict=True))
    return torch.cartesian_prod(along, across, up).double()


def motorway(time: float) -> Tensor:  # [n, 3] in the rig's axes
    """Rings on the street, which look alike in each sweep; poles beside it; cars that drive along at the rig's speed."""
    radii = 1.8 / torch.deg2rad(torch.arange(2.0, 24, 1.0)).tan()
    r, angle = torch.meshgrid(radii, torch.arange(0, 2 * math.pi, 0.02), indexing="ij")
    street = torch.stack([r * angle.cos(), r * angle.sin(), 0 * r], dim=-1).reshape(-1, 3).double()
    poles = [
        box(17.0 * k + 5 * math.sin(2.4 * k) - 50 - SPEED * time, (14.0 + k % 3) * (-1) ** k, (0.7, 0.7, 14), 0.5)
        for k in range(10)
    ]
    cars = [box(x, y, (6, 2, 2.5), 0.5) for x in range(-40, 41, 20) for y in (2.0, -5.0)]
    points = torch.cat([street, *poles, *cars])
    points = points[points.norm(dim=1) < 70]
    generator = torch.Generator().manual_seed(round(10 * time))
    return points + 0.01 * torch.randn(points.shape, generator=generator, dtype=torch.float64)


def cloud(time: float, points: Tensor) -> Cloud:
    return Cloud(time, points, torch.full((len(points),), time, dtype=torch.float64))


def test_cars_beside_the_rig_are_not_the_world() -> None:
    times = torch.arange(4) / 10
    places = scan_to_map([cloud(float(t), motorway(float(t))) for t in times], times.double(), None).poses[:, :3, 3]
    assert float((places[:, 0] - SPEED * times).abs().max()) < 0.5


def test_sweeps_without_points_stay_where_they_are() -> None:
    empty = torch.zeros(0, 3, dtype=torch.float64)
    found = scan_to_map([cloud(0.0, empty), cloud(0.1, empty)], torch.tensor([0.0, 0.1]).double(), None).poses
    torch.testing.assert_close(found, torch.eye(4).double().expand(2, 4, 4))


def test_a_stamp_that_is_there_twice_says_nothing_of_the_speed() -> None:
    times = (0.0, 0.0, 0.1, 0.1, 0.2)
    poses = scan_to_map([cloud(t, motorway(t)) for t in times], torch.tensor(times).double(), None).poses
    assert bool(poses.isfinite().all())
    assert float((poses[:, 0, 3] - SPEED * torch.tensor(times)).abs().max()) < 0.5


# ---- surfaces that leave a direction open


def tunnel(
    time: float,
) -> Tensor:  # [n, 3] in the rig's axes: a lidar's pattern on smooth walls is the same at any speed
    generator = torch.Generator().manual_seed(0)
    x, side = torch.rand(2, 3000, generator=generator).double()
    x = 40 * x - 20
    walls = [torch.stack([x, 0 * x + y, 5 * side], dim=1) for y in (-4.0, 4.0)]
    levels = [torch.stack([x, 8 * side - 4, 0 * x + z], dim=1) for z in (0.0, 5.0)]
    points = torch.cat([*walls, *levels])
    generator = torch.Generator().manual_seed(round(10 * time))
    return points + 0.01 * torch.randn(points.shape, generator=generator, dtype=torch.float64)


def driven(speed: float) -> Twists:
    return Twists(torch.zeros(1).double(), torch.tensor([[0, 0, 0, speed, 0, 0]]).double())


def test_along_a_tunnel_the_guess_goes_on() -> None:
    clouds = [cloud(k / 10, tunnel(k / 10)) for k in range(5)]
    found = scan_to_map(clouds, 0.1 * torch.arange(5).double(), driven(14.0))
    assert found.open.tolist() == [False, True, True, True, True]
    wanted = torch.stack([1.4 * torch.arange(5), torch.zeros(5), torch.zeros(5)], dim=1).double()
    torch.testing.assert_close(found.poses[:, :3, 3], wanted, atol=0.03, rtol=0)


@dataclass(frozen=True)
class Points:
    """Returns of the tunnel at a time."""

    time: float

    @property
    def frame(self) -> SweepFrame:
        return SweepFrame("lidar", round(10 * self.time), self.time, self.time, torch.eye(4), torch.eye(4), self)

    def __call__(self) -> Sweep:
        raise AssertionError("returns are enough")

    def returns(self, every: int = 1) -> tuple[Tensor, Tensor]:
        points = tunnel(self.time)[::every]
        return points, torch.full((len(points),), self.time, dtype=torch.float64)


def test_velocities_carry_a_rig_through_a_tunnel() -> None:
    frames, lidar = [Points(k / 10).frame for k in range(12)], Lidar("lidar", torch.eye(4).double(), torch.zeros(2))
    still = Measured(torch.tensor([0.0, 2.0]).double(), velocities=torch.tensor([[14.0, 0, 0]] * 2).double())
    found, _ = estimated(frames, lidar, (0.0, 1.1), still, None)
    assert found.open == 0 and "measured velocities" in found.sources
    assert abs(float(found.path.at(torch.tensor(1.1).double())[0, 3]) - 15.4) < 0.2
    assert estimated(frames, lidar, (0.0, 1.1), None, None)[0].open == 1


def test_poles_beside_a_plain_close_the_directions() -> None:
    found = scan_to_map([cloud(k / 10, motorway(k / 10)) for k in range(4)], 0.1 * torch.arange(4).double(), None)
    assert not found.open.any()
