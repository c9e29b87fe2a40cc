# SPDX-License-Identifier: Apache-2.0
"""Gain of the option tile_cull: lists of warp tiles that hold only Gaussians that may meet a ray, against lists
of all Gaussians with bounds that touch them.

    python benchmarks/opt/bench_tile_cull.py --checkpoint runs/NAME/checkpoint.pt --out benchmarks/results/NAME.json
    python benchmarks/opt/bench_tile_cull.py --workloads simulated random --sensors lidar

Arguments are those of benchmarks/render/bench_render.py, which renders every view with all sets of options in turn.
Both must agree in outputs and gradients before either is timed. On a CPU the options refuse.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import sys

from benchmarks.render import bench_render

SETS = ("warp_cull", "warp_cull,tile_cull")
PAIRS = (SETS,)


def main(arguments: list[str]) -> None:
    bench_render.main(arguments, "benchmarks/opt/bench_tile_cull.py", __doc__, SETS, PAIRS)


if __name__ == "__main__":
    main(sys.argv[1:])
