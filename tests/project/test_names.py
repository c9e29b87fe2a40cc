# SPDX-License-Identifier: Apache-2.0
"""One name in seven places: an option X has a configuration, a module, its own code, a test, a benchmark, a page, and links to the page in
README.md and docs/options.md."""

import inspect
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.options import option_module, parameters_of
from nurec_lite.training.stages import Stages

ROOT = Path(__file__).resolve().parents[2]
CONFIGURED = sorted(p.stem for p in (ROOT / "conf/opt").glob("*.yaml") if p.stem != "all")
SHELVES = {p.stem: p.parent.name for p in (ROOT / "nurec_lite/opt").rglob("*.py")}
MODULES = sorted(p.stem for p in (ROOT / "nurec_lite/opt").rglob("*.py") if not p.stem.startswith("_"))
PLACES = (
    "conf/opt/{}.yaml",
    "nurec_lite/opt/*/{}.py",
    "tests/opt/test_{}.py",
    "docs/options/{}.md",
    "benchmarks/opt/bench_{}.py",
)


def test_there_are_options() -> None:
    assert CONFIGURED and CONFIGURED == MODULES


@pytest.mark.parametrize("name", CONFIGURED)
@pytest.mark.parametrize("place", PLACES)
def test_option_has_its_file(name: str, place: str) -> None:
    """The file says the option's name."""
    (path,) = ROOT.glob(place.format(name))
    text = path.read_text()
    assert re.search(rf"\b{name}\b", text)


@pytest.mark.parametrize("name", CONFIGURED)
def test_option_lies_on_the_shelf_that_its_page_names(name: str) -> None:
    (path,) = ROOT.glob(f"nurec_lite/opt/*/{name}.py")
    assert f"shelf={path.parent.name} " in (ROOT / f"docs/options/{name}.md").read_text()


@pytest.mark.parametrize("name", CONFIGURED)
def test_option_has_a_row_in_the_documents(name: str) -> None:
    """A row of the index, and a link of README.md, which has no row for options of the lab."""
    row = rf"^\|\[`{name}`\]\(options/{name}\.md\)\|"
    assert re.search(row, (ROOT / "docs/options.md").read_text(), re.MULTILINE)
    start = "" if SHELVES[name] == "lab" else r"^\|"
    link = rf"{start}\[`{name}`\]\(docs/options/{name}\.md\)"
    assert re.search(link, (ROOT / "README.md").read_text(), re.MULTILINE), (
        f"README.md has no link to the page of `{name}`"
    )


@pytest.mark.parametrize("name", CONFIGURED)
def test_option_s_benchmark_says_how_it_is_called(name: str) -> None:
    place = PLACES[-1].format(name)
    assert f"python {place}" in (ROOT / place).read_text()


# ---- its own code


def applied(name: str) -> tuple[Stages, Stages]:
    """Compiled stages with the options that this one requires, and with the option as well."""
    base, needed = base_stages("native", torch.device("cpu")), requirements(name)
    if any(option_module(n).unavailable(base) for n in (*needed, name)):
        base = replace(base, device="cuda")  # a record can be made without a GPU
    without = build_stages({n: parameters_of(n) for n in needed}, base)
    return without, build_stages({n: parameters_of(n) for n in (*needed, name)}, base)


def requirements(name: str) -> tuple[str, ...]:
    """The options that an option needs, in an order that can be applied."""
    found: list[str] = []
    for required in option_module(name).REQUIRES:
        found += [n for n in (*requirements(required), required) if n not in found]
    return tuple(found)


def home_of(stage: object) -> str:
    """The module that a stage is written in."""
    named = stage if inspect.isfunction(stage) or inspect.ismethod(stage) else type(stage)
    return str(named.__module__)


def own_code(name: str) -> list[str]:
    """Code that the option puts into the record of stages: fields of the plan, which choose the instance of a kernel, and stages that are
    written in its module, in the place of others or around them."""
    without, with_it = applied(name)
    around = (stage for stage in with_it.changes.wrapped if with_it.stage(stage) is not without.stage(stage))
    found = [stage for stage in around if home_of(with_it.stage(stage)) == option_module(name).__name__]
    for claimed in (what for what, option in with_it.changes.claims.items() if option == name):
        if claimed.startswith("plan."):
            field = claimed.removeprefix("plan.")
            chosen = getattr(with_it.plan, field) != getattr(without.plan, field)
        else:
            chosen = home_of(with_it.stage(claimed)) == option_module(name).__name__
        found += [claimed] if chosen else []
    return found


@pytest.mark.parametrize("name", CONFIGURED)
def test_option_has_its_own_code(name: str) -> None:
    """The compiled stages read each field of the plan that it sets."""
    claims = own_code(name)
    assert claims, f"'{name}' brings nothing that it does not find elsewhere"
    fields = {claim.removeprefix("plan.") for claim in claims if claim.startswith("plan.")}
    sources = "\n".join(path.read_text() for path in (ROOT / "nurec_lite/native").rglob("*.py"))
    assert {field for field in fields if not re.search(rf"\b(plan|self)\.{field}\b", sources)} == set()
