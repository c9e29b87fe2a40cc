# SPDX-License-Identifier: Apache-2.0
"""Three kernels in a range of each binding of NVTX, for tools that choose kernels by range: shows which of them a version of nsys or ncu
records.

    ncu --nvtx --nvtx-include "probe_torch/" --metrics gpu__time_duration.sum --csv python scripts/probe_ranges.py
    ncu --nvtx --nvtx-include "nurec_lite@probe_package/" --metrics gpu__time_duration.sum --csv python scripts/probe_ranges.py

Each must list three kernels, for ncu sees those within the range alone: the first by torch's binding, the second by the package nvtx, with
ranges in the domain nurec_lite (the form of the filter is that of ranges that are pushed and popped). Ranges are recorded as those
of a step are (nurec_lite/base/nvtx.py). Prints which of the two were: the package records nothing for a tool that does not listen to it;
where it should, NUREC_LITE_NVTX=torch chooses torch's binding for the command profile.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import sys

import torch

from nurec_lite.base import nvtx
from nurec_lite.base.environment import choose_device
from nurec_lite.base.program import Parser, ends_with_a_sentence
from nurec_lite.base.ranges import span, switch

KERNELS = 3


def main(arguments: list[str]) -> int:
    Parser(__doc__).parse_args(arguments)
    choose_device("cuda")  # says so if there is none
    values = torch.ones(1 << 20, device="cuda")
    values.mul_(2)  # outside of both
    for name, recorder in (("probe_torch", nvtx.by_torch()), ("probe_package", nvtx.by_package())):
        print(f"{name}: {'recorded' if recorder else 'no tool listens'}")
        with switch(timing=recorder), span(name):
            for _ in range(KERNELS):
                values.add_(1)
    torch.cuda.synchronize()
    return 0


if __name__ == "__main__":
    with ends_with_a_sentence():
        sys.exit(main(sys.argv[1:]))
