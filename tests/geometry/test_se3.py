# SPDX-License-Identifier: Apache-2.0
import math

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.nn import functional as F

from nurec_lite.geometry import se3

F64 = torch.float64


def random_quats(n: int) -> Tensor:
    return F.normalize(torch.randn(n, 4, dtype=F64), dim=-1)


def turn(degrees: float, axis: tuple[float, float, float] = (0.0, 0.0, 1.0)) -> Tensor:
    half = math.radians(degrees) / 2
    unit = F.normalize(torch.tensor(axis, dtype=F64), dim=0)
    return torch.cat([torch.tensor([math.cos(half)], dtype=F64), math.sin(half) * unit])


def random_poses(n: int) -> Tensor:
    return se3.pose_matrix(random_quats(n), torch.randn(n, 3, dtype=F64))


def same_rotation(a: Tensor, b: Tensor, atol: float = 1e-12) -> None:
    torch.testing.assert_close(se3.quat_to_matrix(a), se3.quat_to_matrix(b), atol=atol, rtol=0)


# ---- algebra


def test_product_of_quaternions_is_the_product_of_matrices() -> None:
    a, b = random_quats(31), random_quats(31)
    expected = se3.quat_to_matrix(a) @ se3.quat_to_matrix(b)
    torch.testing.assert_close(se3.quat_to_matrix(se3.quat_multiply(a, b)), expected)


def test_rotate_is_the_matrix_times_the_vector() -> None:
    q, v = random_quats(31), torch.randn(31, 3, dtype=F64)
    torch.testing.assert_close(se3.quat_rotate(q, v), (se3.quat_to_matrix(q) @ v[..., None]).squeeze(-1))


def test_rotate_broadcasts() -> None:
    q, v = random_quats(5)[:, None], torch.randn(7, 3, dtype=F64)
    assert se3.quat_rotate(q, v).shape == (5, 7, 3)
    assert se3.quat_rotate(q[:0], v).shape == (0, 7, 3)


def test_conjugate_is_the_inverse() -> None:
    q = random_quats(31)
    identity = torch.tensor([1.0, 0, 0, 0], dtype=F64).expand(31, 4)
    torch.testing.assert_close(se3.quat_multiply(q, se3.quat_conjugate(q)), identity)


def test_a_quarter_turn_about_z_takes_x_to_y() -> None:
    x, y = torch.eye(3, dtype=F64)[:2]
    torch.testing.assert_close(se3.quat_rotate(turn(90), x), y)


# ---- matrix <-> quaternion


@pytest.mark.parametrize("degrees", [0, 1e-6, 90, 179.999999, 180])
@pytest.mark.parametrize("axis", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1), (-1, 2, -3), (0, 1, -1)])
def test_matrix_to_quat_inverts_quat_to_matrix(degrees: float, axis: tuple[float, float, float]) -> None:
    q = turn(degrees, axis)
    back = se3.matrix_to_quat(se3.quat_to_matrix(q))
    assert back[0] >= 0
    assert min((back - q).abs().max(), (back + q).abs().max()) < 1e-14


def test_matrix_to_quat_of_random_rotations() -> None:
    q = random_quats(101)
    back = se3.matrix_to_quat(se3.quat_to_matrix(q))
    torch.testing.assert_close(back, torch.where(q[:, :1] < 0, -q, q))


# ---- exponential and logarithm


@pytest.mark.parametrize("angle", [0, 1e-12, 0.99e-4, 1.01e-4, 1e-2, 1, 3, math.pi - 1e-6])
def test_logarithm_inverts_the_exponential(angle: float) -> None:
    v = angle * F.normalize(torch.randn(7, 3, dtype=F64), dim=-1)
    torch.testing.assert_close(se3.quat_to_rotvec(se3.rotvec_to_quat(v)), v, rtol=1e-12, atol=1e-15)


def test_exponential_of_long_vectors_wraps() -> None:
    v = torch.tensor([0, 0, 2 * math.pi + 0.5], dtype=F64)
    same_rotation(se3.rotvec_to_quat(v), turn(math.degrees(0.5)))


def test_logarithm_ignores_the_sign_of_the_quaternion() -> None:
    q = torch.cat([random_quats(31), turn(0)[None], turn(1e-5)[None]])
    torch.testing.assert_close(se3.quat_to_rotvec(-q), se3.quat_to_rotvec(q), rtol=0, atol=0)


# ---- slerp


def test_slerp_reaches_both_ends() -> None:
    a, b = random_quats(31), random_quats(31)
    same_rotation(se3.slerp(a, b, torch.zeros(31, dtype=F64)), a)
    same_rotation(se3.slerp(a, b, torch.ones(31, dtype=F64)), b)


def test_slerp_turns_at_constant_speed_along_the_shorter_arc() -> None:
    fractions = torch.linspace(0, 1, 9, dtype=F64)
    q = se3.slerp(turn(-100).expand(9, 4), turn(70).expand(9, 4), fractions)
    angles = se3.quat_to_rotvec(q)[:, 2]
    torch.testing.assert_close(angles, torch.deg2rad(-100 + 170 * fractions))
    q = se3.slerp(turn(-100).expand(9, 4), turn(100).expand(9, 4), fractions)  # 160 degrees the other way round
    expected = torch.stack([turn(-100 - 160 * f.item()) for f in fractions])
    same_rotation(q, expected)


def test_slerp_ignores_the_sign_of_the_quaternions() -> None:
    a, b, fraction = random_quats(31), random_quats(31), torch.rand(31, dtype=F64)
    same_rotation(se3.slerp(a, -b, fraction), se3.slerp(a, b, fraction))
    same_rotation(se3.slerp(-a, b, fraction), se3.slerp(a, b, fraction))


def test_slerp_between_a_rotation_and_its_negative_stands_still() -> None:
    a = random_quats(31)
    same_rotation(se3.slerp(a, -a, torch.rand(31, dtype=F64)), a)


def test_slerp_halves_a_turn_of_180_degrees() -> None:
    a, b = turn(0), turn(180, (0, 1, 1))
    half = se3.slerp(a, b, torch.tensor(0.5, dtype=F64))
    angle = se3.quat_to_rotvec(half).norm()
    torch.testing.assert_close(angle, torch.tensor(math.pi / 2, dtype=F64))
    same_rotation(se3.quat_multiply(half, half), b)


# ---- gradients


def leaf(x: Tensor) -> Tensor:
    return x.clone().requires_grad_()


def test_gradients_of_the_algebra() -> None:
    a, b, v = leaf(random_quats(3)), leaf(random_quats(3)), leaf(torch.randn(3, 3, dtype=F64))
    assert gradcheck(se3.quat_normalize, (leaf(3 * a.detach()),))
    assert gradcheck(se3.quat_multiply, (a, b))
    assert gradcheck(se3.quat_rotate, (a, v))
    assert gradcheck(se3.quat_to_matrix, (a,))
    assert gradcheck(se3.pose_matrix, (a, v))
    assert gradcheck(se3.invert, (leaf(random_poses(3)),))
    assert gradcheck(se3.transform, (leaf(random_poses(2)), leaf(torch.randn(2, 5, 3, dtype=F64))))


@pytest.mark.parametrize("degrees", [0, 1, 179])
def test_gradient_of_matrix_to_quat(degrees: float) -> None:
    assert gradcheck(se3.matrix_to_quat, (leaf(se3.quat_to_matrix(turn(degrees, (1, 2, 3)))),))


@pytest.mark.parametrize("angle", [0, 1e-5, 1e-3, 1, 3])
def test_gradients_of_exponential_and_logarithm(angle: float) -> None:
    v = angle * F.normalize(torch.randn(3, 3, dtype=F64), dim=-1)
    assert gradcheck(se3.rotvec_to_quat, (leaf(v),))
    assert gradcheck(se3.quat_to_rotvec, (leaf(se3.rotvec_to_quat(v)),))
    assert gradcheck(se3.quat_to_rotvec, (leaf(-se3.rotvec_to_quat(v)),))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("degrees", [0, 1e-3, 60, 179])
def test_gradient_of_slerp(degrees: float, sign: int) -> None:
    a = random_quats(3)
    b = sign * se3.quat_multiply(a, turn(degrees, (1, -2, 3)).expand(3, 4))
    assert gradcheck(se3.slerp, (leaf(a), leaf(b), leaf(torch.tensor([0.0, 0.3, 1.0], dtype=F64))))


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("degrees", [0, 180])
def test_gradient_of_slerp_is_finite_where_it_is_singular(degrees: float, dtype: torch.dtype) -> None:
    a, b = leaf(turn(0).to(dtype)), leaf(turn(degrees).to(dtype))
    se3.slerp(a, b, torch.tensor(0.3, dtype=dtype)).sum().backward()
    assert a.grad is not None and a.grad.isfinite().all()
    assert b.grad is not None and b.grad.isfinite().all()


# ---- transforms and trajectories


def test_invert_gives_the_identity() -> None:
    T = random_poses(31)
    torch.testing.assert_close(T @ se3.invert(T), torch.eye(4, dtype=F64).expand(31, 4, 4))


def test_transform_moves_points_like_homogeneous_coordinates() -> None:
    T, points = random_poses(3), torch.randn(3, 7, 3, dtype=F64)
    homogeneous = torch.cat([points, torch.ones(3, 7, 1, dtype=F64)], dim=-1)
    torch.testing.assert_close(se3.transform(T, points), torch.einsum("bij,bnj->bni", T, homogeneous)[..., :3])


def test_trajectory_passes_through_its_keys() -> None:
    times, poses = torch.tensor([0, 0.1, 0.35, 1], dtype=F64), random_poses(4)
    torch.testing.assert_close(se3.interpolate_trajectory(times, poses, times), poses)


def test_trajectory_goes_on_at_constant_velocity_outside_its_keys() -> None:
    times = torch.tensor([0, 1, 2], dtype=F64)
    q = torch.stack([turn(0), turn(10), turn(40)])
    t = torch.tensor([[0, 0, 0], [1, 0, 0], [3, 1, 0]], dtype=F64)
    outside = se3.interpolate_trajectory(times, se3.pose_matrix(q, t), torch.tensor([-1.5, 3.5], dtype=F64))
    torch.testing.assert_close(outside[:, :3, 3], torch.tensor([[-1.5, 0, 0], [6, 2.5, 0]], dtype=F64))
    same_rotation(se3.matrix_to_quat(outside[:, :3, :3]), torch.stack([turn(-15), turn(85)]))


def test_trajectory_of_one_key_stands_still() -> None:
    pose = random_poses(1)
    T = se3.interpolate_trajectory(torch.zeros(1, dtype=F64), pose, torch.tensor([[-1, 0, 5]], dtype=F64))
    torch.testing.assert_close(T, pose.expand(1, 3, 4, 4))


def test_trajectory_takes_any_shape_of_times() -> None:
    times, poses = torch.arange(3, dtype=F64), random_poses(3)
    for shape in [(), (0,), (5,), (2, 3)]:
        assert se3.interpolate_trajectory(times, poses, torch.rand(shape, dtype=F64)).shape == (*shape, 4, 4)


def test_gradient_of_interpolate_between() -> None:
    T0, T1 = random_poses(2).unbind(0)
    assert gradcheck(se3.interpolate_between, (leaf(T0), leaf(T1), leaf(torch.tensor([0.0, 0.4, 1.3], dtype=F64))))
