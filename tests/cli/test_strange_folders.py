# SPDX-License-Identifier: Apache-2.0
"""Files in a folder that nurec_lite did not make are there afterwards, byte for byte: from the command line, by every verb."""

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from shell import FAST, Shell, Train, assert_mendable
from strange_files import STRANGE, contents, fill

from nurec_lite.base.folders import MARKER, PICTURES
from nurec_lite.base.paths import PACKAGE
from nurec_lite.capture.simulate.__main__ import main as simulate
from nurec_lite.config import VERBS
from nurec_lite.evaluation.pictures import save_png
from nurec_lite.training.folder import SCALARS

REFUSED = r"holds \.bashrc\.20241126 and \d+ more, and no \.nurec_lite that says nurec_lite made this folder; give another folder"


@pytest.fixture
def strange(tmp_path: Path) -> Path:
    fill(tmp_path / "strange")
    return tmp_path / "strange"


@pytest.mark.parametrize("more", [[], ["train.overwrite=true"], ["train.resume=auto"]])
def test_train_refuses_it(shell: Shell, original: Path, strange: Path, more: list[str]) -> None:
    before = contents(strange)
    ended = shell("train", "data=pack", f"data.root={original}", *FAST, f"out={strange}", *more)
    assert_mendable(ended, REFUSED)
    assert contents(strange) == before


AFTER = "checkpoint={quick}"
FOLDERS: dict[str, list[list[str]]] = {  # commands whose `out` is a folder, with their arguments
    "train": [["data=pack", "data.root={original}", *FAST]],
    "evaluate": [[AFTER]],
    "render": [[AFTER], [AFTER, "times=0.5", "formats=npz"]],
    "profile": [["tool=torch", "ops=reference", "device=cpu"]],
    "inspect": [["data=pack", "data.root={original}"]],
}
FILES = {"export", "pack", "compare"}  # commands whose `out` is a file
NEITHER = {"serve", "view"}  # commands that write nothing


def test_every_verb_is_among_these() -> None:
    """A command is a program at the top of the package."""
    programs = {path.stem for path in PACKAGE.glob("*.py") if "\n    command(" in path.read_text()}
    assert programs == set(VERBS) == set(FOLDERS) | FILES | NEITHER


def arguments(verb: str, original: Path, quick: Path) -> list[list[str]]:
    return [[text.format(original=original, quick=quick) for text in given] for given in FOLDERS[verb]]


@pytest.mark.parametrize("verb", FOLDERS)
def test_every_verb_refuses_it(shell: Shell, original: Path, quick: Path, strange: Path, verb: str) -> None:
    before = contents(strange)
    for given in arguments(verb, original, quick):
        assert_mendable(shell(verb, *given, f"out={strange}"), REFUSED)
    assert contents(strange) == before


@pytest.mark.parametrize("name", ["scene.ply", "drive.pack", "config.yaml", "pictures/2019/holiday.jpg"])
def test_no_file_of_another_is_replaced(shell: Shell, original: Path, quick: Path, strange: Path, name: str) -> None:
    before = contents(strange)
    said = r"was not written by nurec_lite; name another file by out=FILE, or remove this one|must name a file that ends in \.ply"
    assert_mendable(shell("export", f"checkpoint={quick}", f"out={strange / name}"), said)
    assert_mendable(shell("pack", "data=pack", f"data.root={original}", f"out={strange / name}"), said)
    with pytest.raises(SystemExit):
        simulate(["--frames", "2", "--out", str(strange / name)])
    assert contents(strange) == before


def test_exports_and_packs_may_lie_next_to_others(shell: Shell, original: Path, quick: Path, strange: Path) -> None:
    before = contents(strange)
    for _ in range(2):  # our own files are replaced
        assert shell("export", f"checkpoint={quick}", f"out={strange / 'mine.ply'}").code == 0
        assert shell("pack", "data=pack", f"data.root={original}", f"out={strange / 'mine.pack'}").code == 0
    after = contents(strange)
    assert after.keys() - before.keys() == {"mine.ply", "mine.pack"} and all(
        after[name] == before[name] for name in before
    )


@pytest.mark.parametrize("verb", [*FOLDERS, "pack"])
def test_an_empty_name_is_no_folder(
    shell: Shell, quick: Path, original: Path, strange: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.chdir(strange)
    before = contents(strange)
    given = ["data=pack", f"data.root={original}"] if verb == "pack" else arguments(verb, original, quick)[0]
    assert_mendable(
        shell(verb, *given, "out="),
        "out is empty; name a f",
    )
    assert contents(strange) == before


# ---- our folder, with files of others in it


def test_a_run_keeps_the_files_of_others_in_its_folder(train: Train, tmp_path: Path) -> None:
    out = tmp_path / "out"
    small = ["train.steps=1", "train.evaluate=true", "train.tensorboard=true"]
    assert train(f"out={out}", *small).code == 0
    listed = {name.partition("/")[0] for name in (out / MARKER).read_text().splitlines()[1:]}
    assert listed == {p.name for p in out.iterdir()} - {MARKER} and {PICTURES, SCALARS} <= listed
    ours = contents(out)
    strange = {
        name: data for name, data in STRANGE.items() if name not in ours and name not in ("broken.json", "timing.csv")
    }
    fill(out, strange)
    assert train(f"out={out}", "train.steps=2", "train.resume=auto").code == 0
    assert train(f"out={out}", "train.steps=1", "train.overwrite=true").code == 0
    after = contents(out)
    assert {name: after[name] for name in strange} == strange
    assert [name for name in after if name in ours and name.startswith((f"{PICTURES}/", f"{SCALARS}/"))] == []


@pytest.mark.parametrize("name", ["report.html", "metrics.json", "timing.csv"])
def test_a_file_that_is_in_the_way_is_reported_before_training(train: Train, tmp_path: Path, name: str) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / MARKER).write_text("nurec_lite 1 train\nconfig.yaml\n")
    (tmp_path / "out" / name).write_text("mine")
    ended = train(f"out={tmp_path / 'out'}", "train.steps=1")
    assert (
        ended.code == 2 and f"{name} was not written by nurec_lite; move it away, or give another folder" in ended.error
    )
    assert (tmp_path / "out" / name).read_text() == "mine"


@pytest.mark.parametrize("verb", sorted(FOLDERS.keys() - {"train"}))
def test_the_folder_of_a_run_is_no_other_verb_s(shell: Shell, original: Path, trained: Path, verb: str) -> None:
    before = contents(trained.parent)
    given = arguments(verb, original, trained)[0]
    assert_mendable(
        shell(verb, *given, f"out={trained.parent}"), "holds a run, and would lose its files; give another folder"
    )
    assert contents(trained.parent) == before


def test_results_of_another_verb_are_no_run(train: Train, shell: Shell, trained: Path, tmp_path: Path) -> None:
    assert shell("render", f"checkpoint={trained}", "times=0.5", f"out={tmp_path / 'r'}").code == 0
    before = contents(tmp_path / "r")
    ended = train(f"out={tmp_path / 'r'}", "train.steps=1", "train.overwrite=true")
    assert ended.code == 2 and ended.error.endswith("holds results of render; give another folder by out=FOLDER")
    assert contents(tmp_path / "r") == before


# ---- runs of the version before, which has no marker


@pytest.fixture
def older(trained: Path) -> Path:
    out = trained.parent
    (out / MARKER).unlink()
    (out / "frames.csv").write_text("sensor,index,psnr\nleft,4,1.0\n")
    for name in ("left_0004", "IMG_0001"):
        (out / PICTURES).mkdir(exist_ok=True)
        (out / PICTURES / f"{name}.png").write_text("old")
    return out


def test_it_goes_on(train: Train, older: Path) -> None:
    assert "holds a run; go on with it" in train(f"out={older}", "train.steps=3").error
    assert train(f"out={older}", "train.steps=3", "train.resume=auto").code == 0
    assert json.loads((older / "metrics.json").read_text())["steps"] == 3
    assert [p.name for p in (older / PICTURES).iterdir()] == ["IMG_0001.png"]


@pytest.mark.parametrize("what", ["another configuration", "another checkpoint", "no configuration", "a link"])
def test_a_folder_that_only_looks_like_it(train: Train, older: Path, what: str) -> None:
    if what == "another configuration":
        (older / "config.yaml").write_text("mine: 1\n")
    elif what == "another checkpoint":
        (older / "checkpoint.pt").write_bytes(b"PK of my own trainer")
    elif what == "no configuration":
        (older / "config.yaml").unlink()
    else:
        (older / "checkpoint.pt").rename(older.parent / "elsewhere.pt")
        (older / "checkpoint.pt").symlink_to(older.parent / "elsewhere.pt")
    before = contents(older)
    ended = train(f"out={older}", "train.steps=3", "train.overwrite=true")
    assert ended.code == 2 and "that says nurec_lite made this folder" in ended.error
    assert contents(older) == before


# ---- processes of their own


def nurec(*arguments: str, **keys: object) -> subprocess.Popen:
    line = [sys.executable, "-m", *arguments]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **keys)  # type: ignore[call-overload]


def test_two_containers_render_into_one_folder(quick: Path, tmp_path: Path) -> None:
    """The process has the number 1 in each of them."""
    alone = ["unshare", "-p", "-f", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no namespaces here")
    line = [
        *alone,
        sys.executable,
        "-m",
        "nurec_lite.render",
        f"checkpoint={quick}",
        "subset=test",
        f"out={tmp_path / 'out'}",
    ]
    both = [subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for one in both:
        assert one.stderr is not None
        said = one.stderr.read()
        assert one.wait() == 0, said
    assert not [name for name in os.listdir(tmp_path / "out") if name.endswith(".tmp")]


def test_pack_keeps_the_mask_and_clears_away_after_a_killed_one(shell: Shell, original: Path, tmp_path: Path) -> None:
    out, before = tmp_path / "new.pack", os.umask(0o077)
    dead = subprocess.run([sys.executable, "-c", KILLED, str(out)], capture_output=True, text=True, check=False)
    assert dead.returncode == -9 and len(list(tmp_path.glob(".new.pack.*.tmp"))) == 1, dead.stderr
    try:
        assert shell("pack", "data=pack", f"data.root={original}", f"out={out}").code == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [out]


KILLED = """
import os, signal, sys
from pathlib import Path
from nurec_lite.base.files import written
with written(Path(sys.argv[1])) as file:
    file.write(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("device", ["null", "full"])
def test_pack_replaces_no_device(shell: Shell, original: Path, tmp_path: Path, device: str) -> None:
    node, minor = tmp_path / device, {"null": 3, "full": 7}[device]
    try:
        os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(1, minor))
    except PermissionError:
        pytest.skip("only root makes devices")
    assert_mendable(
        shell("pack", "data=pack", f"data.root={original}", f"out={node}"), "is a device, not a file; name another file"
    )
    assert stat.S_ISCHR(node.stat().st_mode)


def test_pictures_of_a_program_that_knows_no_folder(tmp_path: Path) -> None:
    """A Python program saves one file; no marker is left beside it."""
    import numpy as np

    fill(tmp_path, {"mine": b"1"})
    save_png(tmp_path / "a.png", np.zeros((2, 2, 3), np.uint8))
    assert {p.name for p in tmp_path.iterdir()} == {"a.png", "mine"}
