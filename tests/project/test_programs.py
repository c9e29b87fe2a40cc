# SPDX-License-Identifier: Apache-2.0
"""scripts/ and benchmarks/ speak one dialect: --help, the same names for the same flags, and one sentence with code 2 for a mistake."""

import re
import runpy
import sys
from pathlib import Path

import pytest

from nurec_lite.base.paths import PACKAGE

ROOT = PACKAGE.parent
CHILDREN = {"ladder_child.py", "faults_child.py", "diagnose_child.py", "start_child.py"}  # that another program starts
FILES = [path for folder in ("scripts", "benchmarks") for path in sorted((ROOT / folder).rglob("*.py"))]
PROGRAMS = [
    str(path.relative_to(ROOT)) for path in FILES if "__main__" in path.read_text() and path.name not in CHILDREN
]
GONE = {"--kitti", "--poses", "--downscale", "--sets"}  # KEY=VALUE of nurec_lite.train, and --opt
NEEDS = {
    "scripts/drive_scene.py": "grpc",
    "scripts/fuzz.py": "ncore",
    "benchmarks/render/bench_service.py": "google.protobuf",
}


def ended(program: str, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    if program in NEEDS:
        pytest.importorskip(NEEDS[program])
    monkeypatch.setattr(sys, "argv", [str(ROOT / program), *arguments])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(ROOT / program), run_name="__main__")
    return int(end.value.code or 0)


def test_there_are_programs() -> None:
    assert len(PROGRAMS) > 20 and "scripts/licences.py" in PROGRAMS


@pytest.mark.parametrize("program", PROGRAMS)
def test_help_is_the_text_with_the_flags(
    program: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(program, monkeypatch, "--help") == 0
    said = capsys.readouterr().out
    first = re.search(r'"""(.+?)[.:;,\n]', (ROOT / program).read_text())
    assert first is not None and first[1].replace("%%", "%") in said
    known = set(re.findall(r"--[\w-]+", said))
    assert not GONE & known and ("--out" in known or program.startswith("scripts/"))


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_mistake_is_one_sentence_with_code_2(
    program: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(program, monkeypatch, "--no-such-flag") == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1 and said[0].startswith("error: "), said


def test_a_capture_that_is_not_there_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["data=pack", f"data.root={tmp_path / 'no.pack'}", "--out", str(tmp_path / "out")]
    for program in (
        "benchmarks/opt/bench_workers.py",
        "benchmarks/render/bench_reference.py",
    ):
        assert ended(program, monkeypatch, *given) == 2
        assert re.fullmatch(r"error: .*no\.pack does not exist; .*\n", capsys.readouterr().err)
        assert not (tmp_path / "out").exists()
