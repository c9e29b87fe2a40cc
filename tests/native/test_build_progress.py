# SPDX-License-Identifier: Apache-2.0
"""Progress of a build, on a terminal and in a log."""

import sys
import time

import pytest

from nurec_lite.native import build


def said(capsys: pytest.CaptureFixture[str], result: float, *lines: str) -> str:
    for line in lines:
        result = build._progress(line, result)
    return capsys.readouterr().err


def test_a_log_gets_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    long_ago = time.monotonic() - build._EVERY
    assert said(capsys, long_ago, "[2/9] g++ a.cpp", "[3/9] g++ b.cpp") == "[2/9] kernels compiled\n"
    assert said(capsys, time.monotonic(), "[4/9] g++ c.cpp") == said(capsys, long_ago, "a warning") == ""


def test_a_terminal_gets_all_on_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    found = said(capsys, time.monotonic(), "[2/9] g++ a.cpp", "a warning", "[3/9] g++ b.cpp")
    assert found == "\r[2/9] kernels compiled \r[3/9] kernels compiled "
