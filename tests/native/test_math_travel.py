# SPDX-License-Identifier: Apache-2.0
"""kernels/math/travel.cuh in double precision: rays whose origins lie on a line, with delays that go with them, see what they see one by
one."""

import pytest
import torch
from kernel_math import F64, call
from splat_scenes import uniform
from torch import Tensor
from torch.nn import functional as F

N = 200


def frames() -> Tensor:  # [N, 16]
    means, quats = 5 * torch.randn(N, 3, dtype=F64), F.normalize(torch.randn(N, 4, dtype=F64), dim=1)
    return call("make_frame", means, quats, torch.exp(uniform(-3, 0.5, N, 3)), 3 * torch.randn(N, 3, dtype=F64))


def on_a_line(kind: str) -> list[Tensor]:  # three rays [N, 7] each, the last where one likes on the line of the others
    origins, delays = torch.randn(2, N, 3, dtype=F64), 0.1 * torch.randn(2, N, 1, dtype=F64)
    if kind == "all at once":
        delays[1] = delays[0]
    if kind in ("one moment", "one place"):
        origins[1] = origins[0]
    if kind == "one moment":
        delays[1] = delays[0]
    at = uniform(-2, 3, N, 1)
    places = (
        [*origins, origins[0] + at * (origins[1] - origins[0])],
        [*delays, delays[0] + at * (delays[1] - delays[0])],
    )
    directions = F.normalize(torch.randn(3, N, 3, dtype=F64), dim=-1)
    return [torch.cat(parts, dim=1) for parts in zip(directions, *places, strict=True)]


@pytest.mark.parametrize("kind", ["moving", "all at once", "one place", "one moment"])
def test_rays_on_a_line(kind: str) -> None:
    frame, opacity, rays = frames(), uniform(0.1, 1, N, 1), on_a_line(kind)
    found, expected = (
        call("respond_travelled", frame, opacity, *rays), call("respond_moving", frame, opacity, rays[2])
    )  # fmt: skip
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_a_response_is_that_of_where_the_gaussian_lies() -> None:
    frame, opacity, ray = frames(), uniform(0.1, 1, N, 1), on_a_line("moving")[0]
    found = call("respond_at", frame, opacity, frame[:, 9:12].contiguous(), ray[:, :3].contiguous())
    assert torch.equal(found, call("respond_still", frame, opacity, ray))
