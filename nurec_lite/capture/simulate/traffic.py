# SPDX-License-Identifier: Apache-2.0
"""Traffic on the simulated street: the ego car, and the cars that are tracked."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from nurec_lite.capture.simulate.noise import uniform
from nurec_lite.capture.simulate.solids import CAR_MODELS, CarModel, Solid, Triple, car, moved
from nurec_lite.capture.simulate.world import CROSSING_EVERY, FIRST_CROSSING, KERB, SimulationConfig, is_free, on_street
from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.tracks import Tracks

LANE = 1.65  # metres from the centre line to the middle of a lane
PARKING = 4.45  # to the middle of the row of parked cars
_PAINTS: tuple[Triple, ...] = (
    (0.62, 0.04, 0.03), (0.80, 0.80, 0.78), (0.03, 0.10, 0.36), (0.26, 0.27, 0.29),
    (0.04, 0.04, 0.05), (0.70, 0.46, 0.05), (0.05, 0.22, 0.14), (0.30, 0.50, 0.62),
)  # fmt: skip


def ego_pose(
    config: SimulationConfig,
    times: Tensor,  # [T] seconds
) -> tuple[Tensor, Tensor]:  # position [T, 3] of the point on the road below the rig, roll, pitch, yaw [T, 3]
    """Pose in the right lane at constant speed, swaying a little; the suspension rocks."""
    x = config.speed * times
    sway = 0.12 * config.speed / _pace(config)  # a vehicle that stands does not sway
    across = -LANE + sway * (1 - torch.cos(0.9 * times))
    heading = torch.atan(sway * 0.9 * torch.sin(0.9 * times) / _pace(config))
    world_x, world_y, yaw = on_street(x, across, heading)
    z = 0.008 * torch.sin(7.1 * times)
    roll, pitch = 0.004 * torch.sin(4.3 * times), 0.004 * torch.sin(5.9 * times + 1)
    return torch.stack([world_x, world_y, z], dim=-1), torch.stack([roll, pitch, yaw], dim=-1)


def _pace(config: SimulationConfig) -> float:
    """The speed that times the traffic, also where the vehicle stands, in metres a second."""
    return max(config.speed, 1.0)


_ONCOMING = 6.0  # metres a second, of all cars of that lane, so that they keep their distances
_TURN_RADIUS = 6.5
_BRAKES = 2.5  # metres a second squared, when a car stops and when it starts
_STOPPING = _ONCOMING / _BRAKES  # seconds


def _lead(config: SimulationConfig, number: int, times: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A car that drives ahead in our lane; the gap breathes."""
    gap = 12.5 + 11.0 * number + 1.5 * torch.sin(0.8 * times + 0.5 + number)
    across = -LANE + 0.25 * torch.sin(0.7 * times + number)
    heading = torch.atan(0.25 * 0.7 * torch.cos(0.7 * times + number) / _pace(config))
    return config.speed * times + gap, across, heading


def _turning_time(config: SimulationConfig, number: int) -> float:
    """Time when the n-th turning car enters its side street: the ego car is 14 m from it."""
    return (FIRST_CROSSING + CROSSING_EVERY * number - 14.0) / _pace(config)


def _turning(config: SimulationConfig, number: int, times: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A car that comes towards us and turns off to its right, into a side street."""
    run = _ONCOMING * (times - _turning_time(config, number))  # metres along its path, 0 where the arc begins
    angle = (run / _TURN_RADIUS).clamp(0, 0.5 * math.pi)
    beyond = (run - 0.5 * math.pi * _TURN_RADIUS).clamp(min=0)
    corner = FIRST_CROSSING + CROSSING_EVERY * number + _TURN_RADIUS - 1.6
    x = corner - run.clamp(max=0) - _TURN_RADIUS * torch.sin(angle)
    across = LANE + _TURN_RADIUS * (1 - torch.cos(angle)) + beyond
    return x, across, math.pi - angle


def _oncoming(config: SimulationConfig, number: int, times: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A car that follows the n-th turning car and passes us."""
    meeting = _turning_time(config, number) + 2.4
    x = config.speed * meeting - _ONCOMING * (times - meeting)
    return x, torch.full_like(x, LANE), torch.full_like(x, math.pi)


def _waiting(config: SimulationConfig, number: int, times: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A car from a side street to our right: it stops at the mouth until we and the oncoming car have passed, and crosses."""
    entered = _turning_time(config, number)
    braking = (times - entered + 2.0).clamp(0, _STOPPING)
    starting = (times - entered - 5.5).clamp(0, _STOPPING)
    before, after = (times - entered + 2.0).clamp(max=0), (times - entered - 5.5 - _STOPPING).clamp(min=0)
    way = _ONCOMING * (before + after) + _ONCOMING * braking - 0.5 * _BRAKES * (braking.square() - starting.square())
    across = -KERB - 3.0 - 0.5 * _ONCOMING * _STOPPING + way
    x = torch.full_like(across, FIRST_CROSSING + CROSSING_EVERY * number + 1.8)
    return x, across, torch.full_like(across, 0.5 * math.pi)


_BEHAVIOURS = (_lead, _oncoming, _turning, _waiting)


@dataclass(frozen=True)
class Traffic:
    """The cars of a drive; the first `moving` of them move."""

    tracks: Tracks  # on the CPU, float64
    models: tuple[CarModel, ...]
    paints: tuple[Triple, ...]
    moving: int


def _parking_spots(config: SimulationConfig) -> list[tuple[float, float]]:  # (x, across)
    xs = [-18 + 6.6 * i for i in range(int((config.travel + 70) / 6.6))]
    spots = [(x, side * PARKING) for x in xs for side in (-1, 1) if is_free(x, 4.0)]
    if len(spots) < config.parked_cars:
        raise CaptureError(f"parked_cars is {config.parked_cars}, but the street has room for {len(spots)}; park fewer")
    ranks = [uniform(0, 1, config.seed, 77, i) for i in range(len(spots))]
    order = sorted(range(len(spots)), key=lambda i: ranks[i])
    return [spots[i] for i in sorted(order[: config.parked_cars])]


def _parked(x: float, across: float, times: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    one = torch.ones_like(times)
    return x * one, across * one, (math.pi if across > 0 else 0.0) * one


Way = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]  # times [T] -> x, across and heading [T]


def traffic(config: SimulationConfig) -> Traffic:
    """The cars of the simulated street: some of each behaviour, and parked ones."""
    return fleet_of(config, [partial(_BEHAVIOURS[i % 4], config, i // 4) for i in range(config.moving_cars)])


def fleet_of(
    config: SimulationConfig,
    paths: Sequence[Way],  # of the cars that move
    moving: tuple[CarModel, ...] = (),  # their models; by turns without
) -> Traffic:
    """Keyframes at the triggers and one beyond either end. Poses between are exactly their interpolation."""
    times = (torch.arange(-1, config.frames + 1, dtype=torch.float64) + 0.5) / config.rate_hz
    keys = [path(times) for path in paths] + [_parked(*spot, times) for spot in _parking_spots(config)]
    shift = int(uniform(0, 100, config.seed, 50))
    models = tuple(CAR_MODELS[(i + i // len(_PAINTS) + shift) % len(CAR_MODELS)] for i in range(len(keys)))
    models = (*moving, *models[len(moving) :])
    paints = tuple(_PAINTS[(i + shift) % len(_PAINTS)] for i in range(len(keys)))
    tracks = _tracks(times, models, keys) if keys else Tracks.empty()
    return Traffic(tracks, models, paints, len(paths))


def _tracks(
    times: Tensor,  # [T] seconds
    models: tuple[CarModel, ...],
    keys: list[tuple[Tensor, Tensor, Tensor]],  # street coordinates and heading of each car at those times
) -> Tracks:
    positions = [on_street(*key) for key in keys]
    x, y, yaw = (torch.cat(values) for values in zip(*positions, strict=True))
    sizes = torch.tensor([model.size for model in models], dtype=torch.float64)
    zero = torch.zeros_like(x)
    return Tracks(
        ids=tuple(f"{i:03d}" for i in range(len(keys))),
        classes=tuple(model.name for model in models),
        sizes=sizes,
        offsets=tuple(range(0, len(times) * len(keys) + 1, len(times))),
        times=times.repeat(len(keys)),
        translations=torch.stack([x, y, 0.5 * sizes[:, 2].repeat_interleave(len(times))], dim=-1),
        quaternions=torch.stack([torch.cos(yaw / 2), zero, zero, torch.sin(yaw / 2)], dim=-1),
    )


def parked_solids(fleet: Traffic) -> list[Solid]:
    """The parked cars in world coordinates."""
    solids = []
    for k in range(fleet.moving, len(fleet.models)):
        row = fleet.tracks.offsets[k]
        x, y, z = fleet.tracks.translations[row].tolist()
        w, _, _, s = fleet.tracks.quaternions[row].tolist()
        solids += [moved(solid, x, y, z, 2 * math.atan2(s, w)) for solid in car(fleet.models[k], fleet.paints[k])]
    return solids
