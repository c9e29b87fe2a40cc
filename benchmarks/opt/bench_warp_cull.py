# SPDX-License-Identifier: Apache-2.0
"""Gain of the option warp_cull: lists and blending of warp tiles of 32 rays, each with its own list, against tiles of
256.

    python benchmarks/opt/bench_warp_cull.py --checkpoint runs/NAME/checkpoint.pt --out benchmarks/results/NAME.json
    python benchmarks/opt/bench_warp_cull.py --workloads simulated random --sensors lidar

Arguments are those of benchmarks/render/bench_render.py, which renders every view with all sets of options in turn.
Lists of the two differ by Gaussians that reach beyond their bounds: a tile shows them to more rays than a warp tile. On a CPU the option
refuses.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import sys

from benchmarks.render import bench_render

SETS = ("split_backward,launch_bounds", "split_backward,launch_bounds,warp_cull")
PAIRS = (SETS,)


def main(arguments: list[str]) -> None:
    bench_render.main(arguments, "benchmarks/opt/bench_warp_cull.py", __doc__, SETS, PAIRS)


if __name__ == "__main__":
    main(sys.argv[1:])
