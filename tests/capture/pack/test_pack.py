# SPDX-License-Identifier: Apache-2.0
"""A pack gives back its input: exactly, or within the stated steps."""

import json
import pickle
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from lenses import LENSES
from pack_parts import Held, check_sweep, make_capture, rewrite, same_fields
from tiny_capture import tiny_capture
from torch import Tensor

from nurec_lite.capture.checks.files import check_files
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level
from nurec_lite.capture.kitti.raw import read_kitti_raw
from nurec_lite.capture.pack import MemberBar, describe, read_pack, write_pack
from nurec_lite.capture.pack.check import INDEX
from nurec_lite.capture.types import Capture, CaptureError, Doubt
from nurec_lite.config import DataConfig
from nurec_lite.geometry.tracks import Tracks
from nurec_lite.readers import open_capture


@pytest.fixture
def packed(tmp_path: Path) -> tuple[Capture, Path]:
    capture = make_capture().with_split("interp")
    write_pack(capture, tmp_path / "drive.pack", image_format="png")
    return capture, tmp_path / "drive.pack"


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


def test_doubts_about_the_source_are_kept(tmp_path: Path) -> None:
    doubts = (
        Doubt("velodyne", False, "Sweeps hold only points of z > -1.50 m."),
        Doubt("image_02/timestamps.txt", True, "It stamps frames 0.32 s late.", "restore its first lines"),
    )
    write_pack(replace(make_capture(), doubts=doubts), tmp_path / "drive.pack", image_format="png")
    again = read_pack(tmp_path / "drive.pack")
    assert again.doubts == doubts
    found = [(v.subject, v.level, v.text) for v in check_files(Sample(again))]
    assert found == [
        ("velodyne", Level.LIKELY, "Sweeps hold only points of z > -1.50 m."),
        ("image_02/timestamps.txt", Level.CERTAIN, "It stamps frames 0.32 s late; restore its first lines."),
    ]


def test_long_names(tmp_path: Path) -> None:
    capture, name = make_capture(), "ä" * 64
    cameras = (replace(capture.cameras[0], name=name), capture.cameras[1])
    images = tuple(replace(f, sensor=name) if f.sensor == "front" else f for f in capture.images)
    write_pack(replace(capture, cameras=cameras, images=images), tmp_path / "drive.pack", image_format="png")
    assert torch.equal(read_pack(tmp_path / "drive.pack").images[0].load(), images[0].load())


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


def test_encoding_is_stated(packed: tuple[Capture, Path], tmp_path: Path) -> None:
    def stated(path: Path) -> object:
        return json.loads(zipfile.ZipFile(path).read("capture.json"))["image_encoding"]

    assert stated(packed[1]) == {"format": "png", "quality": None}
    assert "camera front: 6 images of 17x12 pixels; PNG; 0.00 MB" in describe(read_pack(packed[1]))
    write_pack(packed[0], tmp_path / "drive.pack", quality=80)
    assert stated(tmp_path / "drive.pack") == {"format": "jpeg", "quality": 80}
    assert describe(read_pack(tmp_path / "drive.pack")).splitlines() == [
        "drive: 0.8 s",
        "camera front: 6 images of 17x12 pixels; JPEG, quality 80; 0.01 MB",
        "camera back: 6 images of 8x9 pixels; JPEG, quality 80; 0.00 MB",
        "lidar top: 6 sweeps of 16 beams; 0.03 MB",
        "tracks: 1 Car, 1 Tram",
        "split: interp",
    ]
    assert "camera back: 6 images of 8x9 pixels\n" in describe(packed[0])


def test_first_packs_do_not_state_the_encoding(packed: tuple[Capture, Path]) -> None:
    rewrite(packed[1], lambda name, data: data.replace(b'"image_encoding": {"format": "png", "quality": null}, ', b""))
    capture = read_pack(packed[1])
    assert "PNG" not in describe(capture) and "not stated" in describe(capture)
    assert torch.equal(capture.images[0].load(), packed[0].images[0].load())


def test_progress(packed: tuple[Capture, Path], capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[tuple[int, int]] = []
    write_pack(packed[0], packed[1], progress=lambda done, total: seen.append((done, total)))
    assert seen == [(i + 1, 18) for i in range(18)]
    with MemberBar() as bar:
        write_pack(packed[0], packed[1], progress=bar)
    assert "100 %" in capsys.readouterr().err


@pytest.mark.slow
def test_kitti_round_trip(kitti_root: Path, tmp_path: Path) -> None:
    """At JPEG 95 the drive takes less than 50 MB, and points lie within 5 mm."""
    capture = read_kitti_raw(kitti_root)
    write_pack(capture, tmp_path / "drive.pack", quality=95)
    assert (tmp_path / "drive.pack").stat().st_size <= 50e6
    again = read_pack(tmp_path / "drive.pack")
    for a, b in zip((*capture.cameras, *capture.images), (*again.cameras, *again.images), strict=True):
        same_fields(a, b)
    for sweep, copy in list(zip(capture.sweeps, again.sweeps, strict=True))[::5]:
        check_sweep(sweep.load(), copy.load())
    image, copied = (c.images[3].load().double() for c in (capture, again))
    assert (image - copied).square().mean() < 10  # 38 dB


@pytest.mark.parametrize("kind", LENSES)
def test_lenses_are_kept(kind: str, tmp_path: Path) -> None:
    lens, numbers = LENSES[kind]
    capture = tiny_capture()
    first = replace(capture.cameras[0], lens=lens, distortion=numbers)
    write_pack(replace(capture, cameras=(first, *capture.cameras[1:])), tmp_path / "x.pack")
    found = read_pack(tmp_path / "x.pack").cameras
    assert (found[0].lens, found[0].distortion) == (lens, numbers)
    index = zipfile.ZipFile(tmp_path / "x.pack").read(INDEX)
    assert [c.get("lens") for c in json.loads(index)["cameras"]] == [None if lens == "pinhole" else lens, None]


def test_downscale(packed: tuple[Capture, Path]) -> None:
    capture = read_pack(packed[1], downscale=2)
    assert (capture.cameras[0].width, capture.cameras[0].height, capture.cameras[0].cx) == (8, 6, 4.15)
    assert capture.images[0].load().shape == (6, 8, 3)
    write_pack(capture, packed[1].with_name("small.pack"), image_format="png")
    assert torch.equal(read_pack(packed[1].with_name("small.pack")).images[0].load(), capture.images[0].load())


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
        write_pack(replace(capture, images=(replace(capture.images[0], load=fail),), split=None), path)
    with pytest.raises(CaptureError, match=r"000000.jpg would be torch.uint8 \[3, 4, 3\], but the camera makes"):
        small = replace(capture.images[0], load=Held(torch.zeros(3, 4, 3, dtype=torch.uint8)))
        write_pack(replace(capture, images=(small, *capture.images[1:])), path)
    with pytest.raises(
        CaptureError, match=r"nowhere/drive.pack cannot be written .*; name a file in a folder that exists"
    ):
        write_pack(capture, path.parent / "nowhere" / "drive.pack")
    with pytest.raises(CaptureError, match="quality is 0, but must lie between 1 and 100"):
        write_pack(capture, path, quality=0)
    with pytest.raises(CaptureError, match="must be one of png, jpeg"):
        write_pack(capture, path, image_format="gif")
    assert [p.name for p in path.parent.iterdir()] == [path.name] and path.read_bytes() == before


def test_a_part_of_a_pack_with_a_split_gets_a_split_of_its_own(tmp_path: Path) -> None:
    write_pack(tiny_capture(), tmp_path / "tiny.pack", image_format="png")
    capture = open_capture(DataConfig(kind="pack", root=str(tmp_path / "tiny.pack"), frames=[0, 7], split="interp"))
    assert {frame.index for frame in capture.images} == set(range(7)) and capture.split is not None
    assert {capture.images[i].index for i in capture.split.test_images} == {4}
    assert {capture.sweeps[i].index for i in capture.split.test_sweeps} == {4}
