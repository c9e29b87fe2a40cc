# SPDX-License-Identifier: Apache-2.0
"""What the option compile gains: whole steps of `+opt=all`, as graphs, without it and with it, relocation included.

    python benchmarks/opt/bench_compile.py data=pack data.root=FILE +size=large train.resume=FILE --out benchmarks/results/NAME.json

Arguments are those of nurec_lite.train. How both sets are run and compared: benchmarks/opt/bench_cuda_graph.py. The time to compile lies
before the rounds, and is told by the option.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import sys

from benchmarks.opt.bench_cuda_graph import Sets, below, main


def sets() -> Sets:
    """The option's place is before that of cuda_graph, which records what it compiled."""
    return (*below(), "cuda_graph"), (*below(), "compile", "cuda_graph")


if __name__ == "__main__":
    main(sys.argv[1:], sets(), "bench_compile", __doc__)
