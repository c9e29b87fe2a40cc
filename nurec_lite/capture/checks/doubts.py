# SPDX-License-Identifier: Apache-2.0
"""Verdicts that a report shows, in the log and in the folder of a run. A start reads this without the checks themselves."""

import json
import logging
from collections.abc import Iterable
from pathlib import Path

from nurec_lite.base.files import write_text
from nurec_lite.base.folders import discard
from nurec_lite.base.texts import read_json
from nurec_lite.capture.checks.verdict import Level, Verdict

log = logging.getLogger("nurec_lite")


def log_doubts(doubts: Iterable[Verdict]) -> None:
    for verdict in doubts:
        log.warning("%s", verdict.text)


def write_doubts(path: Path, doubts: Iterable[Verdict]) -> None:
    """Keeps them for a run that goes on. Without any there is no file."""
    rows = [verdict.plain() for verdict in doubts]
    if rows:
        write_text(path, json.dumps(rows, indent=2) + "\n")
    else:
        discard([path])


def read_doubts(path: Path) -> list[Verdict]:
    """Verdicts of a continued run; none if the file is missing or cannot be read."""
    try:
        return [Verdict(**row | {"level": Level[row["level"]]}) for row in read_json(path)]
    except (OSError, ValueError, KeyError, TypeError):
        return []
