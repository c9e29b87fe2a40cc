# SPDX-License-Identifier: Apache-2.0
"""Returns of sweeps in the world, sorted into cells and thinned."""

from dataclasses import replace

import numpy as np
import torch

from nurec_lite.capture.deskew import world_points
from nurec_lite.capture.tracking.free_space import thinned
from nurec_lite.capture.tracking.ground import by_key
from nurec_lite.capture.tracking.returns import FARTHEST, read_sweeps
from nurec_lite.geometry.se3 import pose_matrix, rotvec_to_quat
from nurec_lite.readers import BUNDLED, read_pack, resource


def test_points_of_a_sweep_are_where_the_motion_of_the_rig_has_them() -> None:
    """The rig turns by 90 degrees a second, 40 km from the origin. Points are within 5 mm of the screw motion at 75 m."""
    capture = read_pack(resource(BUNDLED))
    lidar, frame = capture.lidars[0], capture.sweeps[0]
    turn = rotvec_to_quat(torch.tensor([0.0, 0.01, 1.57 * (frame.time_end - frame.time_start)], dtype=torch.float64))
    start = frame.T_world_rig_start.clone()
    start[:3, 3] += torch.tensor([4e4, -2e4, 100.0], dtype=start.dtype)
    end = start @ pose_matrix(turn, torch.tensor([1.5, 0.1, 0.0], dtype=torch.float64))
    moved = replace(frame, T_world_rig_start=start, T_world_rig_end=end)
    found = read_sweeps(lidar, [moved])
    sweep = frame.load()
    known = sweep.returned & (sweep.ranges < min(lidar.max_range, FARTHEST))
    expected = world_points(moved, sweep.select(known), lidar).numpy() - found.origin
    assert np.abs(found.sweeps[0].points[found.sweeps[0].ranges < FARTHEST] - expected).max() < 0.005


def test_keys_and_values_are_in_order() -> None:
    generator = np.random.default_rng(0)
    key = generator.integers(0, 9, 400)
    values = (
        generator.normal(size=400).astype(np.float32).round(1)
    )  # with equal ones, negative ones and zeros of both signs
    order = np.lexsort((values, key))
    found = by_key(key, values)
    assert np.array_equal(found[0], key[order]) and np.array_equal(found[1], values[order])
    assert [len(part) for part in by_key(key[:0], values[:0])] == [0, 0]


def test_one_return_of_each_voxel_is_kept() -> None:
    points = np.array([[0.05, 0, 0], [0.1, 0, 0], [0.5, 0, 0], [-0.05, 0, 0], [0.55, 0.01, 0.01]], np.float32)
    assert thinned(points, np.array([0, 1, 2, 3, 4])).tolist() == [0, 2, 3]
    assert thinned(points, np.array([4, 1, 0])).tolist() == [4, 1], "the first of those that are asked for"
    assert thinned(points, np.array([], np.int64)).tolist() == []
