# SPDX-License-Identifier: Apache-2.0
"""python -m nurec_lite.profile compare A B [--gate launches=0,syncs=0,registers=0,time=3%]: two profiles side by side, B against A.

Ends with 0 (passed, or no gate), 1 (a gate failed), 2 (a mistake that the user can mend) or 3 (none failed, but one is inconclusive: a
figure is missing, or times vary more than the threshold). Two windows are two moments of a machine: how its pace changed between them
no profile knows, so times that decide belong to benchmarks/ladder/ladder.py, which interleaves.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from nurec_lite.profiling.compare.gates import FAILED, INCONCLUSIVE, NAMES, PASSED, Verdict, judge, parse_gates, worst
from nurec_lite.profiling.compare.sides import Known, Side, read_side
from nurec_lite.profiling.errors import ProfileError

STEP = "whole step"  # the row of its time
CODES = {PASSED: 0, FAILED: 1, INCONCLUSIVE: 3}
_BYTES = ("bytes", "memory", "shared")


@dataclass(frozen=True)
class Row:
    """A figure of both sides."""

    figure: str
    a: Known
    b: Known
    difference: Known  # B - A

    @property
    def ratio(self) -> Known:
        return None if self.a is None or self.b is None or self.a == 0 else self.b / self.a

    @property
    def share(self) -> float:
        """Size of the difference relative to the larger side; negative, so the last of all, if it is not known."""
        if self.a is None or self.b is None:
            return -1
        return abs(self.b - self.a) / (max(abs(self.a), abs(self.b)) or 1)

    @property
    def weight(self) -> float:
        """The difference, or the time of the only side that has the row; negative if neither has."""
        known = [abs(value) for value in (self.difference, self.a, self.b) if value is not None]
        return known[0] if known else -1


def time_rows(a: Side, b: Side) -> list[Row]:
    """The sum of all kernels and the whole step first, then the largest difference in ms. A kernel that one side lacks ranks by the
    other's time: an option replaces kernels. A kernel that was not launched took no time."""
    sums = [_sum(a, b), *(_row(name, a.times, b.times) for name in _names(a.times, b.times) if name == STEP)]
    rows = [_row(name, a.times, b.times) for name in _names(a.times, b.times) if name != STEP]
    for name in _names(a.kernel_times, b.kernel_times):
        row = replace(_row(name, a.kernel_times, b.kernel_times), figure=f"kernel {name}")
        if a.whole and b.whole:
            row = replace(row, difference=(row.b or 0.0) - (row.a or 0.0))
        rows.append(row)
    present = [row for row in sums if row.a is not None or row.b is not None]
    return present + sorted(rows, key=lambda row: row.weight, reverse=True)


def _sum(a: Side, b: Side) -> Row:
    """The time of all kernels that were recorded, a step. Of ncu, which records the kernels that it is asked for, sums compare only if
    both sides were asked for the same ones."""
    asked = [tuple(side.chosen(key) for key in ("kernels", "range")) for side in (a, b)]
    alike = (a.whole and b.whole) or (a.tool == b.tool == "ncu" and asked[0] == asked[1])
    name = "all kernels, sum a step" if alike else "all kernels that were recorded, sum a step"
    return Row(name, a.sum_ms, b.sum_ms, _minus(b.sum_ms, a.sum_ms) if alike else None)


def total_rows(a: Side, b: Side) -> list[Row]:
    """The largest relative difference first; rows that neither side has are left out."""
    rows = [_row(name, a.totals, b.totals) for name in _names(a.totals, b.totals)]
    present = [row for row in rows if row.a is not None or row.b is not None]
    return sorted(present, key=lambda row: row.share, reverse=True)


def resource_rows(a: Side, b: Side) -> list[Row]:
    """Registers and shared memory of the kernels with other numbers in both."""
    rows = []
    for name in (n for n in a.kernels if n in b.kernels):
        mine, other = vars(a.kernels[name]), vars(b.kernels[name])
        rows += [Row(f"{name}: {key}", mine[key], other[key], _minus(other[key], mine[key])) for key in mine]
    return sorted((row for row in rows if row.difference), key=lambda row: row.share, reverse=True)


def _names(a: dict[str, Known], b: dict[str, Known]) -> list[str]:
    return list(dict.fromkeys([*a, *b]))


def _row(name: str, a: dict[str, Known], b: dict[str, Known]) -> Row:
    x, y = a.get(name), b.get(name)
    return Row(name, x, y, _minus(y, x))


def _minus(y: Known, x: Known) -> Known:
    return None if x is None or y is None else y - x


def differing_overrides(a: Side, b: Side) -> list[str]:
    """A sentence for the options, and one for the other arguments, that only one of the commands has."""
    options = [_options(side) for side in (a, b)]
    others = [[o for o in side.overrides if not o.startswith("+opt=")] for side in (a, b)]
    found = [_only("options", *options), _only("overrides", *others)]
    return [sentence for sentence in found if sentence]


def _options(side: Side) -> list[str]:
    return [name for name in (side.chosen("opt") or "").strip("[]").split(",") if name]


def _only(what: str, a: list[str], b: list[str]) -> str:
    parts = [("A", [x for x in a if x not in b]), ("B", [x for x in b if x not in a])]
    lines = [f"only in {side}: {', '.join(own)}" for side, own in parts if own]
    return f"{what} {'; '.join(lines)}" if lines else ""


def notes(a: Side, b: Side) -> list[str]:
    """Differences between A and B other than figures; conditions come first."""
    found = differing_overrides(a, b)
    found += [] if a.tool == b.tool else [f"A was taken by {a.tool}, B by {b.tool}; they do not count alike"]
    for key in dict.fromkeys([*a.environment, *b.environment]):
        x, y = a.environment.get(key, "unknown"), b.environment.get(key, "unknown")
        found += [f"{key}: {x} in A, {y} in B"] if x != y else []
    return found


def markdown(
    a: Side,
    b: Side,
    verdicts: list[Verdict],
    limit: int,  # rows of a table
) -> str:
    per = "a launch" if a.tool == b.tool == "ncu" else "a step"
    parts = [f"A: {a.path} ({a.tool})  \nB: {b.path} ({b.tool})"]
    parts += ["\n".join(f"- {note}" for note in notes(a, b))]
    parts += [_table(f"ms {per}, under the profiler", time_rows(a, b), limit, lambda v, _: f"{v:.3f}")]
    parts += [_table("a step", total_rows(a, b), limit, _plain)]
    parts += [_table("a kernel", resource_rows(a, b), limit, _plain)]
    parts += [_gate_table(verdicts)] if verdicts else []
    return "\n\n".join(part for part in parts if part)


def _table(title: str, rows: list[Row], limit: int, shown: Callable[[float, str], str]) -> str:
    if not rows:
        return ""
    lines = [f"| {title} | A | B | B - A | B / A |", "|---|---:|---:|---:|---:|"]
    for row in rows[:limit]:
        cells = ["–" if value is None else shown(value, row.figure) for value in (row.a, row.b, row.difference)]
        ratio = "–" if row.ratio is None else f"{row.ratio:.3f}"
        lines.append(f"| {_escaped(row.figure)} | {' | '.join(cells)} | {ratio} |")
    rest = len(rows) - limit
    return "\n".join(lines) + (
        f"\n\n{rest} rows with smaller or unknown differences left out (--rows)." if rest > 0 else ""
    )


def _plain(value: float, figure: str) -> str:
    if figure.endswith(_BYTES) and abs(value) >= 1 << 20:
        return f"{value / (1 << 20):,.1f} MiB"
    return f"{value:,.10g}" if value == round(value) else f"{value:,.2f}"


def _gate_table(verdicts: list[Verdict]) -> str:
    lines = ["| gate | outcome | why |", "|---|---|---|"]
    for verdict in verdicts:
        gate = verdict.gate
        limit = f"{100 * gate.limit:g}%" if gate.relative else f"{gate.limit:g}"
        lines.append(f"| {gate.name}={limit} | {verdict.outcome} | {_escaped(verdict.reason)} |")
    return "\n".join([*lines, "", f"Gates: {worst(verdicts)}."])


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ProfileError(f"compare: {message}; it takes two profiles, A B [--gate launches=0,time=3%] [--rows 30]")


def _parser() -> _Parser:
    p = _Parser(
        prog="python -m nurec_lite.profile compare", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    p.add_argument("a", metavar="A", type=Path, help="summary.json, kernels.json of ncu, or the folder of one")
    p.add_argument("b", metavar="B", type=Path, help="the same; the one to judge")
    p.add_argument(
        "--gate", default="", metavar="NAME=RISE,...", help=f"{', '.join(NAMES)}; RISE is a number or a share, 3%%"
    )
    p.add_argument("--rows", type=int, default=30, help="of a table at most (%(default)s)")
    return p


def main(
    arguments: list[str],  # arguments after `compare`
) -> int:  # of CODES; ProfileError for a mistake
    args = _parser().parse_args(arguments)
    gates = parse_gates(args.gate) if args.gate else []
    a, b = read_side(args.a), read_side(args.b)
    if (a.tool == "ncu") != (b.tool == "ncu"):
        raise ProfileError(
            f"{a.path} is of {a.tool} and {b.path} of {b.tool}: ncu tells of launches and the others of steps; "
            "compare two profiles of one kind"
        )
    verdicts = [judge(gate, a, b) for gate in gates]
    print(markdown(a, b, verdicts, args.rows))
    return CODES[worst(verdicts)]
