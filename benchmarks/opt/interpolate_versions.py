# SPDX-License-Identifier: Apache-2.0
"""The ways to bring the Gaussians of actors into the world that benchmarks/opt/bench_fused_interp.py compares.

Every version interpolates all tracks at all query times and applies the poses to every Gaussian of an actor. It returns means and
unit quaternions in the world, velocities, and the poses' rotations [Q, K, 4].
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import torch
from torch import Tensor

from benchmarks.opt.interpolate_workload import Workload
from nurec_lite.geometry.se3 import (
    quat_conjugate,
    quat_multiply,
    quat_normalize,
    quat_rotate,
    quat_to_rotvec,
    rotvec_to_quat,
)
from nurec_lite.geometry.tracks import interpolate, key_rows
from nurec_lite.native import ops
from nurec_lite.native.build import BuildError
from nurec_lite.native.operators.move_actors import ActorArrays

OUTPUTS = ("means", "quats", "velocities", "rotations")
Moved = tuple[Tensor, Tensor, Tensor, Tensor]  # by OUTPUTS: [Q, n, 3], [Q, n, 4], [Q, n, 3], [Q, K, 4]


def per_node(w: Workload) -> Moved:
    """Node by node, as a scene graph does: each interpolates its own track and moves its own Gaussians; then all are concatenated."""
    n_keys = [last - first for first, last in pairwise(w.tracks.offsets)]
    keys = [x.split(n_keys) for x in (w.tracks.times, w.tracks.translations, w.tracks.quaternions)]
    nodes = []
    for means, quats, at, t, q in zip(w.means.split(w.sizes), w.quats.split(w.sizes), *keys, strict=True):
        place, rotation, velocity, spin = (x[:, None] for x in _node_poses(at, t, q, w.times))
        nodes.append((*_apply(place, rotation, velocity, spin, means, quats), rotation))
    means, quats, velocities, rotations = (torch.cat(parts, dim=1) for parts in zip(*nodes, strict=True))
    return _with_background(w, (means, quats, velocities, rotations))


def vectorised_copy(w: Workload) -> Moved:
    """All tracks at once in torch, background copied, as the trainer's baseline collects."""
    return _with_background(w, vectorised(w))


def vectorised(w: Workload) -> Moved:
    """All tracks at once in torch, actors alone."""
    poses = interpolate(w.tracks, w.times)
    of_each = (poses.translations, poses.quaternions, poses.velocities, poses.angular_velocities)
    place, rotation, velocity, spin = (values.index_select(1, w.track) for values in of_each)
    moved = _apply(place, rotation, velocity, spin, w.means, w.quats)
    return (*moved, poses.quaternions)


@cache
def _compiler() -> Callable[[Workload], Moved]:
    """Returns `vectorised`, compiled by torch; importing the compiler takes seconds."""
    # row numbers of keyframes stay on the device, as they do uncompiled, instead of being copied there at every call
    torch.compiler.assume_constant_result(key_rows.__wrapped__)
    made: Callable[[Workload], Moved] = torch.compile(vectorised, dynamic=False, fullgraph=True)
    return made


def compiled(w: Workload) -> Moved:
    """`vectorised`, compiled."""
    return _compiler()(w)


def fused(w: Workload) -> Moved:
    """The operator move_actors, actors alone."""
    keys = (w.key_offsets, w.tracks.times, w.tracks.translations, w.tracks.quaternions)
    moved: Moved = torch.ops.nurec_lite.move_actors(ActorArrays(w.means, w.quats, w.starts, *keys, w.times))
    return moved


@dataclass(frozen=True)
class Version:
    run: Callable[[Workload], Moved]
    copies: bool  # the background


VERSIONS = {
    "per_node": Version(per_node, copies=True),
    "vectorised_copy": Version(vectorised_copy, copies=True),
    "vectorised": Version(vectorised, copies=False),
    "compiled": Version(compiled, copies=False),
    "fused": Version(fused, copies=False),
}


def unavailable(name: str, workload: Workload) -> str | None:
    """Why a version cannot run here, or None."""
    if name == "compiled":
        return _uncompilable(workload)
    if name != "fused":
        return None
    try:
        ops.load()
    except BuildError as error:
        return f"missing: {error}"
    return None if hasattr(torch.ops.nurec_lite, "move_actors") else "missing: there is no operator move_actors"


def _uncompilable(w: Workload) -> str | None:
    try:
        moved = compiled(w)
        torch.autograd.grad(moved, list(w.trained(background=False).values()), [torch.ones_like(x) for x in moved])
    except Exception as error:  # any error of the compiler
        return f"does not compile: {type(error).__name__}: {' '.join(str(error).split()[:30])}"
    return None


def _node_poses(
    key_times: Tensor,  # [n]
    translations: Tensor,  # [n, 3]
    quaternions: Tensor,  # [n, 4]
    times: Tensor,  # [Q]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # translation, rotation, velocity, angular velocity, each [Q, ...]
    n = len(key_times)
    i = (torch.searchsorted(key_times, times, right=True) - 1).clamp(0, max(n - 2, 0))
    j = (i + 1).clamp(max=n - 1)
    clamped, before = times.clamp(key_times[0], key_times[-1]), key_times[i]
    span = (key_times[j] - before).clamp(min=1e-9)
    part = ((clamped - before) / span).to(translations.dtype)[:, None]
    rate = ((clamped == times) * (n > 1) / span).to(translations.dtype)[:, None]
    q0, q1 = quat_normalize(quaternions[i]), quat_normalize(quaternions[j])
    move, turn = translations[j] - translations[i], quat_to_rotvec(quat_multiply(quat_conjugate(q0), q1))
    rotation = quat_multiply(q0, rotvec_to_quat(part * turn))
    return translations[i] + part * move, rotation, rate * move, rate * quat_rotate(q0, turn)


def _apply(
    place: Tensor,  # [Q, n, 3], or [Q, 1, 3] of one actor for all; so the next three
    rotation: Tensor,
    velocity: Tensor,
    spin: Tensor,
    means: Tensor,  # [n, 3]
    quats: Tensor,  # [n, 4] unit
) -> tuple[Tensor, Tensor, Tensor]:
    arm = quat_rotate(rotation, means)
    return arm + place, quat_multiply(rotation, quats), velocity + torch.linalg.cross(spin, arm)


def _with_background(w: Workload, moved: Moved) -> Moved:
    means, quats, velocities, rotations = moved
    q = len(w.times)
    means = torch.cat([w.still_means.expand(q, -1, -1), means], dim=1)
    quats = torch.cat([w.still_quats.expand(q, -1, -1), quats], dim=1)
    still = velocities.new_zeros(q, len(w.still_means), 3)
    return means, quats, torch.cat([still, velocities], dim=1), rotations


# ---- how they are compared


def with_gradients(version: Version, w: Workload, upstream: Moved) -> dict[str, Tensor]:
    """Outputs, and gradients of all that is trained, by name."""
    moved, trained = version.run(w), w.trained(version.copies)
    found = torch.autograd.grad(moved, list(trained.values()), upstream)
    gradients = {f"d_{name}": gradient for name, gradient in zip(trained, found, strict=True)}
    return dict(zip(OUTPUTS, moved, strict=True)) | gradients


def upstream_of(w: Workload) -> dict[bool, Moved]:
    """Random gradients of all outputs: with the rows of the background, which come first, and without."""
    generator, n = torch.Generator(w.means.device).manual_seed(0), len(w.still_means) + len(w.means)

    def normal(*shape: int) -> Tensor:
        return torch.randn(len(w.times), *shape, generator=generator, device=w.means.device)

    whole = normal(n, 3), normal(n, 4), normal(n, 3), normal(len(w.tracks), 4)
    means, quats, velocities = (x[:, len(w.still_means) :].contiguous() for x in whole[:3])
    return {True: whole, False: (means, quats, velocities, whole[3])}


def differences(found: dict[str, Tensor], truth: dict[str, Tensor]) -> dict[str, float]:
    """The largest difference of each tensor, relative to its largest value, or to 1 if that is less: velocities of parked cars are
    rounding. Where only actors were found, they are compared with the truth's last rows."""
    errors = {}
    for name, value in found.items():
        right = truth[name].detach()[:, -value.shape[1] :] if name in OUTPUTS else truth[name]
        error = float((value.detach() - right).abs().max() / right.abs().max().clamp(min=1))
        errors[name] = math.inf if math.isnan(error) else error
    return errors
