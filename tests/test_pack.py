# SPDX-License-Identifier: Apache-2.0
"""A pack gives back what went in: exactly, or within the stated steps."""

import json
import math
import pickle
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nurec_lite.capture.kitti_raw import read_kitti_raw
from nurec_lite.capture.pack import read_pack, write_pack
from nurec_lite.capture.pack_sweep import ANGLE_STEP, RANGE_STEP, TIME_STEP, decode_sweep, encode_sweep
from nurec_lite.capture.types import Capture, CaptureError, ImageFrame, SweepFrame
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lidar import Lidar, Sweep, unit_directions
from nurec_lite.geometry.se3 import pose_matrix, rotvec_to_quat
from nurec_lite.geometry.tracks import Tracks


@dataclass(frozen=True)
class Held:
    """Stands for a loader: gives what it holds."""

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
        torch.rand(3, 3).double(), torch.rand(3, 4).double(), margin=0.06,
    )  # fmt: skip
    lidar = Lidar("top", pose(5), torch.linspace(0.1, -0.4, 16, dtype=torch.float64), max_range=77.0)
    return Capture("drive", cameras, (lidar,), images, sweeps, tracks)


def same_fields(a: object, b: object) -> None:
    for name in a.__dataclass_fields__:  # type: ignore[attr-defined]
        x, y = getattr(a, name), getattr(b, name)
        if name != "load":
            assert torch.equal(x, y) if isinstance(x, Tensor) else x == y, name


@pytest.fixture
def packed(tmp_path: Path) -> tuple[Capture, Path]:
    capture = make_capture().with_split("interp")
    write_pack(capture, tmp_path / "drive.pack", image_format="png")
    return capture, tmp_path / "drive.pack"


# ---- sweeps


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


@given(n=st.sampled_from([0, 1, 2, 31, 1000]), n_rings=st.sampled_from([1, 2, 128]), seed=st.integers(0, 5))
def test_sweep_round_trip(n: int, n_rings: int, seed: int) -> None:
    sweep = make_sweep(n, n_rings, seed)
    check_sweep(sweep, decode_sweep(encode_sweep(sweep), "sweep"))


def test_sweep_without_returns() -> None:
    sweep = make_sweep(20)
    silent = replace(sweep, returned=torch.zeros(20).bool(), ranges=torch.zeros(20), intensities=torch.zeros(20))
    check_sweep(silent, decode_sweep(encode_sweep(silent), "sweep"))


def test_regular_sweep_is_small() -> None:
    """A spinning lidar's ring, azimuth and time cost nearly nothing, whichever way its rays are ordered."""
    ring, column = torch.meshgrid(torch.arange(32), torch.arange(500), indexing="ij")
    azimuth = math.pi - column.double() * (2 * math.pi / 500)
    n = azimuth.numel()
    sweep = Sweep(
        unit_directions(torch.stack([azimuth, 0.1 - 0.01 * ring], dim=-1)).flatten(0, 1).float(), torch.full((n,), 9.0),
        torch.full((n,), 0.5), 5 + (column * 2e-4).flatten().double(), ring.flatten(), torch.ones(n).bool(),
    )  # fmt: skip
    for order in (torch.arange(n), torch.arange(n).view(32, 500).T.flatten()):
        assert len(encode_sweep(sweep.select(order))) < 0.25 * n


def test_kitti_sweep_round_trip(kitti_root: Path) -> None:
    sweep = read_kitti_raw(kitti_root, frames=(7, 8)).sweeps[0].load()
    data = encode_sweep(sweep)
    assert len(data) < 300_000  # 51 of them, and 102 images at quality 95, stay below 50 MB
    check_sweep(sweep, decode_sweep(data, "sweep"))


# ---- the whole capture


def test_round_trip(packed: tuple[Capture, Path]) -> None:
    capture, path = packed
    again = read_pack(path)
    assert again.name == capture.name and again.split == capture.split
    same_fields(capture.tracks, again.tracks)
    pairs = [(capture.cameras, again.cameras), (capture.lidars, again.lidars)]
    for a, b in [*pairs, (capture.images, again.images), (capture.sweeps, again.sweeps)]:
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same_fields(x, y)
    for image, copy in zip(capture.images, again.images, strict=True):
        assert torch.equal(image.load(), copy.load())
    for sweep, copied in zip(capture.sweeps, again.sweeps, strict=True):
        check_sweep(sweep.load(), copied.load())


def test_equal_captures_give_equal_files(packed: tuple[Capture, Path], tmp_path: Path) -> None:
    write_pack(packed[0], tmp_path / "again.pack", image_format="png")
    assert (tmp_path / "again.pack").read_bytes() == packed[1].read_bytes()


def test_jpeg_is_close(tmp_path: Path) -> None:
    capture = make_capture()
    smooth = torch.arange(17 * 12, dtype=torch.uint8).view(12, 17, 1).expand(12, 17, 3).contiguous()
    capture = replace(
        capture, images=(replace(capture.images[0], load=Held(smooth)),), tracks=Tracks.empty(), sweeps=()
    )
    write_pack(capture, tmp_path / "drive.pack")
    again = read_pack(tmp_path / "drive.pack")
    assert len(again.tracks) == 0 and len(again.sweeps) == 0
    assert (again.images[0].load().int() - smooth.int()).abs().max() <= 6


def test_downscale(packed: tuple[Capture, Path]) -> None:
    capture = read_pack(packed[1], downscale=2)
    assert (capture.cameras[0].width, capture.cameras[0].height, capture.cameras[0].cx) == (8, 6, 4.15)
    assert capture.images[0].load().shape == (6, 8, 3)


def test_loaders_pickle(packed: tuple[Capture, Path]) -> None:
    capture = read_pack(packed[1])
    assert torch.equal(pickle.loads(pickle.dumps(capture.images[0])).load(), capture.images[0].load())
    check_sweep(pickle.loads(pickle.dumps(capture.sweeps[0])).load(), capture.sweeps[0].load())


def test_a_failed_write_leaves_nothing(packed: tuple[Capture, Path]) -> None:
    capture, path = packed
    before = path.read_bytes()

    def fail() -> Tensor:
        raise CaptureError("no image")

    with pytest.raises(CaptureError, match="no image"):
        write_pack(replace(capture, images=(replace(capture.images[0], load=fail),)), path)
    with pytest.raises(CaptureError, match="must be one of png, jpeg"):
        write_pack(capture, path, image_format="gif")
    assert [p.name for p in path.parent.iterdir()] == [path.name] and path.read_bytes() == before


# ---- what can be broken


def rewrite(path: Path, change: Callable[[str, bytes], bytes | None]) -> None:
    with zipfile.ZipFile(path) as archive:
        members = {name: change(name, archive.read(name)) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            if data is not None:
                archive.writestr(name, data)


def edit(**values: object) -> Callable[[str, bytes], bytes]:
    return lambda name, data: json.dumps(json.loads(data) | values).encode() if name == "capture.json" else data


def drop(member: str) -> Callable[[str, bytes], bytes | None]:
    return lambda name, data: None if name == member else data


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (edit(version=99), r"version 99, but this program reads 'nurec_lite capture' version 1; write the pack again"),
        (edit(format="tar"), r"is 'tar' version 1"),
        (edit(cameras=[]), r"capture.json is incomplete \(KeyError\('front'\)\)"),
        (drop("capture.json"), r"lacks its member capture.json"),
        (drop("images/front/000003.png"), r"lacks its member images/front/000003.png"),
        (lambda name, data: data if name != "capture.json" else b"{", r"capture.json is not JSON"),
        (lambda name, data: data if name != "capture.json" else b"[1]", r"is other JSON"),
    ],
)
def test_broken_pack(packed: tuple[Capture, Path], change: Callable[[str, bytes], bytes | None], message: str) -> None:
    rewrite(packed[1], change)
    with pytest.raises(CaptureError, match=message):
        read_pack(packed[1])


def test_broken_file(packed: tuple[Capture, Path], tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=r"nowhere.pack does not exist"):
        read_pack(tmp_path / "nowhere.pack")
    (tmp_path / "text.pack").write_text("text")
    with pytest.raises(CaptureError, match=r"text.pack is no pack"):
        read_pack(tmp_path / "text.pack")
    capture = read_pack(packed[1])
    packed[1].write_bytes(packed[1].read_bytes()[:5000])
    with pytest.raises(CaptureError, match=r"is no pack"):
        read_pack(packed[1])
    with pytest.raises(CaptureError, match=r"ends within sweeps/top/000005.sweep|cannot be read"):
        capture.sweeps[-1].load()


def test_damaged_members(packed: tuple[Capture, Path]) -> None:
    rewrite(packed[1], lambda name, data: data if name == "capture.json" else data[:40])
    capture = read_pack(packed[1])
    with pytest.raises(CaptureError, match=r"sweeps/top/000000.sweep cannot be decoded"):
        capture.sweeps[0].load()
    with pytest.raises(CaptureError, match=r"images/front/000000.png cannot be decoded"):
        capture.images[0].load()
