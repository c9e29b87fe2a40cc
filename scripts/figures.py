# SPDX-License-Identifier: Apache-2.0
"""Writes the figures that README.md and docs/ quote, each from the file it links to: make figures

A figure is a link, [150 s][street-time], and at the end of its page stands where it comes from:

    [street-time]: benchmarks/results/train_street_cpu_2_threads.json "seconds_train: {:.0f} s"

The path within the file has slashes; in a list, or where there is no such name, a number counts from 0; a row of a CSV file goes by its
first column. A factor may follow: "peak_memory_bytes*1e-9: {:.2f} GB". Where the file is not there yet, the page says so. After a
comment `printed: FILE` stands what training prints for that file of metrics, its first lines. Tables of ladders stand between the
markers that benchmarks/ladder/ladder.py fills; after a comment `options: FILE QUALITY` that of benchmarks/ladder/bench_options.py, with
a column of benchmarks/ladder/option_quality.py once the second file is there; after `ablation: FILE` that of benchmarks/ladder/ablation.py.
The pages of options, docs/options/X.md, their pictures and the tables that lead to them are those of scripts/option_pages/pages.py.

python scripts/figures.py            writes the pages, and names those that changed
python scripts/figures.py --check    changes nothing; exit status 2 if a page would change
"""

import csv
import json
import re
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.ladder.ablation import table as ablation_table
from benchmarks.ladder.ladder import PAGE as LADDERS
from benchmarks.ladder.ladder import page_of, read
from benchmarks.ladder.options_table import table as options_table
from nurec_lite.base.errors import UserError
from nurec_lite.base.files import write_text
from nurec_lite.base.program import Parser, told
from nurec_lite.evaluation.results import table
from scripts.option_pages import pages as option_pages

ROOT = Path(__file__).resolve().parents[1]
DEFINITION = re.compile(r'^\[([\w-]+)\]: (\S+) "([^":]+): ([^"]+)"$', re.MULTILINE)
PRINTED = re.compile(r"(<!-- printed: (\S+) -->\n```text\n).*?```", re.DOTALL)
TABLES = {  # by the comment before them
    "options": options_table,
    "ablation": ablation_table,
}
TABLE = re.compile(r"(<!-- (options|ablation): (\S+(?: \S+)*) -->\n\n)(?:\|.*\n)*")
SHOWN = 4  # lines
MISSING = "not measured yet"


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs/options").glob("*.md"))]


@lru_cache
def content(file: Path) -> Any:
    """A CSV file as rows by their first column."""
    if file.suffix == ".csv":
        with file.open(newline="") as lines:
            return {next(iter(row.values())): row for row in csv.DictReader(lines)}
    return json.loads(file.read_text())


def value(tree: Any, where: str) -> float | str:
    """LookupError where there is nothing."""
    path, _, factor = where.partition("*")
    for name in path.split("/"):
        inside = tree if isinstance(tree, list) else list(tree.values())
        tree = tree[name] if isinstance(tree, dict) and name in tree else inside[int(name)]
    try:
        return float(tree) * float(factor or 1)
    except ValueError:
        return str(tree)


def figure(page: Path, target: str, where: str, form: str) -> str:
    file = page.parent / target
    if not file.is_file():
        return MISSING
    try:
        return form.format(value(content(file), where))
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        raise UserError(f'{page.name} quotes "{where}: {form}", which {target} does not hold ({error})') from error


def filled(page: Path, text: str) -> str:
    """The text of a page with its figures; UserError where a definition is used nowhere."""
    for label, target, where, form in DEFINITION.findall(text):
        written = f"[{figure(page, target, where, form)}][{label}]"
        text, uses = re.subn(rf"\[[^\]\[]*\]\[{label}\]", written.replace("\\", r"\\"), text)
        if not uses:
            raise UserError(f"{page.name} defines the figure {label} and uses it nowhere; remove its line")
    return text


def printed(page: Path, text: str) -> str:
    """With what training prints at its end."""

    def block(found: re.Match[str]) -> str:
        lines = table(content(page.parent / found[2])).splitlines()[:SHOWN]
        return "\n".join([f"{found[1].rstrip()}", *lines, "  ...", "```"])

    return PRINTED.sub(block, text)


def tables(page: Path, text: str) -> str:
    """With the tables of what every option and every choice is worth."""

    def block(found: re.Match[str]) -> str:
        files = [page.parent / name for name in found[3].split()]
        rows = [content(file)["rows"] for file in files if file.is_file() or file == files[0]]
        return f"{found[1]}{TABLES[found[2]](*rows)}\n"

    return TABLE.sub(block, text)


def ladders(text: str) -> str:
    """The page of ladders, with the table of each."""
    for folder in sorted((ROOT / "benchmarks/results").glob("ladder_*")):
        text = page_of(text, *read(folder), folder)
    return text


def new(page: Path) -> str:
    text = page.read_text()
    text = tables(page, printed(page, ladders(text) if page == LADDERS else text))
    return filled(page, option_pages.filled(page, text))


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--check", action="store_true", help="changes nothing")
    check = parser.parse_args().check
    with told():
        made = {page: new(page) for page in pages()} | option_pages.pictures()
        changed = {page: text for page, text in made.items() if not page.is_file() or text != page.read_text()}
        names = ", ".join(page.name for page in changed)
        if check and changed:
            raise UserError(f"figures of {names} are not those of their files; make figures writes them")
        for page, text in changed.items():
            page.parent.mkdir(parents=True, exist_ok=True)
            write_text(page, text)
        print(f"figures written: {names}" if changed else "figures stand as in their files")


if __name__ == "__main__":
    main()
