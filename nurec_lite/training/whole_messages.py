# SPDX-License-Identifier: Apache-2.0
"""Messages between ranks with the whole gradients of some parameters."""

from typing import Any

import torch
from torch import Tensor

from nurec_lite.base.ranges import BACKWARD, span
from nurec_lite.training.block_messages import ALIGNED, aligned


class Message:
    """The gradients of some parameters, in one array that stays where it is, as a recorded step needs it."""

    def __init__(self, parameters: list[Tensor], share: float) -> None:
        self.parameters, self._share = parameters, share
        self.lengths = [aligned(p.numel()) for p in parameters]
        self._array = parameters[0].new_empty(0, requires_grad=False)
        self._gradients: list[Tensor] = []
        self._copied: set[int] = set()
        self.sent, self._count = self._array, 0  # the part of the array that goes, and gradients in it
        self.work: Any = None  # under way

    def copy(self, k: int) -> None:
        """Takes the gradient of the k-th parameter; without one, zeros."""
        self._allocate()
        gradient = self.parameters[k].grad
        if gradient is None:
            self._gradients[k].zero_()
        else:
            torch.mul(gradient, self._share, out=self._gradients[k])
        self._copied.add(k)

    def _allocate(self) -> None:
        """Allocates the array at the first use, since some messages are never sent."""
        if self._gradients:
            return
        self._array = self._array.new_zeros(ALIGNED + sum(self.lengths))
        _, *pieces = self._array.split([ALIGNED, *self.lengths])
        self._gradients = [piece[: p.numel()].view(p.shape) for piece, p in zip(pieces, self.parameters, strict=True)]

    def send(
        self,
        failed: Tensor | None,  # []
        count: int | None = None,  # of the parameters, the first ones; None: all
    ) -> None:
        """Sends their gradients, even those that were not copied yet, and `failed`."""
        self._count = len(self.parameters) if count is None else count
        for k in range(self._count):
            if k not in self._copied:
                self.copy(k)
        if failed is not None:
            self._array[0].copy_(failed)
        self.sent = self._array[: ALIGNED + sum(self.lengths[: self._count])]
        self.work = torch.distributed.all_reduce(self.sent, async_op=True)

    def receive(self, failed: Tensor | None) -> Tensor | None:
        """Gives the parameters the means of the sent gradients. Returns whether the step of any rank failed, as `failed` has it."""
        self.work.wait()
        for parameter, gradient in zip(self.parameters[: self._count], self._gradients, strict=False):
            if (
                parameter.grad is not None
            ):  # absent gradients are absent on all ranks: steps have views of the same kinds
                parameter.grad = gradient
        self.forget()
        return None if failed is None else (self._array[0] > 0).to(failed.dtype)

    def forget(self) -> None:
        """Forgets copies and messages under way."""
        self._copied, self.work = set(), None

    @property
    def wanted(self) -> bool:
        """Whether any parameter has a gradient."""
        return any(p.grad is not None for p in self.parameters)


class EarlyMessage(Message):
    """A message that is sent within the backward pass, when the last gradient has come."""

    def __init__(self, parameters: list[Tensor], share: float) -> None:
        super().__init__(parameters, share)
        self._events: list[torch.cuda.Event] = []  # of copies on a GPU
        self._hooks = [p.register_post_accumulate_grad_hook(self._hook(k)) for k, p in enumerate(parameters)]

    def _hook(self, k: int) -> Any:
        return lambda parameter: self._arrived(k, parameter)

    def _arrived(self, k: int, parameter: Tensor) -> None:
        """Copies a gradient, in a thread of autograd, on the stream that made it. Autograd also calls it without a gradient."""
        if parameter.grad is None:
            return
        self.copy(k)
        if parameter.is_cuda:
            self._events.append(torch.cuda.current_stream(parameter.device).record_event())
        if len(self._copied) == len(self.parameters):
            with span("exchange", within=BACKWARD):
                for event in self._events:
                    torch.cuda.current_stream(parameter.device).wait_event(event)
                self.send(None)

    def forget(self) -> None:
        super().forget()
        self._events = []

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()
