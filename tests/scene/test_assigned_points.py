# SPDX-License-Identifier: Apache-2.0
"""Points of a sweep belong to the boxes that hold them at their own times."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from nurec_lite.capture.types import SweepFrame
from nurec_lite.geometry.lidar import Sweep
from nurec_lite.geometry.se3 import quat_conjugate, quat_rotate, rotvec_to_quat
from nurec_lite.geometry.tracks import Tracks, joined, poses_of, single_track
from nurec_lite.scene.points import BOX_MARGIN, GROUND_METRES, actors_in, assign_to_actors

F64 = torch.float64


def frame(start: float, end: float) -> SweepFrame:
    return SweepFrame("lidar", 0, start, end, torch.eye(4), torch.eye(4), lambda: None)  # type: ignore[arg-type,return-value]


def rays(times: Tensor) -> Sweep:
    none = torch.zeros(len(times))
    return Sweep(none[:, None].expand(-1, 3), none, none, times, none.long(), none > -1)


def track(keys: list[float], seed: int) -> Tracks:
    """A car that turns and drives, and leaves its place by a few metres at most."""
    generator = torch.Generator().manual_seed(seed)
    place, turn = (torch.rand(len(keys), 3, dtype=F64, generator=generator) for _ in range(2))
    upright = torch.tensor([[4.0, 2.0, 1.5]], dtype=F64)
    part = single_track(str(seed), "Car", upright, torch.tensor(keys), torch.eye(4).repeat(len(keys), 1, 1))
    return replace(part, translations=3 * place, quaternions=rotvec_to_quat(turn))


def expected(tracks: Tracks, there: list[int], times: Tensor, world: Tensor) -> tuple[Tensor, Tensor]:
    node, found = torch.zeros(len(times), dtype=torch.int64), world.clone()
    for k in there:
        q, t = poses_of(tracks, torch.full((len(times),), k), times)
        local, half = quat_rotate(quat_conjugate(q), world - t), 0.5 * tracks.sizes[k]
        inside = (local.abs() <= BOX_MARGIN * half).all(-1) & (local[:, 2] > GROUND_METRES - half[2])
        node[inside], found[inside] = k + 1, local[inside]
    return node, found


@pytest.mark.parametrize("span", [(1.0, 1.1), (0.96, 1.36), (1.05, 1.05)])
def test_points_are_in_the_boxes_that_poses_of_gives(span: tuple[float, float]) -> None:
    """Rays beside their sweep, before a track's first key and after its last one, and points in two boxes are among them."""
    keys = [[0.9, 1.0, 1.08, 1.2], [1.04, 1.09], [0.2, 1.051], [1.05], [0.0, 0.4], [1.3, 2.0]]
    tracks = joined([track(k, seed) for seed, k in enumerate(keys)], margin=0.02)
    there = [k for k, times in enumerate(keys) if times[0] - 0.02 <= sum(span) / 2 <= times[-1] + 0.02]
    generator = torch.Generator().manual_seed(7)
    times = span[0] - 0.05 + (span[1] - span[0] + 0.1) * torch.rand(3001, dtype=F64, generator=generator)
    world = 6 * torch.rand(3001, 3, dtype=F64, generator=generator) - 1.5
    actors = actors_in(tracks, [frame(*span)])[0]
    assert (actors.node - 1).tolist() == there
    node, local = assign_to_actors(actors, rays(times), world)
    true_node, true_local = expected(tracks, there, times, world)
    assert torch.equal(node, true_node) and len(node.unique()) == len(there) + 1
    torch.testing.assert_close(local, true_local, rtol=0, atol=1e-12)


def test_a_sweep_without_tracks_in_its_middle_leaves_points_in_the_world() -> None:
    tracks, world = track([1.0, 1.1], 0), torch.zeros(5, 3, dtype=F64)
    for some, span in ((tracks, (1.2, 1.3)), (tracks, (0.85, 1.05)), (Tracks.empty(), (1.0, 1.1))):
        actors = actors_in(some, [frame(*span)])[0]
        node, local = assign_to_actors(actors, rays(torch.full((5,), 1.05, dtype=F64)), world)
        assert len(actors.node) == 0 and not node.any() and torch.equal(local, world)


def test_several_sweeps_have_the_actors_of_each() -> None:
    tracks = joined([track([1.0, 1.1], 0), track([1.0, 1.04, 1.3], 1)], margin=0.0)
    frames = [frame(1.0, 1.1), frame(2.0, 2.1), frame(1.1, 1.2)]
    together, times = actors_in(tracks, frames), torch.linspace(1.0, 1.2, 33, dtype=F64)
    assert [actors.node.tolist() for actors in together] == [[1, 2], [], [2]]
    for one, actors in zip(frames, together, strict=True):
        alone = actors_in(tracks, [one])[0]
        found = [assign_to_actors(a, rays(times), torch.zeros(33, 3, dtype=F64)) for a in (alone, actors)]
        assert torch.equal(found[0][0], found[1][0])
        torch.testing.assert_close(found[0][1], found[1][1], rtol=0, atol=1e-12)
    assert actors_in(tracks, []) == []
