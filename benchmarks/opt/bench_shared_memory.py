# SPDX-License-Identifier: Apache-2.0
"""Effect of the option shared_memory: backward passes with blocks that stage half as many Gaussians, and others that stage
all.

    python benchmarks/opt/bench_shared_memory.py --checkpoint runs/NAME/checkpoint.pt --out benchmarks/results/NAME.json
    python benchmarks/opt/bench_shared_memory.py --workloads simulated --sensors camera

Arguments are those of benchmarks/render/bench_render.py. The option stands on split_backward; it is compared with the compiler's own
choice of registers and with the bounds of launch_bounds, since whichever of registers and shared memory is scarcer decides how many
blocks fit. All sets must agree with the first in outputs and gradients before they are timed. Needs a GPU.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import sys

from benchmarks.render import bench_render

PAIRS = tuple((before, f"{before},shared_memory") for before in ("split_backward", "split_backward,launch_bounds"))
SETS = tuple(name for pair in PAIRS for name in pair)


def main(arguments: list[str]) -> None:
    bench_render.main(arguments, "benchmarks/opt/bench_shared_memory.py", __doc__, SETS, PAIRS)


if __name__ == "__main__":
    main(sys.argv[1:])
