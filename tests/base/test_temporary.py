# SPDX-License-Identifier: Apache-2.0
"""Temporary files carry a mark of ours, follow no link, and are removed once their maker is gone, and not before."""

import fcntl
import os
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from strange_files import STRANGE, contents, fill

from nurec_lite.base import temporary
from nurec_lite.base.alive import started
from nurec_lite.base.files import write_text
from nurec_lite.base.temporary import is_temporary, remove_leftovers, temporary_file

WAITS = """
import sys, time
from pathlib import Path
from nurec_lite.base.temporary import temporary_file
with temporary_file(Path(sys.argv[1]) / "drive.pack") as file:
    print(file.name, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """The temporary file of a process that got SIGKILL while it wrote."""
    with subprocess.Popen([sys.executable, "-c", WAITS, str(tmp_path)], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        path = Path(child.stdout.readline().strip())
        remove_leftovers(tmp_path)
        assert path.exists(), "removed while its maker was writing"
        child.send_signal(signal.SIGKILL)
    return path


def renamed(path: Path, **parts: str) -> Path:
    """The name that another maker would have given it."""
    names = ("host", "boot", "namespace", "process", "start", "random")
    prefix, _, mark = path.name.partition(".nurec_lite-")
    found = dict(zip(names, mark.removesuffix(".tmp").split("-"), strict=True)) | parts
    return path.rename(path.with_name(f"{prefix}.nurec_lite-{'-'.join(found.values())}.tmp"))


def test_a_leftover_of_a_killed_process_is_removed(killed: Path, tmp_path: Path) -> None:
    remove_leftovers(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("own", ["process", "start"])
def test_a_number_that_runs_again_is_another_process(killed: Path, tmp_path: Path, own: str) -> None:
    """The number of this process with another start: gone. With its own start: it may still be written."""
    mine = {"process": str(os.getpid())}
    if own == "start":
        mine["start"] = str(started(os.getpid()))
    path = renamed(killed, **mine)
    remove_leftovers(tmp_path)
    assert path.exists() == (own == "start")


@pytest.mark.parametrize("held", [False, True])
def test_another_container_is_asked_by_its_lock(killed: Path, tmp_path: Path, held: bool) -> None:
    """Both may be process 1 there."""
    path = renamed(killed, namespace="1")
    with path.open("rb") as file:
        if held:
            fcntl.flock(file, fcntl.LOCK_EX)
        remove_leftovers(tmp_path)
    assert path.exists() == held


def test_what_another_host_writes_is_left_alone(killed: Path, tmp_path: Path) -> None:
    path = renamed(killed, host="0" * 8, boot="0" * 8)
    remove_leftovers(tmp_path)
    assert path.exists()


@pytest.mark.parametrize("written", ["before the boot", "now"])
def test_a_leftover_of_an_earlier_boot(killed: Path, tmp_path: Path, written: str) -> None:
    """A file written now is of a machine that has this one's name."""
    path = renamed(killed, boot="0" * 8)
    if written == "before the boot":
        long_ago = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) - 60
        os.utime(path, (long_ago, long_ago))
    remove_leftovers(tmp_path)
    assert path.exists() == (written == "now")


def test_files_of_users_are_no_leftovers(tmp_path: Path) -> None:
    odd = (
        ".x.nurec_lite-.tmp",
        ".nurec_lite",
        ".a.nurec_lite-00000000-00000000-1-1-1-zz.tmp",
        ".x.12345",
        ".swp.nurec_lite.tmp",
    )
    before = fill(tmp_path, STRANGE | dict.fromkeys(odd, b"mine"))  # fmt: skip
    remove_leftovers(tmp_path)
    remove_leftovers(tmp_path / "nowhere")
    assert contents(tmp_path) == before


def test_a_link_with_such_a_name_is_not_followed(killed: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    killed.unlink()
    for namespace in ("1", "2"):
        path = tmp_path / killed.name.replace("-tmp", "")
        path.symlink_to(tmp_path / "precious")
        renamed(path, namespace=namespace)
    remove_leftovers(tmp_path)
    assert (tmp_path / "precious").read_text() == "mine"


def test_names_cannot_be_foreseen_and_are_never_opened_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with temporary_file(tmp_path / "a") as one, temporary_file(tmp_path / "a") as other:
        assert one.name != other.name and is_temporary(Path(one.name).name)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "precious")
    monkeypatch.setattr(temporary, "_name", lambda target: "link")
    with pytest.raises(FileExistsError), temporary_file(tmp_path / "a"):
        pass
    assert (tmp_path / "precious").read_text() == "mine"


@pytest.mark.parametrize("mask", [0o077, 0o022, 0o002])
def test_the_mask_of_the_user_holds(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        write_text(tmp_path / "file", "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o666 & ~mask


def test_the_longest_name_has_a_temporary_one(tmp_path: Path) -> None:
    for name in ("é" * 127, "x" * 255):
        write_text(tmp_path / name, "x")
        assert (tmp_path / name).read_text() == "x"
    with temporary_file(tmp_path / "checkpoint.pt") as file:
        assert re.match(r"\.checkpoint\.pt\.nurec_lite-", Path(file.name).name)
