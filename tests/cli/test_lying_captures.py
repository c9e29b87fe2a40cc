# SPDX-License-Identifier: Apache-2.0
"""Captures that lie, from the command line: a sentence, or the result that the truth would have given."""

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from pack_parts import Held
from shell import FAST, Shell, assert_mendable
from tiny_capture import tiny_capture

from nurec_lite.capture.origin import in_users_world, recentred
from nurec_lite.capture.pack import read_pack, write_pack
from nurec_lite.capture.types import Capture

UTM = (512_345.0, 5_412_678.0, 113.0)  # metres


def far_away() -> Capture:
    """The tiny capture as UTM coordinates have it."""
    near = recentred(tiny_capture(), tuple(-metres for metres in UTM))
    return replace(near, origin=(0.0, 0.0, 0.0))


def packed(capture: Capture, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    write_pack(capture, folder / "tiny.pack", image_format="png")
    return folder / "tiny.pack"


def train(shell: Shell, pack: Path, out: Path, *more: str) -> dict[str, float]:
    given = ["data=pack", f"data.root={pack}", f"out={out}", *FAST, "train.evaluate=true", *more]
    ended = shell("train", *given)
    assert ended.code == 0, ended.error
    found = json.loads((out / "metrics.json").read_text())
    return {name: found[name] for name in ("psnr", "lidar_median_abs_m")}


def test_a_capture_in_utm_coordinates_is_as_good_as_one_at_the_origin(shell: Shell, tmp_path: Path) -> None:
    beside = replace(
        recentred(far_away()), origin=(0.0, 0.0, 0.0)
    )  # less than a metre off, so that voxels are the same
    near = train(shell, packed(beside, tmp_path / "near"), tmp_path / "a")
    far = train(shell, packed(far_away(), tmp_path / "far"), tmp_path / "b")
    assert far == pytest.approx(near, abs=0.01)


def test_its_exports_and_renders_are_in_its_own_world(shell: Shell, tmp_path: Path) -> None:
    for name, capture in (("near", tiny_capture()), ("far", far_away())):
        train(shell, packed(capture, tmp_path / name), tmp_path / name / "run")
        checkpoint = f"checkpoint={tmp_path / name / 'run/checkpoint.pt'}"
        given = [checkpoint, f"out={tmp_path / name / 'render'}", "formats=npz", "times=0.5", "sensors=lidar"]
        assert shell("render", *given).code == 0
        assert shell("export", checkpoint, "node=background", f"out={tmp_path / name / 'scene.ply'}").code == 0
    (near,), (far,) = (list((tmp_path / name / "render").glob("*.npz")) for name in ("near", "far"))
    with np.load(near) as a, np.load(far) as b:
        moved = b["points_world"].mean(axis=0) - a["points_world"].mean(axis=0)
        assert moved == pytest.approx(np.array(UTM), abs=0.5)
        assert b["T_world_lidar_start"][:3, 3] - a["T_world_lidar_start"][:3, 3] == pytest.approx(
            np.array(UTM), abs=1e-6
        )
    assert b"comment origin" not in (tmp_path / "near/scene.ply").read_bytes()
    header = (tmp_path / "far/scene.ply").read_bytes().partition(b"end_header")[0].decode()
    result = header.partition("comment origin ")[2].partition(":")[0]
    assert [float(metres) for metres in result.split()] == pytest.approx(UTM, abs=100)


def test_a_pack_of_it_stays_where_it_is(shell: Shell, tmp_path: Path) -> None:
    pack = packed(far_away(), tmp_path)
    ended = shell("pack", "data=pack", f"data.root={pack}", f"out={tmp_path / 'again.pack'}", "image_format=png")
    assert ended.code == 0, ended.error
    a, b = read_pack(pack), read_pack(tmp_path / "again.pack")
    for one, other in zip(a.images, b.images, strict=True):
        torch.testing.assert_close(one.T_world_rig_start, other.T_world_rig_start, atol=1e-6, rtol=0)


def test_there_and_back() -> None:
    far = far_away()
    moved = recentred(far)
    assert moved.images[0].T_world_rig_start[:3, 3].norm() < 2 and moved.origin != (0.0, 0.0, 0.0)
    back = in_users_world(moved)
    for one, other in zip(far.sweeps, back.sweeps, strict=True):
        torch.testing.assert_close(one.T_world_rig_end, other.T_world_rig_end, atol=1e-6, rtol=0)
    torch.testing.assert_close(far.tracks.translations, back.tracks.translations, atol=1e-6, rtol=0)


def test_what_is_near_stays_as_it_is() -> None:
    assert recentred(tiny_capture()) is tiny_capture()


def jumping() -> Capture:
    capture = tiny_capture()
    images = list(capture.images)
    for name in ("T_world_rig_start", "T_world_rig_end"):
        pose = getattr(images[3], name).clone()
        pose[0, 3] += 1000
        images[3] = replace(images[3], **{name: pose})
    return replace(capture, images=tuple(images))


def stamped_elsewhere() -> Capture:
    capture = tiny_capture()
    sweeps = list(capture.sweeps)
    sweep = sweeps[2].load()
    sweeps[2] = replace(sweeps[2], load=Held(replace(sweep, times=sweep.times + 1e9)))
    return replace(capture, sweeps=tuple(sweeps))


def endless() -> Capture:
    capture = tiny_capture()
    last = capture.sweeps[-1]
    return replace(capture, sweeps=(*capture.sweeps[:-1], replace(last, time_end=last.time_end + 1e6)))


@pytest.mark.parametrize(
    ("capture", "said"),
    [
        (
            jumping,
            r"tiny\.pack: image 1 of \S+ stands 1\d\d\d m from where the rig was 0\.\d+ s before; correct the poses",
        ),
        (
            stamped_elsewhere,
            r"tiny\.pack: sweep 2 of \S+ lasts from .* but its rays are stamped 1e\+09 s to 1e\+09 s; correct",
        ),
        (endless, r"tiny\.pack: sweep 9 of \S+ lasts 1e\+06 s, but 10 s at most; correct the poses or times"),
    ],
)
def test_a_lie_is_a_sentence(shell: Shell, tmp_path: Path, capture: object, said: str) -> None:
    assert callable(capture)
    pack = packed(capture(), tmp_path / "in")
    ended = shell("train", "data=pack", f"data.root={pack}", f"out={tmp_path / 'out'}", *FAST)
    assert_mendable(ended, said)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_a_pack_that_is_no_file(shell: Shell, tmp_path: Path, kind: str) -> None:
    path = {"pipe": tmp_path / "pipe", "device": Path("/dev/zero"), "folder": tmp_path}[kind]
    if kind == "pipe":
        os.mkfifo(path)
    ended = shell("train", "data=pack", f"data.root={path}", f"out={tmp_path / 'out'}", *FAST)
    assert_mendable(ended, rf"{path.name} is no file; name an existing pack")
