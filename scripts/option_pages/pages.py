# SPDX-License-Identifier: Apache-2.0
"""The pages docs/options/X.md, one an option, and the tables that lead to them.

A page is its own source: sentences stand in it, and the generator fills the part between `<!-- NAME: ARGUMENTS -->` and `<!--end-->`:

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
from functools import partial
from os.path import relpath
from pathlib import Path

from nurec_lite.base.options import option_module
from scripts.option_pages import chart
from scripts.option_pages.excerpts import excerpt, kernels_of, source
from scripts.option_pages.measured import (
    MISSING,
    OPTIONS,
    ROOT,
    Pair,
    launches,
    ncu_table,
    nsys_table,
    read,
    rungs,
    step_table,
    table,
)
from scripts.option_pages.option import FOLDER, REGION, files_of, option_of, order

PICTURES = ROOT / "docs/images/options"
CHAIN = ROOT / "docs/images/chain.svg"
FILTER = ".*_kernel"  # of ncu: all kernels of ours
CUDA = (".cu", ".cuh")


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
    own, module = option_of(page.stem), option_module(page.stem)
    needs = ", ".join(_linked(page, f"`{name}`", FOLDER / f"{name}.md") for name in module.REQUIRES) or "nothing"
    note = "\n\n\\* the option and its needs, against the baseline." if own.alone and own.alone.from_none else ""
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


def _files(page: Path, arguments: str) -> str:
    files = files_of(page)
    links = ", ".join(_linked(page, file.name, file) for file in files)
    kernels = [f"`{name}`" for file in files if file.suffix in CUDA for name in kernels_of(file)]
    own = f" Kernels: {', '.join(kernels)}." if kernels else ""
    return _wrapped(f"About {option_of(page.stem).lines:,} lines: {links}.{own}")


def _repeat(page: Path, arguments: str) -> str:
    """Returns the commands that measure the option again; those with kernels of their own under ncu, too."""
    name, known = page.stem, any(kernels_of(file) for file in files_of(page) if file.suffix in CUDA)
    profile = f"python benchmarks/opt/profile_option.py {name} data=kitti_raw data.root=FOLDER"
    return f"    python benchmarks/opt/bench_{name}.py\n    {profile}{' --ncu' if known else ''}"


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
    """Returns a line an option of the post or of `all`, and one sentence that names the rest."""
    options = [option_of(name) for name in order()]
    links = {own.name: _linked(page, f"`{own.name}`", own.page) for own in options}
    rows = [(links[own.name], own.idea, own.rung or own.alone or MISSING) for own in options if own.shelf != "lab"]
    lab = ", ".join(links[own.name] for own in options if own.shelf == "lab")
    return f"{table(('option', 'idea', 'as a rung'), rows, 3)}\n\n{_wrapped(f'These do not pay today: {lab}.')}"


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
    report = read(OPTIONS)
    of = report["environment"]
    what = f"{report['capture']}, {report['gaussians'][0]:,} Gaussians; {of['device']}, torch {of['torch']}"
    return f"{what}; one process, tree {report['tree']}"
