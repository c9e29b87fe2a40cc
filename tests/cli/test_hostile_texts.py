# SPDX-License-Identifier: Apache-2.0
"""Texts of drives, packs and checkpoints that would take memory, be evaluated or command a terminal: a sentence, from the command line."""

import json
import os
import re
import zipfile
from pathlib import Path

import kitti_drive
import pytest
from kitti_drive import DRIVE, TRACKLETS
from mutations import bounded_memory
from pack_mutations import index_of, with_member
from shell import FAST, Shell, assert_mendable
from strangers import put, rewrite

from nurec_lite.capture.files import LARGEST_TEXT, LONGEST_LINE, MOST_LINES
from nurec_lite.capture.kitti.tracks import read_tracklets
from nurec_lite.capture.types import CaptureError
from nurec_lite.evaluation.results import table
from nurec_lite.report.parts import escaped


@pytest.fixture
def drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(kitti_drive, "N_FRAMES", 6)
    kitti_drive.write_drive(tmp_path / "kitti", n_beams=6, steps=9)
    return tmp_path / "kitti"


def packed(shell: Shell, drive: Path, *more: str) -> object:
    return shell("pack", "data=kitti_raw", f"data.root={drive}", f"out={drive.parent / 'out.pack'}", *more)


# ---- XML

MANY = "".join(f'a{i} CDATA "x" ' for i in range(2000))
MARKUP = {
    "attributes": f"<!DOCTYPE l [<!ATTLIST i {MANY}>]><l>" + "<i/>" * 200_000 + "</l>",
    "entities": '<!DOCTYPE l [<!ENTITY a "x"><!ENTITY b "&a;&a;">]><l>&b;</l>',
    "parameters": "<!DOCTYPE l [<!ENTITY % a SYSTEM 'file:///etc/passwd'> %a;]><l/>",
    "elsewhere": '<!DOCTYPE l SYSTEM "file:///etc/passwd"><l/>',
    "quoted": '<!DOCTYPE l PUBLIC ">" "x" [<!ATTLIST i a CDATA "x">]><l/>',
    "elements": "<l>" + "<i/>" * 1_100_000 + "</l>",
    "own attributes": "<l>" + '<i a=""/>' * 20_000 + "</l>",
    "depth": "<i>" * 900_000,
}


@pytest.mark.parametrize("kind", MARKUP)
def test_markup_that_multiplies(tmp_path: Path, kind: str) -> None:
    (tmp_path / "tracklet_labels.xml").write_text(MARKUP[kind])
    with (
        bounded_memory(1 << 29),
        pytest.raises(CaptureError, match=r"is not a KITTI tracklet file \(.*\); download it again"),
    ):
        read_tracklets(tmp_path / "tracklet_labels.xml")


def test_markup_as_kitti_has_it(shell: Shell, drive: Path) -> None:
    """KITTI's files begin with a document type that defines nothing."""
    head = '<?xml version="1.0" encoding="UTF-8" standalone="yes" ?>\n<!DOCTYPE boost_serialization>\n<!-- [<!x -->\n'
    body = re.sub(r"<\?.*?\?>|<!DOCTYPE[^>]*>", "", TRACKLETS)
    (drive / DRIVE / "tracklet_labels.xml").write_text(head.replace("[<!x ", "") + body.strip())
    assert packed(shell, drive).code == 0  # type: ignore[attr-defined]


def test_markup_from_the_command_line(shell: Shell, drive: Path) -> None:
    (drive / DRIVE / "tracklet_labels.xml").write_text(MARKUP["attributes"])
    with bounded_memory(1 << 29):
        assert_mendable(
            packed(shell, drive),
            r"tracklet_labels\.xml is not a KITTI tracklet file \(it defines entities or a document type",
        )  # type: ignore[arg-type]


# ---- tables

POSE = "1 0 0 0 0 1 0 0 0 0 1 0\n"
LONG = {
    "poses": ("poses.txt", POSE * (MOST_LINES + 1), "data.poses.file", f"more than {MOST_LINES} lines"),
    "labels": ("labels.txt", "\r" * (MOST_LINES + 1) + "x", "data.tracks.file", f"more than {MOST_LINES} lines"),
    "a line": ("poses.txt", "1 " * LONGEST_LINE + "\n", "data.poses.file", f"line 1 has more than {LONGEST_LINE} characters"),
    "a file": ("labels.txt", "0" * (LARGEST_TEXT + 1), "data.tracks.file", "more than any file of a drive"),
    "times": (f"{DRIVE}/velodyne_points/timestamps.txt", "\x1c" * MOST_LINES + "x", "", f"more than {MOST_LINES} lines"),
    "calibration": ("2030_01_02/calib_cam_to_cam.txt", "a: " + "1 " * 10**6, "", f"line 1 has more than {LONGEST_LINE} characters"),
    "oxts": (f"{DRIVE}/oxts/data/0000000001.txt", "1 " * 10**5, "", "more than any file of a drive"),
}  # fmt: skip


@pytest.mark.parametrize("kind", LONG)
def test_a_table_without_end(shell: Shell, drive: Path, kind: str) -> None:
    name, text, key, said = LONG[kind]
    (drive / name).write_text(text)
    with bounded_memory(1 << 29):
        ended = packed(shell, drive, *([f"{key}={drive / name}"] if key else []))
    assert_mendable(ended, rf"{re.escape(Path(name).name)}.* {said}.*; ")  # type: ignore[arg-type]


# ---- packs


def test_members_that_no_frame_needs(shell: Shell, tiny_pack: Path, tmp_path: Path) -> None:
    for more in (["images/none"], ["x" * 200], [f"{i}" for i in range(100_000)]):
        odd = tmp_path / "odd.pack"
        odd.write_bytes(tiny_pack.read_bytes())
        with zipfile.ZipFile(odd, "a") as archive:
            for name in more:
                archive.writestr(zipfile.ZipInfo(name), b"")
        ended = shell("train", "data=pack", f"data.root={odd}", f"out={tmp_path / 'out'}", *FAST)
        assert_mendable(ended, r"odd\.pack holds '.*, which no frame needs; copy it again, or write it again")


@pytest.mark.parametrize("key", ["name", "cameras", "time_start"])
def test_keys_that_are_there_twice(shell: Shell, tiny_pack: Path, tmp_path: Path, key: str) -> None:
    text = json.dumps(index_of(tiny_pack.read_bytes()))
    value = json.dumps(index_of(tiny_pack.read_bytes()).get(key, 0.0))
    twice = text.replace(f'"{key}":', f'"{key}": {value}, "{key}":', 1)
    tiny_pack.write_bytes(with_member(tiny_pack.read_bytes(), "capture.json", twice.encode()))
    ended = shell("train", "data=pack", f"data.root={tiny_pack}", f"out={tmp_path / 'out'}", *FAST)
    assert_mendable(ended, rf"capture\.json is not JSON \(the key '{key}' is there twice\); copy it again")


def test_records_of_a_checkpoint_that_belong_to_nothing(shell: Shell, trained: Path) -> None:
    with zipfile.ZipFile(trained, "a") as archive:
        archive.writestr(zipfile.ZipInfo("more"), b"")
    assert_mendable(
        shell("export", f"checkpoint={trained}"), r"is not a whole checkpoint \(it has records that belong to nothing\)"
    )


# ---- terminals and tables


@pytest.mark.parametrize(
    "text", ["/nowhere/\x1b]0;pwned\x07", "/nowhere/\u202egnp.exe", "/nowhere/a\nerror: b", "/nowhere/\x9b2J"]
)
@pytest.mark.parametrize("key", ["root", "name", "drive"])
def test_a_configuration_commands_no_terminal(shell: Shell, trained: Path, text: str, key: str) -> None:
    rewrite(trained, put("config", "data", key, value=text))
    rewrite(trained, put("config", "data", "root", value=text))
    ended = shell("evaluate", f"checkpoint={trained}")
    assert_mendable(ended, r"was made with data\.root=/nowhere/.*, which does not exist")
    assert ended.error.removesuffix("\n").isprintable() and ended.out.replace("\n", "").isprintable()


def test_what_goes_on_says_what_changes_in_text(shell: Shell, trained: Path, tiny_pack: Path) -> None:
    rewrite(trained, put("config", "data", "name", value="a\x1b[2J\nb"))
    out = trained.parent
    ended = shell("train", f"out={out}", "train.resume=auto", "train.steps=3", f"data.root={tiny_pack}", "data.name=c")
    assert ended.code == 0, ended.error
    (line,) = (line for line in ended.out.splitlines() if line.startswith("goes on from"))
    assert r"data.name a\x1b[2J\nb -> c" in line and "\x1b" not in ended.out + ended.error


def test_names_of_folders_on_a_terminal(shell: Shell, quick: Path, tmp_path: Path) -> None:
    ended = shell("render", f"checkpoint={quick}", "times=0.5", f"out='{tmp_path}/\x1b[31mred'")
    assert ended.code == 0 and "\\x1b[31mred" in ended.out and "\x1b" not in ended.out + ended.error
    assert os.path.isdir(f"{tmp_path}/\x1b[31mred")


def test_values_in_tables() -> None:
    assert table({"checkpoint": "a\x1b[2J\nb"}) == "  Checkpoint                       a\\x1b[2J\\nb"
    assert escaped("<\u202e>") == "&lt;\\u202e&gt;"
