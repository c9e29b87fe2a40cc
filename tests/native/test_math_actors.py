# SPDX-License-Identifier: Apache-2.0
"""kernels/math/actors.cuh in double precision: blocks of rows, keyframes around a time, poses, Gaussians that move with them."""

import math
from collections.abc import Callable

import pytest
import torch
from kernel_math import F64, autograd, call, close, differences
from test_math import quat_pairs, quats
from torch import Tensor

from nurec_lite.geometry import se3

SIZE = 256  # rows a block


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=F64)[:, None]


# ---- blocks


def test_first_blocks_and_blocks_with_rows() -> None:
    start, size = column(0, 255, 256, 1000, 1000), column(256, 256, 256, 256, 512)
    close(call("first_block", start, column(0, 1, 2, 5, 5), size), column(0, 1, 3, 8, 6), 0)
    begin, end = column(0, 0, 0, 255, 255, 300, 256), column(0, 1, 257, 256, 257, 300, 768)
    close(call("blocks_with_rows", begin, end, column(*(7 * [SIZE]))), column(0, 1, 2, 1, 2, 0, 2), 0)


def test_blocks_that_a_track_begins_by() -> None:
    """Those that are not before its first block, which is start / size + track."""
    start, track, block = (x.reshape(-1, 1).double() for x in torch.meshgrid(
        torch.tensor([0, 1, 255, 256, 257, 1000]), torch.arange(4), torch.arange(9), indexing="ij"
    ))  # fmt: skip
    size = torch.full_like(start, SIZE)
    first = call("first_block", start, track, size)
    close(call("begins_by", start, track, block, size), (first <= block).double(), 0)


@pytest.mark.parametrize("size", [256, 768])
@pytest.mark.parametrize("starts", [(0, 1, 1, 5000), (0, 0, 0, 0), (0, 256, 512, 513), (0, 700, 700, 701)])
def test_every_row_has_one_block_of_its_track(starts: tuple[int, ...], size: int) -> None:
    """Four tracks, the last of 300 rows; every track has a block, also those without rows."""
    ends = (*starts[1:], starts[3] + 300)
    blocks = torch.arange(ends[3] // size + 4, dtype=F64)[:, None]
    rows = torch.tensor([starts], dtype=F64).expand(len(blocks), 4)
    tracks = call("track_of_block", rows, blocks, torch.full_like(blocks, size))
    owner = torch.full((ends[3],), -1)
    for block, track in zip(blocks[:, 0].long().tolist(), tracks[:, 0].long().tolist(), strict=True):
        begin, end = max(starts[track], (block - track) * size), min(ends[track], (block - track + 1) * size)
        assert bool((owner[begin:end] == -1).all())
        owner[begin:end] = track
    expected = torch.repeat_interleave(torch.arange(4), torch.tensor(ends) - torch.tensor(starts))
    assert owner.equal(expected) and tracks.unique().tolist() == [0, 1, 2, 3]


# ---- keyframes


@pytest.mark.parametrize(
    ("time", "passed", "expected"),
    [
        (0.5, 0, (1, 2, 0, 0)),  # before the first: clamped, no velocity
        (1.0, 1, (1, 2, 0, 2)),  # on the first
        (1.25, 1, (1, 2, 0.5, 2)),
        (1.5, 2, (2, 3, 0, 0.5)),  # on a key: the next pair
        (2.0, 2, (2, 3, 0.25, 0.5)),
        (3.5, 3, (2, 3, 1, 0.5)),  # on the last
        (4.0, 3, (2, 3, 1, 0)),  # after it
    ],
)
def test_keys_around_a_time(time: float, passed: int, expected: tuple[float, ...]) -> None:
    """Rows 1 to 3 of five are the track's, at 1, 1.5 and 3.5 seconds."""
    keys = torch.tensor([[-7.0, 1.0, 1.5, 3.5, 9.0]], dtype=F64)
    close(call("keys_around", keys, 1, 4, passed, time), torch.tensor([expected], dtype=F64))


@pytest.mark.parametrize("time", [0.0, 1.0, 2.0])
def test_one_keyframe_stands_still(time: float) -> None:
    keys = torch.tensor([[-7.0, 1.0, 1.5, 3.5, 9.0]], dtype=F64)
    close(call("keys_around", keys, 1, 2, int(time >= 1), time), torch.tensor([[1, 1, 0, 0]], dtype=F64))


def test_presence_of_actors() -> None:
    """Its ends belong to a span."""
    first, last, time = column(1, 1, 1, 1, -math.inf), column(2, 2, 2, 1, math.inf), column(1, 2, 2.5, 1, 7)
    close(call("present", first, last, time), column(1, 1, 0, 1, 1), 0)
    close(call("present", first, last, column(0.5, math.nan, 1.5, math.inf, -9)), column(0, 0, 1, 0, 1), 0)


# ---- poses and Gaussians


def poses() -> list[Tensor]:
    """Quaternions of any length and translations of two keyframes, the fraction between them and the rate."""
    a, b = quat_pairs()
    n = len(a)
    fraction = torch.cat([column(0, 1, 0.5), torch.rand(n - 3, 1, dtype=F64)])
    rate = torch.where(torch.rand(n, 1) < 0.2, 0, 10 * torch.rand(n, 1, dtype=F64))
    stretch = 0.5 + torch.rand(2, n, 1, dtype=F64)
    return [stretch[0] * a, torch.randn(n, 3, dtype=F64), stretch[1] * b, torch.randn(n, 3, dtype=F64), fraction, rate]


def pose_at(a: Tensor, s: Tensor, b: Tensor, t: Tensor, fraction: Tensor, rate: Tensor) -> Tensor:
    q0, q1 = se3.quat_normalize(a), se3.quat_normalize(b)
    turn = se3.quat_to_rotvec(se3.quat_multiply(se3.quat_conjugate(q0), q1))
    q = se3.slerp(q0, q1, fraction[:, 0])
    return torch.cat([q, s + fraction * (t - s), rate * (t - s), rate * se3.quat_rotate(q0, turn)], dim=1)


def actors() -> list[Tensor]:
    """A pose, its velocity and spin; mean and unit quaternion of a Gaussian."""
    q = quats()
    places = [torch.randn(len(q), 3, dtype=F64) for _ in range(4)]
    return [q, *places, q[torch.randperm(len(q))]]


def moved(q: Tensor, t: Tensor, velocity: Tensor, spin: Tensor, mean: Tensor, quat: Tensor) -> Tensor:
    arm = se3.quat_rotate(q, mean)
    return torch.cat([arm + t, se3.quat_multiply(q, quat), velocity + torch.linalg.cross(spin, arm)], dim=1)


def stretched() -> list[Tensor]:
    q = quats()
    return [q * 10 ** (4 * torch.rand(len(q), 1, dtype=F64) - 2)]


def pose_pairs() -> list[Tensor]:
    return [torch.randn(9, 13, dtype=F64), torch.randn(9, 13, dtype=F64)]


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], Callable[[], list[Tensor]]]] = {
    "normalized": (se3.quat_normalize, stretched),
    "pose_plus": (torch.add, pose_pairs),
    "pose_at": (pose_at, poses),
    "moved": (moved, actors),
    "moved_by_matrices": (moved, actors),
}
DERIVED = {"normalized": 1, "pose_at": 4, "moved": 6}  # to how many of the inputs there is a derivative


@pytest.mark.parametrize("name", FUNCTIONS)
def test_value(name: str) -> None:
    reference, samples = FUNCTIONS[name]
    inputs = samples()
    close(call(name, *inputs), reference(*inputs))


def test_length() -> None:
    (q,) = stretched()
    close(call("length_of", q), q.norm(dim=1, keepdim=True))


@pytest.mark.parametrize("name", DERIVED)
def test_derivative(name: str) -> None:
    reference, samples = FUNCTIONS[name]
    inputs, n = samples(), DERIVED[name]
    d_out = torch.randn_like(reference(*inputs))
    found = call(f"{name}_backward", *inputs, d_out)
    close(found, autograd(lambda *x: reference(*x, *inputs[n:]), inputs[:n], d_out), 4e-12)


@pytest.mark.parametrize("name", DERIVED)
def test_derivative_by_differences(name: str) -> None:
    reference, samples = FUNCTIONS[name]
    inputs, n = [x[torch.arange(0, len(x), 3)] for x in samples()], DERIVED[name]
    if name == "normalized":
        inputs = [x / x.norm(dim=1, keepdim=True) for x in inputs]
    d_out = torch.randn_like(reference(*inputs))
    expected = differences(lambda *x: call(name, *x, *inputs[n:]), inputs[:n], d_out)
    close(call(f"{name}_backward", *inputs, d_out), expected, 1e-7)


def test_a_quaternion_of_no_length_has_a_value_and_a_gradient() -> None:
    """torch.nn.functional.normalize gives zero, and the gradient by the shortest length."""
    zero, d = torch.zeros(1, 4, dtype=F64), torch.randn(1, 4, dtype=F64)
    close(call("normalized", zero), zero, 0)
    close(call("normalized_backward", zero, d), autograd(se3.quat_normalize, [zero], d))


def test_half_turns_between_keyframes() -> None:
    """No shorter arc: the reference's choice, and finite gradients that agree with its."""
    q0 = torch.eye(4, dtype=F64)[:1].expand(6, 4)
    q1 = torch.cat([torch.eye(4, dtype=F64)[1:], -torch.eye(4, dtype=F64)[1:]])
    t, d_out = torch.randn(2, 6, 3, dtype=F64), torch.randn(6, 13, dtype=F64)
    inputs = [q0, t[0], q1, t[1], column(*[0.3] * 6), column(*[2.0] * 6)]
    close(call("pose_at", *inputs), pose_at(*inputs))
    assert call("pose_at", *inputs)[:, 10:].norm(dim=1).sub(2 * math.pi).abs().max() < 1e-12
    expected = autograd(lambda *x: pose_at(*x, *inputs[4:]), inputs[:4], d_out)
    close(call("pose_at_backward", *inputs, d_out), expected, 4e-12)
