# SPDX-License-Identifier: Apache-2.0
"""Raw pages of ncu for tests: a launch whose figures are easy to compute by hand, and variations of it."""

import csv
import io
from pathlib import Path

NVTX = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
_SASS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
FADD, FMUL, FFMA, DFMA = (_SASS.format(o) for o in ("fadd", "fmul", "ffma", "dfma"))
COLUMNS: dict[str, tuple[str, str]] = {  # name -> unit, value
    "ID": ("", "0"),
    "Process Name": ("", "python3"),
    "Kernel Name": ("", "void blend<3>(Params, int)"),
    "Block Size": ("", "(16, 16, 1)"),
    "Grid Size": ("", "(78, 24, 1)"),
    NVTX: (
        "",
        '"1234 <default domain>:step:none:none:none:none:none:none","1234 <default domain>:step/render:none:none"',
    ),
    "gpu__time_duration.sum": ("nsecond", "2,000,000"),
    "launch__registers_per_thread": ("register/thread", "64"),
    "launch__shared_mem_per_block_static": ("byte/block", "1024"),
    "launch__shared_mem_per_block_dynamic": ("Kbyte/block", "2.048"),
    "launch__shared_mem_per_block_driver": ("byte/block", "1024"),
    "sm__cycles_active.avg": ("cycle", "9,000"),
    "gpc__cycles_elapsed.max": ("cycle", "10,000"),
    "launch__waves_per_multiprocessor": ("", "3.5"),
    "launch__occupancy_limit_registers": ("block", "4"),
    "launch__occupancy_limit_shared_mem": ("block", "7"),
    "launch__occupancy_limit_blocks": ("block", "32"),
    "launch__occupancy_limit_warps": ("block", "8"),
    "sm__maximum_warps_per_active_cycle_pct": ("%", "50"),
    "sm__warps_active.avg.pct_of_peak_sustained_active": ("%", "37.5"),
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": ("%", "41.5"),
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": ("%", "25"),
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": ("%", "20"),
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": ("%", "12"),
    "l1tex__throughput.avg.pct_of_peak_sustained_active": ("%", "25"),
    "lts__t_sector_hit_rate.pct": ("%", "80"),
    "l1tex__t_sector_hit_rate.pct": ("%", "60"),
    "dram__bytes_read.sum": ("Mbyte", "1,500"),
    "dram__bytes_write.sum": ("byte", "500000000"),
    "dram__bytes.sum.per_second": ("Gbyte/s", "1000"),
    "smsp__inst_executed.sum": ("inst", "640,000"),
    "smsp__thread_inst_executed_per_inst_executed.ratio": ("", "24"),
    "smsp__average_warp_latency_per_inst_issued.ratio": ("cycle", "20"),
    "smsp__issue_active.avg.pct_of_peak_sustained_active": ("%", "30"),
    "smsp__sass_inst_executed_op_local_ld.sum": ("inst", "40"),
    "smsp__sass_inst_executed_op_local_st.sum": ("inst", "2"),
    "smsp__sass_inst_executed_op_shared_ld.sum": ("inst", "1000"),
    "smsp__sass_inst_executed_op_shared_st.sum": ("inst", "200"),
    "smsp__inst_executed_op_shared_atom.sum": ("inst", "50"),
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum": ("", "1500"),
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum": ("", "400"),
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_atom.sum": ("", "100"),
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": ("", "500"),
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum": ("", "200"),
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_atom.sum": ("", "50"),
    FADD: ("inst", "1,000,000,000"),
    FMUL: ("inst", "2000000000"),
    FFMA: ("inst", "3500000000"),
    _SASS.format("dadd"): ("inst", "1"),
    _SASS.format("dmul"): ("inst", "2"),
    DFMA: ("inst", "3"),
    f"{FADD}.per_cycle_elapsed": ("inst/cycle", "500"),
    f"{FMUL}.per_cycle_elapsed": ("inst/cycle", "1000"),
    f"{FFMA}.per_cycle_elapsed": ("inst/cycle", "1750"),
    "smsp__cycles_elapsed.avg.per_second": ("cycle/nsecond", "1"),
    "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained": ("inst/cycle", "10000"),
    "sm__cycles_elapsed.avg.per_second": ("Ghz", "1"),
    "dram__bytes.sum.peak_sustained": ("byte/cycle", "2000"),
    "dram__cycles_elapsed.avg.per_second": ("cycle/second", "2,000,000,000"),
    _STALL.format("barrier"): ("inst", "4"),
    _STALL.format("long_scoreboard"): ("inst", "12.5"),
    _STALL.format("selected"): ("inst", "1"),
    _STALL.format("wait"): ("inst", "2.5"),
    _STALL.format("membar"): ("inst", ""),
}


def page(
    *launches: dict[str, str],  # columns that differ from COLUMNS
    units: dict[str, str] | None = None,  # likewise
    without: tuple[str, ...] = (),  # columns that are missing
    before: str = "",  # lines before the header
) -> str:
    names = [name for name in COLUMNS if name not in without]
    names += [name for launch in launches for name in launch if name not in COLUMNS]
    file = io.StringIO()
    writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(names)
    writer.writerow([(units or {}).get(name, COLUMNS.get(name, ("", ""))[0]) for name in names])
    for launch in launches:
        writer.writerow([launch.get(name, COLUMNS.get(name, ("", ""))[1]) for name in names])
    return before + file.getvalue()


def write_page(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path
