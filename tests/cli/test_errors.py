# SPDX-License-Identifier: Apache-2.0
"""Mistakes of a user, from the command line: status 2, one sentence with the file or key and the remedy, and nothing half-written."""

import errno
import json
import re
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import kitti_drive
import numpy as np
import pytest
import torch
from kitti_drive import DRIVE
from shell import FAST, VERBS, Shell, Train, assert_mendable

from nurec_lite.cli.command import command
from nurec_lite.evaluation.pictures import save_png

Damage = Callable[[Path], None]  # done to the folder of a drive


# ---- a drive of KITTI


@pytest.fixture
def drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(kitti_drive, "N_FRAMES", 6)
    kitti_drive.write_drive(tmp_path / "kitti")
    return tmp_path / "kitti"


def edit(path: str, change: Callable[[bytes], bytes]) -> Damage:
    def damage(root: Path) -> None:
        file = root / path
        file.write_bytes(change(file.read_bytes()))

    return damage


def write(path: str, text: str) -> Damage:
    return lambda root: (root / path).write_text(text) and None


def swapped_lines(data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    return b"".join([lines[1], lines[0], *lines[2:]])


POSE = " ".join(["1", "0", "0", "0", "0", "1", "0", "0", "0", "0", "1", "0"])
LABEL = "{} 7 Car 0 0 0 0 0 0 0 1.5 1.6 4.0 0 1.0 20 0\n"
BROKEN: dict[str, tuple[Damage, list[str], str]] = {
    "missing root": (lambda root: None, ["data.root=/nowhere/at/all"], r"/nowhere/at/all does not exist"),
    "missing calibration key": (
        edit("2030_01_02/calib_cam_to_cam.txt", lambda data: data.replace(b"P_rect_02", b"Q_rect_02")),
        [], r"calib_cam_to_cam\.txt lacks 'P_rect_02'.*; ",
    ),
    "truncated .bin": (
        edit(f"{DRIVE}/velodyne_points/data/0000000001.bin", lambda data: data[:-7]), [],
        r"0000000001\.bin is \d+ bytes long, not a multiple of 16; it is truncated, copy it again",
    ),
    "PNG that does not decode": (
        edit(f"{DRIVE}/image_02/data/0000000001.png", lambda data: data[: len(data) // 2]), [],
        r"0000000001\.png is no whole PNG or JPEG image .*; copy it again",
    ),
    "time stamps out of order": (
        edit(f"{DRIVE}/velodyne_points/timestamps.txt", swapped_lines), [], r"timestamps.*\.txt .*; ",
    ),
    "track that refers to no frame": (
        write("labels.txt", LABEL.format(700)), ["data.tracks.file={root}/labels.txt"], r"labels\.txt.*(track|frame).*; ",
    ),
    "NaN in poses": (
        write("poses.txt", "".join(f"{POSE}\n" if i != 3 else POSE.replace("1 0 0 0", "1 0 0 nan", 1) + "\n" for i in range(6))),
        ["data.poses.file={root}/poses.txt"], r"poses\.txt.*; ",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("verb", ["train", "pack"])
def test_a_damaged_drive(shell: Shell, drive: Path, tmp_path: Path, case: str, verb: str) -> None:
    damage, more, pattern = BROKEN[case]
    damage(drive)
    out = tmp_path / ("out" if verb == "train" else "out.pack")
    own = FAST if verb == "train" else []
    given = [f"data.root={drive}", *(text.format(root=drive) for text in more)]
    ended = shell(verb, "data=kitti_raw", *given, f"out={out}", *own)
    assert_mendable(ended, pattern)
    assert not out.exists() and not list(tmp_path.glob(".*"))


def test_a_drive_that_holds_out_nothing_is_packed_and_not_trained(shell: Shell, drive: Path, tmp_path: Path) -> None:
    given = ["data=kitti_raw", f"data.root={drive}", "data.frames=[0,3]"]
    sentence = r"split 'interp' leaves no image to train on or none to test: .* has images at 3 moments; use more frames \(data\.frames\)"
    assert_mendable(shell("train", *given, f"out={tmp_path / 'out'}", *FAST), sentence)
    assert not (tmp_path / "out").exists()
    assert shell("pack", *given, f"out={tmp_path / 'out.pack'}").code == 0
    assert (tmp_path / "out.pack").is_file()


def test_the_drive_as_it_is_trains(shell: Shell, drive: Path, tmp_path: Path) -> None:
    """Otherwise the cases above could fail for another reason."""
    ended = shell("train", "data=kitti_raw", f"data.root={drive}", f"out={tmp_path / 'out'}", *FAST)
    assert ended.code == 0, ended.error


# ---- packs


def altered(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0x55]) + data[middle + 1 :]


@pytest.mark.parametrize(
    "change", [lambda data: data[: len(data) // 2], altered, lambda data: b"", lambda data: b"hello"]
)
def test_a_damaged_pack(shell: Shell, tiny_pack: Path, tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    tiny_pack.write_bytes(change(tiny_pack.read_bytes()))
    ended = shell("train", "data=pack", f"data.root={tiny_pack}", f"out={tmp_path / 'out'}", *FAST)
    assert_mendable(ended, r"tiny\.pack.*(copy it again|write it again)")
    assert not (tmp_path / "out").exists()


def test_a_pack_of_another_program(shell: Shell, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "other.pack", "w") as archive:
        archive.writestr("capture.json", json.dumps({"format": "film"}))
    ended = shell("train", "data=pack", f"data.root={tmp_path / 'other.pack'}", f"out={tmp_path / 'out'}", *FAST)
    assert_mendable(ended, r'other\.pack: capture\.json has the format "film"')


# ---- checkpoints


@pytest.mark.parametrize("verb", ["evaluate", "render", "export"])
@pytest.mark.parametrize("change", [lambda data: data[:-100], altered])
def test_a_damaged_checkpoint(
    shell: Shell, trained: Path, tmp_path: Path, verb: str, change: Callable[[bytes], bytes]
) -> None:
    trained.write_bytes(change(trained.read_bytes()))
    out = tmp_path / ("out.ply" if verb == "export" else "out")
    assert_mendable(
        shell(verb, f"checkpoint={trained}", f"out={out}"),
        r"checkpoint\.pt is not a whole checkpoint .*; use another one",
    )
    assert not out.exists()


@pytest.mark.parametrize(
    ("key", "shown"),
    [("data.split=side", "data.split=interp, but this run has side"), ("model.sh_degree=2", "model.sh_degree=1, but this run has 2"),
     ("data.downscale=2", "data.downscale=1, but this run has 2")],
)  # fmt: skip
def test_a_checkpoint_of_another_configuration(
    shell: Shell, trained: Path, tiny_pack: Path, tmp_path: Path, key: str, shown: str
) -> None:
    before = trained.read_bytes()
    ended = shell(
        "train", "data=pack", f"data.root={tiny_pack}", f"out={tmp_path / 'out'}", *FAST, f"train.resume={trained}", key
    )
    assert_mendable(ended, rf"checkpoint\.pt was made with {re.escape(shown)}; give .* or begin anew")
    assert trained.read_bytes() == before and not (tmp_path / "out").exists()


def test_a_checkpoint_of_another_capture(shell: Shell, trained: Path, tmp_path: Path) -> None:
    ended = shell("evaluate", f"checkpoint={trained}", "data=bundled", f"out={tmp_path / 'out'}", "ops=reference")
    assert_mendable(
        ended, r"checkpoint\.pt was made from another capture: camera camera_0 has 192x96 pixels, but had 40x24"
    )


# ---- the command line


@pytest.mark.parametrize(
    ("verb", "arguments", "pattern"),
    [
        ("train", ["+opt=worker"], r"^error: option 'worker' is unknown; the options are .*workers"),
        ("train", ["+opt=[workers,nonsense]"], r"option 'nonsense' is unknown"),
        ("train", ["train.stepz=3"], r"^error: key 'train\.stepz' is unknown; did you mean train\.steps\?$"),
        ("train", ["trian.steps=3"], r"^error: key 'trian\.steps' is unknown; did you mean train\.steps\?$"),
        ("train", ["data=kiti"], r"data/kiti|kiti"),
        ("train", ["data.cameras="], r"data\.cameras is empty; give a list, as in data\.cameras=\[A,B\], or leave it out"),
        ("train", ["train.steps=many"], r"^error: train\.steps is 'many', but must be a whole number or null; correct this key$"),
        ("train", ["opt.batch.images=2"], r"^error: opt\.batch\.images belongs to an option; name the option too, as in \+opt=batch$"),
        ("train", ["opt.bach.images=2"], r"^error: option 'bach' is unknown"),
        ("train", ["train.steps"], r"KEY=VALUE"),
        ("train", ["=3"], r"KEY=VALUE"),
        ("train", ["train.steps=[1"], r"train\.steps is '\[1', but must be a whole number or null"),
        ("train", ["out=${nowhere}"], r"nowhere"),
        ("train", ["--steps", "3"], r"'--steps' is no flag of train; it takes KEY=VALUE arguments"),
        ("train", ["ops=abacus"], r"ops is 'abacus', but must be one of native, reference"),
        ("train", ["device=abacus"], r"device=abacus is unknown; use auto, cpu, cuda or cuda:N"),
        ("train", ["train.seconds=null"], r"^error: give a budget: train\.steps=N or train\.seconds=S"),
        ("train", ["data=pack", "data.root=/nowhere/at/all.pack"], r"^error: /nowhere/at/all\.pack"),
        ("train", ["train.resume=/nowhere.pt"], r"/nowhere\.pt does not exist; give the path of a checkpoint"),
        ("evaluate", [], r"checkpoint is missing: name a file that train wrote"),
        ("evaluate", ["checkpoint=/nowhere.pt"], r"/nowhere\.pt does not exist"),
        ("render", ["chekpoint=x"], r"checkpoint is missing"),
        ("export", ["-h5"], r"'-h5' is no flag of export"),
        ("pack", ["qality=3"], r"^error: key 'qality' is unknown; did you mean quality\?$"),
        ("pack", ["quality=0"], r"quality is 0, but must lie between 1 and 100"),
        ("pack", ["data=pack"], r"data\.root is missing: name the pack"),
        ("train", ["out=/" + "a" * 300], r"a name in this path is longer than the file system takes; choose a shorter one"),
    ],
)  # fmt: skip
def test_a_mistaken_command_line(shell: Shell, tmp_path: Path, verb: str, arguments: list[str], pattern: str) -> None:
    budget = FAST if verb == "train" and "train.seconds=null" not in arguments else []
    own = [f"out={tmp_path / 'out'}"] if not any(a.startswith("out=") for a in arguments) else []
    assert_mendable(shell(verb, *own, *budget, *arguments), pattern)
    assert not list(tmp_path.iterdir())


def test_evaluating_other_keys_names_the_nearest(shell: Shell, trained: Path) -> None:
    ended = shell("evaluate", f"checkpoint={trained}", "data.splitt=side")
    assert_mendable(ended, r"did you mean data\.split\?")


@pytest.mark.parametrize("verb", VERBS)
def test_help_lists_every_key_with_its_meaning(shell: Shell, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    sys.argv = [verb, "--help"]
    command(verb, *VERBS[verb])
    text = capsys.readouterr().out
    assert f"python -m nurec_lite.{verb}" in text and "Keys, with their defaults:" in text
    keys = text.split("Keys, with their defaults:")[1].split("\n\n")[1].splitlines()
    assert keys and all(re.match(r"  \S+=.*  \S", line) for line in keys), "a key without a meaning"


def test_a_place_that_cannot_be_written(shell: Shell, tiny_pack: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    ended = shell("train", "data=pack", f"data.root={tiny_pack}", f"out={tmp_path / 'file'}", *FAST)
    assert_mendable(ended, r"file.* cannot be written \(.*\); free some space or choose another place")


def test_half_an_image_of_a_pack_is_reported_when_it_is_read(shell: Shell, tmp_path: Path) -> None:
    """Numbers of a picture are not guessed: a pack whose member is no image is refused, too."""
    save_png(tmp_path / "picture.pack", np.zeros((4, 4, 3), np.uint8))
    ended = shell("train", "data=pack", f"data.root={tmp_path / 'picture.pack'}", f"out={tmp_path / 'out'}", *FAST)
    assert_mendable(ended, r"picture\.pack")
    assert torch.cuda.is_available() or not (tmp_path / "out").exists()


def test_a_folder_is_named_once_it_holds_results(shell: Shell) -> None:
    ended = shell("train", "data=pack", "data.root=nothing.pack")
    assert_mendable(ended, "nothing.pack does not exist")
    assert "results go to" not in ended.out


def test_a_folder_that_is_given_is_named_by_the_first_line_alone(train: Train, tmp_path: Path) -> None:
    ended = train("train.steps=1", f"out={tmp_path / 'x'}")
    assert ended.code == 0 and "results go to" not in ended.out and f"results in {tmp_path / 'x'}" in ended.out


@pytest.mark.parametrize("verb", ["view", "serve", "render"])
def test_a_path_without_rights_is_one_sentence(shell: Shell, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    """Root has all rights, so that the system's answer is made."""

    def refused(arguments: list[str]) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "runs/of another")

    monkeypatch.setitem(VERBS, verb, (VERBS[verb][0], refused))
    assert_mendable(shell(verb), r"^error: runs/of another cannot be reached \(Permission denied\); change its rights")
