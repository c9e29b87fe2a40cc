# SPDX-License-Identifier: Apache-2.0
"""A folder is ours or it is not: refusals, lists of files, and files that may be replaced and removed."""

import contextlib
import errno
import os
import socket
from pathlib import Path

import pytest
from strange_files import contents, fill

from nurec_lite.base.errors import FolderError, OutputError
from nurec_lite.base.files import write_text
from nurec_lite.base.folders import LOCK, MARKER, PICTURES, check_file, discard, make_way, owner_of, take
from nurec_lite.base.lock import locked


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """A folder of ours with two files that a render wrote."""
    out = take(tmp_path / "out", "render").folder
    write_text(out / "config.yaml", "x")
    write_text(out / PICTURES / "a_0001.png", "x")
    return out


def test_the_marker_lists_what_was_written(ours: Path) -> None:
    write_text(ours / "config.yaml", "again")
    assert (ours / MARKER).read_text() == "nurec_lite 1 render\nconfig.yaml\npictures/a_0001.png\n"
    assert take(ours, "evaluate").verb == "render"


@pytest.mark.parametrize("taken", [None, 0, 5])
def test_a_full_disk_leaves_no_broken_marker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: int | None
) -> None:
    """A disk that takes nothing, or a few bytes: the folder is free for the next run, and no name is lost."""
    write = os.write

    def full(descriptor: int, data: bytes) -> int:
        if taken is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data[:taken])

    (tmp_path / "run").mkdir()
    results = take(tmp_path / "run", "render")
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OutputError, match="No space left on device"):
        results.add(["a.png"])
    assert list((tmp_path / "run").iterdir()) == []
    monkeypatch.setattr(os, "write", write)
    results.add(["a.png"])
    assert take(tmp_path / "run", "render").lists(tmp_path / "run/a.png")


def test_without_a_file_there_is_no_folder(tmp_path: Path) -> None:
    take(tmp_path / "new", "render")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["notes.txt", ".hidden", "pictures/a.png", MARKER])
def test_one_strange_file_is_enough(tmp_path: Path, name: str) -> None:
    before = fill(tmp_path, {name: b"mine"})
    with pytest.raises(
        FolderError, match=r"holds .*, and no \.nurec_lite that says nurec_lite made this folder; give another folder"
    ):
        take(tmp_path, "render")  # fmt: skip
    assert contents(tmp_path) == before


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "large", "of another format"])
def test_a_marker_that_is_none(tmp_path: Path, kind: str) -> None:
    fill(tmp_path / "a", {"x": b"mine"})
    marker = tmp_path / "a" / MARKER
    if kind == "link":
        marker.symlink_to(fill_marker(tmp_path / "other"))
    elif kind == "pipe":
        os.mkfifo(marker)
    elif kind == "folder":
        marker.mkdir()
    else:
        marker.write_text("nurec_lite 1 train\n" + "x\n" * (1 << 24) if kind == "large" else "nurec_lite 9 train\nx\n")
    with pytest.raises(FolderError, match="holds"):
        take(tmp_path / "a", "render")


def fill_marker(folder: Path, *names: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / MARKER).write_text("\n".join(["nurec_lite 1 render", *names, ""]))
    return folder / MARKER


@pytest.mark.parametrize(
    "name", ["../precious", "/etc/precious", "a/../../precious", "a/b/precious", "./precious", "a//precious"]
)
def test_a_marker_of_a_stranger_reaches_nothing_outside(tmp_path: Path, name: str) -> None:
    (tmp_path / "precious").write_text("mine")
    fill_marker(tmp_path / "out", name)
    found = take(tmp_path / "out", "render")
    assert found.names == set()
    discard([tmp_path / "out" / name, tmp_path / "precious"])
    assert (tmp_path / "precious").read_text() == "mine"


def test_pictures_through_a_link_are_neither_written_nor_removed(ours: Path, tmp_path: Path) -> None:
    (ours / PICTURES).rename(tmp_path / "elsewhere")
    (ours / PICTURES).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputError, match="pictures is a link; replace it by a folder, or give another folder"):
        write_text(ours / PICTURES / "a_0001.png", "y")
    discard(take(ours, "render").paths(PICTURES))
    assert (tmp_path / "elsewhere/a_0001.png").read_text() == "x"


def test_a_strange_file_in_our_folder_is_not_replaced(ours: Path) -> None:
    for write in (lambda path: write_text(path, "ours"), make_way):
        (ours / "notes").write_text("mine")
        with pytest.raises(
            OutputError, match=r"notes was not written by nurec_lite; move it away, or give another folder"
        ):
            write(ours / "notes")
        assert (ours / "notes").read_text() == "mine"


@pytest.mark.parametrize("kind", ["file", "link", "hard link", "folder", "pipe"])
def test_a_strange_file_of_a_name_that_is_needed_is_reported_at_once(ours: Path, kind: str) -> None:
    place = ours / "report.html"
    if kind == "link":
        place.symlink_to("config.yaml")
    elif kind == "hard link":
        os.link(ours / "config.yaml", place)
    elif kind == "folder":
        place.mkdir()
    else:
        place.write_text("mine") if kind == "file" else os.mkfifo(place)
    with pytest.raises(FolderError, match=r"report\.html was not written by nurec_lite"):
        take(ours, "render", ["config.yaml", "report.html", f"{PICTURES}/"])


def test_only_what_is_listed_is_removed(ours: Path) -> None:
    fill(ours, {f"{PICTURES}/IMG_0001.png": b"mine", "notes": b"mine"})
    discard([*take(ours, "render").paths("config.yaml", PICTURES), ours / "notes"])
    assert {p.name for p in ours.rglob("*") if p.is_file()} == {MARKER, "IMG_0001.png", "notes"}
    (ours / PICTURES / "IMG_0001.png").unlink()
    write_text(ours / PICTURES / "a_0001.png", "x")
    discard(take(ours, "render").paths(PICTURES))
    assert not (ours / PICTURES).exists()


def test_two_processes_write_into_one_folder(ours: Path) -> None:
    """Files that the other has written since are ours, too."""
    first = owner_of(ours / "config.yaml")
    assert first is not None
    with (ours / MARKER).open("a") as marker:
        marker.write("b.png\n")
    (ours / "b.png").write_text("of the other")
    write_text(ours / "b.png", "again")
    assert (ours / "b.png").read_text() == "again"


@pytest.mark.parametrize("out", ["", "  ", "\t"])
def test_no_name_is_no_folder(out: str) -> None:
    with pytest.raises(FolderError, match="out is empty; name a folder, as in out=runs/mine"):
        take(out, "render")


@pytest.mark.parametrize("kind", ["device", "pipe", "socket", "dangling link", "loop", "file", "link to a file"])
def test_what_is_no_folder(tmp_path: Path, kind: str) -> None:
    path = odd(tmp_path, kind)
    said = (
        r" leads nowhere \(.*\); give another folder by out=FOLDER$| cannot be written \(it is a \w+, not a folder\); "
    )
    with pytest.raises((FolderError, OutputError), match=said):
        take(path, "train")


@pytest.mark.parametrize("kind", ["device", "pipe", "socket", "dangling link", "loop", "link to a file", "folder"])
def test_what_is_no_file(tmp_path: Path, kind: str) -> None:
    path = odd(tmp_path, kind)
    with pytest.raises(OutputError, match=r" is a \w+, not a file; name another file by out=FILE$"):
        check_file(path, lambda head: True)


def odd(folder: Path, kind: str) -> Path:
    path = folder / "odd"
    if kind == "device":
        return Path("/dev/null")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with contextlib.chdir(folder), socket.socket(socket.AF_UNIX) as ours:  # whose whole path may be too long
            ours.bind("odd")
    elif kind == "folder":
        path.mkdir()
    elif kind == "file":
        path.write_text("mine")
    else:
        (folder / "file").write_text("mine")
        path.symlink_to({"dangling link": "nowhere", "loop": "odd", "link to a file": "file"}[kind])
    return path


def test_a_file_may_replace_what_is_empty_or_ours(tmp_path: Path) -> None:
    path = tmp_path / "a.pack"
    path.touch()
    check_file(path, lambda head: False)
    path.write_text("mine")
    with pytest.raises(
        OutputError, match="was not written by nurec_lite; name another file by out=FILE, or remove this one"
    ):
        check_file(path, lambda head: False)
    check_file(path, lambda head: head == b"mine")
    with pytest.raises(OutputError, match="names no file"):
        check_file(Path(), lambda head: True)


@pytest.mark.parametrize("name", ["a.pdf", "a.MP4", "a.pack.html"])
def test_a_name_of_another_kind_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(OutputError, match=rf"{name} is the name of another kind of file; end it in \.pack$"):
        check_file(tmp_path / name, lambda head: True, ".pack")


@pytest.mark.parametrize("name", ["a.pack", "a.PACK", "a", "a.zip", "a.v2"])
def test_a_name_that_says_nothing_else_is_taken(tmp_path: Path, name: str) -> None:
    check_file(tmp_path / name, lambda head: True, ".pack")


def test_a_file_of_one_kind_does_not_replace_another_result(ours: Path) -> None:
    """A pack over the checkpoint of a run, for instance: both are on the list of the folder."""
    with pytest.raises(OutputError, match=r"config\.yaml is another result of render; name another file by out=FILE$"):
        check_file(ours / "config.yaml", lambda head: False)
    check_file(ours / "config.yaml", lambda head: head == b"x")


# ---- locks


@pytest.mark.parametrize("kind", ["link", "dangling link", "hard link", "text of another program", "folder", "pipe"])
def test_a_lock_that_is_not_ours_stays_as_it_is(tmp_path: Path, kind: str) -> None:
    out, precious = tmp_path / "out", tmp_path / "precious"
    precious.write_text("process 1 on the moon")
    out.mkdir()
    place = {"folder": Path.mkdir, "pipe": os.mkfifo, "link": lambda p: p.symlink_to(precious), "hard link": lambda p: os.link(precious, p),
             "dangling link": lambda p: p.symlink_to("nowhere"), "text of another program": lambda p: p.write_text("4711\n")}  # fmt: skip
    place[kind](out / LOCK)
    before = contents(tmp_path)
    with (
        pytest.raises(FolderError, match=r"\.nurec_lite\.lock is not a lock of nurec_lite .*; remove it, or"),
        locked(out),
    ):
        pass
    assert contents(tmp_path) == before


def test_the_lock_of_another_program_is_no_affair_of_ours(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/.lock").symlink_to(tmp_path / "precious")
    with locked(tmp_path / "out"):
        pass
    assert (tmp_path / "precious").read_text() == "mine" and (tmp_path / "out/.lock").is_symlink()
