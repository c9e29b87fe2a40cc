# SPDX-License-Identifier: Apache-2.0
"""One kernel in a range of each binding of NVTX, for tools that choose kernels by range.

    ncu --nvtx --nvtx-include "probe_torch/" --metrics gpu__time_duration.sum --csv python scripts/probe_ranges.py
    ncu --nvtx --nvtx-include "nurec_lite@probe_package/" --metrics gpu__time_duration.sum --csv python scripts/probe_ranges.py

Each must list three kernels, for ncu sees those within the range alone: the first by torch's binding, the second by the package nvtx, whose
ranges lie in the domain nurec_lite (the form of the filter is that of ranges that are pushed and popped).
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import sys

import nvtx
import torch

from nurec_lite.base.environment import choose_device
from nurec_lite.base.program import Parser, told

KERNELS = 3


def main(arguments: list[str]) -> int:
    Parser(__doc__).parse_args(arguments)
    choose_device("cuda")  # says so if there is none
    values = torch.ones(1 << 20, device="cuda")
    values.mul_(2)  # outside of both
    torch.cuda.nvtx.range_push("probe_torch")
    for _ in range(KERNELS):
        values.add_(1)
    torch.cuda.nvtx.range_pop()
    domain = nvtx.get_domain("nurec_lite")
    domain.push_range(domain.get_event_attributes("probe_package"))
    for _ in range(KERNELS):
        values.sub_(1)
    domain.pop_range()
    torch.cuda.synchronize()
    return 0


if __name__ == "__main__":
    with told():
        sys.exit(main(sys.argv[1:]))
