# SPDX-License-Identifier: Apache-2.0
"""Copies between host and device that the host does not wait for: through page-locked memory, in the order of the stream, or on a
stream of their own."""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def upload(
    values: Tensor,  # on the host, or there already
    device: torch.device | str,
) -> Tensor:
    """The same on the device; on a CPU the tensor itself."""
    if torch.device(device).type != "cuda" or values.is_cuda:
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)  # torch keeps the staging memory until the copy is done


class Arrival:
    """Numbers on their way to the host."""

    def __init__(
        self,
        values: Tensor,  # [n], as they are now
    ) -> None:
        self._event: torch.cuda.Event | None = None
        self._host = values.detach().to("cpu", non_blocking=True, copy=True)  # page-locked if it comes from a GPU
        if values.is_cuda:
            self._event = torch.cuda.Event()
            self._event.record(torch.cuda.current_stream(values.device))

    def there(self) -> bool:
        """Not yet, whoever asks while work of the GPU is recorded: to ask the device would end the recording, and what is recorded must not
        depend on when an answer comes."""
        return self._event is None or (not torch.cuda.is_current_stream_capturing() and self._event.query())

    def numbers(self) -> list[float]:
        """Waits for them if they are not there yet."""
        if self._event is not None and not self._event.query():
            self._event.synchronize()
        return self._host.tolist()


class SideStream:
    """A stream beside the one on which the step computes; on a CPU, where copies are done when they return, there is none."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def inside(self) -> AbstractContextManager[None]:
        """What the thread queues within the block goes there."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def finish(self) -> None:
        """Waits until what was queued there is done."""
        if self._stream is not None:
            self._stream.synchronize()

    def mark(self) -> torch.cuda.Event | None:
        """Passed when what was queued there so far is done."""
        return None if self._stream is None else self._stream.record_event()

    def hand_over(
        self,
        tensors: Iterable[Tensor],  # made there
        made: torch.cuda.Event | None,  # the mark behind them
    ) -> None:
        """Lets the present stream use them: it waits for the mark, and the allocator, which would give the memory of a freed tensor back
        to the side stream at once, first waits for what the present stream has queued by then."""
        if self._stream is None or made is None:
            return
        present = torch.cuda.current_stream(self._stream.device)
        present.wait_event(made)
        for tensor in tensors:
            if tensor.is_cuda:
                tensor.record_stream(present)
