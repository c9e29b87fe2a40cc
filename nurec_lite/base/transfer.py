# SPDX-License-Identifier: Apache-2.0
"""Copies between host and device that the host does not wait for: through page-locked memory, in the order of the stream."""

import torch
from torch import Tensor


def upload(
    values: Tensor,  # on the host
    device: torch.device | str,
) -> Tensor:
    """The same on the device; on a CPU the tensor itself."""
    if torch.device(device).type != "cuda":
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
        return self._event is None or self._event.query()

    def numbers(self) -> list[float]:
        """Waits for them if they are not there yet."""
        if self._event is not None and not self._event.query():
            self._event.synchronize()
        return self._host.tolist()
