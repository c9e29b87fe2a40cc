# SPDX-License-Identifier: Apache-2.0
"""A pack that is damaged, or that nobody wrote, is refused with a sentence."""

import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from pack_parts import drop, edit, edit_within, make_capture, rewrite

from nurec_lite.capture.pack import read_pack, write_pack
from nurec_lite.capture.types import Capture, CaptureError


@pytest.fixture
def packed(tmp_path: Path) -> tuple[Capture, Path]:
    capture = make_capture().with_split("interp")
    write_pack(capture, tmp_path / "drive.pack", image_format="png")
    return capture, tmp_path / "drive.pack"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            edit(version=99),
            r"version 99, but this program reads \"nurec_lite capture\", version 1; copy it again, or write",
        ),
        (edit(format="tar"), r'capture.json has the format "tar", version 1'),
        (edit(cameras=[]), r"images\[0\].sensor is .front., but must be the name of one of the cameras"),
        (edit(name=7), r"capture.json: name is 7, but must be 1 to 64 printable characters"),
        (edit(split="third"), r"split is .third., but must be one of null, interp, side"),
        (edit(split="side", cameras=[]), r"sensor is .front."),
        (edit(more=1), r"'more' is unknown"),
        (edit(left_out=[1]), r"left_out\[0\] is 1, but must be an object"),
        (edit(left_out=[{"sensor": "top"}]), r"left_out\[0\].index is missing"),
        (
            edit(left_out=[{"sensor": "roof", "index": 1, "time_mid": 0.5}]),
            r"left_out\[0\].sensor is .roof., but must be the name of one of the sensors",
        ),
        (
            edit(image_encoding={"format": "jpeg", "quality": 95}),
            r"images\[0\].member is .images/front/000000.png., but",
        ),
        (
            edit(image_encoding={"format": "png", "quality": 0}),
            r"image_encoding.quality is 0, but must be a whole number",
        ),
        (edit_within("tracks", margin=-1.0), r"tracks.margin is -1 s"),
        (edit_within("tracks", sizes=[[1, 1]] * 2), r"tracks.sizes is a list, but must be numbers \[any, 3\]"),
        (edit_within("tracks", margin=10**200), r"tracks.margin is 10+, but must be a number within"),
        (edit_within("tracks", margin=10**400), r"capture.json is not JSON \(a number of 401 digits\)"),
        (
            edit_within("cameras", 1, distortion=[1.0]),
            r"cameras\[1\].distortion is a list, but must be the coefficients of a lens",
        ),
        (
            edit_within("cameras", 1, T_rig_cam=[[True] * 4] * 4),
            r"cameras\[1\].T_rig_cam is a list, but must be numbers",
        ),
        (edit_within("lidars", 0, clockwise=1), r"lidars\[0\].clockwise is 1, but must be true or false"),
        (edit_within("images", 2, index=0), r"images\[2\].member is .images/front/000002.png., but must be"),
        (edit_within("images", 3, time_start=0.0), r"image 3 of front begins at 0 s, but must begin after image 2"),
        (lambda name, data: data if name != "capture.json" else b"[" * 10**5, r"is not JSON \(maximum recursion"),
        (lambda name, data: data if name != "capture.json" else data.replace(b"0.06", b"NaN"), r"NaN is no number"),
        (drop("capture.json"), r"lacks its member capture.json"),
        (drop("images/front/000003.png"), r"lacks its member images/front/000003.png"),
        (lambda name, data: data if name != "capture.json" else b"{", r"capture.json is not JSON"),
        (
            lambda name, data: data if name != "capture.json" else b"[1]",
            r"has the format none, version none, but this program reads",
        ),
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
    with pytest.raises(CaptureError, match=r"text.pack is no pack, or damaged"):
        read_pack(tmp_path / "text.pack")
    capture = read_pack(packed[1])
    packed[1].write_bytes(packed[1].read_bytes()[:5000])
    with pytest.raises(CaptureError, match=r"is no pack"):
        read_pack(packed[1])
    with pytest.raises(CaptureError, match=r"drive.pack: sweeps/top/000005.sweep is damaged; copy"):
        capture.sweeps[-1].load()


def test_damaged_members(packed: tuple[Capture, Path]) -> None:
    rewrite(packed[1], lambda name, data: data if name == "capture.json" else data[:40])
    capture = read_pack(packed[1])
    with pytest.raises(CaptureError, match=r"sweeps/top/000000.sweep cannot be decoded"):
        capture.sweeps[0].load()
    with pytest.raises(CaptureError, match=r"images/front/000000.png is no whole PNG or JPEG image"):
        capture.images[0].load()


def test_one_bit(packed: tuple[Capture, Path]) -> None:
    """The member that it belongs to is refused, the others are not."""
    path, capture = packed[1], read_pack(packed[1])
    data, member = path.read_bytes(), capture.images[1].load.member
    path.write_bytes(data[: member.end - 1] + bytes([data[member.end - 1] ^ 1]) + data[member.end :])
    again = read_pack(path)
    assert torch.equal(again.images[0].load(), capture.images[0].load())
    with pytest.raises(
        CaptureError, match=r"drive.pack: images/front/000001.png is damaged; copy it again, or write it"
    ):
        again.images[1].load()


def test_exchanged_names(packed: tuple[Capture, Path]) -> None:
    """Each member still has its CRC, but in the directory the name of the other."""
    data = packed[1].read_bytes()
    names, begin = (b"images/front/000000.png", b"images/front/000001.png"), data.index(b"PK\1\2")
    directory = data[begin:].replace(names[0], b"(swap)").replace(*names[::-1]).replace(b"(swap)", names[1])
    packed[1].write_bytes(data[:begin] + directory)
    with pytest.raises(CaptureError, match=r"front/000000.png is damaged"):
        read_pack(packed[1]).images[0].load()


@pytest.mark.parametrize(
    ("offset", "value", "message"),  # within an entry of the zip's directory
    [
        (8, b"\1", "is encrypted"),
        (10, b"\x08", "is compressed, but members of a pack are stored"),
        (20, b"\1", "is compressed"),
        (24, b"\xff\xff\xff\x7f", "is compressed"),
        (20, b"\xff\xff\xff\x7f\xff\xff\xff\x7f", "runs into the next member"),
        (42, b"\xff\xff\xff\x7f", "runs into the next member"),
    ],
)
def test_strange_entries(packed: tuple[Capture, Path], offset: int, value: bytes, message: str) -> None:
    data = packed[1].read_bytes()
    at = data.index(b"PK\1\2") + offset
    packed[1].write_bytes(data[:at] + value + data[at + len(value) :])
    with pytest.raises(CaptureError, match=rf"drive.pack: 'capture.json' {message}.*; copy it again"):
        read_pack(packed[1])


def test_other_zips(packed: tuple[Capture, Path], tmp_path: Path) -> None:
    with zipfile.ZipFile(packed[1]) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(tmp_path / "small.pack", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with pytest.raises(CaptureError, match=r"is compressed, but members of a pack are stored"):
        read_pack(tmp_path / "small.pack")
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(packed[1], "a") as archive:
        archive.writestr("images/front/000003.png", b"")
    with pytest.raises(CaptureError, match=r"'images/front/000003.png' is there twice"):
        read_pack(packed[1])


def test_downscale_to_nothing(packed: tuple[Capture, Path]) -> None:
    with pytest.raises(
        CaptureError, match=r"data\.downscale is 9, but back has 8x9 pixels; choose a factor from 1 to 8"
    ):
        read_pack(packed[1], downscale=9)


@pytest.mark.parametrize("searched", [False, True])
def test_a_pack_knows_whether_tracks_were_searched(searched: bool, tmp_path: Path) -> None:
    write_pack(replace(make_capture(), searched=searched), tmp_path / "one.pack")
    assert read_pack(tmp_path / "one.pack").searched is searched
