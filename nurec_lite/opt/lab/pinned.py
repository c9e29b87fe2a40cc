# SPDX-License-Identifier: Apache-2.0
"""pinned: all that a step needs of its shots goes to the GPU as one page-locked buffer, by one copy that the host does not wait for.

Idea: a copy from pageable memory goes through a buffer of the driver, and the host waits for it; a step has 16 of them. Here the tensors of
a step are gathered in a page-locked buffer, one copy brings it over, and the step's tensors lie in the device's buffer.
Source: the PyTorch guide of the NuRec Nsight story (page-locked memory and non_blocking); one buffer instead of one a tensor is our own.
Gain, code before and after, limits: docs/options/pinned.md.
Limits: on a GPU alone. Gathering is a copy within the host. A buffer may not be written again while its copy runs: torch's allocator of
page-locked memory sees to that: it notes an event for every non_blocking copy from its buffers, and reuses a freed buffer only after the
event. Where no_sync copies a tensor at a time in this way, this option takes its place. Class exact.
"""

import torch
from torch import Tensor

from nurec_lite.training.shots import Shots
from nurec_lite.training.stages import Stages
from nurec_lite.training.staging_buffer import StagingBuffer
from nurec_lite.training.state import TrainState

CLASS = "exact"
REQUIRES: tuple[str, ...] = ()


def unavailable(stages: Stages) -> str | None:
    return None if stages.device == "cuda" else "it is about copies to a GPU; use device=cuda"


def place(stages: Stages, state: TrainState, shots: Shots) -> Shots:
    """Copies the shots to the device at once; tensors that are there already stay."""
    cuda = state.device.type == "cuda"

    def allocate(size: int) -> Tensor:
        return torch.empty(size, dtype=torch.uint8, pin_memory=cuda)

    staged = StagingBuffer.of(shots, allocate)
    on_device = staged.buffer.to(state.device, non_blocking=True)
    placed: Shots = StagingBuffer(staged.content, on_device).unpack()
    return placed


def apply(stages: Stages) -> Stages:
    return stages.swap("pinned", place=place)
