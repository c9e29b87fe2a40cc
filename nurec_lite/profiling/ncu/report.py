# SPDX-License-Identifier: Apache-2.0
"""kernels.json, kernels.csv and summary.md of a profile by ncu.

kernels.json holds `format` (1), `tool` (ncu), `tool_version`, `command`, `environment` (as nurec_lite.base.environment tells it), `steps`
of the window, `notes` (sentences), and `kernels`: one dictionary a launch in the order of the launches, with the keys of
nurec_lite.profiling.ncu.kernel.Kernel; null stands for a missing measurement.
"""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nurec_lite.base.files import write_text
from nurec_lite.profiling.ncu.kernel import Kernel
from nurec_lite.profiling.ncu.words import (
    ABSENT,  # fmt: skip
    count,
    digits,
    limited_by,
    milliseconds,
    occupancy_words,
    percent,
    roofline_words,
    scaled,
    shared_words,
    stall_words,
    verdict_words,
)

FORMAT = 1
SECTIONS = 16  # kernels that get a section of their own, the longest ones
_RULE = (
    "Verdicts follow NVIDIA's rule: below 60 % of the peaks of compute and of memory a kernel is latency-bound; else the larger of the "
    "two names it, unless both are below 80 % and within 10 points, which is balanced. The peaks are those that the hardware sustains."
)
_HEADS = (
    "kernel", "launches", "longest", "verdict", "registers", "shared memory a block", "occupancy, theoretical",
    "achieved", "limited by", "compute", "memory", "DRAM", "FP32", "FLOP/byte",
)  # fmt: skip


@dataclass(frozen=True)
class Profile:
    """Launches of one window, and how they were measured."""

    tool_version: str
    command: str
    environment: dict[str, str]
    steps: int  # of the window
    notes: tuple[str, ...]
    kernels: tuple[Kernel, ...]  # in the order of the launches


def write_report(out: Path, profile: Profile) -> None:
    content = {"format": FORMAT, "tool": "ncu", **asdict(profile)}
    content["kernels"] = [{k: _whole(v) for k, v in asdict(kernel).items()} for kernel in profile.kernels]
    write_text(out / "kernels.json", json.dumps(content, indent=1) + "\n")
    write_text(out / "kernels.csv", kernels_csv(profile.kernels))
    write_text(out / "summary.md", markdown(profile))


def by_name(kernels: Sequence[Kernel]) -> dict[str, list[Kernel]]:
    """Launches of each kernel, the longest first; the kernel with the longest launch first."""
    groups: dict[str, list[Kernel]] = {}
    for kernel in sorted(kernels, key=lambda k: -(k.ms or 0)):
        groups.setdefault(kernel.name, []).append(kernel)
    return groups


def headline(kernels: Sequence[Kernel]) -> str:
    """A line for each of the longest kernels."""
    longest = [launches[0] for launches in by_name(kernels).values()][:5]
    return "\n".join(
        f"{k.name}: {milliseconds(k.ms)}, {k.verdict or 'no verdict'}, {count(k.registers)} registers, "
        f"occupancy {percent(k.occupancy_achieved)}"
        for k in longest
    )


def kernels_csv(kernels: Sequence[Kernel]) -> str:
    """A row a launch; limits and stalls get columns of their own. Cells without a measurement are empty."""
    rows = [_flat(kernel) for kernel in kernels]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    file = io.StringIO()
    writer = csv.DictWriter(file, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def markdown(profile: Profile) -> str:
    groups = by_name(profile.kernels)
    parts = [
        "# Kernels, measured by Nsight Compute",
        _facts(profile),
        "![Roofline](roofline.png)",
        "![Stalls](stalls.png)",
        "## All kernels",
        f"The figures of a row are those of the longest launch; kernels.csv has all {len(profile.kernels)} launches.",
        _table([_row(name, launches) for name, launches in groups.items()]),
        _RULE,
        *[_section(name, launches) for name, launches in list(groups.items())[:SECTIONS]],
    ]
    return "\n\n".join(parts) + "\n"


def _facts(profile: Profile) -> str:
    surroundings = ", ".join(f"{key} {value}" for key, value in profile.environment.items())
    lines = [f"Command: `{profile.command}`", f"Nsight Compute {profile.tool_version}; {surroundings or ABSENT}"]
    return "\n".join(f"- {line}" for line in (*lines, *profile.notes))


def _row(name: str, launches: list[Kernel]) -> tuple[str, ...]:
    k = launches[0]
    return (
        f"`{_cell(name)}`", str(len(launches)), milliseconds(k.ms), k.verdict or ABSENT, count(k.registers), _shared(k),
        percent(k.occupancy_theoretical), percent(k.occupancy_achieved), limited_by(k),
        percent(k.sol_compute), percent(k.sol_memory), percent(k.sol_dram), scaled(k.flop_per_s, "FLOP/s"),
        ABSENT if k.intensity is None else digits(k.intensity),
    )  # fmt: skip


def _section(name: str, launches: list[Kernel]) -> str:
    k = launches[0]
    size = f"grid {_size(k.grid)}, block {_size(k.block)}, {ABSENT if k.waves is None else digits(k.waves)} waves"
    cache = f"L1 {percent(k.sol_l1)} of its peak, {percent(k.l1_hit)} hits; L2 {percent(k.sol_l2)}, {percent(k.l2_hit)} hits"
    dram = f"{scaled(k.dram_read_bytes, 'B')} read, {scaled(k.dram_write_bytes, 'B')} written, {scaled(k.dram_bytes_per_s, 'B/s')}"
    lines = {
        "Launch": f"{milliseconds(k.ms)}, {size}" + (f", in {k.range}" if k.range else ""),
        "Verdict": f"**{k.verdict or 'none'}**: {verdict_words(k)}",
        "Occupancy": occupancy_words(k),
        "Registers": f"{count(k.registers)} a thread, {count(k.spill_instructions)} instructions on local memory (spills and arrays)",
        "Shared memory": f"{_shared(k)}; {shared_words(k)}",
        "Roofline": roofline_words(k),
        "FLOP": ", ".join(f"{p} {scaled(getattr(k, f'{p}_flop'), '')}" for p in ("fp32", "fp64", "fp16")),
        "DRAM": f"{dram} ({percent(k.sol_dram)} of its peak)",
        "Caches": cache,
        "Multiprocessors": f"have a block for {percent(k.sm_active)} of the launch, on average",
        "Warps": f"a scheduler issues in {percent(k.issue_active)} of the cycles; {_threads(k.active_threads)}",
        "Stalls": f"a warp issues every {_cycles(k.warp_cycles)} and waits " + ("; ".join(stall_words(k)) or ABSENT),
    }
    return f"## `{name}`\n\n" + "\n".join(f"- {head}: {text}" for head, text in lines.items())


def _table(rows: list[tuple[str, ...]]) -> str:
    rule = tuple("---" if k in (0, 3, 8) else "---:" for k in range(len(_HEADS)))
    return "\n".join("| " + " | ".join(row) + " |" for row in (_HEADS, rule, *rows))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _shared(kernel: Kernel) -> str:
    return f"{count(kernel.shared_static)} static + {count(kernel.shared_dynamic)} dynamic B"


def _threads(value: float | None) -> str:
    return f"active threads of a warp: {ABSENT}" if value is None else f"{value:.1f} of 32 threads are active"


def _cycles(value: float | None) -> str:
    return f"({ABSENT}) cycles" if value is None else f"{digits(value)} cycles"


def _size(size: tuple[int, ...] | None) -> str:
    return ABSENT if size is None else " x ".join(map(str, size))


def _flat(kernel: Kernel) -> dict[str, Any]:
    row = {k: _whole(v) for k, v in asdict(kernel).items() if not isinstance(v, dict)}
    row |= {k: " ".join(map(str, row[k] or ())) for k in ("grid", "block")} | {"limiters": ", ".join(kernel.limiters)}
    limits = {f"blocks_by_{name.replace(' ', '_')}": _whole(v) for name, v in kernel.occupancy_limits.items()}
    return row | limits | {f"stall_{reason}": v for reason, v in kernel.stalls.items()}


def _whole(value: Any) -> Any:
    """Counts as whole numbers."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value
