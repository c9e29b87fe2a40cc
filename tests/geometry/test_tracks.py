# SPDX-License-Identifier: Apache-2.0
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation, Slerp
from torch import Tensor
from torch.autograd import gradcheck
from torch.nn import functional as F

from nurec_lite.geometry import se3
from nurec_lite.geometry.tracks import TrackPoses, Tracks, interpolate, joined, moves, poses_of, single_track

F64 = torch.float64


def make_tracks(*lengths: int, margin: float = 0.0) -> Tracks:
    """Tracks of random keyframes, 0.05 to 0.15 s apart; track k starts at k seconds."""
    offsets = (0, *np.cumsum(lengths).tolist())
    times = [k + torch.cumsum(0.05 + 0.1 * torch.rand(n, dtype=F64), dim=0) for k, n in enumerate(lengths)]
    return Tracks(
        ids=tuple(str(k) for k in range(len(lengths))),
        classes=("Car",) * len(lengths),
        sizes=torch.ones(len(lengths), 3, dtype=F64),
        offsets=offsets,
        times=torch.cat(times),
        translations=torch.randn(offsets[-1], 3, dtype=F64),
        quaternions=F.normalize(torch.randn(offsets[-1], 4, dtype=F64), dim=-1),
        margin=margin,
    )


def one_track(times: list[float], translations: list[list[float]], quaternions: list[Tensor], **kw: float) -> Tracks:
    t = torch.tensor(translations, dtype=F64)
    sizes = torch.ones(1, 3, dtype=F64)
    key_times = torch.tensor(times, dtype=F64)
    return Tracks(("0",), ("Car",), sizes, (0, len(times)), key_times, t, torch.stack(quaternions), **kw)


def yaw(degrees: float) -> Tensor:
    half = math.radians(degrees) / 2
    return torch.tensor([math.cos(half), 0, 0, math.sin(half)], dtype=F64)


def at(*times: float) -> Tensor:
    return torch.tensor(times, dtype=F64)


def rotation_of(poses: TrackPoses) -> Tensor:
    return se3.quat_to_matrix(poses.quaternions)


# ---- values


@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=4), seed=st.integers(0, 1000))
def test_agrees_with_scipy(lengths: list[int], seed: int) -> None:
    torch.manual_seed(seed)
    tracks, times = make_tracks(*lengths), 5 * torch.rand(7, dtype=F64)
    poses = interpolate(tracks, times)
    for k, n in enumerate(lengths):
        rows = slice(tracks.offsets[k], tracks.offsets[k] + n)
        key_times, t, q = (x[rows].numpy() for x in (tracks.times, tracks.translations, tracks.quaternions))
        expected = np.stack([np.interp(times.numpy(), key_times, t[:, axis]) for axis in range(3)], axis=-1)
        np.testing.assert_allclose(poses.translations[:, k].numpy(), expected, atol=1e-12)
        rotations = Rotation.from_quat(q[:, [1, 2, 3, 0]])
        clamped = times.numpy().clip(key_times[0], key_times[-1])
        turned = Slerp(key_times, rotations)(clamped).as_matrix() if n > 1 else rotations.as_matrix().repeat(7, axis=0)
        np.testing.assert_allclose(rotation_of(poses)[:, k].numpy(), turned, atol=1e-12)


def test_passes_through_its_keyframes() -> None:
    tracks = make_tracks(5)
    poses = interpolate(tracks, tracks.times)
    torch.testing.assert_close(poses.translations[:, 0], tracks.translations)
    torch.testing.assert_close(rotation_of(poses)[:, 0], se3.quat_to_matrix(tracks.quaternions))
    assert poses.valid.all()


def test_outside_its_keyframes_the_pose_is_clamped_at_rest_and_invalid() -> None:
    tracks = make_tracks(4)
    poses = interpolate(tracks, at(-1, 9))
    torch.testing.assert_close(poses.translations[:, 0], tracks.translations[[0, 3]])
    torch.testing.assert_close(rotation_of(poses)[:, 0], se3.quat_to_matrix(tracks.quaternions[[0, 3]]))
    assert not poses.valid.any()
    assert not poses.velocities.any() and not poses.angular_velocities.any()


def test_the_margin_keeps_a_clamped_track_valid() -> None:
    tracks = one_track([1, 2], [[0, 0, 0], [1, 0, 0]], [yaw(0), yaw(90)], margin=0.25)
    poses = interpolate(tracks, at(0.7, 0.8, 1.5, 2.2, 2.3))
    assert poses.valid[:, 0].tolist() == [False, True, True, True, False]
    assert poses.velocities[:, 0, 0].tolist() == [0, 0, 1, 0, 0]


def test_validity_includes_both_ends() -> None:
    tracks = one_track([1, 2], [[0, 0, 0], [1, 0, 0]], [yaw(0), yaw(90)])
    assert interpolate(tracks, at(1, 2)).valid.all()


def test_velocities_are_finite_differences_of_the_pose() -> None:
    tracks, h = make_tracks(6, 3), 1e-6
    middles = 0.5 * (tracks.times[:5] + tracks.times[1:6])
    before, now, after = (interpolate(tracks, middles + shift) for shift in (-h, 0.0, h))
    torch.testing.assert_close(
        now.velocities, (after.translations - before.translations) / (2 * h), atol=1e-7, rtol=1e-7
    )
    step = se3.quat_multiply(after.quaternions, se3.quat_conjugate(before.quaternions))
    torch.testing.assert_close(now.angular_velocities, se3.quat_to_rotvec(step) / (2 * h), atol=1e-7, rtol=1e-7)


def test_a_track_of_one_keyframe_stands_still() -> None:
    tracks = one_track([1], [[4, 5, 6]], [yaw(30)])
    poses = interpolate(tracks, at(0, 1, 2))
    torch.testing.assert_close(poses.translations[:, 0], tracks.translations.expand(3, 3))
    torch.testing.assert_close(rotation_of(poses)[:, 0], se3.quat_to_matrix(yaw(30)).expand(3, 3, 3))
    assert poses.valid[:, 0].tolist() == [False, True, False]
    assert not poses.velocities.any() and not poses.angular_velocities.any()


def test_the_sign_of_a_quaternion_does_not_matter() -> None:
    tracks = make_tracks(5)
    flipped = replace(tracks, quaternions=tracks.quaternions * torch.tensor([[1], [-1], [1], [1], [-1]]))
    times = torch.rand(9, dtype=F64)
    a, b = interpolate(tracks, times), interpolate(flipped, times)
    torch.testing.assert_close(rotation_of(a), rotation_of(b))
    torch.testing.assert_close(a.angular_velocities, b.angular_velocities)


def test_the_length_of_a_quaternion_does_not_matter() -> None:
    tracks, times = make_tracks(5), torch.rand(9, dtype=F64)
    poses = interpolate(replace(tracks, quaternions=3 * tracks.quaternions), times)
    torch.testing.assert_close(poses.quaternions, interpolate(tracks, times).quaternions)


def test_a_turn_of_180_degrees_takes_its_time() -> None:
    poses = interpolate(one_track([0, 1], [[0, 0, 0]] * 2, [yaw(0), yaw(180)]), at(0.25, 0.5))
    torch.testing.assert_close(
        poses.angular_velocities[:, 0].norm(dim=-1), torch.full((2,), math.pi, dtype=F64), rtol=1e-12, atol=0
    )
    angles = se3.quat_to_rotvec(poses.quaternions[:, 0]).norm(dim=-1)
    torch.testing.assert_close(angles, torch.tensor([math.pi / 4, math.pi / 2], dtype=F64))


def test_no_tracks_and_no_times() -> None:
    none = interpolate(Tracks.empty(), at(0, 1, 2))
    assert none.translations.shape == (3, 0, 3) and none.quaternions.shape == (3, 0, 4) and none.valid.shape == (3, 0)
    none = interpolate(make_tracks(3, 1), at())
    assert none.translations.shape == (0, 2, 3) and none.quaternions.shape == (0, 2, 4) and none.valid.shape == (0, 2)


def test_float32_keyframes_keep_times_in_double_precision() -> None:
    tracks = make_tracks(4)
    late = replace(tracks, times=tracks.times + 1.3e9)  # seconds since 1970
    poses = interpolate(late.to("cpu"), tracks.times[:1] + 1.3e9 + 0.01)
    assert poses.translations.dtype == poses.quaternions.dtype == poses.velocities.dtype == torch.float32
    expected = interpolate(tracks, tracks.times[:1] + 0.01).translations.float()
    torch.testing.assert_close(poses.translations, expected, atol=1e-5, rtol=1e-5)


# ---- gradients


def outputs(tracks: Tracks, times: Tensor, t: Tensor, q: Tensor) -> tuple[Tensor, ...]:
    poses = interpolate(replace(tracks, translations=t, quaternions=q), times)
    return poses.translations, poses.quaternions, poses.velocities, poses.angular_velocities


def check_gradients(tracks: Tracks, times: Tensor) -> bool:
    keyframes = (tracks.translations.clone().requires_grad_(), tracks.quaternions.clone().requires_grad_())
    return gradcheck(lambda t, q: outputs(tracks, times, t, q), keyframes)


@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=4), seed=st.integers(0, 1000))
def test_poses_of_one_track_at_each_time_are_those_of_all(lengths: list[int], seed: int) -> None:
    torch.manual_seed(seed)
    tracks = make_tracks(*lengths)
    times = torch.cat([5 * torch.rand(7, dtype=F64) - 0.5, tracks.times])  # also at keyframes
    track = torch.randint(len(lengths), (len(times),))
    poses, (quaternions, translations) = interpolate(tracks, times), poses_of(tracks, track, times)
    own = torch.arange(len(times)), track
    assert torch.equal(translations, poses.translations[own])
    torch.testing.assert_close(quaternions, poses.quaternions[own], rtol=0, atol=1e-12)


def test_gradient_in_the_keyframes() -> None:
    tracks = make_tracks(3, 1, 2)
    inside = tracks.times[0] + 0.02
    assert check_gradients(tracks, torch.stack([inside, tracks.times[1], tracks.times[4] + 0.01, at(-1)[0]]))


@pytest.mark.parametrize("sign", [1, -1])
def test_gradient_between_equal_rotations(sign: int) -> None:
    tracks = one_track([0, 1, 2], [[0, 0, 0], [1, 0, 0], [1, 2, 0]], [yaw(20), sign * yaw(20), yaw(20)])
    assert check_gradients(tracks, at(0, 0.5, 1, 1.7, 3))


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("degrees", [0, 1e-4, 180])
def test_gradient_is_finite(degrees: float, dtype: torch.dtype) -> None:
    tracks = one_track([0, 0.1], [[0, 0, 0], [1, 0, 0]], [yaw(0), yaw(degrees)]).to("cpu", dtype)
    t, q = tracks.translations.requires_grad_(), tracks.quaternions.requires_grad_()
    torch.stack([x.sum() for x in outputs(tracks, at(-1, 0, 0.03, 0.1, 1), t, q)]).sum().backward()
    assert t.grad is not None and t.grad.isfinite().all()
    assert q.grad is not None and q.grad.isfinite().all()


def test_the_velocity_of_a_single_keyframe_leaves_no_trace_in_its_gradient() -> None:
    tracks, times = make_tracks(1).to("cpu"), at(-1, 0, 0.1, 1)
    tracks = replace(tracks, times=at(0.1))

    def gradients(with_velocities: bool) -> tuple[Tensor, ...]:
        t, q = tracks.translations.clone().requires_grad_(), tracks.quaternions.clone().requires_grad_()
        torch.manual_seed(0)
        parts = [(x * torch.randn_like(x)).sum() for x in outputs(tracks, times, t, q)]
        return torch.autograd.grad(torch.stack(parts[: 4 if with_velocities else 2]).sum(), (t, q))

    for a, b in zip(gradients(True), gradients(False), strict=True):
        torch.testing.assert_close(a, b)


def test_one_object_of_boxes_in_any_order() -> None:
    poses = torch.eye(4, dtype=torch.float64).repeat(3, 1, 1)
    poses[:, 0, 3] = torch.tensor([2.0, 0.0, 1.0])
    sizes = torch.tensor([[4.0, 2.0, 1.5], [4.2, 1.8, 1.5], [9.0, 1.9, 1.6]])
    one = single_track("a", "Car", sizes, torch.tensor([0.2, 0.0, 0.1]), poses)
    assert one.times.tolist() == pytest.approx([0.0, 0.1, 0.2])
    assert one.translations[:, 0].tolist() == [0, 1, 2]
    assert one.sizes.tolist() == [pytest.approx([4.2, 1.9, 1.5])]
    assert one.quaternions.tolist() == [[1, 0, 0, 0]] * 3
    assert moves(one, 1.9)
    assert not moves(one, 2.0)


def test_joined_tracks_are_those_of_all_parts() -> None:
    poses = torch.eye(4).repeat(2, 1, 1)
    parts = [
        single_track(name, "Car", torch.ones(2, 3), torch.tensor([0.0, end]), poses)
        for name, end in (("a", 1), ("b", 2))
    ]
    both = joined([joined(parts, 0.0), single_track("c", "Van", torch.ones(1, 3), torch.zeros(1), poses[:1])], 0.05)
    assert (both.ids, both.classes, both.offsets, both.margin) == (
        ("a", "b", "c"),
        ("Car", "Car", "Van"),
        (0, 2, 4, 5),
        0.05,
    )
    assert both.times.tolist() == [0, 1, 0, 2, 0]
    assert len(joined([], 0.05)) == 0
