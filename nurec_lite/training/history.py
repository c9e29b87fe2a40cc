# SPDX-License-Identifier: Apache-2.0
"""What a run reported on its way: running means of loss terms, PSNR and range error, over steps and seconds."""

import csv
import io
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from nurec_lite.base.transfer import Arrival

Row = dict[
    str, float
]  # step, seconds, gaussians, psnr (dB, of training images, if there were any), and every loss term by its name


READ_EVERY = 0.5  # seconds of training between two readings
_MSE = "mse"  # not a term: rows have the PSNR that follows from it
_FAILED = "failed"  # likewise: 1 if the step was in vain and is done again


@dataclass(frozen=True)
class _Step:
    step: int
    seconds: float
    gaussians: int
    names: tuple[str, ...]
    values: Tensor  # [names], still on the device


@dataclass
class History:
    """Rows with time between them, a few hundred however long the run. `listeners` get each new row."""

    rows: list[Row] = field(default_factory=list)
    listeners: tuple[Callable[[Row], None], ...] = ()
    _means: Row = field(default_factory=dict)
    _unread: list[_Step] = field(default_factory=list)
    _coming: list[tuple[list[_Step], Arrival]] = field(default_factory=list)
    _read_at: float = -math.inf  # seconds

    def add(
        self,
        step: int,
        seconds: float,
        gaussians: int,
        mse: Tensor | None,  # [] of the step's images; None without one
        terms: dict[str, Tensor],  # [] each
        failed: Tensor | None = None,  # [] not 0: the step was in vain and is done again, so its figures do not count
    ) -> Row | None:
        """Notes a step. Its figures stay on the device until the next reading. Returns what has come of those before, as `read` does,
        without waiting."""
        named = terms | ({} if mse is None else {_MSE: mse})
        named |= {} if failed is None else {_FAILED: failed.float()}
        self._unread.append(_Step(step, seconds, gaussians, tuple(named), torch.stack(list(named.values()))))
        if seconds - self._read_at >= READ_EVERY:
            self._send()
        return self._receive(wait=False)

    def read(self) -> Row | None:
        """Running means up to the last step that was added, None without a new one. Waits for the device."""
        self._send()
        return self._receive(wait=True)

    def _send(self) -> None:
        """Starts the figures of the steps so far on their way."""
        if self._unread:
            self._coming.append((self._unread, Arrival(torch.cat([s.values for s in self._unread]))))
            self._read_at, self._unread = self._unread[-1].seconds, []

    def _receive(self, wait: bool) -> Row | None:
        row = None
        while self._coming and (wait or self._coming[0][1].there()):
            steps, arrival = self._coming.pop(0)
            values = arrival.numbers()
            for s in steps:
                own, values = values[: len(s.names)], values[len(s.names) :]
                row = self._row(s, dict(zip(s.names, own, strict=True))) or row
        return row

    def _row(self, s: _Step, values: Row) -> Row | None:
        """The running means; kept as a row if the last one is some time ago."""
        if values.pop(_FAILED, 0):
            return None
        keep = min(0.98, s.step / (s.step + 10))
        for name, value in values.items():
            self._means[name] = keep * self._means.get(name, value) + (1 - keep) * value
        means = {name: value for name, value in self._means.items() if name != _MSE}
        psnr = {"psnr": -10 * math.log10(max(self._means[_MSE], 1e-10))} if _MSE in self._means else {}
        row = {"step": s.step, "seconds": s.seconds, "gaussians": s.gaussians} | psnr | means
        if not self.rows or s.seconds - self.rows[-1]["seconds"] >= max(0.25, s.seconds / 400):
            self.rows.append(row)
            for listener in self.listeners:
                listener(row)
        return row

    def to_csv(self) -> str:
        """One line a row, columns by name; empty where a row lacks a term."""
        columns = list(dict.fromkeys(name for row in self.rows for name in row))
        text = io.StringIO()
        table = csv.DictWriter(text, columns, lineterminator="\n")
        table.writeheader()
        table.writerows(self.rows)
        return text.getvalue()
