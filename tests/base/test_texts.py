# SPDX-License-Identifier: Apache-2.0
"""Foreign files are read with a bound and shown as text; a process that must not outlive another does not."""

import io
import os
import signal
import subprocess
import sys
import time
import tracemalloc
import zipfile
from pathlib import Path

import pytest
import torch

from nurec_lite.base import texts
from nurec_lite.base.alive import PARENT, alive, started
from nurec_lite.base.archives import LARGEST_DIRECTORY, opened_archive
from nurec_lite.base.errors import UserError
from nurec_lite.base.streams import Enduring
from nurec_lite.base.texts import (
    LARGEST_JSON,
    displayed,
    excerpt,
    host_and_port,
    open_file,
    parse_json,
    printable,
    read_bounded,
    read_json,
)

# ---- files and JSON


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"a": 1, "a": 1}', "the key 'a' is there twice"),
        (b'[{"b": {"a": 1, "\\u0061": 2}}]', "the key 'a' is there twice"),
        (b"[NaN]", "NaN is no number"),
        (b"[-Infinity]", "-Infinity is no number"),
        (b"[" * 100_000, "recursion"),
        (b'{"a":' * 100_000, "recursion"),
        (b"[" + b"[]," * 2_000_001 + b"[]]", "it is too large"),
        (b"[" + b"{}," * 2_000_001 + b"{}]", "it is too large"),
        (b" " * (LARGEST_JSON + 1), "it is too large"),
        (b"[1" + b"0" * 400 + b"]", "a number of 401 digits"),
        (b"[1" + b"0" * 5000 + b"]", "a number of 5001 digits"),
        (b"{", "Expecting"),
        (b"\xff\xfe\xfd", "codec|invalid|Expecting"),
    ],
)
def test_json_that_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_json(data)


def test_json_takes_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte takes at most so much memory, as it would in texts of full size."""
    monkeypatch.setattr(texts, "MOST_PARTS", 30_000)
    for unit in (b"0.1,", b"1234567890,", b'"ab",'):
        data = b"[" + unit * (1_000_000 // len(unit)) + b"0]"
        tracemalloc.start()
        parse_json(data)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak / len(data) * LARGEST_JSON < 1.2e9


@pytest.mark.parametrize("kind", ["large", "pipe", "device", "folder"])
def test_a_file_that_is_refused(tmp_path: Path, kind: str) -> None:
    path = {"device": Path("/dev/zero"), "folder": tmp_path}.get(kind, tmp_path / "x")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "large":
        path.write_bytes(b"x" * 11)
    with pytest.raises((ValueError, OSError), match=r"is no file|has 11 bytes, more than any file"):
        read_bounded(path, 10)
    if kind != "large":
        with pytest.raises(OSError, match=r"no regular file|Is a directory"):
            open_file(path)


def test_a_text_of_the_largest_size_is_read(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"[1, 2]   1"[:6])
    assert read_json(tmp_path / "x", 6) == [1, 2]


def test_a_directory_of_a_zip_is_bounded(tmp_path: Path) -> None:
    """The end of the file says how large it is; zipfile would believe it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a", b"x")
    data = bytearray(buffer.getvalue() + bytes(22))
    end = data.rindex(b"PK\5\6")
    body = bytes(data[:end]) + bytes(LARGEST_DIRECTORY)
    record = bytearray(data[end : end + 22])
    record[12:16] = (LARGEST_DIRECTORY + 46).to_bytes(4, "little")
    (tmp_path / "x.zip").write_bytes(body + record)
    with pytest.raises(zipfile.BadZipFile, match="too many members"), opened_archive(tmp_path / "x.zip"):
        pass
    (tmp_path / "y.zip").write_bytes(buffer.getvalue())
    with opened_archive(tmp_path / "y.zip") as archive:
        assert archive.read("a") == b"x"


# ---- shown text

ODD = {"\x1b[2J": "\\x1b[2J", "\x1b]0;x\x07": "\\x1b]0;x\\x07", "\u202eab": "\\u202eab", "\x9b31m": "\\x9b31m", "a\u200bb": "a\\u200bb",
       "\x7f": "\\x7f", "\ud800": "\\ud800", "\u2028": "\\u2028", "\x08": "\\x08"}  # fmt: skip


@pytest.mark.parametrize("text", ODD)
def test_what_a_terminal_would_obey_is_text(text: str) -> None:
    assert printable(text) == displayed(text) == ODD[text]


def test_what_is_shown_as_it_is() -> None:
    plain = "34\u202f199 Gaussians, é, 右前, 🚗, –, ²"
    assert printable(plain) == displayed(plain) == plain
    assert printable("a\nb\rc\td") == "a\\nb\\rc\\td" and displayed("a\nb\rc\td") == "a\nb\rc\td"


@pytest.mark.parametrize("value", [torch.full((3, 3), 0.1), "a\nb", {"a": torch.zeros(2, 2)}, "\x1b[2J", "x" * 500])
def test_the_excerpt_of_any_value_is_part_of_a_line(value: object) -> None:
    assert excerpt(value).isprintable() and 3 <= len(excerpt(value)) <= 40


def test_streams_show_text_alone() -> None:
    stream = io.StringIO()
    Enduring(stream).write("\r 3% \x1b[31mred\u202e\n")
    assert stream.getvalue() == "\r 3% \\x1b[31mred\\u202e\n"


# ---- processes

CHILD = "import time; from nurec_lite.base.alive import end_with_parent; end_with_parent(); print('on', flush=True); time.sleep(60)"
FIRST = f"""
import os, subprocess, sys, time
from nurec_lite.base.alive import as_parent
between = ["sh", "-c", '"$0" -c "$1"; true', sys.executable, {CHILD!r}]
child = subprocess.Popen(between, env=os.environ | as_parent(), start_new_session=True)
print(child.pid, flush=True)
time.sleep(60)
"""


def test_a_process_ends_with_the_one_that_it_belongs_to() -> None:
    """The process ends even where a profiler stands between them, as a shell does here."""
    with subprocess.Popen([sys.executable, "-c", FIRST], stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        between = int(first.stdout.readline())
        assert first.stdout.readline() == "on\n"
        start = started(between) or 0
        assert alive(between, start)
        first.send_signal(signal.SIGKILL)  # and nobody asks for its end yet
        end = time.monotonic() + 60
        while alive(between, start) and time.monotonic() < end:
            time.sleep(0.05)
        assert not alive(between, start)


@pytest.mark.parametrize("found", ["", "x y", "1", "99999999999999999999999 1x", "-1 0"])
def test_an_environment_that_names_no_process(found: str) -> None:
    line = "from nurec_lite.base.alive import end_with_parent; end_with_parent()"
    assert subprocess.run([sys.executable, "-c", line], env=os.environ | {PARENT: found}, check=False).returncode == 0


def test_an_error_for_a_user_is_one_line() -> None:
    assert str(UserError("'a\nb' is no name; choose another")) == r"'a\nb' is no name; choose another"


def test_an_address_is_that_of_a_url() -> None:
    found = [host_and_port(host, 80) for host in ("127.0.0.1", "localhost", "::1", "::")]
    assert found == ["127.0.0.1:80", "localhost:80", "[::1]:80", "[::]:80"]
