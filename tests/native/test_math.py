# SPDX-License-Identifier: Apache-2.0
"""kernels/math against the torch functions that specify it: vectors, rotations, poses, covariances, harmonics."""

import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from kernel_math import F64, ROWS, autograd, call, close, differences
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.base.paths import resource
from nurec_lite.geometry import se3
from nurec_lite.geometry.harmonics import sh_basis, sh_colour

BANDS = (1, 4, 9, 16)
TINY = (0, 1e-15, 1e-9, 0.99e-4, 1.01e-4, 1e-3)  # radians about where series take over


def vectors(n: int = 65) -> Tensor:
    return torch.cat([torch.randn(n - 1, 3, dtype=F64), torch.zeros(1, 3, dtype=F64)])


def turns(angles: tuple[float, ...], n: int = 5) -> Tensor:
    """Rotation vectors of given lengths in random directions."""
    axes = F.normalize(torch.randn(len(angles), n, 3, dtype=F64), dim=-1)
    return (torch.tensor(angles, dtype=F64)[:, None, None] * axes).flatten(0, 1)


def quats() -> Tensor:
    """Unit: random ones, no rotation, half turns, tiny turns, each with either sign."""
    q = F.normalize(torch.randn(41, 4, dtype=F64), dim=-1)
    special = torch.eye(4, dtype=F64)
    q = torch.cat([q, special, se3.rotvec_to_quat(turns(TINY))])
    return torch.cat([q, -q])


def quat_pairs() -> list[Tensor]:
    """Random, equal, opposite, and nearly so; none that a half turn divides, where the shorter arc jumps."""
    a = quats()
    b = F.normalize(torch.randn_like(a), dim=-1)
    near = se3.quat_multiply(a[:30], se3.rotvec_to_quat(turns(TINY)))
    return [torch.cat([a, a, a, a[:30], a[:30]]), torch.cat([b, a, -a, near, -near])]


def directions() -> Tensor:
    """Unit: random ones, both poles and the other axes, and ones just beside the poles."""
    beside = torch.tensor([[1e-9, 0, 1], [0, -1e-9, -1]], dtype=F64)
    return torch.cat([F.normalize(torch.randn(51, 3, dtype=F64), dim=-1), torch.eye(3), -torch.eye(3), beside])


# ---- all of them


def test_every_function_is_exported_and_every_export_is_tested() -> None:
    headers = "".join(path.read_text() for path in sorted(resource("kernels/math").glob("*.cuh")))
    sources = {path.name: path.read_text() for path in ROWS.iterdir() if path.name != "rows.h"}
    declared = set(re.findall(r"^ *NUREC_FN [^=;{]*?(\w+|operator.)\(", headers, re.MULTILINE))
    assert len(declared) > 50
    used = {"operator" + s for s in "+-*"} | set(re.findall(r"\w+", "".join(sources.values())))
    assert not declared - used, "functions of kernels/math that math_rows does not call"
    exported = set(re.findall(r"NUREC_EXPORT\((\w+?)(?:_##S)?, ", sources["math.cpp"]))
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_math*.py"))
    named = {name for name in exported if re.search(rf'"{name.removesuffix("_backward")}["_]', tests)}
    assert not exported - named, "exports that no test names"


# ---- vectors


@pytest.mark.parametrize(
    ("name", "reference"), [("plus", torch.add), ("minus", torch.sub), ("cross", torch.linalg.cross)]
)
def test_of_two_vectors(name: str, reference: Callable[..., Tensor]) -> None:
    a, b = vectors(), vectors()
    close(call(name, a, b), reference(a, b))


def test_dot_and_multiple() -> None:
    a, b = vectors(), vectors()
    close(call("dot", a, b), (a * b).sum(1))
    close(call("times", b[:, :1], a), b[:, :1] * a)


def test_matrices() -> None:
    m, a = torch.randn(33, 3, 3, dtype=F64), vectors(33)
    close(call("matrix_times", m, a), m @ a[:, :, None])
    close(call("transposed_times", m, a), m.transpose(1, 2) @ a[:, :, None])
    close(call("matrix_product", m, m.flip(0)), m @ m.flip(0))
    close(call("transposed", m), m.transpose(1, 2))


def test_smaller_and_larger() -> None:
    a, b = torch.randn(2, 33, 1, dtype=F64)
    b[:5] = a[:5]
    close(call("smaller", a, b), torch.minimum(a, b), 0)
    close(call("larger", a, b), torch.maximum(a, b), 0)


# ---- rotations and poses


def poses() -> list[Tensor]:
    """Quaternion and translation of one, of the other, and a fraction, also outside 0..1."""
    a, b = quat_pairs()
    n = len(a)
    fraction = torch.cat([torch.tensor([0, 1, 0.5, -0.7, 1.3], dtype=F64), torch.rand(n - 5, dtype=F64)])[:, None]
    return [a, torch.randn(n, 3, dtype=F64), b, torch.randn(n, 3, dtype=F64), fraction]


def slerped() -> list[Tensor]:
    a, _, b, _, fraction = poses()
    return [a, b, fraction]


def slerp(a: Tensor, b: Tensor, fraction: Tensor) -> Tensor:
    return se3.slerp(a, b, fraction[:, 0])


def interpolate(a: Tensor, s: Tensor, b: Tensor, t: Tensor, fraction: Tensor) -> Tensor:
    return torch.cat([slerp(a, b, fraction), s + fraction * (t - s)], dim=1)


def covariance(q: Tensor, s: Tensor) -> Tensor:
    R = se3.quat_to_matrix(q)
    return R @ torch.diag_embed(s * s) @ R.transpose(1, 2)


def disks() -> list[Tensor]:
    """Scales from 1e-4 to 1e2."""
    q = quats()
    return [q, 10 ** (6 * torch.rand(len(q), 3, dtype=F64) - 4)]


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], Callable[[], list[Tensor]]]] = {
    "quat_plus": (torch.add, quat_pairs),
    "quat_conjugate": (se3.quat_conjugate, lambda: [quats()]),
    "quat_multiply": (se3.quat_multiply, quat_pairs),
    "quat_rotate": (se3.quat_rotate, lambda: [quats(), torch.randn(len(quats()), 3, dtype=F64)]),
    "quat_to_matrix": (se3.quat_to_matrix, lambda: [quats()]),
    "rotvec_to_quat": (se3.rotvec_to_quat, lambda: [torch.cat([vectors(), turns((*TINY, 3, math.pi, 7))])]),
    "quat_to_rotvec": (se3.quat_to_rotvec, lambda: [quats()]),
    "slerp": (slerp, slerped),
    "lerp": (lambda a, b, f: a + f * (b - a), lambda: [vectors(), vectors(), torch.rand(65, 1, dtype=F64)]),
    "interpolate_between": (interpolate, poses),
    "scaled_axes": (lambda m, s: m * s[:, None], lambda: [torch.randn(9, 3, 3, dtype=F64), vectors(9)]),
    "covariance": (covariance, disks),
}
DERIVED = {  # to how many of the inputs there is a derivative
    "quat_multiply": 2, "quat_rotate": 2, "quat_to_matrix": 1, "rotvec_to_quat": 1, "quat_to_rotvec": 1, "slerp": 2,
    "interpolate_between": 4, "covariance": 2,
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_value(name: str) -> None:
    reference, samples = FUNCTIONS[name]
    inputs = samples()
    close(call(name, *inputs), reference(*inputs))


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
    if name == "quat_to_rotvec":
        inputs = [q[q[:, 0].abs() > 1e-3] for q in inputs]  # q and -q give the same: no derivative at half turns
    d_out = torch.randn_like(reference(*inputs))
    expected = differences(lambda *x: call(name, *x, *inputs[n:]), inputs[:n], d_out)
    close(call(f"{name}_backward", *inputs, d_out), expected, 1e-8)


def test_derivatives_at_half_turns_are_finite() -> None:
    q0, q1 = torch.eye(4, dtype=F64)[:1].expand(6, 4), torch.cat([torch.eye(4, dtype=F64)[1:], -torch.eye(4)[1:]])
    assert call("slerp_backward", q0, q1, 0.3, torch.randn(6, 4, dtype=F64)).isfinite().all()


def test_pose_of_matrices_is_that_of_quaternions() -> None:
    """geometry.se3.interpolate_between takes matrices."""
    a, s, b, t, fraction = poses()
    T0, T1 = se3.pose_matrix(a, s), se3.pose_matrix(b, t)
    q, position = se3.interpolate_between(T0, T1, fraction[:, 0])
    found = call("interpolate_between", a, s, b, t, fraction)
    close(call("quat_to_matrix", found[:, :4]), se3.quat_to_matrix(q))
    close(found[:, 4:], position)


@pytest.mark.parametrize("angle", [*TINY[1:], 0.1, 1, 3])
def test_quotients_and_their_slopes(angle: float) -> None:
    """sin(a / 2) / a and 2 atan2(s, w) / s against series of many terms, or as they stand; slopes by their own variables."""
    a2 = torch.tensor([[angle * angle]], dtype=F64)
    terms = [(-1) ** k * angle ** (2 * k) / (2 ** (2 * k + 1) * math.factorial(2 * k + 1)) for k in range(12)]
    slope = sum(k * term / angle**2 for k, term in enumerate(terms))
    close(call("half_sinc", a2), torch.tensor([[sum(terms), slope]], dtype=F64), 2e-16 / angle**2 + 1e-12)
    w = math.cos(angle / 2)
    value, by_w = angle / math.sin(angle / 2), -2.0
    expected = torch.tensor([[value, -(w * by_w + value) / (2 * math.sin(angle / 2) ** 2), by_w]], dtype=F64)
    found = call("logarithm", torch.full((1, 1), math.sin(angle / 2) ** 2, dtype=F64), w)
    close(found[:, [0, 2]], expected[:, [0, 2]])
    if angle >= 0.1:
        close(found, expected)
    else:
        assert abs(float(found[0, 1]) + 2 / 3) < 1e-6 + 4e-16 / angle**2 * (angle > 2e-4)


# ---- harmonics


@pytest.mark.parametrize("n", BANDS)
def test_basis(n: int) -> None:
    d = directions()
    close(call(f"sh_basis_{n}", d), sh_basis(d, n))
    g = torch.randn(len(d), n, dtype=F64)
    found = call(f"sh_basis_backward_{n}", d, g)
    leaf = d.clone().requires_grad_()
    if n > 1:
        close(found, torch.autograd.grad(sh_basis(leaf, n), leaf, g)[0])
    close(found, differences(lambda x: call(f"sh_basis_{n}", x), [d], g), 1e-8)


@pytest.mark.parametrize("n", BANDS)
def test_colour(n: int) -> None:
    d = directions()
    sh = torch.randn(len(d), n, 3, dtype=F64)
    basis = sh_basis(d, n)
    close(call(f"sh_sum_{n}", sh, basis), 0.5 + (basis[:, :, None] * sh).sum(1))
    assert (sh_colour(sh, d) == 0).any()
    close(call(f"sh_colour_{n}", sh, d), sh_colour(sh, d))


@pytest.mark.parametrize("n", BANDS)
def test_derivative_of_colour(n: int) -> None:
    d = directions()
    sh, d_out = torch.randn(len(d), n, 3, dtype=F64), torch.randn(len(d), 3, dtype=F64)
    found = call(f"sh_colour_backward_{n}", sh, d, d_out)
    leaves = [sh.clone().requires_grad_(), d.clone().requires_grad_()]
    grads = torch.autograd.grad(sh_colour(*leaves), leaves, d_out, materialize_grads=True)
    close(found, torch.cat([grad.flatten(1) for grad in grads], dim=1))
    clear = (0.5 + (sh_basis(d, n)[:, :, None] * sh).sum(1)).abs().amin(1) > 1e-3  # of the edge of the clamp
    inputs = [sh[clear], d[clear]]
    close(found[clear], differences(lambda *x: call(f"sh_colour_{n}", *x), inputs, d_out[clear]), 1e-8)


@pytest.mark.parametrize("n", BANDS)
def test_derivative_of_colour_before_the_product(n: int) -> None:
    d = directions()
    sh, d_out = torch.randn(len(d), n, 3, dtype=F64), torch.randn(len(d), 3, dtype=F64)
    found, whole = call(f"sh_colour_rank1_backward_{n}", sh, d, d_out), call(f"sh_colour_backward_{n}", sh, d, d_out)
    product = sh_basis(d, n)[:, :, None] * found[:, None, 3:]
    close(torch.cat([product.flatten(1), found[:, :3]], dim=1), whole)


def test_a_clamped_channel_has_no_gradient() -> None:
    colour, d_out = torch.randn(50, 3, dtype=F64), torch.randn(50, 3, dtype=F64)
    colour[0] = 0
    close(call("sh_clamp_backward", colour, d_out), d_out * (colour >= 0))


def test_colour_on_the_edge_of_the_clamp_has_a_gradient() -> None:
    """torch.clamp has it so. The first coefficient makes the sum exactly 0."""
    d = directions()[:3]
    basis = sh_basis(d, 1)
    sh = (-0.5 / basis)[:, :, None].expand(3, 1, 3)
    zero = call("sh_sum_1", sh, basis) == 0
    found = call("sh_colour_backward_1", sh, d, torch.ones(3, 3, dtype=F64))[:, :3]
    assert zero.any()
    close(found[zero][:, None], basis[:1].expand(int(zero.sum()), 1))
