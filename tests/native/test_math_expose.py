# SPDX-License-Identifier: Apache-2.0
"""kernels/math/expose.cuh in float64, against nurec_lite/scene/scene.py."""

import pytest
import torch
from kernel_math import F64, autograd, call, close, differences
from torch import Tensor

from nurec_lite.scene.scene import _radial


def inputs(n: int = 40) -> list[Tensor]:
    """Colours [n, 3]; log gains, offsets and vignetting [n, 9]; radial [n, 3]."""
    return [torch.rand(n, 3, dtype=F64), 0.5 * torch.randn(n, 9, dtype=F64), torch.rand(n, 3, dtype=F64)]


def by_torch(colour: Tensor, exposure: Tensor, radial: Tensor) -> Tensor:
    log_gain, offset, vignetting = exposure.view(-1, 3, 3).unbind(1)
    return colour * torch.exp(log_gain + (radial * vignetting).sum(-1, keepdim=True)) + offset


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 31), (8, 1), (7, 12)])
def test_radial(height: int, width: int) -> None:
    pixels = torch.cartesian_prod(torch.arange(height, dtype=F64), torch.arange(width, dtype=F64)).flip(1)
    found = call("radial_at", pixels, float(width), float(height))
    close(found, _radial(height, width, F64, torch.device("cpu")).flatten(0, 1))


def test_gains_and_products() -> None:
    colour, exposure, radial = inputs()
    dark = torch.cat([exposure[:, :3], torch.zeros(len(exposure), 3, dtype=F64), exposure[:, 6:]], dim=1)
    gain = by_torch(torch.ones_like(colour), dark, radial)
    close(call("gain_at", exposure, radial), gain)
    close(call("times_each", colour, gain), colour * gain)


def test_colours() -> None:
    given = inputs()
    close(call("exposed_by", *given), by_torch(*given))


def test_derivatives() -> None:
    given = inputs()
    colour, exposure, radial = given
    d = torch.randn_like(colour)
    found = call("exposed_by_backward", *given, d)
    close(found, autograd(lambda c, e: by_torch(c, e, radial), [colour, exposure], d), 1e-11)
    close(found, differences(lambda c, e: call("exposed_by", c, e, radial), [colour, exposure], d), 1e-7)
