# SPDX-License-Identifier: Apache-2.0
"""A performance engineer's walk through the documents: from README.md to an option's page, and on to its kernels; three links at most."""

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

from nurec_lite.base.options import known_options, option_module, parameters_of
from nurec_lite.config import ProfileConfig
from nurec_lite.profiling.compare.compare import time_rows
from nurec_lite.profiling.compare.sides import read_side
from scripts.option_pages import option, pages
from scripts.option_pages.excerpts import kernels_of

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = sorted(name for name in known_options() if name != "all")
SOURCES = [path for path in sorted((ROOT / "kernels").rglob("*.cu*")) if path.suffix in pages.CUDA]
POST = (
    "https://developer.nvidia.com/blog/optimizing-a-neural-reconstruction-pipeline-using-nvidia-nsight-developer-tools/"
)


def linked(page: Path) -> set[Path]:
    """Returns the files within the repository that a page links to."""
    found = re.findall(r"\]\(([^)\s#]+)", page.read_text())
    return {(page.parent / link).resolve() for link in found if "://" not in link}


def test_every_option_has_a_page_and_every_page_an_option() -> None:
    assert sorted(path.stem for path in option.FOLDER.glob("*.md")) == OPTIONS
    assert sorted(path.stem for path in pages.PICTURES.iterdir()) == OPTIONS


def test_from_the_readme_to_the_kernels_of_balanced_tiles() -> None:
    page = option.FOLDER / "balanced_tiles.md"
    assert page in linked(ROOT / "README.md")
    assert ROOT / "kernels/raster_warps/blend/split_lists.cuh" in linked(page)
    assert "`split_lists_kernel`" in page.read_text()


@pytest.mark.parametrize("name", OPTIONS)
def test_from_the_readme_to_the_code_of_an_option(name: str) -> None:
    page = option.FOLDER / f"{name}.md"
    assert page in linked(ROOT / "README.md") & linked(ROOT / "docs/options.md")
    assert Path(str(option_module(name).__file__)) in linked(page)


@pytest.mark.parametrize("name", OPTIONS)
def test_a_page_is_read_in_two_minutes(name: str) -> None:
    """The page has its parts: code before and after, figures, limits, commands."""
    text = (option.FOLDER / f"{name}.md").read_text()
    assert len(text.split()) <= 450
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ["Code", "Measured", "Limits", "Measure it again"]
    assert re.findall(r"^(Before|After): \[", text, re.MULTILINE) == ["Before", "After"]
    assert len(option.option_of(name).idea.split()) < 12


def test_an_option_stands_on_the_shelf_where_it_is_used() -> None:
    shelf = {name: option.option_of(name).shelf for name in OPTIONS}
    used = set(parameters_of("all")["cuda"])
    assert {name for name in OPTIONS if shelf[name] == "all"} <= used
    assert {name for name in OPTIONS if shelf[name] == "lab"}.isdisjoint(used)


def test_one_pair_of_figures_is_quoted_everywhere() -> None:
    """README.md, the index and the page of an option say the same."""
    readme, index = (ROOT / "README.md").read_text(), (ROOT / "docs/options.md").read_text()
    for own in map(option.option_of, OPTIONS):
        text = own.page.read_text()
        pair = f"|{own.alone or 'not measured'}|{own.rung or 'none'}|"
        assert pair in index and pair in text
        assert own.shelf == "lab" or f"|{own.rung}|" in readme


def test_the_printed_filter_of_ncu_finds_every_kernel() -> None:
    printed = set()
    for page in (ROOT / "docs/options.md", *option.FOLDER.glob("*.md")):
        printed |= set(re.findall(r"'kernels=\"([^\"]*)\"'", page.read_text()))
    assert printed == {pages.FILTER}
    options = re.search(r"tool=ncu .*'\+opt=\[(.*)\]'", (ROOT / "docs/options.md").read_text())
    assert options is not None  # those of `all` but for loading and for graphs, which ncu cannot look into
    assert set(parameters_of("all")["cuda"]) - set(options[1].split(",")) == {"workers", "side_streams", "cuda_graph"}
    step = json.loads((ROOT / "benchmarks/results/profile_ncu_kitti_0009_large_all_h200/kernels.json").read_text())
    assert len(step["kernels"]) <= ProfileConfig.launches  # so that the printed command measures all of a step
    named = [name for path in SOURCES for name in kernels_of(path)]
    assert len(named) == sum(path.read_text().count("__global__") for path in SOURCES)
    assert not [name for name in named if not re.fullmatch(pages.FILTER, name)]


@pytest.mark.parametrize("tool", ["ncu", "nsys"])
def test_recorded_profiles_can_be_compared(tool: str) -> None:
    """Pages of options print such a command. The kernels that an option replaces stand in the first rows."""
    sides = [read_side(path) for path in sorted((ROOT / "benchmarks/results").glob(f"profile_{tool}_*"))]
    assert len(sides) > 2
    for a, b in pairwise(sides):
        rows = time_rows(a, b)
        assert len(rows) > 5 and all(rows[k].weight >= rows[k + 1].weight for k in range(3, len(rows) - 1))
    if tool == "ncu":
        a, b = (
            read_side(ROOT / f"benchmarks/results/profile_ncu_kitti_0009_large_{name}_h200")
            for name in ("before_bundles", "all")
        )
        first = [row for row in time_rows(a, b)][:6]
        assert any("renderBackward" in row.figure and row.b is None for row in first)


def test_the_post_is_linked_by_its_address_wherever_it_is_mentioned() -> None:
    """No link leads to the front page of the blog."""
    for page in (ROOT / "README.md", ROOT / "kernels/README.md", *(ROOT / "docs").rglob("*.md")):
        text = page.read_text()
        assert not re.search(r"\(https://developer\.nvidia\.com/blog/?\)", text)
        assert POST in text or not re.search(r"\b(the|NVIDIA's|Nsight) post\b", text, re.IGNORECASE), page.name


@pytest.mark.parametrize("story", sorted(path.name for path in (ROOT / "docs").glob("story-*.md")))
def test_a_story_has_at_most_1500_words(story: str) -> None:
    assert len((ROOT / "docs" / story).read_text().split()) <= 1500


def test_a_class_is_said_on_the_page() -> None:
    for own in map(option.option_of, OPTIONS):
        assert own.classed == option_module(own.name).CLASS
        assert f"|{own.classed}|" in own.page.read_text()
