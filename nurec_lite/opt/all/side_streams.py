# SPDX-License-Identifier: Apache-2.0
"""side_streams: images, sweeps and the rest of a step run concurrently, on CUDA streams of their own.

Idea: the camera's work on the gathered Gaussians and the lidar's are independent, forward to their losses and back to the gradients of the
gathered Gaussians. One after another, small kernels and the ends of large ones leave multiprocessors idle. Here images and sweeps have a
stream each, figures, list lengths, exposures and the update of harmonics (fused_harmonics) four more, and regularisers stay on the step's
own. Images have the highest priority, since that update waits for them. Before each work a branch waits for an event of the step's stream,
and for events of branches that made its inputs. The step's stream waits for events of the branches before it updates, and before it takes
means over several images or sweeps; of several ranks, for that of lists before it sends a message. The losses are never summed, so each is
differentiated as soon as it is there: autograd runs each node on the stream of its forward pass. In a graph of cuda_graph these streams
are concurrent branches, and kernels keep their priorities.
Source: streams within a capture, in CUDA's programming guide (cross-stream dependencies); torch's notes on stream semantics of backward
passes.
Gain, code before and after, limits: docs/options/side_streams.md.
Limits: on a GPU alone. Memory is not reused until both streams are done with it: every tensor that crosses is recorded with the stream
that reads it (Tensor.record_stream) until it is freed, also for the backward pass; in a recording, until the recording ends. Autograd
does so for gradients. Some gradients stay on a branch's stream, such as those that fused_harmonics takes; their memory returns to that
stream. So a step takes more memory. Ranges of train.timing are those of each stream and overlap. Outside of a step nothing runs
concurrently. Class exact: the same kernels, and sums in the same order.
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
# stream of copies (0) or of the recorder (-1) would wait for itself, or capture work of no step.
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
        """Makes a branch wait for the branches that made its inputs."""
        for other, made in self._made.items():
            if other is not side and not read.isdisjoint(map(id, made)):
                other.hand_over((), other.mark())  # `take` has recorded the reading stream with the allocator

    def join(self, *branches: str) -> None:
        named = {side for (_, branch), side in self._streams.items() if branch in branches}
        for side, made in self._made.items():  # others are no part of a recording, and must not be waited for
            if not branches or side in named:
                side.hand_over(made, side.mark())
                made.clear()

    def _stream(self, device: torch.device, branch: str) -> SideStream:
        if (device, branch) not in self._streams:
            set_warn_on_accumulate_grad_stream_mismatch(False)  # a camera's exposure is the images' and the step's
            self._streams[device, branch] = SideStream(device, PRIORITIES.get(branch, LATER))
        return self._streams[device, branch]


def apply(stages: Stages) -> Stages:
    return stages.swap("side_streams", streams=SideStreams())
