# SPDX-License-Identifier: Apache-2.0
"""side_streams: images, sweeps and what belongs to neither are worked on side by side, on CUDA streams of their own.

Idea: what a camera sees of the gathered Gaussians and what a lidar sees of them need nothing of one another, forward to their losses and
from there back to the gradients of what was gathered. One after another, small kernels and the ends of large ones leave multiprocessors
idle. Here images and sweeps have a stream each, figures and what lists tell two more, and regularisers stay on the step's own. Images come
first where several have work: their way is the longest, since the update of harmonics follows on it (fused_harmonics). A branch waits for
an event of the step's stream before each of its works, and of other branches that made what it reads, as figures do; the step's waits for
events of the branches before it updates, and where it takes means over several images or sweeps. The loss is never summed up, so that each
goes back when its own losses are there: autograd runs each node on the stream of its forward pass and lets nodes on other streams wait. In
a graph of cuda_graph such streams are branches that run side by side, and its kernels have their priorities.
Source: streams within a capture, as CUDA's programming guide has them (cross-stream dependencies); torch's notes on stream semantics of
backward passes.
Gain, code before and after, limits: docs/options/side_streams.md.
Limits: on a GPU alone. Memory that a branch uses is not used again by the step's stream, or the other way round, before both are through
with it: every tensor that crosses is recorded with the stream that reads it (Tensor.record_stream), which lasts until it is freed,
so for what the backward pass keeps, too; in a recording that is its end. Autograd does so for gradients. Some gradients are left on a
branch's stream, such as those that fused_harmonics takes aside; their memory goes back to that stream, which next waits for the step's
as the next step forks. So a step takes more memory. Ranges of train.timing are those of each stream, which overlap. Outside of a step
nothing is side by side. Class exact: the same kernels, and sums in the same order.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Unpack

import torch
from torch import Tensor
from torch.autograd.graph import set_warn_on_accumulate_grad_stream_mismatch

from nurec_lite.base.transfer import SideStream, tensors_of
from nurec_lite.training.stages import Stages
from nurec_lite.training.streams import IMAGES, LISTS, Inputs, T

CLASS = "exact"
REQUIRES: tuple[str, ...] = ()
# The lower, the sooner. Streams of a priority come from 32 that are given out in turns. Nobody else asks for these: a branch that were the
# stream of copies (0) or of the recorder (-1) would wait for itself, or record what is none of the step.
FIRST, LATER = -3, -2
PRIORITIES = {IMAGES: FIRST, LISTS: FIRST}


def unavailable(stages: Stages) -> str | None:
    return None if stages.device == "cuda" else "it is about streams of a GPU; use device=cuda"


class SideStreams:
    """Streams of the GPU: one a branch."""

    def __init__(self) -> None:
        self._streams: dict[tuple[torch.device, str], SideStream] = {}  # kept: by device and branch
        self._device: torch.device | None = None  # of the step that is learning
        self._made: dict[SideStream, list[Tensor]] = {}  # by all branches of this step, since the last join

    @contextmanager
    def fork(self, device: torch.device) -> Iterator[None]:
        self._device = device
        try:
            yield
            self.join()  # the backward pass, too, has used these streams
        finally:  # after an error nothing can be said of them: a recording that fails ends with all its streams
            self._device, self._made = None, {}

    def run(self, branch: str, work: Callable[[Unpack[Inputs]], T], *inputs: *Inputs) -> T:
        if self._device is None:
            return work(*inputs)
        side, read = self._stream(self._device, branch), list(tensors_of(inputs))
        side.take(read)
        with side.inside():
            self._await(side, {id(tensor) for tensor in read})
            made = work(*inputs)
        known = {
            id(tensor) for others in self._made.values() for tensor in others
        }  # by work that this work has started
        self._made.setdefault(side, []).extend(tensor for tensor in tensors_of(made) if id(tensor) not in known)
        return made

    def _await(self, side: SideStream, read: set[int]) -> None:
        """Lets a branch wait for others that made what it is given."""
        for other, made in self._made.items():
            if other is not side and not read.isdisjoint(map(id, made)):
                other.hand_over((), other.mark())  # `take` has told the allocator who reads it

    def join(self) -> None:
        for side, made in self._made.items():  # others are no part of a recording, and must not be waited for
            side.hand_over(made, side.mark())
            made.clear()

    def _stream(self, device: torch.device, branch: str) -> SideStream:
        if (device, branch) not in self._streams:
            set_warn_on_accumulate_grad_stream_mismatch(False)  # a camera's exposure is the images' and the step's
            self._streams[device, branch] = SideStream(device, PRIORITIES.get(branch, LATER))
        return self._streams[device, branch]


def apply(stages: Stages) -> Stages:
    return stages.swap("side_streams", streams=SideStreams())
