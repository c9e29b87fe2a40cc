# SPDX-License-Identifier: Apache-2.0
"""Contents of the page of an option: its idea, its shelf, its gain, and its number of lines."""

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from nurec_lite.base.errors import UserError
from nurec_lite.base.options import option_module
from scripts.option_pages.excerpts import source
from scripts.option_pages.measured import GAUGES, RESULTS, ROOT, Pair, ladder, pair_alone, pair_rung, read, rungs

FOLDER = ROOT / "docs/options"
SHELVES = ("post", "all", "lab")
NAMES = "facts|code|step|nsys|ncu|files|repeat|shelf|options of the readme"
REGION = re.compile(rf"(<!-- ({NAMES}):([^\n]*?) -->\n).*?(<!--end-->)", re.DOTALL)


@dataclass(frozen=True)
class Option:
    """Contents of an option's page."""

    name: str
    idea: str  # in under 12 words
    shelf: str
    alone: Pair | None  # None: not measured yet
    rung: Pair | None  # None: it has none
    lines: int  # to two digits, so that pages do not change with every line

    @property
    def page(self) -> Path:
        return FOLDER / f"{self.name}.md"

    @property
    def classed(self) -> str:
        return str(option_module(self.name).CLASS)


def order() -> list[str]:
    """Returns the options in the order of the chain, then of the post's ladder, others after them."""
    others = sorted(path.stem for path in FOLDER.glob("*.md"))
    known = dict.fromkeys((*(row["name"] for row in rungs()), *ladder(), *others))
    return [name for name in known if name in others]


@lru_cache
def option_of(name: str) -> Option:
    """Reads the page of an option."""
    text = source(FOLDER / f"{name}.md")
    found = {region: arguments for _, region, arguments, _ in REGION.findall(text)}
    idea = re.search(r"^\*\*(.+)\*\*$", text, re.MULTILINE)
    if idea is None or "facts" not in found or "files" not in found:
        raise UserError(f"docs/options/{name}.md needs a bold line with its idea, and the regions facts and files")
    facts = _arguments(name, found["facts"])
    rung = stated(facts["rung"]) if "rung" in facts else pair_rung(name, facts["gauge"])
    lines = _rounded(sum(source(file).count("\n") for file in files_of(FOLDER / f"{name}.md")))
    return Option(name, idea[1].rstrip("."), facts["shelf"], pair_alone(name, facts["gauge"]), rung, lines)


def _arguments(name: str, words: str) -> dict[str, str]:
    """Returns those of the region facts, `shelf` and `gauge` among them."""
    facts = dict(word.partition("=")[::2] for word in words.split(maxsplit=2))
    for key, known in (("shelf", SHELVES), ("gauge", tuple(GAUGES))):
        if facts.get(key) not in known:
            raise UserError(f"docs/options/{name}.md has {key}={facts.get(key, '')}; take {', '.join(known)}")
    return facts


def _rounded(lines: int) -> int:
    return int(float(f"{lines:.1e}"))


def stated(words: str) -> Pair:
    """Returns the pair of `WHAT|FILE:PATH|FILE:PATH|FACTOR|UNIT`."""
    what, before, after, factor, unit = (
        (*words.split("|"), "1", "ms")[:5] if words.count("|") == 2 else words.split("|")
    )
    return Pair(*(_value(one) * float(factor) for one in (before, after)), what, unit)


def _value(place: str) -> float:
    file, _, where = place.partition(":")
    try:
        tree = read(RESULTS / file)
        for key in where.split("/"):
            tree = tree[int(key)] if isinstance(tree, list) else tree[key]
        return float(tree)
    except (OSError, LookupError, ValueError, TypeError) as error:
        raise UserError(
            f"a page quotes '{place}', which is not there ({error}); name a file of benchmarks/results"
        ) from error


def files_of(page: Path) -> list[Path]:
    """Returns the files of the option, as its page names them."""
    (named,) = (arguments for _, region, arguments, _ in REGION.findall(source(page)) if region == "files")
    return [ROOT / file for file in named.split()]
