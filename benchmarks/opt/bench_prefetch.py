# SPDX-License-Identifier: Apache-2.0
"""Gain of the option `prefetch`, alone, with `pinned` and with `workers`, on a GPU: time of `feed` and of whole steps.

    python benchmarks/opt/bench_prefetch.py data=pack data.root=FILE +size=large train.resume=FILE --out benchmarks/results/NAME.json

Arguments are those of nurec_lite.train; options given there go with every set. Checks and times: benchmarks/common/feeding.py.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import sys

from benchmarks.common.feeding import main

SETS: tuple[tuple[str, ...], ...] = (
    (),
    ("prefetch",),
    ("pinned", "prefetch"),
    ("workers",),
    ("workers", "pinned", "prefetch"),
)

if __name__ == "__main__":
    main("prefetch", __doc__, SETS, sys.argv[1:])
