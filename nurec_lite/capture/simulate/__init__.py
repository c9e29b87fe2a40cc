# SPDX-License-Identifier: Apache-2.0
"""A simulated drive: `simulate(SimulationConfig(), "cpu")` is a `Capture`; its frames are cast when they are loaded.

    python -m nurec_lite.capture.simulate --out street.pack --frames 50

Equal configurations give equal bits on the same device. Poses of the ego car between a frame's start and end, and of
the other cars between their keyframes, follow exactly `se3.interpolate_between` and `tracks.interpolate`.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
from dataclasses import dataclass
from functools import lru_cache

from torch import Tensor

from nurec_lite.capture.simulate.drive import Drive, frame_span
from nurec_lite.capture.simulate.world import SimulationConfig
from nurec_lite.capture.types import Capture, ImageFrame, SweepFrame
from nurec_lite.geometry.lidar import Sweep

_drive = lru_cache(maxsize=4)(Drive)


def simulate(config: SimulationConfig, device: str = "cpu") -> Capture:
    """The simulated capture. Every frame's `load` casts it on the device and returns tensors on the CPU."""
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
    """Loads one sweep."""

    config: SimulationConfig
    device: str
    index: int

    def __call__(self) -> Sweep:
        return _drive(self.config, self.device).sweep(self.index)
