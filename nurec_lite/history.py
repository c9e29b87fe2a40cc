# SPDX-License-Identifier: Apache-2.0
"""What a run reported on its way: running means of loss terms, PSNR and range error, over steps and seconds."""

import csv
import io
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

Row = dict[str, float]  # step, seconds, gaussians, psnr (dB, of training images), and every loss term by its name


READ_EVERY = 0.5  # seconds of training between two readings


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
    _read_at: float = -math.inf  # seconds

    def add(
        self,
        step: int,
        seconds: float,
        gaussians: int,
        mse: Tensor,  # [] of the step's image
        terms: dict[str, Tensor],  # [] each
    ) -> Row | None:
        """Notes a step. Its figures stay on the device until the next reading, since reading waits for it; then what `read` returns."""
        values = torch.stack([mse, *terms.values()])
        self._unread.append(_Step(step, seconds, gaussians, ("mse", *terms), values))
        return self.read() if seconds - self._read_at >= READ_EVERY else None

    def read(self) -> Row | None:
        """Running means up to the last step that was added, None without a new one. Waits for the device."""
        if not self._unread:
            return None
        steps, self._unread = self._unread, []
        values = torch.cat([s.values for s in steps]).tolist()
        for s in steps:
            own, values = values[: len(s.names)], values[len(s.names) :]
            row = self._row(s, dict(zip(s.names, own, strict=True)))
        self._read_at = row["seconds"]
        return row

    def _row(self, s: _Step, values: Row) -> Row:
        """The running means; kept as a row if the last one is some time ago."""
        keep = min(0.98, s.step / (s.step + 10))
        for name, value in values.items():
            self._means[name] = keep * self._means.get(name, value) + (1 - keep) * value
        means = {name: value for name, value in self._means.items() if name != "mse"}
        psnr = -10 * math.log10(max(self._means["mse"], 1e-10))
        row = {"step": s.step, "seconds": s.seconds, "gaussians": s.gaussians, "psnr": psnr} | means
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
