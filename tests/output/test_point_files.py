# SPDX-License-Identifier: Apache-2.0
"""Rendered sweeps as .npz and .ply: files can be read back, and agree with rays and poses."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from lidar_returns import seen_returns
from tiny_capture import tiny_capture

from nurec_lite.capture.deskew import world_points
from nurec_lite.geometry.se3 import interpolate_between, pose_matrix
from nurec_lite.output.points import NPZ_ARRAYS, RenderedSweep, save_npz, save_ply

PLY_TYPES = {"float": "<f4", "uchar": "u1", "double": "<f8", "int": "<i4"}


def read_ply(path: Path) -> np.ndarray:
    """One element of scalar properties, binary little-endian."""
    header, end, body = path.read_bytes().partition(b"end_header\n")
    assert end
    lines = header.decode("ascii").splitlines()
    assert lines[:2] == ["ply", "format binary_little_endian 1.0"]
    words = [line.split() for line in lines[2:] if not line.startswith("comment")]
    assert words[0][:2] == ["element", "vertex"] and all(w[0] == "property" for w in words[1:])
    vertex = np.dtype([(name, PLY_TYPES[kind]) for _, kind, name in words[1:]])
    assert len(body) == int(words[0][2]) * vertex.itemsize
    return np.frombuffer(body, vertex)


def rendered(share: float = 0.7) -> RenderedSweep:
    """Random answers to the rays of a sweep; about a share of them returns."""
    capture = tiny_capture()
    frame = capture.sweeps[3]
    rays = frame.load()
    n = len(rays)
    median = torch.where(torch.rand(n) < 0.9, 1 + 30 * torch.rand(n), 0.0)
    drop = torch.where(torch.rand(n) < share, 0.5 * torch.rand(n), 0.5001 + 0.4 * torch.rand(n))
    returns = seen_returns(median + 1, median, torch.rand(n), drop, torch.rand(n))
    return RenderedSweep(frame, capture.lidars[0], rays, returns)


def test_ply_holds_the_points_of_the_world(tmp_path: Path) -> None:
    sweep = rendered()
    save_ply(tmp_path / "a.ply", sweep)
    vertices = read_ply(tmp_path / "a.ply")
    assert vertices.dtype.names == ("x", "y", "z", "intensity", "red", "green", "blue")
    points = np.stack([vertices[axis] for axis in "xyz"], axis=-1)
    expected = world_points(sweep.frame, sweep.sweep, sweep.lidar)[sweep.sweep.returned].numpy()
    assert 0 < len(points) < len(sweep.rays)
    np.testing.assert_allclose(points, expected, atol=1e-5)
    np.testing.assert_array_equal(vertices["intensity"], sweep.returns.intensity[sweep.sweep.returned].numpy())
    near, far = sweep.sweep.ranges[sweep.sweep.returned].argmin(), sweep.sweep.ranges[sweep.sweep.returned].argmax()
    assert vertices["blue"][near] > vertices["red"][near]  # near points are blue
    assert vertices["green"][far] > vertices["green"][near]
    assert list(tmp_path.iterdir()) == [tmp_path / "a.ply"]


def test_ply_of_no_point(tmp_path: Path) -> None:
    save_ply(tmp_path / "a.ply", rendered(share=0.0))
    assert len(read_ply(tmp_path / "a.ply")) == 0


def test_npz_points_follow_from_ranges_directions_and_poses(tmp_path: Path) -> None:
    sweep = rendered()
    save_npz(tmp_path / "a.npz", sweep, measured=False)
    with np.load(tmp_path / "a.npz") as file:
        a = {name: file[name] for name in file.files}
    np.testing.assert_array_equal(a["returned"], (a["drop"] <= 0.5) & (a["ranges"] > 0))
    np.testing.assert_array_equal(a["points_lidar"], (a["ranges"][:, None] * a["directions"])[a["returned"]])
    fractions = torch.from_numpy((a["times"] - a["time_start"]) / (a["time_end"] - a["time_start"]))
    ends = (torch.from_numpy(a[f"T_world_lidar_{end}"]) for end in ("start", "end"))
    poses = pose_matrix(*interpolate_between(*ends, fractions))[a["returned"]].numpy()
    points = np.einsum("nij,nj->ni", poses[:, :3, :3], a["points_lidar"].astype(float)) + poses[:, :3, 3]
    np.testing.assert_allclose(a["points_world"], points, atol=1e-5)  # float32 metres
    for name, tensor in (("intensities", sweep.returns.intensity), ("drop", sweep.returns.drop),
                         ("opacity", sweep.returns.opacity), ("rings", sweep.rays.rings)):  # fmt: skip
        np.testing.assert_array_equal(a[name], tensor.numpy())


@pytest.mark.parametrize("measured", [True, False])
def test_npz_holds_what_was_measured_only_where_it_belongs(tmp_path: Path, measured: bool) -> None:
    sweep = rendered()
    save_npz(tmp_path / "a.npz", sweep, measured)
    with np.load(tmp_path / "a.npz") as a:
        assert {f"measured_{n}" in a for n in ("ranges", "intensities", "returned")} == {measured}
        if measured:
            np.testing.assert_array_equal(a["measured_ranges"], sweep.rays.ranges.numpy())
            np.testing.assert_array_equal(a["measured_returned"], sweep.rays.returned.numpy())


def test_every_array_is_documented(tmp_path: Path) -> None:
    save_npz(tmp_path / "a.npz", rendered(), measured=True)
    with np.load(tmp_path / "a.npz") as a:
        assert [name for name in a.files if name not in NPZ_ARRAYS] == []


def test_no_ray_at_all(tmp_path: Path) -> None:
    full = rendered()
    none = replace(
        full,
        rays=full.rays.select(torch.zeros(0, dtype=torch.int64)),
        returns=seen_returns(*(torch.zeros(0) for _ in range(5))),
    )
    save_ply(tmp_path / "a.ply", none)
    save_npz(tmp_path / "a.npz", none, measured=True)
    assert len(read_ply(tmp_path / "a.ply")) == 0
    with np.load(tmp_path / "a.npz") as a:
        assert a["points_world"].shape == (0, 3)
