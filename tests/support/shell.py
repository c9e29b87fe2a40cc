# SPDX-License-Identifier: Apache-2.0
"""Runs commands in this process, as a shell would, and returns their output; the fixtures `shell` and `train` stand in
tests/cli/conftest.py.

def test_property(shell: Shell) -> None:
    assert_mendable(shell("train", "seed=-1"), r"seed is -1, but must lie between")
"""

import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from nurec_lite import compare, evaluate, export, inspect, pack, profile, render, serve, view
from nurec_lite.cli.command import command
from nurec_lite.train import HELP as TRAIN_HELP
from nurec_lite.train import work as train_work

VERBS = {
    "train": (TRAIN_HELP, train_work),
    "evaluate": (evaluate.HELP, evaluate.work),
    "render": (render.HELP, render.work),
    "export": (export.HELP, export.main),
    "pack": (pack.HELP, pack.work),
    "inspect": (inspect.HELP, inspect.work),
    "profile": (profile.HELP, profile.work),
    "compare": (compare.HELP, compare.work),
    "serve": (serve.HELP, serve.work),
    "view": (view.HELP, view.work),
}
FAST = ["ops=reference", "device=cpu", "train.steps=1", "train.seconds=null", "train.lidar_rays=64", "train.evaluate=false",
        "measure.seconds=0",
        "model.points=300", "model.raised_points=60", "model.far_points=40"]  # fmt: skip


@dataclass(frozen=True)
class Ended:
    code: int
    error: str  # text of the process on stderr
    out: str = ""  # and on stdout


@dataclass
class Shell:
    """Runs commands in this process."""

    patch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def __call__(self, verb: str, *arguments: str) -> Ended:
        self.patch.setattr(sys, "argv", [f"nurec_lite.{verb}", *arguments])
        self.capsys.readouterr()
        code: object = 0
        try:
            command(verb, *VERBS[verb])
        except SystemExit as end:
            code = end.code
        assert isinstance(code, int)
        found = self.capsys.readouterr()
        return Ended(code, found.err, found.out)


@dataclass
class Train:
    """Trains on a pack; of stderr the last line is told."""

    pack: Path
    shell: Shell

    def __call__(self, *arguments: str) -> Ended:
        fast = [argument for argument in FAST if not argument.startswith("train.steps=")]
        ended = self.shell("train", "data=pack", f"data.root={self.pack}", *fast, *arguments)
        assert "Traceback" not in ended.error
        return replace(ended, error=(lines_of(ended.error) or [""])[-1])


def lines_of(error: str) -> list[str]:
    """The lines of an output without progress bars."""
    return [line for line in re.split(r"[\r\n]+", error) if line and "%" not in line[:4]]


def assert_mendable(ended: Ended, pattern: str) -> None:
    assert ended.code == 2
    said = lines_of(ended.error)
    assert len(said) == 1 and said[0].startswith("error: ") and ended.error.endswith(said[0] + "\n"), ended.error
    assert re.search(pattern, ended.error), ended.error
    assert len(ended.error) < 600 and "Traceback" not in ended.error
