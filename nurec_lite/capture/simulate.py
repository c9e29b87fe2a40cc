# SPDX-License-Identifier: Apache-2.0
"""A simulated drive: `simulate(SimulationConfig(), "cpu")` is a `Capture` whose frames are cast when they are loaded.

    python -m nurec_lite.capture.simulate --out street.pack --frames 50

Equal configurations give equal bits on the same device. Poses of the ego car between a frame's start and end, and of
the other cars between their keyframes, are exactly what `se3.interpolate_between` and `tracks.interpolate` say.
"""

import os

# Threads that wait for one another sleep instead of spinning: on a busy machine, spinning costs 10 x.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nurec_lite.capture.pack import IMAGE_FORMATS, write_pack
from nurec_lite.capture.simulate_drive import Drive, frame_span
from nurec_lite.capture.simulate_world import SimulationConfig
from nurec_lite.capture.types import Capture, ImageFrame, SweepFrame
from nurec_lite.geometry.lidar import Sweep

_drive = lru_cache(maxsize=4)(Drive)


def simulate(config: SimulationConfig, device: str = "cpu") -> Capture:
    """Nothing is cast yet: every frame's `load` does that, on the device, and returns tensors on the CPU."""
    drive = _drive(config, device)
    images = [
        ImageFrame(camera.name, i, *frame_span(config, i, config.readout_s), load=SimulatedImage(config, device, c, i))
        for i in range(config.frames)
        for c, camera in enumerate(drive.cameras)
    ]
    sweeps = [
        SweepFrame(
            drive.lidar.name, i, *frame_span(config, i, 1 / config.rate_hz), load=SimulatedSweep(config, device, i)
        )
        for i in range(config.frames)
    ]
    name = f"street_{config.seed}"
    tracks = drive.fleet.tracks
    return Capture(name, drive.cameras, (drive.lidar,), tuple(images), tuple(sweeps), tracks)


def simulate_depth(
    frame: ImageFrame,  # of a simulated capture
) -> Tensor:  # [H, W] float64, metres along the unit ray through the pixel's centre; infinite in the sky
    load = frame.load
    assert isinstance(load, SimulatedImage)
    return _drive(load.config, load.device).depth(load.camera, load.index)


@dataclass(frozen=True)
class SimulatedImage:
    """Loads one image. It carries the configuration alone, so it pickles; a process builds the street on first use."""

    config: SimulationConfig
    device: str
    camera: int
    index: int

    def __call__(self) -> Tensor:  # [H, W, 3] uint8
        return _drive(self.config, self.device).image(self.camera, self.index)


@dataclass(frozen=True)
class SimulatedSweep:
    """Loads one sweep, likewise."""

    config: SimulationConfig
    device: str
    index: int

    def __call__(self) -> Sweep:
        return _drive(self.config, self.device).sweep(self.index)


# Command line


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Simulate a drive and write it as a pack.")
    parser.add_argument("--out", type=Path, required=True, help="pack to write")
    parser.add_argument("--device", default="auto", help="cpu, cuda, or auto: cuda where there is one (%(default)s)")
    parser.add_argument("--image-format", default="png", choices=IMAGE_FORMATS, help="(%(default)s)")
    parser.add_argument("--quality", type=int, default=95, help="of JPEG (%(default)s)")
    for f in fields(SimulationConfig):
        flag, default = "--" + f.name.replace("_", "-"), f.default
        if isinstance(default, bool):
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=default)
        elif isinstance(default, tuple):
            parser.add_argument(flag, type=float, nargs=len(default) or 5, default=default, help="(%(default)s)")
        else:
            parser.add_argument(flag, type=type(default), default=default, help="(%(default)s)")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    args = vars(_parser().parse_args(arguments))
    device = args["device"]
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    values: dict[str, Any] = {f.name: args[f.name] for f in fields(SimulationConfig)}
    values = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
    capture = simulate(SimulationConfig(**values), device)
    write_pack(capture, args["out"], image_format=args["image_format"], quality=args["quality"])
    print(f"{args['out']}: {args['out'].stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
