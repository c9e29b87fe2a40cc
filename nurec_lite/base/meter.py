# SPDX-License-Identifier: Apache-2.0
"""Progress on stderr: a bar of at most 80 columns on a terminal, a line for each tenth in a file."""

import shutil
import sys
from types import TracebackType

from tqdm import tqdm

from nurec_lite.base.place import prints

WIDEST = 80  # columns
_TENTHS = 10


class Meter:
    """`with Meter(20, "frames", "measuring") as meter: meter.advance()`."""

    def __init__(
        self,
        total: float,
        unit: str,
        what: str,  # is done, for lines in a file
        shown: bool = True,
    ) -> None:
        self.total, self.unit, self.what, self.done = total, unit, what, 0.0
        self.shown, self.bar, self.tenth = shown and prints(), None, 0
        if self.shown and sys.stderr.isatty():
            form = (
                "{percentage:3.0f}% {bar} {n:.0f}/{total:.0f} " + unit + "{desc}"
            )  # {postfix} would begin with a comma
            self.bar = tqdm(total=total, bar_format=form, ncols=min(WIDEST, shutil.get_terminal_size().columns))

    def __enter__(self) -> "Meter":
        return self

    def to(
        self,
        done: float,
        short: str = "",  # that the bar shows
        long: str = "",  # that a line shows
    ) -> None:
        self.done = done
        if self.bar is not None:
            self.bar.set_description_str(f"  {short}" if short else "", refresh=False)
            self.bar.update(done - self.bar.n)
        elif self.shown:
            self._line(long)

    def advance(self) -> None:
        self.to(self.done + 1)

    def _line(self, text: str) -> None:
        tenth = int(_TENTHS * self.done / self.total) if self.total else _TENTHS
        if tenth > self.tenth:
            self.tenth = tenth
            after = f", {text}" if text else ""
            line = f"{self.what} {100 * tenth // _TENTHS} %: {self.done:.0f}/{self.total:.0f} {self.unit}{after}"
            print(line, file=sys.stderr, flush=True)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def rounded(count: float) -> str:
    """Three digits, such as 999, 35.2 k and 1.00 M."""
    if count < 1000:
        return f"{count:.0f}"
    divisor, letter = (1e3, "k") if count < 999_500 else (1e6, "M")
    value = count / divisor
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {letter}"
