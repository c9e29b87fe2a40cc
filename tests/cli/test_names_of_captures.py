# SPDX-License-Identifier: Apache-2.0
"""Names that a capture or a checkpoint brings never lead out of the folder of results, nor make one file of two."""

import io
import json
import re
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from pack_mutations import index_of, with_member
from shell import FAST, Shell, assert_mendable
from strangers import put, rewrite
from tiny_capture import tiny_capture

from nurec_lite.capture.check import check_capture
from nurec_lite.capture.pack import read_pack, write_pack
from nurec_lite.capture.types import CaptureError

PATHS = [
    "/ANY/PLACE/abs",
    "../../esc/x",
    "..",
    ".",
    "a/b",
    "..\\x",
    "=1+1",
    "-x",
    "@x",
    "a\x1b]0;x\x07",
    "a\u202eb",
    "a\nb",
    ".hidden",
    "",
]


def renamed(pack: Path, kind: str, name: str) -> None:
    """The whole pack, as a stranger would write it: index and members say the same."""
    index, old = index_of(pack.read_bytes()), ""
    if kind in ("cameras", "lidars"):
        old, index[kind][0]["name"] = index[kind][0]["name"], name
    elif kind == "track":
        index["tracks"]["ids"][0] = name
    elif kind == "class":
        index["tracks"]["classes"][0] = name
    else:
        index["name"] = name
    for row in (*index["images"], *index["sweeps"]):
        if old and row["sensor"] == old:
            row["sensor"], row["member"] = name, row["member"].replace(f"/{old}/", f"/{name}/")
    buffer = io.BytesIO()
    with zipfile.ZipFile(pack) as whole, zipfile.ZipFile(buffer, "w") as archive:
        for member in whole.namelist():
            archive.writestr(member.replace(f"/{old}/", f"/{name}/") if old else member, whole.read(member))
    pack.write_bytes(with_member(buffer.getvalue(), "capture.json", json.dumps(index).encode()))


def everything(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize("name", PATHS)
def test_a_camera_of_a_pack(shell: Shell, tiny_pack: Path, tmp_path: Path, name: str) -> None:
    renamed(tiny_pack, "cameras", name)
    before = everything(tmp_path)
    ended = shell(
        "train", "data=pack", f"data.root={tiny_pack}", f"out={tmp_path / 'a/b/out'}", *FAST, "train.evaluate=true"
    )
    assert_mendable(ended, r"tiny\.pack: capture\.json: cameras\[0\]\.name is .*, (but must be|which begins)")
    assert everything(tmp_path) == before


@pytest.mark.parametrize("kind", ["lidars", "track", "class", "capture"])
@pytest.mark.parametrize("name", ["=1+1", "a\x1b[2J", "a\u202eb"])
def test_any_other_name_of_a_pack(shell: Shell, tiny_pack: Path, tmp_path: Path, kind: str, name: str) -> None:
    renamed(tiny_pack, kind, name)
    ended = shell("pack", "data=pack", f"data.root={tiny_pack}", f"out={tmp_path / 'out.pack'}")
    assert_mendable(ended, r"tiny\.pack: capture\.json: .* is .*, (but must be|which begins)")


@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [
        ("lidars", "camera_0", "two sensors have the name 'camera_0'"),
        ("lidars", "CAMERA_0", "the sensors 'camera_0' and 'CAMERA_0' would give files of one name"),
        ("cameras", "lidar_above", "the sensors 'lidar' and 'lidar_above' would give files of one name"),
        ("cameras", "lidar_0001", "the sensors 'lidar' and 'lidar_0001' would give files of one name"),
        ("track", "scene", "a track has the name 'scene', which export takes for another node"),
        ("track", "all", "'all', which export takes for another node, or edits for all actors"),
        ("track", "Background", "a track has the name 'Background', which export takes for another node"),
    ],
)
def test_two_names_of_one_file(shell: Shell, tiny_pack: Path, tmp_path: Path, kind: str, name: str, said: str) -> None:
    renamed(tiny_pack, kind, name)
    ended = shell("train", "data=pack", f"data.root={tiny_pack}", f"out={tmp_path / 'out'}", *FAST)
    assert_mendable(ended, said)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", PATHS)
def test_a_capture_from_python(tmp_path: Path, name: str) -> None:
    capture = tiny_capture()
    own = capture.cameras[0].name
    odd = replace(
        capture,
        cameras=(replace(capture.cameras[0], name=name), *capture.cameras[1:]),
        images=tuple(replace(f, sensor=name) if f.sensor == own else f for f in capture.images),
    )
    with pytest.raises(CaptureError, match="the camera name"):
        write_pack(odd, tmp_path / "odd.pack")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["track", "class", "capture", "lidar"])
def test_other_names_from_python(kind: str) -> None:
    capture, flaw = tiny_capture(), f"the {kind} name '=1' begins with =, which spreadsheets evaluate"
    tracks = capture.tracks
    odd = {
        "track": {"tracks": replace(tracks, ids=("=1", *tracks.ids[1:]))},
        "class": {"tracks": replace(tracks, classes=("=1", *tracks.classes[1:]))},
        "lidar": {"lidars": (replace(capture.lidars[0], name="=1"),)},
        "capture": {"name": "=1"},
    }[kind]
    changed: Any = odd
    with pytest.raises(CaptureError, match=re.escape(flaw)):
        check_capture(replace(capture, **changed), "here")


@pytest.mark.parametrize("verb", ["evaluate", "render", "export"])
@pytest.mark.parametrize("name", ["../../esc/x", "=1+1", "a\x1b[2J", "scene"])
def test_a_track_of_a_checkpoint(shell: Shell, trained: Path, tmp_path: Path, verb: str, name: str) -> None:
    rewrite(trained, put("scene", "tracks", "ids", value=lambda ids: (name, *ids[1:])))
    before = everything(tmp_path)
    ended = shell(verb, f"checkpoint={trained}", *([f"node={name}"] if verb == "export" and name.isalpha() else []))
    assert_mendable(
        ended, r"checkpoint\.pt does not come from a training: scene\.tracks\.ids must be (names, but|different)"
    )
    assert everything(tmp_path) == before


def test_cameras_of_a_checkpoint(shell: Shell, trained: Path) -> None:
    knots = torch.tensor([0.0, 1.0], dtype=torch.float64)
    rewrite(trained, lambda content: content["scene"].update(calibration={"knots": knots, "cameras": ("../x", "b")}))
    ended = shell("render", f"checkpoint={trained}", "times=0.5")
    assert_mendable(ended, r"scene\.calibration\.cameras must be names, but '\.\./x' is not one plain part of a path")


@pytest.mark.parametrize("name", ["each", "Actors"])
def test_words_of_export_that_older_packs_have_as_names(tiny_pack: Path, name: str) -> None:
    renamed(tiny_pack, "track", name)
    assert read_pack(tiny_pack).tracks.ids == (f"track-{name}", *tiny_capture().tracks.ids[1:])
    odd = replace(tiny_capture(), tracks=replace(tiny_capture().tracks, ids=(name, *tiny_capture().tracks.ids[1:])))
    with pytest.raises(CaptureError, match=f"a track has the name '{name}', which export takes for another node"):
        check_capture(odd, "odd")
