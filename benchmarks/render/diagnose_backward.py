# SPDX-License-Identifier: Apache-2.0
"""Why the backward kernel is as slow as it is: ncu's counters of one launch for each of three lidar and three camera views, side by side.

    python benchmarks/render/diagnose_backward.py --checkpoint runs/NAME/checkpoint.pt --out benchmarks/results/NAME
    python benchmarks/render/diagnose_backward.py --opt split_backward --out benchmarks/results/NAME
    python benchmarks/render/diagnose_backward.py --from benchmarks/results/NAME/ncu.csv --out FOLDER      without a GPU

The views are those of benchmarks/render/workload.py: captured, simulated and random, each by a lidar and by a camera. Leaves in the
folder --out: diagnosis.md (the table), diagnosis.json, roofline.png, stalls.png, instances.json (the runs, with their pair counts),
files of `python -m nurec_lite.profile tool=ncu` (summary.md, kernels.json, kernels.csv, ncu.csv, ncu.ncu-rep, ncu.log). How much
longer the longest block is than the mean follows from the Gaussians that blocks go through, counted by the operator count_pairs.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import argparse
import json
import logging
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.render.diagnose_report import FORMAT, Measured, content, markdown, measured, renamed, table
from benchmarks.render.workload import add_arguments
from nurec_lite.base.environment import choose_device
from nurec_lite.base.files import write_text
from nurec_lite.base.program import Parser
from nurec_lite.cli.command import mended
from nurec_lite.native import ops
from nurec_lite.profiling.errors import ProfileError
from nurec_lite.profiling.ncu.csv import read_launches
from nurec_lite.profiling.ncu.errors import explained
from nurec_lite.profiling.ncu.kernel import kernel
from nurec_lite.profiling.ncu.report import Profile
from nurec_lite.profiling.record.child import Ended
from nurec_lite.profiling.record.ncu import export, run_counted, write_results
from nurec_lite.profiling.record.tools import check_version, find_tool, version_text

KERNELS = "renderBackward"
MOST = 64  # launches that are measured at most
INSTANCES = "instances.json"
NOTE = (
    "Before every pass ncu empties the caches, and the GPU's clocks are not locked: "
    "durations are for comparison with one another, never results."
)
OURS = ("out", "from_", "kernels", "arguments")  # arguments that the process under ncu does not take


@dataclass(frozen=True)
class Source:
    """Source of the counters."""

    csv: Path
    about: dict[str, Any]  # of the process that was measured: environment and instances, as far as they are known
    version: str  # of ncu


def diagnose(args: argparse.Namespace) -> list[Measured]:
    args.out.mkdir(parents=True, exist_ok=True)
    source = stored(args.from_) if args.from_ else recorded(args)
    found = measured([kernel(launch) for launch in read_launches(source.csv)], source.about.get("instances", []))
    command = shlex.join(["python", "benchmarks/render/diagnose_backward.py", *args.arguments])
    surroundings = source.about.get("environment", {})
    write_results(args.out, Profile(source.version, command, surroundings, 1, (NOTE,), renamed(found)))
    known = {"format": FORMAT, "command": command, "tool_version": source.version, "environment": surroundings}
    report = known | {"notes": [NOTE]} | content(found)
    write_text(args.out / "diagnosis.json", json.dumps(report, indent=1) + "\n")
    facts = [f"Command: `{command}`", f"Nsight Compute {source.version}; {_words(surroundings)}", NOTE]
    write_text(args.out / "diagnosis.md", markdown(found, facts))
    return found


def _words(surroundings: dict[str, str]) -> str:
    return ", ".join(f"{key} {value}" for key, value in surroundings.items()) or "surroundings unknown"


def stored(csv: Path) -> Source:
    """An exported page, with the files next to it."""
    beside, former = csv.parent / INSTANCES, csv.parent / "diagnosis.json"
    about = json.loads(beside.read_text()) if beside.is_file() else {}
    version = json.loads(former.read_text())["tool_version"] if former.is_file() else "(version unknown)"
    return Source(csv, about, version)


# ---- under ncu


def recorded(args: argparse.Namespace) -> Source:
    """ProfileError if nothing could be measured."""
    if choose_device(args.device).type != "cuda":
        raise ProfileError("ncu measures a GPU, but there is none; use --from FILE.csv to look at what was measured")
    ncu, out = find_tool("ncu"), args.out
    version = check_version("ncu", ncu)
    ops.load()  # compiles kernels now, not under a profiler
    for old in (*out.glob("ncu.*"), *out.glob(INSTANCES)):
        old.unlink()
    chosen = ["--kernel-name", f"regex:{args.kernels}", "--launch-count", str(MOST)]
    ended = run_counted(ncu, chosen, child_command(args), out)
    about = checked(out, ended, args.kernels)
    export(ncu, out / "ncu.ncu-rep", out / "ncu.csv")
    return Source(out / "ncu.csv", about, version_text(version))


def child_command(args: argparse.Namespace) -> list[str]:
    """Command line of benchmarks/render/diagnose_child.py, with the same arguments."""
    passed = [args.out.resolve() / INSTANCES]
    for name, value in vars(args).items():
        if name in OURS or value is None or value == []:
            continue
        flag = f"--{name.replace('_', '-')}"
        passed += [f"{flag}={value}"] if not isinstance(value, list) else [flag, *value]
    return [sys.executable, "-m", "benchmarks.render.diagnose_child", *map(str, passed)]


def checked(out: Path, ended: Ended, kernels: str) -> dict[str, Any]:
    """Report of the process; ProfileError with the reason if it failed, or ncu did."""
    written, described = (out / "ncu.ncu-rep").is_file(), out / INSTANCES
    about: dict[str, Any] = json.loads(described.read_text()) if described.is_file() else {}
    if "error" in about:
        raise ProfileError(about["error"])
    if written and about:
        return about
    known = explained(ended.output)
    if known is not None:
        raise known
    if about and "No kernels were profiled" in ended.output:
        raise ProfileError(f"no kernel's name matches --kernels {kernels}; it is a regular expression")
    raise ProfileError(f"the views were not rendered, or not measured (code {ended.code}); {ended.log} has the output")


# ---- the command


def parser() -> argparse.ArgumentParser:
    p = Parser(__doc__)
    add_arguments(p)
    p.add_argument("--opt", default="", metavar="A,B", help="options (none)")
    p.add_argument("--kernels", default=KERNELS, help="regular expression of the kernel's name (%(default)s)")
    p.add_argument("--from", dest="from_", type=Path, metavar="FILE.csv", help="a raw page of ncu instead of a run")
    p.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="of the results")
    return p


def main(arguments: list[str]) -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    args = parser().parse_args(arguments)
    args.arguments, args.size = arguments, args.size or "full"
    with mended("profile"):
        found = diagnose(args)
    print(table(found))
    print(f"results in {args.out}: {', '.join(sorted(p.name for p in args.out.iterdir()))}")


if __name__ == "__main__":
    main(sys.argv[1:])
