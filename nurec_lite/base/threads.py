# SPDX-License-Identifier: Apache-2.0
"""Threads of a process on the CPU. Entry points import it before torch, because it sets that waiting threads spin briefly, then sleep.

On two quiet cores sleeping at once costs 1.4 x, and on a busy machine spinning for long costs 10 x and more (benchmarks/LOG.md).
A process starts as many threads as it finds cores, and several such processes at once wait more than they compute: give
each of them its share.
"""

import math
import os

from nurec_lite.base.control_groups import cores_allowed

os.environ.setdefault("GOMP_SPINCOUNT", "10000")


def limit_blas_threads() -> None:
    """Gives numpy's BLAS one thread, in a command of ours, before numpy is imported. Threads of a pool that multiply small matrices would
    wait for one another in it. torch's number of threads stays."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def share(
    processes: int,  # at the same time
) -> dict[str, str]:
    """Variables for the environment of each process: an equal part of the cores that this process may use, or the user's own value."""
    return {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or str(max(1, cores() // processes))}


def cores() -> int:
    """Number of cores that this process may use. A limit in parts of a core counts as the next whole number."""
    limit, found = cores_allowed(), len(os.sched_getaffinity(0))
    return found if limit is None else max(1, min(found, math.ceil(limit)))
