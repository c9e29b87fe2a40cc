# SPDX-License-Identifier: Apache-2.0
"""How sharp the map is that the poses make, for a person to compare drives and poses by."""

from collections.abc import Iterator

import torch

from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.odometry.clouds import cloud_of
from nurec_lite.capture.odometry.glance import poses_of
from nurec_lite.capture.odometry.sharpness import pairs_of, sharpness

NAME = "sharpness of the map"
PAIRS = 6  # of sweeps
FEWEST = 3  # sweeps


def check_sharpness(sample: Sample) -> Iterator[Verdict]:
    for lidar in sample.capture.lidars:
        frames = [frame for frame in sample.capture.sweeps if frame.sensor == lidar.name]
        if len(frames) < FEWEST:
            continue
        pairs = pairs_of(len(frames), PAIRS)
        clouds = {k: cloud_of(lidar, frames[k]) for k in {k for pair in pairs for k in pair}}
        middles = torch.tensor([frame.time_mid for frame in frames], dtype=torch.float64)
        found = sharpness(clouds, pairs, poses_of(frames), middles)
        apart = pairs[0][1] - pairs[0][0]
        sentence = f"Sweeps of {lidar.name} that are {apart} apart lie on each other within {found}."
        yield Verdict(NAME, lidar.name, Level.RIGHT, sentence, figures=found.figures)
