# SPDX-License-Identifier: Apache-2.0
"""Gain of the option `pinned`, alone and with `workers`, on a GPU: time of `feed` and of whole training steps.

    python benchmarks/opt/bench_pinned.py data=pack data.root=FILE +size=large train.resume=FILE --out benchmarks/results/NAME.json

Arguments are those of nurec_lite.train; options given there go with every set. Checks and times: benchmarks/common/feeding.py.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import sys

from benchmarks.common.feeding import main

SETS: tuple[tuple[str, ...], ...] = ((), ("pinned",), ("workers",), ("workers", "pinned"))

if __name__ == "__main__":
    main("pinned", __doc__, SETS, sys.argv[1:])
