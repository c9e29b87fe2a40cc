# SPDX-License-Identifier: Apache-2.0
"""scripts/fuzz.py: its short form finds nothing, and it does find a planted fault."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_capture import ROOT

SCRIPT = ROOT / "scripts/fuzz.py"


def fuzzed(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    given = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])} | environment
    line = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(line, capture_output=True, text=True, check=False, env=given, timeout=600)


@pytest.mark.slow
def test_the_short_form_finds_nothing() -> None:
    """docs/reliability.md has the figures of the long one."""
    ended = fuzzed("--inputs", "350", "--jobs", "1", "--seed", "11")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "350 inputs (seed 11)" in ended.stdout and ended.stdout.rstrip().endswith("; 0 findings")
    assert len(re.findall(r"(pack|checkpoint|KITTI|keys|configurations)[a-z ]* \d+", ended.stdout)) == 9


DEFECTS = """
import ctypes, os, sys, time
sys.path.insert(0, {support!r})
import fuzz_targets
from fuzz_targets import Target
def wrong(kind):
    def run(folder, steps):
        if 3 not in steps: return
        if kind == "crash": ctypes.string_at(0)
        if kind == "hang":
            while True: pass
        if kind == "memory": bytearray(2 << 30)
        if kind == "trace": raise KeyError("x")
        if kind == "long": raise fuzz_targets.export.ConfigError("a" * 5000)
    return run
fuzz_targets.TARGETS = tuple(Target(kind, 1, lambda rng: [3, 4], wrong(kind)) for kind in {kinds!r})
sys.argv = ["fuzz.py", "--inputs", "5", "--jobs", "1", "--seed", "95"]
exec(compile(open({script!r}).read(), {script!r}, "exec"), {{"__name__": "__main__", "__file__": {script!r}}})
"""
FOUND = {  # by the kind of defect; each comes once with this seed
    "crash": r"the process ended with -11\n    \[3, 4\]", "hang": r"TooLongError at .*more than 2 s'\n    \[3\]",
    "memory": r"MemoryError at .*\n    \[3\]", "trace": r"KeyError at the program: .*\n    \[3\]",
    "long": r"ConfigError at .* is no sentence: .*\n    \[3\]",
}  # fmt: skip


def test_defects_are_found_and_minimised(tmp_path: Path) -> None:
    program = DEFECTS.format(support=str(ROOT / "tests/support"), kinds=tuple(FOUND), script=str(SCRIPT))
    (tmp_path / "defect.py").write_text(program)
    given = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    line = [sys.executable, str(tmp_path / "defect.py")]
    ended = subprocess.run(line, capture_output=True, text=True, check=False, env=given, timeout=300)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    for kind, said in FOUND.items():
        assert re.search(rf"{kind} \d+ \(\d+ times\): .*{said}", ended.stdout), ended.stdout
    assert "; 5 findings" in ended.stdout
