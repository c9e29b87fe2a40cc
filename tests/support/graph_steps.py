# SPDX-License-Identifier: Apache-2.0
"""Stages and states of the tests of steps that are recorded."""

from dataclasses import replace

import torch
from tiny_capture import tiny_capture, tiny_config

from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.options import parameters_of
from nurec_lite.capture.types import Capture
from nurec_lite.opt.all.cuda_graph import CudaGraph
from nurec_lite.training.stages import Stages
from nurec_lite.training.start import make_state
from nurec_lite.training.state import TrainState

BELOW = ("fused_interp", "collect_once", "no_sync", "fused_adam", "fused_ssim", "fused_range")
CPU = torch.device("cpu")


def stages_of(*names: str, device: torch.device = CPU) -> Stages:
    return build_stages({name: parameters_of(name) for name in (*BELOW, *names)}, base_stages("native", device))


def own(stages: Stages) -> CudaGraph:
    assert isinstance(stages.update.learn, CudaGraph)
    return stages.update.learn


def gpu_state(
    rays: int = 128,
    every: int = 4,
    calibrate: bool = False,
    grid: list[int] | None = None,
    capture: Capture | None = None,  # None: the tiny drive
) -> TrainState:
    config = tiny_config(device="cuda")
    config = replace(config, model=replace(config.model, calibrate=calibrate, bilateral_grid=grid))
    config = replace(config, density=replace(config.density, every=every))
    config = replace(config, train=replace(config.train, lidar_rays=rays))
    return make_state(config, capture or tiny_capture(), torch.device("cuda"))
