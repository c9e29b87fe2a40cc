# SPDX-License-Identifier: Apache-2.0
"""Sharpness of a drive's map under each source of its poses, their jitter, and the time to find them.

    python benchmarks/odometry/bench_poses.py data=kitti_raw data.root=FOLDER --out benchmarks/results/NAME.json

Arguments are those of nurec_lite.train. The drive is read once for each of --sources, keys of data.poses.source, after one reading that
warms up. `seconds` and `cpu_seconds` are those of reading it, poses included; `sharpness` compares sweeps ten apart, point to plane.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import argparse
import sys
import time
from dataclasses import replace
from typing import Any

import torch

from benchmarks.common.reporting import Report, conditions_on, reported
from nurec_lite.base.program import Parser
from nurec_lite.capture.checks.sharp import sharpness_of
from nurec_lite.config import Config
from nurec_lite.readers import read_capture

SOURCES = ("capture", "auto", "lidar")


def measured(config: Config, source: str) -> dict[str, Any]:
    data = replace(config.data, poses=replace(config.data.poses, source=source))
    wall, cpu = time.perf_counter(), time.process_time()
    capture = read_capture(data)
    took = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}
    sharp = {lidar.name: sharpness_of(capture, lidar)[1].figures for lidar in capture.lidars}
    return {"capture": capture.name, "sweeps": len(capture.sweeps)} | took | {"sharpness": sharp}


def bench(config: Config, args: argparse.Namespace) -> Report:
    measured(config, args.sources[0])
    found = {source: measured(config, source) for source in args.sources}
    return conditions_on("odometry/bench_poses", config, torch.device("cpu"), args) | {
        "threads": torch.get_num_threads(),
        "sources": found,
    }


def table(report: Report) -> str:
    rows = []
    for source, found in report["sources"].items():
        rows.append(
            f"{source}: {found['sweeps']} sweeps, {found['seconds']:.2f} s, {found['cpu_seconds']:.2f} s of the processor"
        )
        for name, sharp in found["sharpness"].items():
            rows.append(f"  {name}: " + ", ".join(f"{key} {value:.4g}" for key, value in sharp.items()))
    return "\n".join(rows)


def main(arguments: list[str]) -> int:
    p = Parser(__doc__)
    p.add_argument("--sources", nargs="+", choices=SOURCES, default=list(SOURCES), help="of the poses (all)")
    print(table(reported(p, arguments, bench)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
