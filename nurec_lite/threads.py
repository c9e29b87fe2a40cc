# SPDX-License-Identifier: Apache-2.0
"""Imported by entry points before torch: threads that wait for one another spin briefly, then sleep.

On two quiet cores sleeping at once costs 1.4 x, and on a busy machine spinning for long costs 10 x and more (benchmarks/LOG.md).
"""

import os

os.environ.setdefault("GOMP_SPINCOUNT", "10000")
