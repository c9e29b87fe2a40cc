# SPDX-License-Identifier: Apache-2.0
"""The first path in parts is that of one sweep after another, and is refused where the parts contradict each other."""

import pytest
import torch
from torch import Tensor

from nurec_lite.capture.odometry import parts
from nurec_lite.capture.odometry.clouds import Cloud, clouds_of
from nurec_lite.capture.odometry.estimate import _twists_of
from nurec_lite.capture.odometry.front import First, scan_to_map
from nurec_lite.capture.odometry.glance import poses_of
from nurec_lite.capture.odometry.parts import PART, in_parts
from nurec_lite.capture.odometry.reckoning import Twists
from nurec_lite.capture.types import Capture
from nurec_lite.config import DataConfig
from nurec_lite.geometry.se3 import invert
from nurec_lite.readers import open_capture


@pytest.fixture(scope="module")
def street() -> Capture:
    return open_capture(DataConfig(frames=[0, 2 * PART + 1]))


def twists_of(capture: Capture) -> tuple[Tensor, Twists]:
    middles = torch.tensor([frame.time_mid for frame in capture.sweeps], dtype=torch.float64)
    return middles, _twists_of(middles, poses_of(capture.sweeps)(middles))


@pytest.mark.parametrize("count", [1, 2, PART, PART + 1, 2 * PART + 1])
def test_parts_join_to_the_path_of_one_sweep_after_another(street: Capture, count: int) -> None:
    middles, twists = twists_of(street)
    frames = street.sweeps[:count]
    clouds, first = in_parts(frames, street.lidars[0], middles[:count], twists)
    whole = clouds_of(frames, street.lidars[0])
    assert len(clouds) == count and all(torch.equal(a.points, b.points) for a, b in zip(clouds, whole, strict=True))
    assert first is not None and first.poses.shape == (count, 4, 4) and first.open.tolist() == [False] * count
    apart = first.poses - scan_to_map(whole, middles[:count], twists).poses
    assert float(apart[:, :3, 3].norm(dim=1).max()) < 0.1
    said = poses_of(street.sweeps)(middles[:count])
    assert float((invert(said[:1]) @ said - first.poses)[:, :3, 3].norm(dim=1).max()) < 0.1


def test_parts_that_differ_in_their_common_step_are_no_path(street: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    middles, twists = twists_of(street)

    def shifted(clouds: list[Cloud], times: Tensor, twists: Twists) -> First:
        found = scan_to_map(clouds, times, twists)
        if times[0] > middles[0]:
            found.poses[1:, 0, 3] += 0.2
        return found

    monkeypatch.setattr(parts, "scan_to_map", shifted)
    clouds, first = in_parts(street.sweeps, street.lidars[0], middles, twists)
    assert first is None and len(clouds) == len(street.sweeps)
