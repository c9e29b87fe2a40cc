# SPDX-License-Identifier: Apache-2.0
"""Curves of a run: running means of loss terms, PSNR and range error, over steps and seconds."""

import csv
import io
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from nurec_lite.base.transfer import HostFuture

Row = dict[
    str, float
]  # step, seconds, gaussians, psnr (dB, of training images, if there were any), and every loss term by its name


READ_EVERY = 0.5  # seconds of training between two readings,
READ_STEPS = 8  # and steps: a run that turns wrong is stopped soon
WORSE = (3.0, 5.0)  # factor and metres: range errors so far beyond those of the first steps, and the scene falls apart
FIRST = 50  # steps until running means settle
_MSE = "mse"  # not a term: rows have the PSNR that follows from it
_FAILED = "failed"  # name of a figure: 1 if the step failed and is repeated


@dataclass(frozen=True)
class Figures:
    """Figures of one step, in one tensor on the device, so that the host copies once."""

    names: tuple[str, ...]  # of the loss terms, and of other figures
    values: Tensor  # [names]

    @staticmethod
    def of(
        terms: dict[str, Tensor],  # [] each
        mse: Tensor | None,  # [] of the step's images; None without one
        failed: Tensor | None = None,  # [] not 0: the step failed and is repeated, so its figures do not count
    ) -> "Figures":
        named = terms | ({} if mse is None else {_MSE: mse})
        named |= {} if failed is None else {_FAILED: failed.float()}
        return Figures(tuple(named), torch.stack([value.detach() for value in named.values()]))

    @property
    def terms(self) -> dict[str, Tensor]:  # [] each
        found = dict(zip(self.names, self.values.unbind(), strict=True))
        return {name: value for name, value in found.items() if name not in (_MSE, _FAILED)}

    @property
    def mse(self) -> Tensor | None:
        return self.values[self.names.index(_MSE)] if _MSE in self.names else None


@dataclass(frozen=True)
class _Step:
    step: int
    seconds: float
    gaussians: int
    figures: Figures


@dataclass
class History:
    """Rows with time between them, a few hundred however long the run. `listeners` get each new row."""

    rows: list[Row] = field(default_factory=list)
    listeners: tuple[Callable[[Row], None], ...] = ()
    _means: Row = field(default_factory=dict)
    _unread: list[_Step] = field(default_factory=list)
    _coming: list[tuple[list[_Step], HostFuture]] = field(default_factory=list)
    _read_at: float = -math.inf  # seconds
    _first: float = 0.0  # metres: largest range error of the first steps
    _trouble: tuple[int, str] | None = None
    _forgiven: int = 0  # last step with non-finite figures from Gaussians that are dead now
    worse: bool = False  # range errors are far beyond those of the first steps

    def trouble(self) -> tuple[int, str] | None:
        """Returns the first step with figures that are not finite or much worse than at the start, and the fault in words."""
        return self._trouble

    def forgive(self, step: int) -> None:
        """Figures up to a step that are not finite are no trouble."""
        self._trouble, self._forgiven = None, step

    def add(
        self,
        step: int,
        seconds: float,
        gaussians: int,
        figures: Figures,
    ) -> Row | None:
        """Notes a step. Its figures stay on the device until the next reading. Returns the arrived figures of earlier steps, as `read`
        does, without waiting."""
        self._unread.append(_Step(step, seconds, gaussians, figures))
        if seconds - self._read_at >= READ_EVERY or len(self._unread) >= READ_STEPS:
            self._send()
        return self._receive(wait=False)

    def read(self) -> Row | None:
        """Running means up to the last step that was added, None without a new one. Waits for the device."""
        self._send()
        return self._receive(wait=True)

    def _send(self) -> None:
        """Starts the figures of the steps so far on their way."""
        if self._unread:
            self._coming.append((self._unread, HostFuture(torch.cat([s.figures.values for s in self._unread]))))
            self._read_at, self._unread = self._unread[-1].seconds, []

    def _receive(self, wait: bool) -> Row | None:
        row = None
        while self._coming and (wait or self._coming[0][1].done()):
            steps, arrival = self._coming.pop(0)
            values = arrival.result()
            for s in steps:
                names = s.figures.names
                own, values = values[: len(names)], values[len(names) :]
                row = self._row(s, dict(zip(names, own, strict=True))) or row
        return row

    def _row(self, s: _Step, values: Row) -> Row | None:
        """The running means; kept as a row if the last one is some time ago."""
        if values.pop(_FAILED, 0):
            return None
        wrong = [f"{name} is {value}" for name, value in values.items() if not math.isfinite(value)]
        if wrong:  # nothing of it becomes a mean
            if s.step > self._forgiven:
                self._trouble = self._trouble or (s.step, ", ".join(wrong))
            return None
        keep = min(0.98, s.step / (s.step + 10))
        for name, value in values.items():
            self._means[name] = keep * self._means.get(name, value) + (1 - keep) * value
        means = {name: value for name, value in self._means.items() if name != _MSE}
        psnr = {"psnr": -10 * math.log10(max(self._means[_MSE], 1e-10))} if _MSE in self._means else {}
        row = {"step": s.step, "seconds": s.seconds, "gaussians": s.gaussians} | psnr | means
        self._compare(row)
        if not self.rows or s.seconds - self.rows[-1]["seconds"] >= max(0.25, s.seconds / 400):
            self.rows.append(row)
            for listener in self.listeners:
                listener(row)
        return row

    def _compare(self, row: Row) -> None:
        known = [r for r in (*self.rows[:1], row) if "range" in r]
        begun = int(known[0]["step"]) if known else 0
        if (known and row["step"] <= begun + FIRST) or not self._first:
            self._first = max(self._first, *(r["range"] for r in known), 0.0)
        elif row.get("range", 0.0) > WORSE[0] * self._first + WORSE[1]:
            now = f"the range error is {row['range']:.1f} m instead of {self._first:.1f} m at the start"
            self._trouble, self.worse = self._trouble or (int(row["step"]), now), True

    def to_csv(self) -> str:
        """One line a row, columns by name; empty where a row lacks a term."""
        columns = list(dict.fromkeys(name for row in self.rows for name in row))
        text = io.StringIO()
        table = csv.DictWriter(text, columns, lineterminator="\n")
        table.writeheader()
        table.writerows(self.rows)
        return text.getvalue()
