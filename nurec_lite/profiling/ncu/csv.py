# SPDX-License-Identifier: Apache-2.0
"""The raw page of ncu as CSV: a row of names, a row of units, and a row a launch. Columns are found by name, units are converted."""

import csv
import math
import re
from dataclasses import dataclass
from pathlib import Path

from nurec_lite.profiling.errors import ProfileError

_REQUIRED = ("ID", "Kernel Name", "gpu__time_duration.sum")
_ABSENT = {
    "",
    "n/a",
    "na",
    "nan",
    "-nan",
    "inf",
    "-inf",
    "(!) n/a",
    "(!) nan",
}  # ncu's texts for a missing measurement
_PREFIXES = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_NOUNS = {
    "second": "second",
    "s": "second",
    "byte": "byte",
    "cycle": "cycle",
    "hz": "cycle/second",
    "Hz": "cycle/second",
}


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel: its row."""

    cells: dict[str, str]  # by the names of the columns
    units: dict[str, str]
    source: str  # file and row, for errors

    def text(self, name: str) -> str | None:
        return self.cells.get(name, "").strip() or None

    def number(
        self,
        name: str,
        unit: str = "",  # such as second, byte/second or %; "" for counts of any kind
    ) -> float | None:  # None: there is no such column, or ncu has not measured it
        cell = self.cells.get(name, "").strip()
        if cell.lower() in _ABSENT:
            return None
        scale, dimension = self._unit(name)
        if dimension != unit:
            raise ProfileError(
                f"{self.source}: {name} is given in '{self.units[name]}', which is no {unit or 'count'}; "
                "export the report again with --print-units base"
            )
        return scale * self._value(name, cell)

    def _unit(self, name: str) -> tuple[float, str]:
        try:
            return parse_unit(self.units[name])
        except KeyError as error:
            raise ProfileError(
                f"{self.source}: the unit '{self.units[name]}' of {name} is unknown; "
                "export the report again with --print-units base, or report the unit with the version of ncu"
            ) from error

    def _value(self, name: str, cell: str) -> float:
        plain = cell.replace(",", "") if re.fullmatch(r"-?\d{1,3}(,\d{3})+(\.\d*)?", cell) else cell
        try:
            value = float(plain)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise ProfileError(
                f"{self.source}: {name} is '{cell}', which is no number; export the report under LC_ALL=C"
            )
        return value


def parse_unit(
    text: str,  # such as nsecond, Gbyte/second, register/thread, inst/cycle or %
) -> tuple[float, str]:  # factor to the second, byte, cycle or 1, the units of the dimensions
    """Returns the factor and the dimensions of a unit; KeyError for an unknown one. Counted things fall away: register/thread is a count,
    byte/block a byte, cycle/second not."""
    if text == "%":
        return 1.0, "%"
    above, _, below = text.partition("/")
    (scale, top), (divisor, bottom) = _simple(above), _simple(below)
    if bottom:
        return scale / divisor, f"{top or '1'}/{bottom}"
    return scale, "" if top == "cycle" else top


def _simple(
    text: str,  # no fraction
) -> tuple[float, str]:  # factor and dimension, "" for counts
    if text in _NOUNS:
        return 1.0, _NOUNS[text]
    if text[1:] in _NOUNS:
        return _PREFIXES[text[0]], _NOUNS[text[1:]]
    if re.fullmatch("[a-z]*", text):  # such as inst, warp or sectors; prefixes of counts would be capitals
        return 1.0, ""
    raise KeyError(text)


def read_launches(path: Path) -> list[Launch]:
    """Launches in the order of the file. ProfileError if it is no raw page, or has no launch."""
    try:
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise ProfileError(
            f"{path} cannot be read ({error.strerror}); take the profile again, or name another"
        ) from error
    lines = (line for line in text.splitlines(keepends=True) if not line.startswith("=="))
    rows = [row for row in csv.reader(lines) if row]
    start = next((k for k, row in enumerate(rows) if "Kernel Name" in row), None)
    if start is None:
        raise ProfileError(f"{path} is no raw page of ncu (no column 'Kernel Name'); export it with --csv --page raw")
    header, body = rows[start], rows[start + 1 :]
    _check(path, header, body)
    units = dict(zip(header, body[0], strict=True))
    return [Launch(dict(zip(header, row, strict=True)), units, f"{path}, launch {k}") for k, row in enumerate(body[1:])]


def _check(
    path: Path,
    header: list[str],
    body: list[list[str]],  # the row of units, and those of the launches
) -> None:
    missing = [name for name in _REQUIRED if name not in header]
    if missing:
        raise ProfileError(
            f"{path} has no column {' nor '.join(missing)}; take the profile again with this version of nurec_lite"
        )
    for k, row in enumerate(body):
        if len(row) != len(header):
            raise ProfileError(
                f"{path} is cut off: row {k} below the header has {len(row)} cells, not {len(header)}; export it again"
            )
    if body and body[0][header.index("ID")].strip():
        raise ProfileError(f"{path} has no row of units below its header; export it with --csv --page raw")
    if len(body) < 2:
        raise ProfileError(f"{path} holds no launch; profile more steps, or other kernels")
