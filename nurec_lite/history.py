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


@dataclass
class History:
    """Rows with time between them, a few hundred however long the run. `listeners` get each new row."""

    rows: list[Row] = field(default_factory=list)
    listeners: tuple[Callable[[Row], None], ...] = ()
    _means: Row = field(default_factory=dict)

    def add(
        self,
        step: int,
        seconds: float,
        gaussians: int,
        mse: Tensor,  # [] of the step's image
        terms: dict[str, Tensor],  # [] each
    ) -> Row:
        """Running means up to this step; kept as a row if the last one is some time ago. Waits for the device."""
        values = torch.stack([mse, *terms.values()]).tolist()
        keep = min(0.98, step / (step + 10))
        for name, value in zip(("mse", *terms), values, strict=True):
            self._means[name] = keep * self._means.get(name, value) + (1 - keep) * value
        means = {name: value for name, value in self._means.items() if name != "mse"}
        psnr = -10 * math.log10(max(self._means["mse"], 1e-10))
        row = {"step": step, "seconds": seconds, "gaussians": gaussians, "psnr": psnr} | means
        if not self.rows or seconds - self.rows[-1]["seconds"] >= max(0.25, seconds / 400):
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
