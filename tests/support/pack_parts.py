# SPDX-License-Identifier: Apache-2.0
"""A capture for the tests of packs, its tolerances in one, and the rewriting of members."""

import json
import math
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from nurec_lite.capture.pack.sweep import ANGLE_STEP, RANGE_STEP, TIME_STEP
from nurec_lite.capture.types import Capture, ImageFrame, SweepFrame
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lidar import Lidar, Sweep, unit_directions
from nurec_lite.geometry.se3 import pose_matrix, rotvec_to_quat
from nurec_lite.geometry.tracks import Tracks


@dataclass(frozen=True)
class Held:
    """Stands for a loader: gives the frame that it holds."""

    value: Tensor | Sweep

    def __call__(self) -> Tensor | Sweep:
        return self.value


def make_sweep(n: int, n_rings: int = 16, seed: int = 0) -> Sweep:
    """Rays in no order at all, with times that follow no rule."""
    g = torch.Generator().manual_seed(seed)

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(n, generator=g, dtype=torch.float64)

    returned = torch.rand(n, generator=g) > 0.3
    return Sweep(
        directions=unit_directions(torch.stack([uniform(-math.pi, math.pi), uniform(-0.5, 0.5)], dim=1)).float(),
        ranges=(uniform(1, 80) * returned).float(),
        intensities=(uniform(0, 1) * returned).float(),
        times=uniform(12.0, 12.1),
        rings=torch.randint(n_rings, (n,), generator=g),
        returned=returned,
    )


def pose(seed: int) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    v = torch.randn(2, 3, generator=g, dtype=torch.float64)
    return pose_matrix(rotvec_to_quat(v[0]), 100 * v[1])


def make_capture() -> Capture:
    g = torch.Generator().manual_seed(0)
    cameras = (
        Camera("front", 17, 12, 10.1, 10.2, 8.3, 6.4, pose(1), (0.1, -0.02, 1e-3, 2e-3, 0.0), "top_to_bottom"),
        Camera("back", 8, 9, 7.0, 7.0, 4.0, 4.5, pose(2)),
    )
    images = tuple(
        ImageFrame(c.name, i, i / 7, i / 7 + 0.03, pose(3 + i), pose(30 + i),
                   load=Held(torch.randint(256, (c.height, c.width, 3), generator=g, dtype=torch.uint8)))
        for c in cameras for i in range(6)
    )  # fmt: skip
    sweeps = tuple(
        SweepFrame("top", i, i / 7, i / 7 + 0.1, pose(60 + i), pose(90 + i), Held(make_sweep(500, seed=i)))
        for i in range(6)
    )
    tracks = Tracks(
        ("7", "a"), ("Car", "Tram"), torch.rand(2, 3).double(), (0, 2, 3), torch.tensor([0.1, 0.2, 1 / 3]).double(),
        torch.rand(3, 3).double(), rotvec_to_quat(torch.rand(3, 3).double()), margin=0.06,
    )  # fmt: skip
    lidar = Lidar("top", pose(5), torch.linspace(0.1, -0.4, 16, dtype=torch.float64), max_range=77.0)
    return Capture("drive", cameras, (lidar,), images, sweeps, tracks)


def same_fields(a: object, b: object) -> None:
    for name in a.__dataclass_fields__:  # type: ignore[attr-defined]
        x, y = getattr(a, name), getattr(b, name)
        if name != "load":
            assert torch.equal(x, y) if isinstance(x, Tensor) else x == y, name


def check_sweep(a: Sweep, b: Sweep) -> None:
    assert len(a) == len(b)
    assert torch.equal(a.rings, b.rings) and torch.equal(a.returned, b.returned)
    position = [s.directions.double() * s.ranges.double()[:, None] for s in (a, b)]
    assert not len(a) or (position[0] - position[1]).norm(dim=1).max() < 0.005
    torch.testing.assert_close(a.ranges, b.ranges, atol=0.51 * RANGE_STEP, rtol=0)
    torch.testing.assert_close(a.directions, b.directions, atol=0.75 * ANGLE_STEP, rtol=0)
    torch.testing.assert_close(a.times, b.times, atol=0.51 * TIME_STEP, rtol=0)
    torch.testing.assert_close(a.intensities, b.intensities, atol=0.51 / 255, rtol=0)
    for field in Sweep.__dataclass_fields__:
        assert getattr(a, field).dtype == getattr(b, field).dtype


def rewrite(path: Path, change: Callable[[str, bytes], bytes | None]) -> None:
    with zipfile.ZipFile(path) as archive:
        members = {name: change(name, archive.read(name)) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            if data is not None:
                archive.writestr(name, data)


def edit(**values: object) -> Callable[[str, bytes], bytes]:
    return lambda name, data: json.dumps(json.loads(data) | values).encode() if name == "capture.json" else data


def edit_within(key: str, place: int | None = None, **values: object) -> Callable[[str, bytes], bytes]:
    def change(name: str, data: bytes) -> bytes:
        if name != "capture.json":
            return data
        index = json.loads(data)
        (index[key] if place is None else index[key][place]).update(values)
        return json.dumps(index).encode()

    return change


def drop(member: str) -> Callable[[str, bytes], bytes | None]:
    return lambda name, data: None if name == member else data
