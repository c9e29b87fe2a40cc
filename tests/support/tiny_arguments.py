# SPDX-License-Identifier: Apache-2.0
"""Arguments of a training, in plain torch on a CPU, whose steps take no time."""

TINY = [
    "ops=reference",
    "device=cpu",
    "data.downscale=8",
    "data.frames=[0,10]",
    "train.lidar_rays=64",
    "model.points=200",
]
TINY += [
    "model.raised_points=20",
    "model.far_points=20",
    "model.actor_points=20",
    "density.cap=100",
    "measure.seconds=0",
]
