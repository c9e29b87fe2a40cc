# SPDX-License-Identifier: Apache-2.0
"""Gradients of a step, averaged over the ranks that train together: two messages, the first during the backward pass.

Idea: all ranks hold all Gaussians, and each renders its share of the step's views. Gradients are copied into one array; the harmonics of
the colours, most of the bytes, lie in front. A hook counts them as autograd finishes them, and the last one sends this part while the
rest of the backward pass goes on. `reduce` sends the rest, with the flag that a list overflowed, and waits for both. Every rank then
makes the same update.
Source: overlapping buckets of PyTorch DDP (Li et al. 2020).
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from nurec_lite.base.ranges import BACKWARD, span
from nurec_lite.base.ranks import RankError, Ranks
from nurec_lite.training.state import TrainState

EARLY = ("sh0", "sh_rest")  # parameters of the first message
ALIGNED = 64  # numbers: each gradient begins at such a place, so that kernels read it in vectors


class Message:
    """The gradients of some parameters, in one array that stays where it is, as a recorded step needs it."""

    def __init__(self, parameters: dict[str, Tensor], share: float) -> None:
        self.parameters = sorted(parameters.values(), key=lambda p: not _is_early(p, parameters))
        self._share = share
        self._early = sum(name in EARLY for name in parameters)
        lengths = [-(-p.numel() // ALIGNED) * ALIGNED for p in self.parameters]
        self.array = self.parameters[0].new_zeros(sum(lengths) + ALIGNED, requires_grad=False)
        pieces = self.array.split([*lengths, ALIGNED])
        self._cut = sum(lengths[: self._early])
        self._gradients = [piece[: p.numel()].view(p.shape) for piece, p in zip(pieces, self.parameters, strict=False)]
        self._flag = pieces[-1][0]
        self._came: dict[int, torch.cuda.Event | None] = {}  # copied gradients, and when on a GPU
        self._works: list[Any] = []  # under way
        self._hooks = [p.register_post_accumulate_grad_hook(self._hook(k)) for k, p in enumerate(self.parameters)]

    def fits(self, parameters: Iterable[Tensor]) -> bool:
        """Whether these are its parameters, in any order."""
        return {id(p) for p in parameters} == {id(p) for p in self.parameters}

    def _hook(self, k: int) -> Any:
        return lambda parameter: self._arrived(k, parameter)

    def _arrived(self, k: int, parameter: Tensor) -> None:
        """In a thread of autograd, on the stream that made the gradient."""
        assert parameter.grad is not None
        torch.mul(parameter.grad, self._share, out=self._gradients[k])
        self._came[k] = torch.cuda.current_stream(parameter.device).record_event() if parameter.is_cuda else None
        if k < self._early and all(j in self._came for j in range(self._early)):
            with span("exchange", within=BACKWARD):
                for event in (self._came[j] for j in range(self._early)):
                    if event is not None:
                        torch.cuda.current_stream(parameter.device).wait_event(event)
                self._send(self.array[: self._cut])

    def _send(self, part: Tensor) -> None:
        if part.numel():
            self._works.append(torch.distributed.all_reduce(part, async_op=True))

    def exchange(self, failed: Tensor | None) -> Tensor | None:
        """Gives every parameter the mean of its gradients. Returns whether the step of any rank failed, as `failed` has it."""
        for k, parameter in enumerate(self.parameters):
            if parameter.grad is None:
                self._gradients[k].zero_()
            elif k not in self._came:
                torch.mul(parameter.grad, self._share, out=self._gradients[k])
        if failed is not None:
            self._flag.copy_(failed)
        self._send(self.array[self._cut if self._works else 0 :])
        for work in self._works:
            work.wait()
        for k, parameter in enumerate(self.parameters):
            if (
                parameter.grad is not None
            ):  # absent gradients are absent on all ranks: steps have views of the same kinds
                parameter.grad = self._gradients[k]
        self.forget()
        return None if failed is None else (self._flag > 0).to(failed.dtype)

    def forget(self) -> None:
        """Forgets the received parts of a step."""
        self._came, self._works = {}, []

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()


def _is_early(parameter: Tensor, parameters: dict[str, Tensor]) -> bool:
    return any(parameter is parameters.get(name) for name in EARLY)


class Exchange:
    """Stands in for `reduce` of the baseline."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._message: Message | None = None  # of the present parameters

    def __call__(self, state: TrainState) -> None:
        parameters = {group["name"]: group["params"][0] for group in state.optimizer.param_groups}
        if self._message is None or not self._message.fits(parameters.values()):
            self.close()
            self._message = Message(parameters, 1 / self._ranks.size)
        try:
            with span("exchange"), self._ranks.with_others():
                state.failed = self._message.exchange(state.failed)
        except RankError:
            state.optimizer.zero_grad(set_to_none=True)
            state.consistent = True  # nothing is updated yet
            raise

    @property
    def bytes_a_step(self) -> int:
        """Bytes of the messages that a rank sends and receives."""
        return 0 if self._message is None else self._message.array.nbytes

    def close(self) -> None:
        if self._message is not None:
            self._message.close()
        self._message = None
