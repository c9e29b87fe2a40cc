# SPDX-License-Identifier: Apache-2.0
"""Writing to a stream that nobody reads fails nowhere; other mistakes still do."""

import io
import os
import subprocess
import sys

import pytest
from tiny_capture import ROOT

from nurec_lite.base.streams import Enduring


def test_a_reader_that_has_gone() -> None:
    reader, writer = os.pipe()
    stream = Enduring(os.fdopen(writer, "w"))
    os.close(reader)
    for _ in range(3):
        assert stream.write("hello\n") == 6
        stream.flush()
    os.write(writer, b"and what libraries print")  # leads nowhere now
    stream.close()


def test_a_full_disk_may_have_space_again(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with open("/dev/full", "w") as full:
        stream = Enduring(full)
        stream.write("hello")
        stream.flush()
        assert os.path.samestat(os.fstat(full.fileno()), os.stat("/dev/full")), "it was not given up"
        os.dup2(os.open(tmp_path / "log", os.O_CREAT | os.O_WRONLY), full.fileno())
    assert (tmp_path / "log").read_text() == "hello"


def test_a_stream_that_was_closed() -> None:
    stream = Enduring(io.StringIO())
    stream.close()
    assert stream.write("hello") == 5
    stream.flush()


def test_an_encoding_is_somebody_s_business() -> None:
    stream = Enduring(io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    with pytest.raises(UnicodeEncodeError):
        stream.write("ä")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&- <&-"])
def test_closed_descriptors_are_taken_by_no_file(closed: str) -> None:
    code = (
        "from nurec_lite.base.streams import endure; import os, sys; endure(); print('x'); print('y', file=sys.stderr); "
        "file = os.open('/dev/null', os.O_RDONLY); sys.exit(0 if file > 2 else 1)"
    )
    ended = subprocess.run(["bash", "-c", f'"$0" -c "$1" {closed}', sys.executable, code], cwd=ROOT, timeout=60)
    assert ended.returncode == 0


def test_characters_that_an_encoding_lacks_end_no_run() -> None:
    code = "from nurec_lite.base.streams import endure; endure(); print('0.0027 m²')"
    surroundings = {**os.environ, "PYTHONIOENCODING": "ascii"}
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=surroundings, capture_output=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"0.0027 m\\xb2\n", b"")
