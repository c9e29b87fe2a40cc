# SPDX-License-Identifier: Apache-2.0
"""What a step of training starts from, and what it says of itself."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from nurec_lite.capture.loader import BatchPlan
from nurec_lite.config import Config
from nurec_lite.scene.scene import Scene
from nurec_lite.training.history import History


@dataclass
class TrainState:
    """All that changes while training, and what it is trained on."""

    plan: BatchPlan
    config: Config
    scene: Scene
    optimizer: torch.optim.Adam
    generator: torch.Generator  # of noise and relocation, on the scene's device
    device: torch.device
    step: int = 0
    seconds: float = 0.0  # of training so far
    progress: float = 0.0  # 0 at the start, 1 at the end of the budget
    history: History = field(default_factory=History)


@dataclass(frozen=True)
class StepResult:
    """What the progress bar and the log show; tensors of one element, on the device."""

    terms: dict[str, Tensor]  # every loss term before its weight
    mse: Tensor  # of the image, clipped to 0..1
    failed: Tensor | None = None  # not 0: the step changed nothing, and will be done again
