# SPDX-License-Identifier: Apache-2.0
"""Only libraries that nobody but their owner could write are executed; else they are kept elsewhere, with a line that says so."""

import os
import pwd
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from nurec_lite.native import cache
from nurec_lite.native.build import LIBRARY, SUM, _sum, _whole
from nurec_lite.native.cache import cache_folder, exposed, private_folder


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path / "temporary" / f"nurec_lite-{os.geteuid()}"


def expose(path: Path, how: str) -> str:
    """Exposes the path, and returns the line that follows."""
    if how == "link":
        path.rename(path.with_name("real"))
        path.symlink_to("real")
        return "is a link"
    if how == "owner":
        if os.geteuid():
            pytest.skip("only root gives files away")
        os.chown(path, 12345, 12345)
        return "belongs to another user"
    path.chmod({"group": 0o775, "others": 0o777}[how])
    return "can be written by others"


@pytest.mark.parametrize("how", ["group", "others", "owner", "link"])
@pytest.mark.parametrize("inner", [False, True])
def test_a_folder_that_others_can_write(
    tmp_path: Path, elsewhere: Path, how: str, inner: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = private_folder(tmp_path / "cache", "abc")
    assert folder == tmp_path / "cache/abc" and folder.stat().st_mode & 0o777 == 0o700
    exposed_one = folder if inner else tmp_path / "cache"
    said = expose(exposed_one, how)
    for _ in range(2):
        assert private_folder(tmp_path / "cache", "abc") == elsewhere / "abc"
    line = f"{exposed_one} {said}, so the compiled kernels are kept in {elsewhere}"
    assert capsys.readouterr().err.splitlines() == [line]  # though it was asked for twice


@pytest.mark.parametrize("how", ["group", "others", "owner", "link"])
@pytest.mark.parametrize("name", [LIBRARY, SUM])
def test_a_library_that_others_can_write(tmp_path: Path, how: str, name: str) -> None:
    """It is made anew in its folder, which is this user's alone."""
    folder = private_folder(tmp_path / "cache", "abc")
    (folder / LIBRARY).write_bytes(b"library")
    (folder / SUM).write_text(_sum(folder / LIBRARY))
    assert _whole(folder)
    expose(folder / name, how)
    assert not _whole(folder)


@pytest.mark.parametrize("how", ["others", "link"])
def test_not_even_the_place_elsewhere_is_believed(tmp_path: Path, elsewhere: Path, how: str) -> None:
    elsewhere.mkdir()
    expose(elsewhere, how)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    found = private_folder(tmp_path / "cache", "abc")
    assert found.parent not in (elsewhere, tmp_path / "cache") and exposed(found.parent) is None


def test_a_user_without_a_home(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(number: int) -> object:
        raise KeyError(number)

    for name in ("HOME", "XDG_CACHE_HOME", "NUREC_LITE_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    assert cache_folder() == elsewhere == cache.private_folder(cache_folder(), "abc").parent


def test_a_block_alone_waits_for_another_process(tmp_path: Path) -> None:
    """Two runs that compile gsplat at once would remove each other's files."""
    code = "import sys, pathlib\nfrom nurec_lite.native.cache import alone\nwith alone(pathlib.Path(sys.argv[1]), 'gsplat'): print('in')"
    command, root = [sys.executable, "-c", code, str(tmp_path / "lock")], Path(__file__).resolve().parents[2]
    with cache.alone(tmp_path / "lock", "gsplat"):
        other = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=root)
        assert other.stderr is not None
        assert other.stderr.readline() == "another process compiles gsplat; waiting for it\n"
        assert other.poll() is None
    assert other.communicate(timeout=60)[0] == "in\n"
