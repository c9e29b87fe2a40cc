# SPDX-License-Identifier: Apache-2.0
"""Records the window by nsys and reads its export."""

import logging
import re
from pathlib import Path
from typing import Any

from nurec_lite.base import nvtx
from nurec_lite.base.folders import make_way
from nurec_lite.config import ProfileConfig
from nurec_lite.profiling.errors import ProfileError
from nurec_lite.profiling.record.child import Ended, read_window, run_logged, said, waiting_lines
from nurec_lite.profiling.record.tools import check_version, find_tool, version_text
from nurec_lite.profiling.record.window import window_command
from nurec_lite.profiling.summary.summarise import Taken
from nurec_lite.profiling.trace.nsys import read_nsys
from nurec_lite.profiling.trace.trace import Trace

FLAGS = (
    "--trace=cuda,nvtx,osrt", "--sample=none", "--cpuctxsw=none", "--capture-range=cudaProfilerApi",
    "--capture-range-end=stop", "--kill=none", "--cuda-graph-trace=node", "--force-overwrite=true",
)  # fmt: skip
_NO_IMPORTER = (
    "nsys recorded but cannot import what it recorded; install the whole of NVIDIA Nsight Systems, and what its program "
    "QdstrmImporter needs (often the packages libdw1 and libelf1; nsys.import.log in the folder of results may name it), or use tool=torch"
)
_KNOWN = {  # a message of nsys or the process -> its meaning and remedy
    "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS|already subscribed to CUPTI": "another profiler is attached to the process or the GPU; "
    "end it (torch.profiler, ncu, DCGM's profiling) and try again",
    "Importer error|QdstrmImporter": _NO_IMPORTER,
    "Version number is invalid": "another, newer nsys wrote the report than the one that reads it; let PATH name one version",
    "unrecogni[sz]ed option|Illegal [-\\w]+ argument|invalid value for": "this nsys does not know a flag that is needed; "
    "install a newer NVIDIA Nsight Systems, or use tool=torch",
    "ERR_NVGPUCTRPERM": "the driver keeps the GPU's counters for administrators; run as root or load the driver with "
    "NVreg_RestrictProfilingToAdminUsers=0, or use tool=torch",
    "(?i)driver version .*(insufficient|not supported|newer than)|incompatible CUDA driver": "the driver and nsys do not match; "
    "install a driver or an NVIDIA Nsight Systems as new as the other, or use tool=torch",
    "(?i)unsupported (gpu|device|platform)|not supported (on|for|in|by) ": "this nsys cannot record here; install an NVIDIA Nsight "
    "Systems that lists this GPU and system (under WSL one of NVIDIA's for WSL), or use tool=torch",
}  # fmt: skip
log = logging.getLogger("nurec_lite")


def record_nsys(config: ProfileConfig, out: Path, command: str) -> tuple[Trace, Taken]:
    """Leaves nsys.nsys-rep (for the GUI), nsys.sqlite and nsys.log in `out`."""
    nsys = find_tool("nsys")
    version = check_version("nsys", nsys)
    for ending in ("nsys-rep", "sqlite", "qdstrm"):
        make_way(out / f"nsys.{ending}")
    log.info("nsys %s records %d steps after %d", version_text(version), config.steps, config.warmup)
    child = window_command(config, out, "nvtx")
    line = [str(nsys), "profile", *FLAGS, f"--output={out / 'nsys'}", *child]
    ended = run_logged(line, out / "nsys.log", **nvtx.surroundings())
    window = _window_or_reason(out, ended)
    trace = _exported(nsys, out, ended)
    return trace, Taken("nsys", version_text(version), command, window, waiting_lines(config, out))


def _window_or_reason(out: Path, ended: Ended) -> dict[str, Any]:
    """The report of the process; where nsys did not start it, the reason."""
    known = None if said(out, "nvtx") else _explained(ended)
    if known is not None:
        raise known
    return read_window(out, "nvtx", ended, "nsys")


def _exported(nsys: Path, out: Path, ended: Ended) -> Trace:
    """Exports and reads the report; ProfileError with nsys's own words where they are known."""
    report, database = out / "nsys.nsys-rep", out / "nsys.sqlite"
    if not report.is_file():
        _import(nsys, out)
    if not report.is_file():
        raise _explained(ended) or ProfileError(
            f"nsys wrote no report (code {ended.code}); {ended.log} has its output, and tool=torch needs no nsys"
        )
    export = ["export", "--type=sqlite", "--force-overwrite=true", f"--output={database}", str(report)]
    exported = run_logged([str(nsys), *export], out / "nsys.export.log")
    if not database.is_file():
        raise _explained(exported) or ProfileError(
            f"nsys cannot export {report} (code {exported.code}); {exported.log} has its output, and tool=torch needs no nsys"
        )
    try:
        return read_nsys(database)
    except ProfileError as error:
        raise _explained(ended) or error from error


def _import(nsys: Path, out: Path) -> None:
    """Makes the report of the recording if nsys did not: the one inside Nsight Compute does not find its own importer."""
    recorded = out / "nsys.qdstrm"
    importers = [p for place in (nsys, nsys.resolve()) for p in sorted(place.parents[1].glob("*/QdstrmImporter"))]
    if not recorded.is_file():
        return
    if importers:
        run_logged([str(importers[0]), "-i", str(recorded), "-o", str(out / "nsys.nsys-rep")], out / "nsys.import.log")
    if not (out / "nsys.nsys-rep").is_file():
        raise ProfileError(_NO_IMPORTER)


def _explained(ended: Ended) -> ProfileError | None:
    """The line of the output that is known, and its meaning."""
    for line in ended.output.splitlines():
        for pattern, meaning in _KNOWN.items():
            if re.search(pattern, line):
                return ProfileError(f"nsys says '{line.strip()[:160]}': {meaning}")
    return None
