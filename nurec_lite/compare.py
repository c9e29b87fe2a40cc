# SPDX-License-Identifier: Apache-2.0
"""python -m nurec_lite.compare: puts finished runs side by side, in one table and on one page."""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import difflib
import os
from functools import partial
from pathlib import Path

from nurec_lite.base.errors import ConfigError
from nurec_lite.base.files import all_tried, write_text
from nurec_lite.base.folders import check_file
from nurec_lite.base.key_values import quoted
from nurec_lite.cli.arguments import is_path, key_of
from nurec_lite.cli.command import command, composed
from nurec_lite.config import CompareConfig
from nurec_lite.report.comparison.page import is_page, page
from nurec_lite.report.comparison.rows import csv_table, markdown
from nurec_lite.report.comparison.runs import read_runs

HELP = """
Puts finished runs side by side: the settings that differ, all figures, the same held-out frames, and curves over seconds.

  python -m nurec_lite.compare runs/a runs/b                            prints a table, and writes compare.html
  python -m nurec_lite.compare runs/a runs/b runs/c csv=runs.csv        the table as CSV too, a line a run
  python -m nurec_lite.compare runs/a runs/b out=runs/a-and-b.html      the page goes to another file

A run is the folder that train or evaluate wrote, or a file in it. What a run lacks (it was ended before it was measured, say) is a
sentence above the table. The page needs no other file. After several runs by one command (train -m) the table is printed, too.
"""
_KEYS = ("out", "csv", "runs")


def with_runs(
    arguments: list[str],
) -> list[str]:  # KEY=VALUE each
    """The arguments that stand without a key are folders of runs, also where their names hold `=`."""
    keyed = [argument for argument in arguments if "=" in argument and key_of(argument) in _KEYS]
    others = [argument for argument in arguments if argument not in keyed]
    for argument in others:
        _check_key(argument)
    folders = [quoted(argument) for argument in others]
    return [*keyed, f"runs=[{','.join(folders)}]"] if folders else keyed


def _check_key(argument: str) -> None:
    """Raises ConfigError for an unknown key; a folder whose name holds `=` is a run."""
    if is_path(argument, _KEYS):
        return
    near = difflib.get_close_matches(key_of(argument), _KEYS, 1)
    asked = f"did you mean {near[0]}=...?" if near else f"the keys are {', '.join(_KEYS)}"
    raise ConfigError(f"'{argument}' is no folder and no key; {asked}")


def work(arguments: list[str]) -> None:
    config: CompareConfig = composed("compare", with_runs(arguments))
    runs = read_runs(config.runs)
    files = [path for path in (config.out, config.csv) if path is not None]
    check_file(Path(config.out), is_page, ".html")
    if config.csv is not None:
        if os.path.realpath(config.csv) == os.path.realpath(config.out):
            raise ConfigError(f"out and csv are both {config.out}; name two files")
        check_file(Path(config.csv), lambda head: head.startswith(b"run,folder"), ".csv")
    print(markdown(runs))
    tables = [] if config.csv is None else [partial(write_text, Path(config.csv), csv_table(runs))]
    all_tried(*tables, partial(write_text, Path(config.out), page(runs)))
    print(f"\nresults in {', '.join(files)}")


if __name__ == "__main__":
    command("compare", HELP, work)
