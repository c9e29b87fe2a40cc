# SPDX-License-Identifier: Apache-2.0
"""Work that cannot be captured is found, without an import of torch's compiler."""

import subprocess
import sys

import torch

from nurec_lite.base.capture_safety import unsafe_operations

CPU = torch.device("cpu")


def test_a_number_that_the_host_reads_is_reported() -> None:
    with unsafe_operations(CPU) as unsafe:
        torch.nonzero(torch.ones(3))
    assert len(unsafe) == 1 and "nonzero" in unsafe[0]


def test_looking_imports_no_compiler() -> None:
    """The import would take four seconds on some hosts, in the first steps of every run."""
    code = (
        "import sys, torch\nfrom nurec_lite.base.capture_safety import unsafe_operations\nbefore = 'torch._dynamo' in sys.modules\n"
        "with unsafe_operations(torch.device('cpu')) as unsafe: (torch.ones(3, requires_grad=True) * 2).sum().backward()\n"
        "assert unsafe == [] and before == ('torch._dynamo' in sys.modules), 'imported'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_was_compiled_is_looked_into() -> None:
    """The compiler stands still meanwhile, as soon as it is there."""
    counted = torch.compile(lambda x: torch.nonzero(x))
    with unsafe_operations(CPU) as unsafe:
        counted(torch.ones(3))
    assert len(unsafe) == 1
