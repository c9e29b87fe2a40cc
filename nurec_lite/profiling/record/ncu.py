# SPDX-License-Identifier: Apache-2.0
"""Measures kernels of the window by the GPU's counters, and writes ncu.csv (the raw page as ncu exports it),
kernels.json (nurec_lite.profiling.ncu.report lists its keys), kernels.csv, summary.md, roofline.png, stalls.png.

ncu runs every kernel several times, with the same memory, until all counters are read. ncu.ncu-rep opens in the GUI of Nsight Compute.
A range holds the launches of its own thread; backward formulas run in autograd's, so theirs are asked for as step/backward/NAME.
"""

import logging
import os
import re
import subprocess
from pathlib import Path
from typing import Any

from nurec_lite.base import nvtx
from nurec_lite.base.folders import make_way
from nurec_lite.config import ProfileConfig
from nurec_lite.profiling.draw.roofline import draw_roofline
from nurec_lite.profiling.draw.stalls import draw_stalls
from nurec_lite.profiling.errors import ProfileError
from nurec_lite.profiling.ncu.csv import read_launches
from nurec_lite.profiling.ncu.errors import explained
from nurec_lite.profiling.ncu.kernel import Kernel, kernel
from nurec_lite.profiling.ncu.metrics import COUNTERS
from nurec_lite.profiling.ncu.report import Profile, headline, write_report
from nurec_lite.profiling.record.child import Ended, began, read_window, run_logged, said
from nurec_lite.profiling.record.tools import check_version, find_tool, version_text
from nurec_lite.profiling.record.window import window_command

FLAGS = (
    "--config-file", "off", "--target-processes", "all", "--profile-from-start", "off", "--clock-control", "none",
    "--force-overwrite", "--nvtx",
)  # fmt: skip
SECTIONS = (
    "SpeedOfLight", "SpeedOfLight_RooflineChart", "ComputeWorkloadAnalysis", "MemoryWorkloadAnalysis",
    "MemoryWorkloadAnalysis_Tables", "SchedulerStats", "WarpStateStats", "LaunchStats", "Occupancy",
)  # fmt: skip
_RAW = ("--csv", "--page", "raw", "--print-units", "base")
_LISTED, _SHOWN = 1000, 30  # launches that are looked through where none matched, and names that an error tells
_NOTE = (
    "Before every pass ncu empties the caches, and the GPU's clocks are not locked: "
    "times are for comparison with other profiles by ncu, never results."
)
log = logging.getLogger("nurec_lite")


def run_ncu(
    config: ProfileConfig,
    out: Path,
    command: str,  # as the user typed it
) -> None:
    """Leaves ncu.log in `out`, too. ProfileError if nothing could be measured."""
    ncu = find_tool("ncu")
    version = check_version("ncu", ncu)
    chosen = filters(config)  # before anything runs
    for ending in ("ncu-rep", "csv", "list.ncu-rep", "list.csv"):
        make_way(out / f"ncu.{ending}")
    log.info("ncu %s measures kernels of %d steps after %d", version_text(version), config.steps, config.warmup)
    ended = run_counted(ncu, chosen, window_command(config, out, "nvtx"), out)
    window = _checked(config, out, ncu, ended)
    export(ncu, out / "ncu.ncu-rep", out / "ncu.csv")
    kernels = tuple(kernel(launch) for launch in read_launches(out / "ncu.csv"))
    made = (version_text(version), command, window["environment"], window["steps"])
    write_results(out, Profile(*made, _notes(config, kernels), kernels))
    print(headline(kernels))


def run_counted(
    ncu: Path,
    chosen: list[str],  # flags that choose the launches
    command: list[str],  # of the measured process
    out: Path,
) -> Ended:
    """Leaves ncu.log and, if anything was measured, ncu.ncu-rep in `out`."""
    line = [str(ncu), *_flags(), *chosen, "--export", str(out / "ncu.ncu-rep"), *command]
    return run_logged(line, out / "ncu.log", **nvtx.surroundings())


def write_results(out: Path, profile: Profile) -> None:
    write_report(out, profile)
    draw_roofline(out / "roofline.png", profile.kernels)
    draw_stalls(out / "stalls.png", profile.kernels)


def _flags() -> list[str]:
    sections = [flag for section in SECTIONS for flag in ("--section", section)]
    return [*FLAGS, *sections, "--metrics", ",".join(COUNTERS), "--import-source", "yes"]


def filters(config: ProfileConfig) -> list[str]:
    """Flags that choose the launches. Ranges carry their whole path, and ncu wants its own signs escaped there: DOMAIN@PATH/, in the
    default domain PATH/, where the slash at the end says that ranges are pushed and popped."""
    chosen = ["--launch-count", str(config.launches)]
    if config.kernels:
        try:
            re.compile(config.kernels)
        except re.error as error:
            raise ProfileError(f"kernels='{config.kernels}' is no regular expression: {error}") from error
        chosen += ["--kernel-name", f"regex:{config.kernels}"]
    if config.range:
        escaped = re.sub(r"([@,\[\]/*+])", r"\\\1", config.range)
        domain = nvtx.domain()
        chosen += ["--nvtx-include", f"{domain}@{escaped}/" if domain else f"{escaped}/"]
    return chosen


def export(
    ncu: Path,
    report: Path,
    path: Path,  # of the CSV
    *flags: str,
) -> None:
    """Exports under LC_ALL=C: ncu writes numbers as the locale has them."""
    command = [str(ncu), "--import", str(report), *_RAW, *flags]
    make_way(path)
    with path.open("wb") as file:
        surroundings = {**os.environ, "LC_ALL": "C"}
        done = subprocess.run(command, stdout=file, stderr=subprocess.PIPE, env=surroundings, check=False)
    said = path.read_text(errors="replace") + done.stderr.decode(errors="replace")
    if done.returncode != 0:
        last = next((line for line in reversed(said.splitlines()) if line.strip()), "nothing")
        raise explained(said) or ProfileError(
            f"ncu cannot export {report} (code {done.returncode}, it says '{last.strip()[:160]}'); take the profile again"
        )


def _checked(config: ProfileConfig, out: Path, ncu: Path, ended: Ended) -> dict[str, Any]:
    """The report of the process about its window; ProfileError with ncu's own reason if there is no report."""
    written = (out / "ncu.ncu-rep").is_file()
    alone = not began(out, "nvtx") and not said(out, "nvtx")
    known = None if written and said(out, "nvtx") else explained(ended.output, alone)
    if known is not None:
        raise known
    window = read_window(out, "nvtx", ended, "ncu")
    if written:
        return window
    if "No kernels were profiled" in ended.output:
        raise _unmatched(config, _launched(config, out, ncu))
    raise ProfileError(
        f"ncu wrote no report (code {ended.code}); {ended.log} has its output, and tool=torch needs no counters"
    )


def _launched(config: ProfileConfig, out: Path, ncu: Path) -> list[Kernel]:
    """The window without a filter and with one counter; empty if that, too, shows nothing."""
    if not (config.kernels or config.range):
        return []
    log.info("no kernel matched; once more, to see which there are")
    report, table = out / "ncu.list.ncu-rep", out / "ncu.list.csv"
    flags = [*FLAGS, "--launch-count", str(_LISTED), "--metrics", "gpu__time_duration.sum", "--export", str(report)]
    line = [str(ncu), *flags, *window_command(config, out, "nvtx")]
    run_logged(line, out / "ncu.list.log", **nvtx.surroundings())
    try:
        export(ncu, report, table, "--print-kernel-base", "function")
        return [kernel(launch) for launch in read_launches(table)]
    except ProfileError as error:
        log.warning("the kernels are not known: %s", error)
        return []


def _unmatched(
    config: ProfileConfig,
    there: list[Kernel],
) -> ProfileError:
    asked = " ".join(f"{key}={value}" for key in ("kernels", "range") if (value := getattr(config, key)))
    if not asked:
        return ProfileError(
            f"the {config.steps} steps of the window launched no kernel; use device=cuda and more steps"
        )
    names, ranges = (_shown([getattr(k, key) for k in there]) for key in ("name", "range"))
    found = f"there were {names}" if names else "tool=nsys or tool=torch lists the kernels"
    unseen = nvtx.remedy() if names and not ranges else ""
    return ProfileError(
        f"no kernel matched {asked}; {found}{f', in the ranges {ranges}' if ranges else ''}; kernels is a regular expression "
        f"of names without template arguments, range the whole path of a range such as step/render_camera{unseen}"
    )


def _shown(names: list[str | None]) -> str:
    """Every name once."""
    known = list(dict.fromkeys(name for name in names if name))
    more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
    return ", ".join(known[:_SHOWN]) + more


def _notes(config: ProfileConfig, kernels: tuple[Kernel, ...]) -> tuple[str, ...]:
    cut = f"Only the first {config.launches} launches that matched were measured; launches={2 * config.launches} measures more."
    return (_NOTE, cut) if len(kernels) >= config.launches else (_NOTE,)
