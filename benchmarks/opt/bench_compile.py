# SPDX-License-Identifier: Apache-2.0
"""Gain of the option compile: whole steps of `+opt=all`, as graphs, without it and with it, relocation included.

    python benchmarks/opt/bench_compile.py data=pack data.root=FILE +size=large train.resume=FILE --out benchmarks/results/NAME.json

Arguments are those of nurec_lite.train. How both sets are run and compared: benchmarks/opt/bench_cuda_graph.py. The time to compile lies
before the rounds; the option reports it.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import sys

from benchmarks.opt.bench_cuda_graph import main, without_and_with

if __name__ == "__main__":
    main(sys.argv[1:], without_and_with("compile"), "bench_compile", __doc__)
