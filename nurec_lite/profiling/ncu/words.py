# SPDX-License-Identifier: Apache-2.0
"""Meanings of a kernel's figures, in words."""

from nurec_lite.profiling.ncu.kernel import Kernel, roof

ABSENT = "not measured"
STALLS = {  # reason of ncu -> its meaning for warps
    "long_scoreboard": "data from global or local memory (L1, L2 or DRAM)",
    "short_scoreboard": "data from shared memory, or results of special functions",
    "lg_throttle": "a full queue of global and local memory instructions",
    "mio_throttle": "a full queue of shared memory and special function instructions",
    "tex_throttle": "a full queue of texture instructions (and of double precision on some GPUs)",
    "math_pipe_throttle": "a busy arithmetic pipe",
    "barrier": "the other warps of the block at a barrier",
    "membar": "a memory fence",
    "branch_resolving": "the target of a branch",
    "wait": "the fixed latency of the instruction before",
    "not_selected": "the scheduler, which chose another warp that was ready",
    "no_instruction": "the next instruction, which is not in the instruction cache",
    "imc_miss": "constants that are not in the constant cache",
    "drain": "stores to leave at the end of the kernel",
    "dispatch_stall": "the dispatcher",
    "sleeping": "a sleep to end",
    "misc": "something else",
    "gmma": "matrix instructions of the warp group",
}
_REASONS = {
    "latency-bound": "compute ({c}) and memory ({m}) are both below 60 % of their peak: warps wait more than they work",
    "compute-bound": "compute is at {c} of its peak, memory at {m}",
    "memory-bound": "memory is at {m} of its peak, compute at {c}",
    "balanced": "compute ({c}) and memory ({m}) are within 10 points: both must fall for the kernel to be faster",
}
_UNEVEN = 60.0  # % of the launch; below it blocks differ much, or are few
_FACTORS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def digits(value: float) -> str:
    """Number with three digits, never as a power of ten."""
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:.0f}"


def scaled(value: float | None, unit: str) -> str:
    """Number with three digits and a decimal prefix."""
    if value is None:
        return ABSENT
    factor, prefix = next(((f, p) for f, p in _FACTORS if abs(value) >= f), (1.0, ""))
    return f"{digits(value / factor)} {prefix}{unit}".rstrip()


def percent(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.1f} %"


def count(value: float | None) -> str:
    return ABSENT if value is None else f"{value:,.0f}".replace(",", "\u202f")


def milliseconds(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.4g} ms"


def verdict_words(kernel: Kernel) -> str:
    if kernel.verdict is None:
        return "no verdict: the throughput of compute or memory was not measured"
    words = _REASONS[kernel.verdict].format(c=percent(kernel.sol_compute), m=percent(kernel.sol_memory))
    small = kernel.verdict == "latency-bound" and kernel.waves is not None and kernel.waves < 1
    grid = f"; the grid is small ({kernel.waves:.2g} waves), most of the GPU has no block" if small else ""
    if kernel.verdict == "latency-bound" and kernel.sm_active is not None and kernel.sm_active < _UNEVEN:
        grid += f"; a multiprocessor has work for only {percent(kernel.sm_active)} of the launch, on average: some blocks are long"
    top = max(kernel.sol_compute or 0.0, kernel.sol_memory or 0.0)
    return words + grid + ("; that is near the limit of the hardware" if top >= 80 else "")


def limited_by(kernel: Kernel) -> str:
    if not kernel.limiters:
        return ABSENT
    full = kernel.occupancy_theoretical is not None and kernel.occupancy_theoretical >= 99.9
    return "nothing" if full else " and ".join(kernel.limiters)


def occupancy_words(kernel: Kernel) -> str:
    shown = f"{percent(kernel.occupancy_theoretical)} theoretical, {percent(kernel.occupancy_achieved)} achieved"
    if not kernel.limiters:
        return f"{shown}; its limit was not measured"
    limits = ", ".join(f"{name} {blocks:.0f}" for name, blocks in kernel.occupancy_limits.items())
    return f"{shown}; limited by {limited_by(kernel)} (blocks a multiprocessor: {limits})"


def roofline_words(kernel: Kernel) -> str:
    if kernel.flop_per_s is None:
        return ABSENT
    if kernel.flop_per_s == 0:
        return "no single precision operations, so it has no place on the roofline"
    attained, admitted = scaled(kernel.flop_per_s, "FLOP/s"), roof(kernel)
    if kernel.intensity is None:
        return f"{attained}; its arithmetic intensity was {ABSENT}"
    share = "" if admitted is None else f", {100 * kernel.flop_per_s / admitted:.1f} % of the roofline's limit"
    return f"{attained} at {digits(kernel.intensity)} FLOP a byte of DRAM{share}"


def shared_words(kernel: Kernel) -> str:
    if kernel.shared_requests is None:
        return f"{ABSENT} (requests)"
    if kernel.shared_requests == 0:
        return "no requests"
    conflicts, waves = kernel.shared_conflicts, kernel.shared_wavefronts
    share = f" ({100 * conflicts / waves:.1f} %)" if conflicts is not None and waves else ""
    return (
        f"{scaled(kernel.shared_requests, '')} requests in {scaled(waves, '')} wavefronts, "
        f"{scaled(conflicts, '')} of them for bank conflicts{share}"
    )


def stall_words(
    kernel: Kernel,
    n: int = 4,  # reasons at most
) -> list[str]:  # the longest first
    total = kernel.warp_cycles
    return [
        f"{digits(cycles)} cycles{f' ({100 * cycles / total:.0f} %)' if total else ''} "
        f"for {STALLS.get(reason, reason)} (`{reason}`)"
        for reason, cycles in list(kernel.stalls.items())[:n]
        if cycles > 0
    ]
