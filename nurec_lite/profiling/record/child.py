# SPDX-License-Identifier: Apache-2.0
"""Runs the process that is profiled, with or without a tool around it, and checks how it ended."""

import json
import logging
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nurec_lite.base.alive import as_parent
from nurec_lite.base.folders import make_way
from nurec_lite.config import ProfileConfig
from nurec_lite.profiling.errors import ProfileError
from nurec_lite.profiling.record.tools import PRODUCT
from nurec_lite.profiling.record.window import window_command

log = logging.getLogger("nurec_lite")


@dataclass(frozen=True)
class Ended:
    code: int
    output: str  # of stdout and stderr together
    log: Path  # which holds it, too


def run_logged(
    command: list[str],
    path: Path,  # of the log
    **surroundings: str,  # variables of the environment that differ
) -> Ended:
    """Runs a command with its output in a log, and waits for its end."""
    make_way(path)
    with path.open("wb") as file:
        try:
            code = subprocess.run(
                command,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, **as_parent(), **surroundings},
                check=False,
            ).returncode
        except OSError as error:
            raise ProfileError(f"{command[0]} cannot be run ({error}); install it again") from error
    return Ended(code, path.read_text(errors="replace"), path)


def said(out: Path, mode: str) -> bool:
    """Whether the process came as far as to say how its window went."""
    return (out / f"window-{mode}.json").is_file()


def began(out: Path, mode: str) -> bool:
    """Whether the process ran at all: a tool that cannot record ends before it starts one."""
    return (out / f"window-{mode}.began").is_file()


def read_window(
    out: Path,
    mode: str,
    ended: Ended,
    tool: str | None = None,  # that started the process
) -> dict[str, Any]:
    """The report of the process about its window; ProfileError if it names something to mend, or says nothing."""
    if said(out, mode):
        result: dict[str, Any] = json.loads((out / f"window-{mode}.json").read_text())
        if "error" in result:
            raise ProfileError(result["error"])
        return result
    last = next((line.strip() for line in reversed(ended.output.splitlines()) if line.strip()), "it said nothing")
    if tool is not None and not began(out, mode):
        raise ProfileError(
            f"{tool} ended with code {ended.code} before the training began ({last}); {ended.log} has its output; "
            f"install another {PRODUCT[tool]}, or use tool=torch"
        )
    raise ProfileError(
        f"the training steps ended with code {ended.code} before all were recorded ({last}); {ended.log} has the whole "
        "output, and python -m nurec_lite.train with the same keys shows whether they run without a profiler"
    )


def run_window(config: ProfileConfig, out: Path, mode: str) -> dict[str, Any]:
    """Runs the window without a tool around it; returns its report."""
    ended = run_logged(window_command(config, out, mode), out / f"{mode}.log")
    return read_window(out, mode, ended)


def waiting_lines(config: ProfileConfig, out: Path) -> dict[str, int] | None:
    """FILE:LINE -> how often it made the host wait, in a pass of its own; None if that pass failed."""
    log.info("again, for the lines that make the host wait for the GPU")
    try:
        return dict(run_window(config, out, "syncs")["lines"])
    except ProfileError as error:
        log.warning("the lines are not known: %s", error)
        return None
