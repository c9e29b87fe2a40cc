# SPDX-License-Identifier: Apache-2.0
"""The pages docs/options/X.md, one an option, and the tables that lead to them.

A page is its own source: sentences stand in it, and the generator fills what lies between `<!-- NAME: ARGUMENTS -->` and `<!-- end -->`:

    facts: shelf=all gauge=gpu      class, needs, gain and picture; shelf is post, all or lab; gauge gpu, step or feed
           rung=WHAT|FILE:PATH|FILE:PATH|FACTOR|UNIT   where the chain does not measure the option; FACTOR and UNIT may be left out
    code: FILE::NAME; FILE::NAME    definitions before and after the option, cut from the files (`excerpts.excerpt`)
    step:                           a step without and with the option (torch.profiler)
    nsys: LABEL=PROFILE; ...        profiles by nsys side by side
    ncu: LABEL=PROFILE:KERNEL@RANGE; ...   launches of a profile by ncu
    files: FILE ...                 links to the files of the option, their kernels and how many lines they have
    repeat:                         the commands that measure it again

and in other pages `shelf: post`, `shelf: all`, `shelf: lab` and `options of the readme:` the lines of these options.
"""

import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import import_module
from os.path import relpath
from pathlib import Path

from nurec_lite.base.errors import UserError
from scripts.option_pages import chart
from scripts.option_pages.excerpts import excerpt, kernels_of, source
from scripts.option_pages.measured import (
    GAUGES,
    MISSING,
    OPTIONS,
    RESULTS,
    ROOT,
    Pair,
    ladder,
    launches,
    ncu_table,
    nsys_table,
    pair_alone,
    pair_rung,
    read,
    rungs,
    step_table,
    table,
)

FOLDER = ROOT / "docs/options"
PICTURES = ROOT / "docs/images/options"
CHAIN = ROOT / "docs/images/chain.svg"
SHELVES = ("post", "all", "lab")
NAMES = "facts|code|step|nsys|ncu|files|repeat|shelf|options of the readme"
REGION = re.compile(rf"(<!-- ({NAMES}):([^\n]*?) -->\n).*?(<!-- end -->)", re.DOTALL)
FILTER = ".*_kernel"  # of ncu: all kernels of ours
CUDA = (".cu", ".cuh")
KEYS = "data=kitti_raw data.root=FOLDER +size=large train.seconds=null train.steps=20000"


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
        return str(import_module(f"nurec_lite.opt.{self.name}").CLASS)


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


# ---- regions


def filled(page: Path, text: str) -> str:
    """Returns the text of a page with its regions."""

    def region(found: re.Match[str]) -> str:
        return f"{found[1]}\n{REGIONS[found[2]](page, found[3].strip())}\n\n{found[4]}"

    return REGION.sub(region, text)


def _link(page: Path, target: Path) -> str:
    return relpath(target, page.parent)


def _linked(page: Path, words: str, target: Path) -> str:
    return f"[{words}]({_link(page, target)})"


def _facts(page: Path, arguments: str) -> str:
    own, module = option_of(page.stem), import_module(f"nurec_lite.opt.{page.stem}")
    needs = ", ".join(_linked(page, f"`{name}`", FOLDER / f"{name}.md") for name in module.REQUIRES) or "nothing"
    note = "\n\n\\* from the baseline: what it needs came with it." if own.alone and own.alone.from_none else ""
    return (
        f"{table(('class', 'needs', 'alone', 'as a rung'), [(own.classed, needs, own.alone or MISSING, own.rung or 'none')], 4)}{note}\n\n"
        f"![Bars: before and after {own.name}]({_link(page, PICTURES / f'{own.name}.svg')})"
    )


def _code(page: Path, arguments: str) -> str:
    blocks = []
    for label, place in zip(("Before", "After"), _list(arguments), strict=True):
        file, _, name = place.partition("::")
        piece = excerpt(ROOT / file, name)
        link = _linked(page, file, ROOT / file)
        blocks.append(f"{label}: {link}\n\n```{piece.language}\n{piece.text}\n```")
    return "\n\n".join(blocks)


def _step(page: Path, arguments: str) -> str:
    return step_table(page.stem)


def _nsys(page: Path, arguments: str) -> str:
    return nsys_table(_list(arguments), partial(_linked, page))


def _ncu(page: Path, arguments: str) -> str:
    return ncu_table(_list(arguments), partial(_linked, page))


def _list(arguments: str) -> list[str]:
    return [one.strip() for one in arguments.split(";")]


def files_of(page: Path) -> list[Path]:
    """Returns the files of the option, as its page names them."""
    (named,) = (arguments for _, region, arguments, _ in REGION.findall(source(page)) if region == "files")
    return [ROOT / file for file in named.split()]


def _files(page: Path, arguments: str) -> str:
    files = files_of(page)
    links = ", ".join(_linked(page, file.name, file) for file in files)
    kernels = [f"`{name}`" for file in files if file.suffix in CUDA for name in kernels_of(file)]
    own = f" Kernels: {', '.join(kernels)}." if kernels else ""
    return _wrapped(f"About {option_of(page.stem).lines:,} lines: {links}.{own}")


def _repeat(page: Path, arguments: str) -> str:
    """Returns the commands that measure the option again; those with kernels of their own under ncu, too."""
    name, needs = page.stem, import_module(f"nurec_lite.opt.{page.stem}").REQUIRES
    before, after = (f"'+opt=[{','.join(names)}]'" for names in (needs, (*needs, name)))
    lines = [
        f"KEYS='{KEYS}'",
        f"python benchmarks/opt/bench_{name}.py",
        f"python -m nurec_lite.profile tool=nsys $KEYS {before} out=runs/before",
        f"python -m nurec_lite.profile tool=nsys $KEYS {after} out=runs/after",
        "python -m nurec_lite.profile compare runs/before runs/after",
    ]
    if any(kernels_of(file) for file in files_of(page) if file.suffix in CUDA):
        lines.append(f"python -m nurec_lite.profile tool=ncu $KEYS {after} 'kernels=\"{FILTER}\"' steps=1 out=runs/ncu")
    return "\n".join(f"    {line}" for line in lines)


def _shelf(page: Path, arguments: str) -> str:
    """Returns a line an option of a shelf."""
    rows = [
        (
            _linked(page, f"`{own.name}`", own.page),
            own.idea,
            own.classed,
            own.alone or MISSING,
            own.rung or "none",
            f"{own.lines:,}",
        )
        for own in map(option_of, order())
        if own.shelf == arguments
    ]
    return table(("option", "idea", "class", "alone", "as a rung", "lines"), rows, 5)


def _readme(page: Path, arguments: str) -> str:
    """Returns a line an option."""
    rows = [
        (
            _linked(page, f"`{own.name}`", own.page),
            own.idea,
            "not in `all`" if own.shelf == "lab" else own.rung or own.alone or MISSING,
        )
        for own in map(option_of, order())
    ]
    return table(("option", "idea", "as a rung"), rows, 3)


def _wrapped(words: str) -> str:
    return "\n".join(textwrap.wrap(words, 120, break_long_words=False, break_on_hyphens=False))


REGIONS: dict[str, Callable[[Path, str], str]] = {
    "facts": _facts,
    "code": _code,
    "step": _step,
    "nsys": _nsys,
    "ncu": _ncu,
    "files": _files,
    "repeat": _repeat,
    "shelf": _shelf,
    "options of the readme": _readme,
}


# ---- pictures


def pictures() -> dict[Path, str]:
    """Returns every picture that is drawn from figures."""
    drawn = {PICTURES / f"{name}.svg": _picture(name) for name in order()}
    return drawn | {CHAIN: chart.chain_svg(rungs(), _conditions())}


def _picture(name: str) -> str:
    own = option_of(name)
    pairs = [(label, pair) for label, pair in (("alone", own.alone), ("as a rung", own.rung)) if pair]
    for region, arguments in ((r, a) for _, r, a, _ in REGION.findall(source(own.page))):
        if region == "ncu" and len(specs := _list(arguments)) == 2:
            first, second = (launches(spec).ms * 1e3 for spec in specs)
            pairs.append(("kernels", Pair(first, second, "ncu", "µs")))
    return chart.pairs_svg(f"{name}: before (light) and after (dark)", pairs)


def _conditions() -> str:
    told = read(OPTIONS)
    of = told["environment"]
    return f"{told['capture']}, {told['gaussians'][0]:,} Gaussians; {of['device']}, torch {of['torch']}; one process, tree {told['tree']}"
