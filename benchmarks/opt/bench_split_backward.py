# SPDX-License-Identifier: Apache-2.0
"""Gain of the option split_backward: the backward pass of a view with one kernel for both sensors, and with a kernel
for each.

    python benchmarks/opt/bench_split_backward.py --checkpoint runs/NAME/checkpoint.pt --out benchmarks/results/NAME.json
    python benchmarks/opt/bench_split_backward.py --workloads simulated random --sensors lidar

Arguments are those of benchmarks/render/bench_render.py, which renders every view with both sets of options in turn. Both must agree in
outputs and gradients before either is timed. Needs a GPU: a CPU has one kernel for both.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import sys

from benchmarks.render import bench_render

SETS = ("", "split_backward")
PAIRS = (SETS,)


def main(arguments: list[str]) -> None:
    bench_render.main(arguments, "benchmarks/opt/bench_split_backward.py", __doc__, SETS, PAIRS)


if __name__ == "__main__":
    main(sys.argv[1:])
