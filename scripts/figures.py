# SPDX-License-Identifier: Apache-2.0
"""Writes the figures that README.md and docs/ quote, and the table that they come from: make figures

A figure is a link with its id, [150 s](benchmarks/figures.csv#street-seconds). Its row in that table names the report in
benchmarks/results and the place in it (scripts/figure_table.py). The number of the link keeps its digits, and the words around it stay.
For a new figure, write a row with id, unit, file and where, and in the page [0.00 dB](../benchmarks/figures.csv#ID).

After a comment `printed: FILE` stand the first lines that training prints for that file of metrics. Tables of ladders stand between the
markers that benchmarks/ladder/ladder.py fills. After a comment `options: FILE QUALITY` stands that of benchmarks/ladder/bench_options.py,
with a column of benchmarks/ladder/option_quality.py once the second file is there; after `ablation: FILE` that of
benchmarks/ladder/ablation.py; after `scaling: FILE` that of benchmarks/scaling/bench_scaling.py.
The pages of options, docs/options/X.md, their pictures and the tables that lead to them are those of scripts/option_pages/pages.py.

python scripts/figures.py            writes the pages, and names those that changed
python scripts/figures.py --check    changes nothing; exit status 2 if a page would change
"""

import re
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.ladder.ablation import table as ablation_table
from benchmarks.ladder.ladder import PAGE as LADDERS
from benchmarks.ladder.ladder import page_of, read
from benchmarks.ladder.options_table import table as options_table
from benchmarks.scaling.scaling_table import table as scaling_table
from nurec_lite.base.errors import UserError
from nurec_lite.base.files import write_text
from nurec_lite.base.program import Parser, ends_with_a_sentence
from nurec_lite.evaluation.results import table
from scripts.figure_table import TABLE as TABLE_OF_FIGURES
from scripts.figure_table import Row, content, derived, rows_of, shown, text_of
from scripts.option_pages import pages as option_pages

ROOT = Path(__file__).resolve().parents[1]
QUOTED = re.compile(r"\[([^\]\[]+)\]\(((?:\.\./)*benchmarks/figures\.csv)#([\w-]+)\)")
PRINTED = re.compile(r"(<!-- printed: (\S+) -->\n```text\n).*?```", re.DOTALL)
TABLES = {  # by the comment before them
    "options": options_table,
    "ablation": ablation_table,
    "scaling": scaling_table,
}
TABLE = re.compile(r"(<!-- (options|ablation|scaling): (\S+(?: \S+)*) -->\n\n)(?:\|.*\n)*")
SHOWN = 5  # lines


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs/options").glob("*.md"))]


@lru_cache
def table_of_figures() -> dict[str, Row]:
    """Returns the rows of the table as their reports have them."""
    return {name: derived(row) for name, row in rows_of(TABLE_OF_FIGURES).items()}


def filled(page: Path, text: str, rows: dict[str, Row]) -> str:
    """Returns the text of a page with its figures."""

    def link(found: re.Match[str]) -> str:
        if found[3] not in rows:
            raise UserError(
                f"{page.name} quotes the figure {found[3]}, which {found[2]} lacks; add a row, or mend the id"
            )
        return f"[{shown(rows[found[3]], found[1])}]({found[2]}#{found[3]})"

    return QUOTED.sub(link, text)


def idle(rows: dict[str, Row], texts: Iterable[str]) -> list[str]:
    """Returns the ids that no page quotes."""
    used = {name for text in texts for _, _, name in QUOTED.findall(text)}
    return [name for name in rows if name not in used]


def printed(page: Path, text: str) -> str:
    """Returns the text with the lines that training prints at its end."""

    def block(found: re.Match[str]) -> str:
        lines = table(content(page.parent / found[2])).splitlines()
        steps = [line for line in lines[SHOWN:] if line.split()[0] == "Steps"]  # few of them explain lower figures
        return "\n".join([f"{found[1].rstrip()}", *lines[:SHOWN], "  ...", *steps, "```"])

    return PRINTED.sub(block, text)


def tables(page: Path, text: str) -> str:
    """Returns the text with the tables of options, choices and sizes."""

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
    return filled(page, option_pages.filled(page, text), table_of_figures())


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--check", action="store_true", help="changes nothing")
    check = parser.parse_args().check
    with ends_with_a_sentence():
        made = {page: new(page) for page in pages()}
        if names := idle(table_of_figures(), made.values()):
            raise UserError(
                f"no page quotes the figures {', '.join(names)}; remove their rows from {TABLE_OF_FIGURES.name}"
            )
        made |= option_pages.pictures() | {TABLE_OF_FIGURES: text_of(table_of_figures())}
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
