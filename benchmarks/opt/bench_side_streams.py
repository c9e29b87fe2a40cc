# SPDX-License-Identifier: Apache-2.0
"""What the option side_streams gains: whole steps of `+opt=all`, as graphs, without it and with it, relocation included.

    python benchmarks/opt/bench_side_streams.py data=pack data.root=FILE +size=large train.resume=FILE --out benchmarks/results/NAME.json

Arguments are those of nurec_lite.train. How both sets are run and compared: benchmarks/opt/bench_cuda_graph.py.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import sys

from benchmarks.opt.bench_cuda_graph import Sets, below, main

OPTION = "side_streams"


def sets() -> Sets:
    """Steps are recorded in either."""
    others = tuple(name for name in below() if name != OPTION)
    return (*others, "cuda_graph"), (*others, OPTION, "cuda_graph")


if __name__ == "__main__":
    main(sys.argv[1:], sets(), f"bench_{OPTION}", __doc__)
