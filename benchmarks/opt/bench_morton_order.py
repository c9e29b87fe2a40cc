# SPDX-License-Identifier: Apache-2.0
"""Gain of the option morton_order: whole steps of `+opt=all`, as graphs, without it and with it, relocation included.

    python benchmarks/opt/bench_morton_order.py data=pack data.root=FILE +size=large train.resume=FILE --out benchmarks/results/NAME.json

Arguments are those of nurec_lite.train. How both sets are run and compared: benchmarks/opt/bench_cuda_graph.py.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import sys

from benchmarks.opt.bench_cuda_graph import main, without_and_with

if __name__ == "__main__":
    main(sys.argv[1:], without_and_with("morton_order"), "bench_morton_order", __doc__)
