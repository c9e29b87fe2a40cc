# SPDX-License-Identifier: Apache-2.0
"""A checkpoint knows its capture, from the command line and from Python. tests/training/test_known_capture.py has the kinds."""

import logging
import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from other_captures import OTHER, Change, cameras, exchanged, first_image
from shell import Shell, assert_mendable
from tiny_capture import tiny_capture

from nurec_lite.capture.pack import write_pack
from nurec_lite.cli.reconstruction import open_reconstruction
from nurec_lite.training.checkpoint import CheckpointError

Packed = Callable[..., Path]


@pytest.fixture
def packed(tmp_path_factory: pytest.TempPathFactory) -> Packed:
    folder = tmp_path_factory.mktemp("packs")

    def write(change: Change = lambda c: c, image_format: str = "png") -> Path:
        write_pack(change(tiny_capture()), folder / "other.pack", image_format=image_format)
        return folder / "other.pack"

    return write


CASES: dict[str, tuple[Change, list[str], str]] = {
    "cameras exchanged": (lambda c: c, ["data.cameras=[camera_1,camera_0]"], r"it has the cameras camera_1, camera_0 in this order"),
    "images exchanged": (exchanged, [], r"image 0 of camera_0 shows something else"),
    "another focal length": (cameras(lambda c: replace(c, fx=2 * c.fx)), [], r"camera camera_0 has fx [\d.]+, but had [\d.]+"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_another_capture_is_refused(shell: Shell, quick: Path, tmp_path: Path, packed: Packed, case: str) -> None:
    change, more, pattern = CASES[case]
    out = f"out={tmp_path / 'out'}"
    ended = shell("evaluate", f"checkpoint={quick}", f"data.root={packed(change)}", out, *more)
    assert_mendable(ended, rf"checkpoint\.pt was made from another capture: {pattern}")
    assert not list(tmp_path.iterdir())


def test_so_do_render_and_a_run_that_goes_on(shell: Shell, quick: Path, tmp_path: Path, packed: Packed) -> None:
    out, pack = f"out={tmp_path / 'out'}", packed(OTHER["a lidar that sits elsewhere"][0])
    given = [f"data.root={pack}", out]
    said = rf"another capture: lidar lidar sits at .*; it was made with data\.root={re.escape(str(quick.parent))}/tiny\.pack: give that"
    assert_mendable(shell("render", f"checkpoint={quick}", *given, "times=0.4"), said)
    assert_mendable(shell("train", f"train.resume={quick}", *given, "device=cpu", "train.steps=13"), said)
    with pytest.raises(CheckpointError, match="another capture"):
        open_reconstruction("render", [f"checkpoint={quick}", *given])
    assert not list(tmp_path.iterdir())


def test_what_is_printed_can_be_pasted(shell: Shell, quick: Path, tmp_path: Path) -> None:
    given = [f"checkpoint={quick}", f"out={tmp_path / 'out'}", "times=0.4", "sensors=camera_0"]
    ended = shell("render", *given, "data.cameras=[camera_1,camera_0]")
    (remedy,) = re.findall(r"; give (.*)$", ended.error)
    ended = shell("render", *given, *shlex.split(remedy))
    assert ended.code == 0, ended.error


def test_one_edited_image_of_a_pack_is_named(shell: Shell, trained: Path, tmp_path: Path, packed: Packed) -> None:
    """The run read a pack, whose directory has a checksum of each image."""
    ended = shell("evaluate", f"checkpoint={trained}", f"data.root={packed(first_image)}", f"out={tmp_path / 'out'}")
    assert_mendable(
        ended, r"another capture: image 3 of camera_0 is another file than before; it was made with data\.root="
    )


def test_the_same_capture_elsewhere_goes_on_without_a_word(
    shell: Shell, trained: Path, original: Path, tmp_path: Path, packed: Packed, caplog: pytest.LogCaptureFixture
) -> None:
    """Its pack is written anew as JPEG, and lies in a folder whose name has signs."""
    place = Path(shutil.copytree(packed(image_format="jpeg").parent, tmp_path / "a =b")) / "other.pack"
    given = [f"train.resume={trained}", f'data.root="{place}"', f"out={tmp_path / 'on'}", "device=cpu"]
    with caplog.at_level(logging.INFO, logger="nurec_lite"):
        ended = shell("train", *given, "train.steps=3", "train.evaluate=false")
        assert ended.code == 0, ended.error
        back = [f"checkpoint={tmp_path / 'on/checkpoint.pt'}", f"data.root={original}"]
        open_reconstruction("render", [*back, "ops=reference"])
    assert not re.search("differs|another capture|older version", caplog.text)


def test_what_differs_is_one_line(shell: Shell, quick: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="nurec_lite"):
        open_reconstruction("evaluate", [f"checkpoint={quick}", "data.frames=[0,6]"])
    (line,) = (text for text in caplog.messages if "differs from the capture that" in text)
    assert "camera_0, camera_1, lidar have 6 frames, 0 to 5, but had 10 frames, 0 to 9" in line and "\n" not in line
