# SPDX-License-Identifier: Apache-2.0
"""Two diagnoses of the backward kernel side by side, instance by instance: a table, and a picture.

    python benchmarks/render/compare_diagnoses.py BEFORE/diagnosis.json AFTER/diagnosis.json [--out FILE.png]

The table takes the ratio of durations apart. A kernel that issues I instructions on multiprocessors that have a block for a share A of the
launch, with schedulers that issue in a share S of the cycles of those, takes a time of I / (A S); so before / after is the ratio of
instructions times those of A and of S, after / before, but for differences between ncu's passes (`their product`). The picture shows
durations, a warp's stalls between two instructions, and occupancy, achieved (bar) and theoretical (mark).
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nurec_lite.base.errors import UserError
from nurec_lite.base.program import Parser
from nurec_lite.cli.command import mended
from nurec_lite.profiling.draw.canvas import FAINT, GREY, INK, PALETTE, Canvas, Colour

FORMAT = 1  # of diagnosis.json, benchmarks/render/diagnose_report.py
ISSUING, OTHER = "issuing", "other"
COLOURS: dict[str, Colour] = {
    ISSUING: INK, "barrier": PALETTE[1], "not_selected": PALETTE[0], "wait": PALETTE[2], "short_scoreboard": PALETTE[3],
    "math_pipe_throttle": PALETTE[5], OTHER: GREY,
}  # fmt: skip
MEASURES = (
    "ms",
    "instructions",
    "sm_active",
    "issue_active",
    "occupancy_achieved",
    "occupancy_theoretical",
    "warp_cycles",
)


@dataclass(frozen=True)
class Figures:
    """Figures of one launch, with the names of nurec_lite.profiling.ncu.kernel.Kernel."""

    ms: float
    instructions: float
    sm_active: float  # %
    issue_active: float  # %
    occupancy_achieved: float  # %
    occupancy_theoretical: float  # %
    warp_cycles: float  # between two instructions of a warp
    stalls: dict[str, float]  # cycles of them by reason

    def parts(self) -> dict[str, float]:
        """Cycles between two instructions, by the reasons that have a colour; one cycle issues."""
        named = {reason: self.stalls.get(reason, 0.0) for reason in COLOURS if reason not in (ISSUING, OTHER)}
        return {ISSUING: 1.0, **named, OTHER: max(0.0, self.warp_cycles - 1 - sum(named.values()))}


@dataclass(frozen=True)
class Pair:
    """One instance, before and after."""

    name: str  # lidar, captured
    before: Figures
    after: Figures

    @property
    def speedup(self) -> float:
        return self.before.ms / self.after.ms

    @property
    def factors(self) -> tuple[float, float, float]:
        """Fewer instructions, more multiprocessors with a block, more issue slots used."""
        b, a = self.before, self.after
        return b.instructions / a.instructions, a.sm_active / b.sm_active, a.issue_active / b.issue_active


def read(path: Path) -> dict[str, Figures]:  # by the name of the instance
    try:
        content = json.loads(path.read_text())
        known = isinstance(content, dict) and content["format"] == FORMAT
        found = {i["name"]: _figures(path, i["name"], i["kernel"]) for i in content["instances"]} if known else {}
    except UserError:
        raise
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            f"{path} is no diagnosis ({error}); benchmarks/render/diagnose_backward.py writes diagnosis.json"
        ) from None
    if not found:
        raise UserError(f"{path} is no diagnosis of format {FORMAT}; benchmarks/render/diagnose_backward.py writes one")
    return found


def _figures(path: Path, name: str, kernel: dict[str, Any]) -> Figures:
    absent = [measure for measure in MEASURES if not kernel[measure]]
    if absent:
        raise UserError(
            f"{path}: {', '.join(absent)} of {name} was not measured; diagnose it again with all of ncu's counters"
        )
    return Figures(**{measure: float(kernel[measure]) for measure in MEASURES}, stalls=kernel["stalls"])


def pairs(before: dict[str, Figures], after: dict[str, Figures]) -> list[Pair]:
    """Launches that both have, in the order of the first."""
    common = [name for name in before if name in after]
    if not common:
        raise UserError("the two diagnoses have no instance in common; diagnose the same --workloads and --sensors")
    return [Pair(name.replace("_", ", ", 1), before[name], after[name]) for name in common]


# ---- the table

HEAD = (
    "",
    "under ncu, ms",
    "ratio",
    "fewer instructions",
    "multiprocessors with a block",
    "issue slots used",
    "their product",
)


def table(found: Sequence[Pair]) -> str:
    rows = [HEAD, ("---", *["---:"] * (len(HEAD) - 1)), *map(_cells, found)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _cells(pair: Pair) -> tuple[str, ...]:
    product = pair.factors[0] * pair.factors[1] * pair.factors[2]
    factors = [f"{factor:.2f}" for factor in (pair.speedup, *pair.factors, product)]
    return (pair.name, f"{pair.before.ms:#.3g} -> {pair.after.ms:#.3g}", *factors)


# ---- the picture

_WIDTH, _LEFT, _TOP, _ROW, _BAR, _FOOT = 1100, 138, 110, 48, 17, 24  # units of the canvas
_PANELS = ((_LEFT, 220), (480, 300), (850, 160))  # left edge and width of each
_TITLES = (
    "duration under ncu, ms",
    "cycles between two instructions of a warp",
    "occupancy achieved, mark: theoretical, %",
)
_BEFORE, _AFTER = (176, 190, 206), PALETTE[4]
_NOTE = "Durations under ncu are for comparison with one another, never results."


def picture(
    found: Sequence[Pair],
    names: tuple[str, str],  # of before and after, for the legend
) -> Canvas:
    page = Canvas(_WIDTH, _TOP + _ROW * len(found) + _FOOT)
    page.text(16, 24, "The backward kernel, before and after", size=18)
    page.legend(16, 54, dict(zip(names, (_BEFORE, _AFTER), strict=True)), _WIDTH - 32)
    page.legend(_PANELS[1][0], 54, {reason.replace("_", " "): c for reason, c in COLOURS.items()}, 620)
    for (left, _), title in zip(_PANELS, _TITLES, strict=True):
        page.text(left, _TOP - 20, title, 12, FAINT)
    both = [figures for pair in found for figures in (pair.before, pair.after)]
    bounds = max(f.ms for f in both), max(f.warp_cycles for f in both)
    for k, pair in enumerate(found):
        y = _TOP + _ROW * k
        page.line(16, y - 5, _WIDTH - 16, y - 5)
        page.text(_LEFT - 10, y + _BAR + 1, pair.name, anchor="r", width=_LEFT - 26)
        _one(page, y, pair.before, _BEFORE, bounds, "")
        _one(page, y + _BAR + 3, pair.after, _AFTER, bounds, f"   {pair.speedup:.2f}x")
    page.text(16, _TOP + _ROW * len(found) + 8, _NOTE, 11, FAINT)
    return page


def _one(
    page: Canvas,
    y: float,  # upper edge
    figures: Figures,
    colour: Colour,
    bounds: tuple[float, float],  # ms and cycles at the right edge of their panels
    words: str,  # after the duration
) -> None:
    (left, width), (stalls, span), (occupied, whole) = _PANELS
    end, middle = left + width * figures.ms / bounds[0], y + _BAR / 2
    page.box(left, y, end, y + _BAR, colour)
    page.text(end + 6, middle, f"{figures.ms:#.3g}{words}", 12)
    _stack(page, stalls, y, span, figures, bounds[1])
    page.box(occupied, y, occupied + whole * figures.occupancy_achieved / 100, y + _BAR, colour)
    mark = occupied + whole * figures.occupancy_theoretical / 100
    page.box(mark - 1, y - 1, mark + 1, y + _BAR + 1, INK)
    page.text(mark + 6, middle, f"{figures.occupancy_achieved:.1f} of {figures.occupancy_theoretical:.1f}", 12)


def _stack(page: Canvas, x: float, y: float, width: float, figures: Figures, bound: float) -> None:
    for reason, cycles in figures.parts().items():
        right = x + width * cycles / bound
        if cycles > 0:
            page.box(x, y, right, y + _BAR, COLOURS[reason])
        x = right
    page.text(x + 6, y + _BAR / 2, f"{figures.warp_cycles:.1f}", 12)


# ---- the command


def parser() -> argparse.ArgumentParser:
    p = Parser(__doc__)
    p.add_argument("before", type=Path, metavar="BEFORE.json")
    p.add_argument("after", type=Path, metavar="AFTER.json")
    p.add_argument("--names", nargs=2, default=["before", "after"], metavar=("A", "B"), help="for the picture")
    p.add_argument("--out", type=Path, metavar="FILE.png", help="of the picture")
    return p


def main(arguments: list[str]) -> None:
    args = parser().parse_args(arguments)
    with mended("profile"):
        found = pairs(read(args.before), read(args.after))
        if args.out:
            picture(found, (args.names[0], args.names[1])).save(args.out)
    print(table(found))


if __name__ == "__main__":
    main(sys.argv[1:])
