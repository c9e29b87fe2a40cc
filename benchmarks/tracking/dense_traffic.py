# SPDX-License-Identifier: Apache-2.0
"""Tracks of simulated dense traffic, found in the sweeps of a 64-beam lidar, against the true ones.

    python benchmarks/tracking/dense_traffic.py [SCENE ...] [--out FILE]

Cars stand in lanes, each with its own gap and speed by a seed. A box counts with 30 returns (benchmarks/tracking/bench_tracking.py).
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import json
import math
import shlex
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.tracking.bench_tracking import PANDASET, measured
from nurec_lite.base.environment import environment
from nurec_lite.base.files import write_text
from nurec_lite.base.program import Parser
from nurec_lite.capture.simulate.drive import Drive, frame_span
from nurec_lite.capture.simulate.noise import uniform
from nurec_lite.capture.simulate.solids import CAR_MODELS, CarModel
from nurec_lite.capture.simulate.traffic import Traffic, fleet_of
from nurec_lite.capture.simulate.world import SimulationConfig
from nurec_lite.capture.types import Capture, SweepFrame

TRUCK = CarModel("Truck", (11.0, 2.5, 3.4), 0.9, (-0.49, 0.49), (0.05, 0.05))
LANES = (-4.9, -1.65, 1.65, 4.9)  # metres across; the vehicle drives in the second
BEFORE, AFTER, CLEAR = -35.0, 60.0, 5.5  # metres along, from the vehicle; none stand so close to it


@dataclass(frozen=True)
class Scene:
    """Traffic at about one speed."""

    speed: float  # metres a second, of all cars, and
    own: float  # of the vehicle
    gap: float  # metres between cars at most
    lanes: tuple[float, ...] = LANES
    trucks: float = 0.0  # share
    waits: float = 0.0  # seconds that each car stands in the middle of the drive
    parked: int = 0


SCENES = {
    "walking pace": Scene(1.0, 1.0, 8.0),
    "jam": Scene(2.0, 2.0, 8.0),
    "jam with trucks": Scene(2.0, 2.0, 6.0, trucks=0.3),
    "oncoming jam": Scene(2.0, 8.0, 8.0, lanes=(1.65,), parked=8),
    "stop and go": Scene(4.0, 2.4, 8.0, lanes=(-4.9, 1.65, 4.9), waits=1.5),
    "street": Scene(7.0, 7.0, 12.0, lanes=(-1.65, 1.65), parked=12),
    "motorway": Scene(25.0, 25.0, 25.0, trucks=0.2),
    "trucks": Scene(9.0, 8.5, 25.0, lanes=LANES[:2], trucks=1.0),
}


def way(
    scene: Scene,
    across: float,
    start: float,  # metres along
    pace: float,  # of the scene's speed
    wait: float,  # seconds until it stands
    times: Tensor,  # [T] seconds
) -> tuple[Tensor, Tensor, Tensor]:  # [T] along, across, and heading to the street
    driven = torch.minimum(times, torch.full_like(times, wait)) + (times - wait - scene.waits).clamp(min=0)
    ahead = 1.0 if across < 0 else -1.0
    turn = torch.full_like(times, 0.0 if across < 0 else math.pi)
    return start + ahead * pace * scene.speed * driven, torch.full_like(times, across), turn


def cars(scene: Scene, seed: int) -> tuple[list[partial[tuple[Tensor, Tensor, Tensor]]], list[CarModel]]:
    ways, models = [], []
    for lane, across in enumerate(scene.lanes):
        chance = partial(uniform, 0, 1, seed, lane)
        end, pace, i = BEFORE + 4 * chance(0, 0), 0.8 + 0.4 * chance(0, 1), 0
        while end < AFTER:
            i += 1
            model = TRUCK if chance(i, 2) < scene.trucks else CAR_MODELS[int(4 * chance(i, 3))]
            middle, end = end + 0.5 * model.size[0], end + model.size[0]
            if across != LANES[1] or abs(middle) > CLEAR + 0.5 * model.size[0]:
                ways.append(partial(way, scene, across, middle, pace, 2.0 + chance(i, 4)))
                models.append(model)
            end += scene.gap * (0.4 + 0.6 * chance(i, 5))
    return ways, models


def capture_of(name: str, seed: int, frames: int) -> Capture:
    scene = SCENES[name]
    ways, models = cars(scene, seed)
    config = SimulationConfig(
        seed=seed, frames=frames, speed=scene.own, moving_cars=len(ways), parked_cars=scene.parked, cameras=1,
        beams=64, azimuth_steps=1024, elevation_deg=(-24.8, 2.0),
    )  # fmt: skip
    fleet: Traffic = fleet_of(config, ways, tuple(models))
    drive = Drive(config, "cpu", fleet=fleet)
    span = partial(frame_span, config, length_s=1 / config.rate_hz)
    sweeps = [SweepFrame(drive.lidar.name, i, *span(i), load=partial(drive.sweep, i)) for i in range(frames)]
    return Capture(name, (), (drive.lidar,), (), tuple(sweeps), fleet.tracks)


def main(arguments: list[str]) -> None:
    p = Parser(__doc__)
    p.add_argument("scenes", nargs="*", metavar="SCENE", help=f"of {', '.join(SCENES)} (all)")
    p.add_argument("--seed", type=int, default=1, help="of gaps, speeds and models (%(default)s)")
    p.add_argument("--frames", type=int, default=60, help="sweeps of a scene (%(default)s)")
    p.add_argument("--out", type=Path, help="JSON file, such as benchmarks/results/NAME.json")
    args = p.parse_args(arguments)
    found = {}
    for name in args.scenes or SCENES:
        if name not in SCENES:
            p.error(f"SCENE is '{name}', but must be one of {', '.join(SCENES)}; correct it")
        found[name] = measured(capture_of(name, args.seed, args.frames), PANDASET)
        print(name, found[name], flush=True)
    if args.out:
        command = shlex.join(["python", "benchmarks/tracking/dense_traffic.py", *arguments])
        report = {"command": command, "environment": environment(torch.device("cpu")), "captures": found}
        write_text(args.out, json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
