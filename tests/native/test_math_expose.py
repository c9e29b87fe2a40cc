# SPDX-License-Identifier: Apache-2.0
"""kernels/math/expose.cuh in float64, against nurec_lite/scene/scene.py."""

import pytest
import torch
from kernel_math import F64, autograd, call, close, differences
from torch import Tensor

from nurec_lite.scene.scene import _radial


def inputs(n: int = 40) -> list[Tensor]:
    """Inputs of a channel: values [n, 1], log gain, offset and vignetting [n, 5]; radial [n, 3]."""
    return [torch.rand(n, 1, dtype=F64), 0.5 * torch.randn(n, 5, dtype=F64), torch.rand(n, 3, dtype=F64)]


def by_torch(value: Tensor, exposure: Tensor, radial: Tensor) -> Tensor:
    log_gain, offset, vignetting = exposure.split((1, 1, 3), dim=1)
    return value * torch.exp(log_gain + (radial * vignetting).sum(-1, keepdim=True)) + offset


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 31), (8, 1), (7, 12)])
def test_radial(height: int, width: int) -> None:
    pixels = torch.cartesian_prod(torch.arange(height, dtype=F64), torch.arange(width, dtype=F64)).flip(1)
    found = call("radial_at", pixels, float(width), float(height))
    close(found, _radial(height, width, F64, torch.device("cpu")).flatten(0, 1))


def test_gains_and_values() -> None:
    value, exposure, radial = inputs()
    close(call("gain_at", exposure, radial), by_torch(torch.ones_like(value), exposure, radial) - exposure[:, 1:2])
    close(call("exposed_by", value, exposure, radial), by_torch(value, exposure, radial))


def test_derivatives() -> None:
    value, exposure, radial = inputs()
    d = torch.randn_like(value)
    found = call("exposed_by_backward", value, exposure, radial, d)
    close(found, autograd(lambda v, e: by_torch(v, e, radial), [value, exposure], d), 1e-11)
    close(found, differences(lambda v, e: call("exposed_by", v, e, radial), [value, exposure], d), 1e-7)
