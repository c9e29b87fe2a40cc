# SPDX-License-Identifier: Apache-2.0
"""Counters of ncu for the instances of a backward kernel, lidar and camera: diagnosis.md and diagnosis.json.

diagnosis.json holds `format` (1), `command`, `tool_version`, `environment`, `notes`, `camera_over_lidar` (means of the instances, null
where one was not measured) and `instances`: name, sensor, its description by benchmarks/render/diagnose_child.py (`about`, with its pair
counts; null if unknown) and `kernel`, with the fields of nurec_lite.profiling.ncu.kernel.Kernel as keys.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from math import prod
from typing import Any

from nurec_lite.profiling.names import readable
from nurec_lite.profiling.ncu.kernel import Kernel, roof
from nurec_lite.profiling.ncu.words import ABSENT, count, digits, limited_by, milliseconds, percent, scaled

FORMAT = 1
RANGE = "step/backward/render/"  # before the name of an instance
TOP = 3  # listed stalls


@dataclass(frozen=True)
class Measured:
    """One launch of the kernel."""

    name: str  # of the instance
    kernel: Kernel
    about: dict[str, Any] | None  # of benchmarks/render/diagnose_child.py

    @property
    def sensor(self) -> str:
        return self.name.partition("_")[0]

    def count(self, key: str) -> float | None:
        value = (self.about or {"counts": {}})["counts"].get(key)
        return None if value is None else float(value)

    def a_pair(self, value: float | None) -> float | None:
        """A contributing pair."""
        pairs = self.count("contributing")
        return value / pairs if value is not None and pairs else None


def measured(kernels: Sequence[Kernel], abouts: list[dict[str, Any]]) -> list[Measured]:
    """Measurements by the range around the launch; without ranges in the order of instances, if there are as many.
    Lidars first."""
    known, in_order = {about["name"]: about for about in abouts}, len(kernels) == len(abouts)
    names = [_name(k) or (abouts[n]["name"] if in_order else f"launch_{k.id}") for n, k in enumerate(kernels)]
    found = [Measured(name, k, known.get(name)) for name, k in zip(names, kernels, strict=True)]
    return sorted(found, key=lambda m: {"lidar": 0, "camera": 1}.get(m.sensor, 2))


def _name(kernel: Kernel) -> str | None:
    path = kernel.range or ""
    return path.removeprefix(RANGE) if path.startswith(RANGE) else None


def renamed(found: Sequence[Measured]) -> tuple[Kernel, ...]:
    """Kernels with the names of their instances, for pictures."""
    return tuple(replace(m.kernel, name=f"{m.name.replace('_', ' ')}: {readable(m.kernel.name)}") for m in found)


# ---- the table


def _shared_bytes(m: Measured) -> str:
    return f"{count(m.kernel.shared_static)} + {count(m.kernel.shared_dynamic)}"


def _conflicts(m: Measured) -> str:
    conflicts, waves = m.kernel.shared_conflicts, m.kernel.shared_wavefronts
    share = f" ({100 * conflicts / waves:.1f} %)" if conflicts is not None and waves else ""
    return scaled(conflicts, "") + share


def _stall(n: int) -> Callable[[Measured], str]:
    def cell(m: Measured) -> str:
        if len(m.kernel.stalls) <= n:
            return ABSENT
        reason, cycles = list(m.kernel.stalls.items())[n]
        total = m.kernel.warp_cycles
        return f"{reason.replace('_', ' ')} {digits(cycles)}" + (f" ({100 * cycles / total:.0f} %)" if total else "")

    return cell


def _roof(m: Measured) -> str:
    admitted, attained = roof(m.kernel), m.kernel.flop_per_s
    return ABSENT if not admitted or attained is None else f"{100 * attained / admitted:.1f} %"


def _number(value: float | None) -> str:
    return ABSENT if value is None else digits(value)


def _share(value: float | None) -> str:
    return percent(None if value is None else 100 * value)


def _scaled(field: str, unit: str = "") -> Callable[[Measured], str]:
    return lambda m: scaled(getattr(m.kernel, field), unit)


def _percent(field: str) -> Callable[[Measured], str]:
    return lambda m: percent(getattr(m.kernel, field))


def _counted(key: str) -> Callable[[Measured], str]:
    return lambda m: scaled(m.count(key), "")


ROWS: dict[str, Callable[[Measured], str]] = {
    "kernel": lambda m: f"`{readable(m.kernel.name)}`",
    "rays": _counted("rays"),
    "list entries": _counted("entries"),
    "contributing pairs": _counted("contributing"),
    "lane efficiency": lambda m: _share(m.count("lane_efficiency")),
    "duration under ncu": lambda m: milliseconds(m.kernel.ms),
    "registers a thread": lambda m: count(m.kernel.registers),
    "instructions on local memory": lambda m: count(m.kernel.spill_instructions),
    "shared memory a block, static + dynamic B": _shared_bytes,
    "occupancy, theoretical": _percent("occupancy_theoretical"),
    "occupancy, achieved": _percent("occupancy_achieved"),
    "limited by": lambda m: limited_by(m.kernel),
    "shared-memory requests": _scaled("shared_requests"),
    "requests a contributing pair": lambda m: _number(m.a_pair(m.kernel.shared_requests)),
    "shared-memory wavefronts": _scaled("shared_wavefronts"),
    "of them for bank conflicts": _conflicts,
    "cycles between two instructions of a warp": lambda m: _number(m.kernel.warp_cycles),
    **{f"stall {n + 1}, cycles": _stall(n) for n in range(TOP)},
    "active threads of 32": lambda m: _number(m.kernel.active_threads),
    "FLOP, single precision": _scaled("fp32_flop"),
    "FLOP a byte of DRAM": lambda m: _number(m.kernel.intensity),
    "FLOP/s": _scaled("flop_per_s", "FLOP/s"),
    "of the roofline's limit": _roof,
    "compute, of its peak": _percent("sol_compute"),
    "memory, of its peak": _percent("sol_memory"),
    "DRAM, of its peak": _percent("sol_dram"),
    "verdict": lambda m: m.kernel.verdict or ABSENT,
    "a multiprocessor has a block for": _percent("sm_active"),
    "blocks": lambda m: ABSENT if m.kernel.grid is None else count(prod(m.kernel.grid)),
    "Gaussians that a block goes through, mean": lambda m: _number(m.count("mean_tile")),
    "the longest block": lambda m: _number(m.count("longest_tile")),
    "longest over mean": lambda m: _number(m.count("longest_to_mean_tile")),
}


def table(found: Sequence[Measured]) -> str:
    head = ["", *(m.name.replace("_", ", ", 1) for m in found)]
    rows = [[name, *(cell(m) for m in found)] for name, cell in ROWS.items()]
    rule = ["---", *("---:" for _ in found)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *rows))


# ---- camera over lidar

COMPARED = ("registers", "occupancy_achieved", "shared_requests", "shared_conflicts", "sm_active")


def camera_over_lidar(found: Sequence[Measured]) -> dict[str, float | None]:
    """The mean of the cameras' instances over that of the lidars'; requests also a contributing pair."""
    values = {field: [(m.sensor, getattr(m.kernel, field)) for m in found] for field in COMPARED}
    values["requests_a_pair"] = [(m.sensor, m.a_pair(m.kernel.shared_requests)) for m in found]
    return {field: _ratio(pairs) for field, pairs in values.items()}


def _ratio(values: list[tuple[str, float | None]]) -> float | None:
    camera, lidar = (_mean([v for sensor, v in values if sensor == s]) for s in ("camera", "lidar"))
    return camera / lidar if camera is not None and lidar else None


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def compared_words(ratios: dict[str, float | None]) -> str:
    def fewer(key: str) -> str:
        ratio = ratios[key]
        return ABSENT if ratio is None else f"{100 * abs(1 - ratio):.0f} % {'fewer' if ratio <= 1 else 'more'}"

    return (
        "Against the mean of the lidar instances, the camera instances make "
        f"{fewer('shared_requests')} shared-memory requests; a contributing pair, {fewer('requests_a_pair')}."
    )


# ---- the files


def markdown(found: Sequence[Measured], facts: list[str]) -> str:
    parts = [
        "# The backward kernel: lidar and camera, measured by Nsight Compute",
        "\n".join(f"- {fact}" for fact in facts),
        table(found),
        compared_words(camera_over_lidar(found)),
        "![Roofline](roofline.png)",
        "![Stalls](stalls.png)",
    ]
    return "\n\n".join(parts) + "\n"


def content(found: Sequence[Measured]) -> dict[str, Any]:
    rows = [{"name": m.name, "sensor": m.sensor, "about": m.about, "kernel": asdict(m.kernel)} for m in found]
    return {"camera_over_lidar": camera_over_lidar(found), "instances": rows}
