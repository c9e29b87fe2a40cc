# SPDX-License-Identifier: Apache-2.0
"""What the option `resident` gains beside the baseline and `workers`: time of `feed` and of whole training steps.

    python benchmarks/opt/bench_resident.py [data=pack data.root=FILE +size=large train.resume=FILE --out benchmarks/results/NAME.json]

Arguments are those of nurec_lite.train; options given there go with every set. What is checked and timed: benchmarks/common/feeding.py.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import sys

from benchmarks.common.feeding import main

SETS: tuple[tuple[str, ...], ...] = ((), ("workers",), ("resident",))

if __name__ == "__main__":
    main("resident", __doc__, SETS, sys.argv[1:])
