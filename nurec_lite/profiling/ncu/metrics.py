# SPDX-License-Identifier: Apache-2.0
"""Columns of ncu that are read, and counters that are asked for. Names as of Nsight Compute 2022.3 to 2025.3."""

PRECISIONS = {"fp32": "f", "fp64": "d", "fp16": "h"}  # letter in the names of instructions: fadd, dadd, hadd
INSTRUCTIONS = "smsp__sass_thread_inst_executed_op_{}{}_pred_on.sum"
STALL = r"smsp__average_warps_issue_stalled_(\w+)_per_issue_active\.ratio"  # regular expression, reason in it
LIMITS = {  # resource -> end of launch__occupancy_limit_...
    "registers": "registers", "shared memory": "shared_mem", "blocks": "blocks", "warps": "warps",
}  # fmt: skip

# field of Kernel -> column of ncu, and its unit here ("" for counts)
FIGURES = {
    "registers": ("launch__registers_per_thread", ""),
    "shared_static": ("launch__shared_mem_per_block_static", "byte"),
    "shared_dynamic": ("launch__shared_mem_per_block_dynamic", "byte"),
    "shared_driver": ("launch__shared_mem_per_block_driver", "byte"),
    "waves": ("launch__waves_per_multiprocessor", ""),
    "occupancy_theoretical": ("sm__maximum_warps_per_active_cycle_pct", "%"),
    "occupancy_achieved": ("sm__warps_active.avg.pct_of_peak_sustained_active", "%"),
    "sol_compute": ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "%"),
    "sol_memory": ("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed", "%"),
    "sol_dram": ("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", "%"),
    "sol_l2": ("lts__throughput.avg.pct_of_peak_sustained_elapsed", "%"),
    "sol_l1": ("l1tex__throughput.avg.pct_of_peak_sustained_active", "%"),
    "l2_hit": ("lts__t_sector_hit_rate.pct", "%"),
    "l1_hit": ("l1tex__t_sector_hit_rate.pct", "%"),
    "dram_read_bytes": ("dram__bytes_read.sum", "byte"),
    "dram_write_bytes": ("dram__bytes_write.sum", "byte"),
    "dram_bytes_per_s": ("dram__bytes.sum.per_second", "byte/second"),
    "instructions": ("smsp__inst_executed.sum", ""),
    "active_threads": ("smsp__thread_inst_executed_per_inst_executed.ratio", ""),
    "warp_cycles": ("smsp__average_warp_latency_per_inst_issued.ratio", ""),
    "issue_active": ("smsp__issue_active.avg.pct_of_peak_sustained_active", "%"),
}
SUMS = {  # field -> columns that are added; None if one of them is missing
    "spill_instructions": ("smsp__sass_inst_executed_op_local_ld.sum", "smsp__sass_inst_executed_op_local_st.sum"),
    "shared_requests": (
        "smsp__sass_inst_executed_op_shared_ld.sum",
        "smsp__sass_inst_executed_op_shared_st.sum",
        "smsp__inst_executed_op_shared_atom.sum",
    ),
    "shared_wavefronts": tuple(f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{o}.sum" for o in ("ld", "st", "atom")),
    "shared_conflicts": tuple(
        f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{o}.sum" for o in ("ld", "st", "atom")
    ),
}
PEAKS = (  # per cycle and cycles per second, of compute and of memory
    ("sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained", "sm__cycles_elapsed.avg.per_second"),
    ("dram__bytes.sum.peak_sustained", "dram__cycles_elapsed.avg.per_second"),
)
ACTIVE = ("sm__cycles_active.avg", "gpc__cycles_elapsed.max")  # of a multiprocessor with a block, and of the launch
CYCLES = "smsp__cycles_elapsed.avg.per_second"
_DERIVED = ("launch__", "sm__maximum_warps")  # begin of names that ncu derives itself and refuses in --metrics


def _counters() -> tuple[str, ...]:
    """Names that are asked for one by one; derived metrics and stalls come with ncu's sections."""
    single = [name for name, _ in FIGURES.values() if not name.startswith(_DERIVED)]
    added = [name for names in SUMS.values() for name in names]
    counted = [INSTRUCTIONS.format(p, o) for p in PRECISIONS.values() for o in ("add", "mul", "fma")]
    rates = [f"{INSTRUCTIONS.format('f', o)}.per_cycle_elapsed" for o in ("add", "mul", "fma")]
    peaks = [name for pair in PEAKS for name in pair]
    return ("gpu__time_duration.sum", *single, *added, *counted, *rates, *peaks, *ACTIVE, CYCLES)


COUNTERS = _counters()
