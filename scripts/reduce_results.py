# SPDX-License-Identifier: Apache-2.0
"""Reduces reports of benchmarks and profiles to the figures that pages, tests and scripts read, and writes a record a line.

    python scripts/reduce_results.py runs/figures benchmarks/results/NAME.json

It takes JSON files, and folders with all JSON files in them. Of each kernel, profiles by ncu keep time, registers, occupancy, bytes and
shares of the peaks; recordings by nsys keep their ranges; a step keeps its longest kernels. Other reports lose nothing. No figure changes.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from nurec_lite.base.errors import UserError
from nurec_lite.base.files import write_text
from nurec_lite.base.program import Parser, ends_with_a_sentence

WIDTH = 150  # characters
LONGEST = 24  # kernels of a step, which come by their time
KERNEL = (  # the figures of a kernel under ncu that pages show
    "name", "range", "ms", "registers", "occupancy_achieved", "dram_read_bytes", "dram_write_bytes", "sol_compute", "sol_memory",
)  # fmt: skip
COMPARED = (
    "grid",
    "block",
    "occupancy_theoretical",
    "sm_active",
    "issue_active",
    "instructions",
    "warp_cycles",
    "stalls",
)  # in diagnoses
Report = dict[str, Any]


def reduced(report: Any) -> Any:
    if not isinstance(report, dict):
        return report
    if report.get("tool") == "ncu":
        return report | {"kernels": [kernel_of(k) for k in report["kernels"]]}
    if report.get("tool") == "nsys":
        return {key: value for key, value in report.items() if key not in ("kernels", "step_times_ms")}
    if "instances" in report:
        return report | {
            "instances": [one | {"kernel": kernel_of(one["kernel"], KERNEL + COMPARED)} for one in report["instances"]]
        }
    if "every_kernel" in (profile := report.get("profile") or {}):
        return report | {"profile": profile | {"every_kernel": profile["every_kernel"][:LONGEST]}}
    return report


def kernel_of(kernel: Report, keys: tuple[str, ...] = KERNEL) -> Report:
    return {key: kernel[key] for key in keys if key in kernel}


def laid_out(value: Any, indent: int = 0) -> str:
    """Returns JSON on one line if it fits, else as many items on a line as fit."""
    line = json.dumps(value)
    if not isinstance(value, dict | list) or not value or indent + len(line) <= WIDTH:
        return line
    names = [f"{json.dumps(key)}: " for key in value] if isinstance(value, dict) else [""] * len(value)
    items = value.values() if isinstance(value, dict) else value
    parts = (name + laid_out(item, indent + 1) for name, item in zip(names, items, strict=True))
    inner = ("\n" + " " * (indent + 1)).join(_packed(parts, WIDTH - indent - 1))
    return f"{line[0]}\n{' ' * (indent + 1)}{inner}\n{' ' * indent}{line[-1]}"


def _packed(parts: Iterable[str], width: int) -> list[str]:
    """Returns lines, each but the last with a comma at its end."""
    lines: list[str] = []
    for part in parts:
        if (
            lines
            and "{" not in lines[-1] + part
            and "\n" not in lines[-1] + part
            and len(lines[-1]) + len(part) + 3 <= width
        ):
            lines[-1] += f", {part}"
        else:
            lines.append(part)
    return [f"{line}," for line in lines[:-1]] + lines[-1:]


def files_of(path: Path) -> list[Path]:
    if not path.exists():
        raise UserError(f"there is no {path}; name a report or a folder of reports")
    return sorted(path.rglob("*.json")) if path.is_dir() else [path]


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("paths", nargs="+", type=Path)
    with ends_with_a_sentence():
        for file in [file for path in parser.parse_args().paths for file in files_of(path)]:
            try:
                report = json.loads(file.read_text())
            except ValueError as error:
                raise UserError(f"{file} is no JSON ({error}); name reports of benchmarks") from None
            write_text(file, laid_out(reduced(report)) + "\n")


if __name__ == "__main__":
    main()
