# SPDX-License-Identifier: Apache-2.0
"""Verdicts as lines of text."""

from collections import Counter
from collections.abc import Sequence

from nurec_lite.capture.checks.verdict import Level, Verdict

WORST_FIRST = (Level.CERTAIN, Level.LIKELY, Level.FAILED, Level.UNKNOWN, Level.RIGHT)


def worst_first(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Returns the verdicts by level, the worst first; within a level they keep their order."""
    return sorted(verdicts, key=lambda verdict: WORST_FIRST.index(verdict.level))


def listed(verdicts: Sequence[Verdict]) -> str:
    """One line a verdict, the worst first, in columns: level, compared data, sensor, and the sentence."""
    rows = [(v.level.value, v.check, v.subject, " ".join(v.text.split())) for v in worst_first(verdicts)]
    widths = [max((len(row[k]) for row in rows), default=0) for k in range(3)]
    return "\n".join(
        "  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[3]]) for row in rows
    )


def counted(verdicts: Sequence[Verdict]) -> str:
    """Number of verdicts of each level, such as `1 wrong, 7 right`."""
    counts = Counter(verdict.level for verdict in verdicts)
    return ", ".join(f"{counts[level]} {level.value}" for level in WORST_FIRST if counts[level]) or "no verdicts"
