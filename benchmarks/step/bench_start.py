# SPDX-License-Identifier: Apache-2.0
"""Time from the start of a run's process to the end of its first step, by phase.

    python benchmarks/step/bench_start.py data=pack data.root=FILE +size=large '+opt=all' --out benchmarks/results/NAME.json

Arguments are those of nurec_lite.train. Every start is a process of its own (benchmarks/step/start_child.py), the first of them to
warm up: it compiles kernels that are missing, and reads files into memory. `since_start` has the second when each phase was done,
`cpu_since_start` the processor's seconds by then, which other programs change less. `phases` says how long each took: the interpreter,
importing torch, which is given, importing everything else, the configuration, the capture with the device's first use, the kernels'
loading, the scene with the optimizer, two steps, and with the option `resident` the rest of the frames. `scene` has the parts of the
scene, each between two waits for the device: moments are points, colours and the sky's sums of all frames.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.common.reporting import Report, conditions_on, reported
from benchmarks.step.bench_step import positive
from nurec_lite.base.environment import choose_device
from nurec_lite.base.program import Parser
from nurec_lite.config import Config

ROOT = Path(__file__).resolve().parents[2]
CHILD = ROOT / "benchmarks/step/start_child.py"


def start(arguments: list[str]) -> Report:
    """Report of one process about itself."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}
    with TemporaryDirectory() as folder:
        out = Path(folder) / "start.json"
        ended = subprocess.run(
            [sys.executable, str(CHILD), str(out), *arguments], env=environment, stdout=subprocess.DEVNULL
        )
        if ended.returncode:
            sys.exit(ended.returncode)
        found: Report = json.loads(out.read_text())
    return found


def phases(since_start: dict[str, float]) -> dict[str, float]:  # seconds of each, in order
    ends = list(since_start.values())
    return {name: end - begin for name, end, begin in zip(since_start, ends, [0.0, *ends], strict=False)}


def medians(rows: list[dict[str, float]]) -> dict[str, float]:
    return {name: median(row.get(name, 0.0) for row in rows) for name in rows[0]}


def bench(config: Config, args: argparse.Namespace) -> Report:
    for _ in range(args.warmup):
        start(args.overrides)
    runs = [start(args.overrides) for _ in range(args.runs)]
    first = [run["since_start"]["first step"] for run in runs]
    own = [run["since_start"]["first step"] - run["since_start"]["torch"] for run in runs]
    return conditions_on("step/bench_start", config, choose_device(config.device), args) | {
        "capture": runs[0]["capture"], "gaussians": runs[0]["gaussians"], "runs": runs,
        "first_step_s": median(first), "first_step_cpu_s": median(run["cpu_since_start"]["first step"] for run in runs),
        "first_step_s_of_runs": first, "first_step_after_torch_s": median(own),
        "phases": medians([phases(run["since_start"]) for run in runs]), "scene": medians([run["scene"] for run in runs]),
    }  # fmt: skip


def table(report: dict[str, Any]) -> str:
    lines = [f"{report['capture']}, {report['gaussians']} Gaussians, {report['environment']['device']}: first step after "
             f"{report['first_step_s']:.2f} s, {report['first_step_after_torch_s']:.2f} s after torch was imported; "
             f"{report['first_step_cpu_s']:.2f} s of the processor"]  # fmt: skip
    lines += [f"  {name:22} {seconds:8.3f} s" for name, seconds in report["phases"].items()]
    lines += [f"    {name:30} {seconds:8.3f} s" for name, seconds in report["scene"].items()]
    last = report["runs"][-1]
    counts = ", ".join(f"{n} by {name}" for name, n in last["modules"].items())
    return "\n".join([*lines, f"  modules: {counts}; heavy ones: {', '.join(last['heavy_modules']) or 'none'}"])


def main(arguments: list[str]) -> int:
    p = Parser(__doc__)
    p.add_argument("--runs", type=positive, default=3, help="starts that are timed (%(default)s)")
    p.add_argument("--warmup", type=int, default=1, help="starts before (%(default)s)")
    print(table(reported(p, arguments, bench)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
