# SPDX-License-Identifier: Apache-2.0
"""kernels/math/sky.cuh in float64, against nurec_lite/scene/sky.py."""

import math

import pytest
import torch
from kernel_math import F64, autograd, call, close, differences
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.scene.sky import over_sky, sample_sky

HEIGHT, WIDTH = 3, 5  # of the map that tests/native/math_rows samples


def directions() -> Tensor:  # [n, 3] random ones, the axes, and straight behind from both sides
    special = torch.tensor([[-1, -0.0, 0], [-1, 1e-12, 0.1], [-1, -1e-12, 0.1], [1e-9, 0, 1], [0, -1e-9, -1]])
    return torch.cat([F.normalize(torch.randn(60, 3, dtype=F64), dim=-1), torch.eye(3), -torch.eye(3), special.to(F64)])


def maps(n: int) -> Tensor:  # [n, 3, H, W]
    return 2 * torch.randn(n, 3, HEIGHT, WIDTH, dtype=F64)


def each(sky: Tensor, d: Tensor) -> Tensor:  # [n, 3] of a map a direction
    return torch.cat([sample_sky(one, towards[None]) for one, towards in zip(sky, d, strict=True)])


@pytest.mark.parametrize("size", [(1, 1), (1, 2), (2, 1), (3, 5), (128, 256)])
def test_places_weigh_texels_as_the_map_s_gradient_does(size: tuple[int, int]) -> None:
    d = directions()
    found = call("sky_place", d, *map(float, size))
    texels, weights = found[:, :4].long(), found[:, 4:]
    assert (texels >= 0).all() and (texels < size[0] * size[1]).all() and (weights >= 0).all()
    weighed = torch.zeros(len(d), size[0] * size[1], dtype=F64).scatter_add_(1, texels, weights)
    for k, towards in enumerate(d):
        sky = torch.zeros(3, *size, dtype=F64, requires_grad=True)
        (gradient,) = torch.autograd.grad(sample_sky(sky, towards[None])[0, 0], sky)
        close(weighed[k : k + 1], 4 * gradient[:1].flatten(1))  # the slope of the sigmoid at 0 is a quarter


def test_no_direction_leads_out_of_the_map() -> None:
    odd = torch.tensor([math.nan, math.inf, -math.inf, 0.0, 1e300, -1e-320], dtype=F64)
    d = torch.cartesian_prod(odd, odd, odd)
    found = call("sky_place", d, float(HEIGHT), float(WIDTH))
    assert (found[:, :4] >= 0).all() and (found[:, :4] < HEIGHT * WIDTH).all()
    assert (found[:, 4:] >= 0).all() and (found[:, 4:] <= 1).all()


def test_within() -> None:
    x = torch.tensor([-800.0, -20, -0.3, 0, 0.3, 20, 800, math.inf], dtype=F64)[:, None]
    close(call("within", x, -0.25, 0.3), x.clamp(-0.25, 0.3), 0)
    assert call("within", torch.full((1, 1), math.nan, dtype=F64), -0.25, 0.3) == -0.25


def test_logit_and_colour() -> None:
    d = directions()
    sky = maps(len(d))
    colour = each(sky, d)
    close(call("sky_colour", sky, d), colour)
    close(call("sky_logit", sky, d), torch.logit(colour[:, :1]), 1e-11)


def test_derivatives_of_an_image_over_the_sky() -> None:
    """Derivatives by the transmittance, and by the map: its texels get the logits' gradient times their weights."""
    d = directions()
    sky, passed, d_image = maps(len(d)), torch.rand(len(d), 1, dtype=F64), torch.randn(len(d), 3, dtype=F64)
    black = torch.zeros(1, 3, dtype=F64)

    def image(transmittance: Tensor, logits: Tensor) -> Tensor:
        rows = zip(transmittance, logits, d, strict=True)
        return torch.cat([over_sky(black, t, one, towards[None]) for t, one, towards in rows])

    found = call("sky_backward", call("sky_colour", sky, d), passed, d_image)
    place = call("sky_place", d, float(HEIGHT), float(WIDTH))
    of_map = torch.zeros(len(d), 3, HEIGHT * WIDTH, dtype=F64)
    of_map.scatter_add_(2, place[:, None, :4].long().expand(-1, 3, -1), found[:, 1:, None] * place[:, None, 4:])
    whole = torch.cat([found[:, :1], of_map.flatten(1)], dim=1)
    close(whole, autograd(image, [passed, sky], d_image))
    by_differences = differences(lambda t, logits: t * call("sky_colour", logits, d), [passed, sky], d_image)
    close(whole, by_differences, 1e-8)
