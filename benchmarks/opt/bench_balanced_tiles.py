# SPDX-License-Identifier: Apache-2.0
"""Gain of the option balanced_tiles: long lists in segments, a warp each, against one warp a list, as boxes and as
exact lists.

    python benchmarks/opt/bench_balanced_tiles.py --checkpoint runs/NAME/checkpoint.pt --out benchmarks/results/NAME.json
    python benchmarks/opt/bench_balanced_tiles.py --workloads simulated random --sensors lidar

Arguments are those of benchmarks/render/bench_render.py, which renders every view with all sets of options in turn.
All must agree in outputs and gradients before they are timed. On a CPU the options refuse.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import sys

from benchmarks.render import bench_render

PAIRS = tuple((before, f"{before},balanced_tiles") for before in ("warp_cull", "warp_cull,tile_cull"))
SETS = tuple(name for pair in PAIRS for name in pair)


def main(arguments: list[str]) -> None:
    bench_render.main(arguments, "benchmarks/opt/bench_balanced_tiles.py", __doc__, SETS, PAIRS)


if __name__ == "__main__":
    main(sys.argv[1:])
