# SPDX-License-Identifier: Apache-2.0
"""Measurements of one launch by ncu, under names of our own, and figures that follow from them: FLOP, roofline, limits, verdict.

None means that ncu did not measure the figure, never that it is 0. Formulas of FLOP/s and ceilings are those of ncu's own roofline
chart (section SpeedOfLight_RooflineChart), the verdict is that of its rule SpeedOfLight.
"""

import re
from dataclasses import dataclass, field

from nurec_lite.profiling.names import short_name
from nurec_lite.profiling.ncu.csv import Launch
from nurec_lite.profiling.ncu.metrics import (
    ACTIVE,
    CYCLES,
    FIGURES,
    INSTRUCTIONS,
    LIMITS,
    PEAKS,
    PRECISIONS,
    STALL,
    SUMS,
)

_LATENCY, _LIMIT, _BALANCED = 60.0, 80.0, 10.0  # percent of peak, and points between compute and memory


@dataclass(frozen=True)
class Kernel:
    """One launch. Percentages are 0 to 100, `sol_*` are shares of the peak that the hardware sustains (speed of light)."""

    id: int  # of the launch, as ncu counts
    name: str  # demangled, without its arguments
    range: str | None  # the innermost range of nurec_lite.base.ranges around the launch
    grid: tuple[int, ...] | None  # blocks, x y z
    block: tuple[int, ...] | None  # threads, x y z
    ms: float | None
    registers: float | None  # a thread
    shared_static: float | None  # bytes a block
    shared_dynamic: float | None  # bytes a block
    shared_driver: float | None  # bytes a block that the driver takes
    waves: float | None  # grids that fill the GPU once
    sm_active: float | None  # % of the launch while a multiprocessor has a block, mean of all; low: few long blocks
    occupancy_theoretical: float | None  # %
    occupancy_achieved: float | None  # %
    sol_compute: float | None  # %
    sol_memory: float | None  # %
    sol_dram: float | None  # %
    sol_l2: float | None  # %
    sol_l1: float | None  # %
    l2_hit: float | None  # %
    l1_hit: float | None  # %
    dram_read_bytes: float | None
    dram_write_bytes: float | None
    dram_bytes_per_s: float | None
    instructions: float | None  # of warps
    active_threads: float | None  # of the 32 of a warp, in an instruction
    warp_cycles: float | None  # between two instructions that a warp issues: the stalls, and 1 for issuing
    issue_active: float | None  # % of the cycles whose scheduler issues
    spill_instructions: float | None  # loads and stores of local memory
    shared_requests: float | None  # instructions of warps that load, store or change shared memory
    shared_wavefronts: float | None  # passes that they took
    shared_conflicts: float | None  # passes that bank conflicts added
    fp32_flop: float | None  # additions + multiplications + 2 fused
    fp64_flop: float | None
    fp16_flop: float | None
    flop_per_s: float | None  # fp32
    intensity: float | None  # fp32 FLOP a byte of DRAM
    peak_flop_per_s: float | None  # fp32, at the clock of the launch
    peak_bytes_per_s: float | None  # of DRAM
    verdict: str | None  # latency-bound, compute-bound, memory-bound or balanced
    occupancy_limits: dict[str, float] = field(
        default_factory=dict
    )  # blocks a multiprocessor that each resource admits
    limiters: tuple[str, ...] = ()  # the resources that admit the fewest
    stalls: dict[str, float] = field(default_factory=dict)  # cycles of a warp an issued instruction; the longest first


def kernel(launch: Launch) -> Kernel:
    figures = {name: launch.number(column, unit) for name, (column, unit) in FIGURES.items()}
    sums = {name: _sum([launch.number(column) for column in columns]) for name, columns in SUMS.items()}
    flop = {f"{name}_flop": _flop(launch, letter, "") for name, letter in PRECISIONS.items()}
    seconds, limits = launch.number("gpu__time_duration.sum", "second"), _limits(launch)
    return Kernel(
        id=int(launch.cells["ID"].replace(",", "")),
        name=short_name(launch.cells["Kernel Name"]),
        range=_range(launch),
        sm_active=_share(launch.number(ACTIVE[0]), launch.number(ACTIVE[1])),
        grid=_size(launch.text("Grid Size")),
        block=_size(launch.text("Block Size")),
        ms=None if seconds is None else 1e3 * seconds,
        occupancy_limits=limits,
        limiters=tuple(name for name, blocks in limits.items() if blocks == min(limits.values())),
        stalls=_stalls(launch),
        verdict=verdict(figures["sol_compute"], figures["sol_memory"]),
        **figures,
        **sums,
        **flop,
        **_roofline(launch, seconds, flop["fp32_flop"], figures["dram_bytes_per_s"]),
    )


def verdict(
    compute: float | None,  # % of the peak
    memory: float | None,  # % of the peak
) -> str | None:
    """Verdict by NVIDIA's rule. The ridge of the roofline does not decide it: a kernel left of the ridge may still wait for compute."""
    if compute is None or memory is None:
        return None
    if max(compute, memory) < _LATENCY:
        return "latency-bound"
    if max(compute, memory) < _LIMIT and abs(compute - memory) < _BALANCED:
        return "balanced"
    return "compute-bound" if compute >= memory else "memory-bound"


def roof(kernel: Kernel) -> float | None:
    """FLOP/s that its arithmetic intensity admits."""
    if kernel.peak_flop_per_s is None or kernel.peak_bytes_per_s is None or kernel.intensity is None:
        return None
    return min(kernel.peak_flop_per_s, kernel.intensity * kernel.peak_bytes_per_s)


def _share(part: float | None, whole: float | None) -> float | None:  # %
    return None if part is None or not whole else 100 * part / whole


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _flop(
    launch: Launch,
    letter: str,  # of the precision
    rate: str,  # "" or .per_cycle_elapsed
) -> float | None:
    unit = "1/cycle" if rate else ""
    add, mul, fma = (launch.number(INSTRUCTIONS.format(letter, o) + rate, unit) for o in ("add", "mul", "fma"))
    return None if add is None or mul is None or fma is None else add + mul + 2 * fma


def _product(launch: Launch, per_cycle: str, unit: str, cycles: str) -> float | None:
    a, b = launch.number(per_cycle, unit), launch.number(cycles, "cycle/second")
    return None if a is None or b is None else a * b


def _roofline(
    launch: Launch,
    seconds: float | None,
    flop: float | None,  # fp32
    bytes_per_s: float | None,  # of DRAM
) -> dict[str, float | None]:
    (ffma, sm_cycles), (traffic, dram_cycles) = PEAKS
    peak = _product(launch, ffma, "1/cycle", sm_cycles)
    attained = flop / seconds if flop is not None and seconds else _chart_rate(launch)
    return {
        "flop_per_s": attained,
        "intensity": attained / bytes_per_s if attained is not None and bytes_per_s else None,
        "peak_flop_per_s": None if peak is None else 2 * peak,
        "peak_bytes_per_s": _product(launch, traffic, "byte/cycle", dram_cycles),
    }


def _chart_rate(launch: Launch) -> float | None:
    """FLOP/s as ncu's chart has them: the same where both are known, but rates are exported with two decimals only."""
    rate, cycles = _flop(launch, "f", ".per_cycle_elapsed"), launch.number(CYCLES, "cycle/second")
    return None if rate is None or cycles is None else rate * cycles


def _limits(launch: Launch) -> dict[str, float]:
    found = {name: launch.number(f"launch__occupancy_limit_{column}") for name, column in LIMITS.items()}
    return {name: blocks for name, blocks in found.items() if blocks is not None}


def _stalls(launch: Launch) -> dict[str, float]:
    """Stall reasons without `selected`: in that cycle the warp issues."""
    columns = {found[1]: name for name in launch.cells if (found := re.fullmatch(STALL, name))}
    measured = {reason: launch.number(name) for reason, name in columns.items()}
    known = {reason: value for reason, value in measured.items() if value is not None and reason != "selected"}
    return dict(sorted(known.items(), key=lambda item: -item[1]))


def _range(launch: Launch) -> str | None:
    """Innermost range of a launch. Ranges carry their whole path, so it is the longest of those that the columns of NVTX list."""
    columns = [name for name in launch.cells if "Push/Pop_Range" in name]
    paths = [
        path for name in columns for path in re.findall(r"(?<=:)step(?:/[^:\",]+)*(?=[:\",]|$)", launch.cells[name])
    ]
    return max(paths, key=len, default=None)


def _size(
    text: str | None,  # such as (16, 16, 1)
) -> tuple[int, ...] | None:
    return tuple(int(number) for number in re.findall(r"\d+", text)) if text else None
