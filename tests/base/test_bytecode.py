# SPDX-License-Identifier: Apache-2.0
"""A start without kept bytecode names the cause and a remedy."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from nurec_lite.base import environment

PROGRAM = """
import sys
sys.path.insert(0, {folder!r})
from nurec_lite.base import bytecode
bytecode.PACKAGE = "large"
import large
print(bytecode.compiled_anew())
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "large").mkdir()
    (tmp_path / "large/__init__.py").write_text("")
    return tmp_path


def said(package: Path, **variables: str) -> str:
    """Returns the sentence of a program that imports the package, or None in words."""
    command = [sys.executable, "-c", PROGRAM.format(folder=str(package))]
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path)), **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def test_bytecode_that_is_kept_needs_no_word(package: Path) -> None:
    assert [said(package), said(package)] == ["None", "None"]


def test_a_variable_forbids_it(package: Path) -> None:
    found = said(package, PYTHONDONTWRITEBYTECODE="1")
    assert found.startswith("PYTHONDONTWRITEBYTECODE or -B forbids") and found.endswith("unset it, and leave -B out")
    assert said(package) == "None"


def test_bytecode_of_an_earlier_start_is_used(package: Path) -> None:
    said(package)
    assert said(package, PYTHONDONTWRITEBYTECODE="1") == "None"


def test_a_folder_that_cannot_be_written(package: Path) -> None:
    """The remedy helps: bytecode goes to the folder of the variable."""
    (package / "large/__pycache__").write_text("a file in its place")
    found = said(package)
    assert found.startswith(f"Python cannot write into {package}/large/__pycache__,")
    assert found.endswith("set PYTHONPYCACHEPREFIX to a folder of your own")
    assert said(package, PYTHONPYCACHEPREFIX=str(package / "own")) == "None"


@pytest.mark.parametrize("sentence", [None, "Python cannot write"])
def test_reports_say_that_starts_took_longer(sentence: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "compiled_anew", lambda: sentence)
    assert ("bytecode" in environment.environment(torch.device("cpu"))) == (sentence is not None)
