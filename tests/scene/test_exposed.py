# SPDX-License-Identifier: Apache-2.0
"""Exposure of a camera: gradients in float64. tests/splat/test_corrected.py has the values of vignetting."""

import pytest
import torch
from torch.autograd import gradcheck

from nurec_lite.scene.scene import exposed_by


@pytest.mark.parametrize("size", [(1, 1), (1, 5), (4, 3)], ids=str)
@pytest.mark.parametrize("vignetting", [True, False])
def test_derivatives(vignetting: bool, size: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = [(*size, 3), (3,), (3,), *([(3,)] if vignetting else [])]
    given = [torch.randn(s, generator=generator, dtype=torch.float64).requires_grad_() for s in shapes]
    assert gradcheck(lambda *values: exposed_by(*values, *([] if vignetting else [None])), given)
