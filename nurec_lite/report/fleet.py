# SPDX-License-Identifier: Apache-2.0
"""Tables of a fleet: results of its drives, and drives that failed, as Markdown and CSV."""

import csv
import io
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nurec_lite.base.files import write_text
from nurec_lite.base.texts import printable, read_json
from nurec_lite.cli.fleet import DONE, FAILED, FLEET, FORMER, SKIPPED, Drive, drives
from nurec_lite.cli.words import unquoted
from nurec_lite.evaluation.results import FIGURES, Figure
from nurec_lite.training.folder import METRICS

SHOWN = ("psnr", "ssim", "psnr_actors", "lidar_median_abs_m", "gaussians", "seconds_train", "seconds_total")
MARKDOWN, CSV = "fleet.md", "fleet.csv"
OF_THE_COMMAND = ("+sweep=", "out=", "hydra.")  # arguments that tell nothing of a drive


class Tables(NamedTuple):
    """Tables of a fleet as written, and how many drives they have."""

    text: str
    drives: int
    failed: int


def write_tables(place: Path) -> Tables | None:
    """Writes both files among the records, and returns the Markdown; None if no drive has a record of this command."""
    found = [drive for drive in drives(place) if drive.state != FORMER]
    if not found:
        return None
    metrics = [_metrics(Path(drive.folder)) for drive in found]
    text = markdown(found, metrics)
    write_text(place / FLEET / MARKDOWN, text + "\n")
    write_text(place / FLEET / CSV, csv_table(found, metrics))
    return Tables(text, len(found), sum(drive.state == FAILED for drive in found))


def _metrics(folder: Path) -> dict[str, Any]:
    try:
        found = read_json(folder / METRICS)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def markdown(found: Sequence[Drive], metrics: Sequence[dict[str, Any]]) -> str:
    """A line a drive with its figures, then the drives that failed, and those that did not end."""
    counts = Counter(drive.state for drive in found)
    parts = [
        f"{len(found)} {'drive' if len(found) == 1 else 'drives'}: {', '.join(f'{n} {state}' for state, n in counts.items())}."
    ]
    figures = [figure for figure in FIGURES if figure.key in SHOWN]
    of_own = _differing(found)
    good = [(d, m) for d, m in zip(found, metrics, strict=True) if d.state in (DONE, SKIPPED)]
    if good:
        heads = ["run", "drive", *(_head(figure) for figure in figures)]
        parts.append(
            _table(heads, [[d.folder, of_own[d.job], *(f.text(m.get(f.key)) for f in figures)] for d, m in good])
        )
    failed = [drive for drive in found if drive.state == FAILED]
    if failed:
        parts.append(_table(["failed", "drive", "reason"], [[d.folder, of_own[d.job], d.said] for d in failed]))
    open_ = [drive for drive in found if drive.state not in (DONE, SKIPPED, FAILED)]
    if open_:
        parts.append(_table(["still to do", "drive", "state"], [[d.folder, of_own[d.job], d.state] for d in open_]))
    return "\n\n".join(parts)


def _head(figure: Figure) -> str:
    return f"{figure.label}, {figure.unit}" if figure.unit else figure.label


def _differing(found: Sequence[Drive]) -> dict[int, str]:
    """The arguments of each drive that not all drives have, as a reader takes them; the capture if none differs."""
    words = {drive.job: [_plain(word) for word in drive.arguments] for drive in found}
    common = (
        set.intersection(*map(set, words.values())) if len(words) > 1 else {w for own in words.values() for w in own}
    )
    return {job: " ".join(_own(given, common)) for job, given in words.items()}


def _own(given: Sequence[str], common: set[str]) -> list[str]:
    own = [word for word in given if word not in common]
    root = [word for word in given if word.startswith("data.root=")]
    return own or root or [word for word in given if not word.startswith(OF_THE_COMMAND)]


def _plain(word: str) -> str:
    """An argument without quotes around its value."""
    key, sign, value = word.partition("=")
    return f"{key}{sign}{unquoted(value)}"


def _table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [[printable(cell).replace("|", "\\|") for cell in line] for line in (heads, *lines)]
    return "\n".join(f"|{'|'.join(row)}|" for row in (rows[0], ["---"] * len(heads), *rows[1:]))


def csv_table(found: Sequence[Drive], metrics: Sequence[dict[str, Any]]) -> str:
    """A line a drive, failed or not."""
    keys = [figure.key for figure in FIGURES if figure.key in SHOWN]
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["job", "state", "folder", "arguments", *keys, "said"])
    for drive, known in zip(found, metrics, strict=True):
        values = [known.get(key, "") for key in keys]
        table.writerow([drive.job, drive.state, drive.folder, shlex.join(drive.arguments), *values, drive.said])
    return text.getvalue()
