# SPDX-License-Identifier: Apache-2.0
"""nurec_lite.train as from a command line, in this process, on the tiny capture."""

import re
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from tiny_capture import tiny_capture

from nurec_lite import train
from nurec_lite.capture.pack import write_pack
from nurec_lite.cli.command import command

FAST = ["ops=reference", "device=cpu", "train.seconds=null", "train.lidar_rays=64", "train.evaluate=false",
        "model.points=300", "model.raised_points=60", "model.far_points=40"]  # fmt: skip
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    error: str  # the last line, without progress bars


@dataclass
class Train:
    """Calls the verb with a pack in a folder; `close` gives the process its handlers of signals back."""

    folder: Path
    patch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def __post_init__(self) -> None:
        self.pack = self.folder / "tiny.pack"
        write_pack(tiny_capture(), self.pack, image_format="png")
        self._handlers = {number: signal.getsignal(number) for number in SIGNALS}

    def __call__(self, *arguments: str) -> Said:
        given = ["data=pack", f"data.root={self.pack}", *FAST, *arguments]
        self.patch.setattr(sys, "argv", ["nurec_lite.train", *given])
        self.capsys.readouterr()
        code: object = 0
        try:
            command("train", train.HELP, lambda arguments: train.main())
        except SystemExit as end:
            code = end.code
        assert isinstance(code, int)
        told = self.capsys.readouterr()
        assert "Traceback" not in told.err
        lines = [line for line in re.split(r"[\r\n]+", told.err) if line and "%" not in line[:4]]
        return Said(code, told.out, lines[-1] if lines else "")

    def close(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
