# SPDX-License-Identifier: Apache-2.0
"""The figures of an option, before and after it: of a step, alone and as a rung, and of its kernels under ncu.

All options were measured in one process on one card; `OPTIONS` is that file. *Alone* compares an option with the options that it
requires, where these were measured, and else with the baseline. *As a rung* compares it with all that `+opt=all` applies before it.
"""

import csv
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from benchmarks.ladder.bench_options import required
from nurec_lite.base.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks/results"
OPTIONS = RESULTS / "options_kitti_0009_large_h200.json"
LADDER = RESULTS / "ladder_kitti_0009_large_h200/ladder.csv"
MISSING = "not measured"
GAUGES = {  # the figure of a row that judges an option
    "gpu": ("gpu_ms", "GPU"),
    "step": ("ms", "step"),
    "feed": ("wall_ms", "step with feed"),
}
STEP = (  # lines of the table of a step: name, column of the file, form, factor
    ("step, ms", "ms", "{:.3g}", 1.0),
    ("GPU at work, ms", "gpu_ms", "{:.3g}", 1.0),
    ("launches", "launches", "{:,.0f}", 1.0),
    ("waits", "waits", "{:.1f}", 1.0),
    ("copied, MB", "copied_bytes", "{:.1f}", 1e-6),
)
Row = dict[str, Any]
Link = Callable[[str, Path], str]  # words and a file -> a link of a page


@dataclass(frozen=True)
class Pair:
    """A figure without and with an option."""

    before: float
    after: float
    what: str  # GPU, step, ...
    unit: str = "ms"
    from_none: bool = False  # before is the baseline, though the option requires others

    def __str__(self) -> str:
        before, after = _numbers(self.before, self.after)
        return f"{self.what} {before} → {after} {self.unit}" + ("*" if self.from_none else "")


def _numbers(before: float, after: float) -> tuple[str, str]:
    """Returns both with as many digits as tell them apart, two of the smaller one at least."""
    digits = 0 if after >= 100 else 1 if after >= 10 else 2
    while digits < 3 and f"{before:.{digits}f}" == f"{after:.{digits}f}" and before != after:
        digits += 1
    return f"{before:.{digits}f}", f"{after:.{digits}f}"


@lru_cache
def read(file: Path) -> Any:
    return json.loads(file.read_text())


def rungs() -> list[Row]:
    """Returns the chain from the baseline to `all`, in its order."""
    rows: list[Row] = [row for row in read(OPTIONS)["rows"] if row["rung"]]
    return rows


def alone(name: str) -> tuple[Row, Row, bool] | None:
    """Returns the row without the option, the row with it, and whether the first is the baseline although the option requires others.

    None where the option was not measured yet.
    """
    rows = [row for row in read(OPTIONS)["rows"] if not row["rung"]]
    after = next((row for row in rows if row["name"] == name), None)
    if after is None:
        return None
    needed = set(required(name)) - {name}
    fitting = [row for row in rows if set(row["options"]) == needed]
    return (fitting or rungs())[0], after, bool(needed) and not fitting


def rung(name: str) -> tuple[Row, Row] | None:
    """Returns the rung before the option's and its own; None where `all` does not have it."""
    chain = rungs()
    places = [k for k, row in enumerate(chain) if row["name"] == name and k]
    return (chain[places[0] - 1], chain[places[0]]) if places else None


def pair_alone(name: str, gauge: str) -> Pair | None:
    column, what = GAUGES[gauge]
    if (found := alone(name)) is None:
        return None
    before, after, from_none = found
    return Pair(before[column], after[column], what, from_none=from_none)


def pair_rung(name: str, gauge: str) -> Pair | None:
    """Returns the pair of the chain to `all`, or of the post's ladder where the option ends there; None where it has no rung."""
    column, what = GAUGES[gauge]
    if (found := rung(name)) is not None:
        return Pair(found[0][column], found[1][column], what)
    steps = ladder()
    names = list(steps)
    return Pair(steps[names[names.index(name) - 1]], steps[name], "step") if name in names else None


def ladder() -> dict[str, float]:
    """Returns the step of each rung of the post's ladder, by the option that it adds; "" is the baseline."""
    with LADDER.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    return {row["options"].rpartition(",")[2]: float(row["step_ms"]) for row in rows}


def step_table(name: str) -> str:
    """Returns Markdown: a step by torch.profiler, without and with the option, alone and as a rung."""
    if (first := alone(name)) is None:
        return MISSING
    found = rung(name)
    rows = [*first[:2], *(found or ())]
    head = ["a step", "alone: before", "after", *(["rung: before", "after"] if found else [])]
    return table(head, ([label, *(form.format(row[of] * by) for row in rows)] for label, of, form, by in STEP))


def table(head: Sequence[object], rows: Iterable[Sequence[object]], words: int = 1) -> str:
    """Returns Markdown; the first columns hold words, the others figures."""
    lines = [head, ["---"] * words + ["---:"] * (len(head) - words), *rows]
    return "\n".join(f"|{'|'.join(map(str, line))}|" for line in lines)


# ---- ncu


@dataclass(frozen=True)
class Launches:
    """The launches of a kernel in a profile, as one."""

    label: str
    file: Path  # of the profile
    count: int
    ms: float
    registers: int
    occupancy: float  # percent, achieved, of the longest
    bytes: float  # to and from DRAM
    share: float  # percent of the peak of compute or of memory, whichever is higher, of the longest


def launches(spec: str) -> Launches:
    """Parses `LABEL=PROFILE:NAME@RANGE`: regular expressions of the kernel's name and, from its beginning, of its range.

    PROFILE ends the name of a profile of a step, or is FOLDER/FILE of a diagnosis of the backward kernels."""
    match = re.fullmatch(r"(.+?)=([\w/]+):([^@]+)(?:@(.+))?", spec)
    if match is None:
        raise UserError(f"'{spec}' names no launches; write LABEL=PROFILE:KERNEL or LABEL=PROFILE:KERNEL@RANGE")
    label, profile, kernel, where = match.groups()
    file = RESULTS / (f"{profile}.json" if "/" in profile else f"profile_ncu_kitti_0009_large_{profile}/kernels.json")
    result = read(file)
    known = [one["kernel"] for one in result["instances"]] if "instances" in result else result["kernels"]
    found = [k for k in known if re.match(kernel, k["name"]) and re.match(where or "", k["range"] or "")]
    if not found:
        raise UserError(f"'{spec}': the profile has no such launch; name one that its kernels.json has")
    longest = max(found, key=lambda k: k["ms"])
    return Launches(
        label, file, len(found), sum(k["ms"] for k in found), max(k["registers"] for k in found), longest["occupancy_achieved"],
        sum(k["dram_read_bytes"] + k["dram_write_bytes"] for k in found), max(longest["sol_compute"], longest["sol_memory"]),
    )  # fmt: skip


def ncu_table(specs: Sequence[str], link: Link) -> str:
    """Returns Markdown: a line a kernel, which leads to its profile."""
    head = ("ncu", "launches", "µs", "registers", "occupancy", "DRAM, MB", "of peak")
    return table(head, (_cells(one, link) for one in map(launches, specs)))


def _cells(one: Launches, link: Link) -> tuple[object, ...]:
    figures = f"{one.ms * 1e3:,.0f}", f"{one.registers:.0f}", f"{one.occupancy:.0f} %", f"{one.bytes * 1e-6:.0f}"
    return link(one.label, one.file), one.count, *figures, f"{one.share:.0f} %"


NSYS = (
    ("step, ms", "step_ms", "{:.1f}", 1.0),
    ("GPU busy, %", "gpu_busy", "{:.1f}", 100.0),
    ("waits", "syncs", "{:.1f}", 1.0),
    ("kernels", "launches", "{:,.0f}", 1.0),
    ("copied, MB", "copied_bytes", "{:.1f}", 1e-6),
)


def nsys_table(specs: Sequence[str], link: Link) -> str:
    """Returns Markdown of profiles `LABEL=PROFILE` by nsys: a line a figure."""
    named = [spec.partition("=") for spec in specs]
    files = [RESULTS / f"profile_nsys_kitti_0009_large_{profile}/summary.json" for _, _, profile in named]
    head = ["nsys", *(link(label, file) for (label, _, _), file in zip(named, files, strict=True))]
    return table(head, ([label, *(form.format(read(f)[of] * by) for f in files)] for label, of, form, by in NSYS))
