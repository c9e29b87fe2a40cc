# SPDX-License-Identifier: Apache-2.0
"""Dependencies are bounded above, locked to one version, and under licences that allow redistribution."""

import csv
import re
import tomllib
from fnmatch import fnmatch
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
REQUIRED = [
    *PROJECT["build-system"]["requires"],
    *PROJECT["project"]["dependencies"],
    *(r for e in EXTRAS.values() for r in e),
]
LINES = [
    line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.strip() and not line.startswith("#")
]
PINNED = {canonicalize_name(line.partition("==")[0].strip()): line.partition("==")[2].strip() for line in LINES}
ROWS = list(csv.reader((ROOT / "docs/licences.csv").read_text().splitlines()))[1:]  # package, version, licence
TOOLKIT = {canonicalize_name(Requirement(text).name) for text in EXTRAS["cuda"]}  # NVIDIA's, as the page says in words
OF_TORCH = ("nvidia", "cuda", "triton", "cusparselt")  # torch pins these itself, by the machine


@pytest.mark.parametrize("text", REQUIRED)
def test_a_requirement_is_bounded_above_and_below(text: str) -> None:
    operators = {specifier.operator for specifier in Requirement(text).specifier}
    assert operators & {"<", "<=", "==", "~="} and operators & {">", ">=", "==", "~="}


@pytest.mark.parametrize("text", REQUIRED)
def test_the_lock_file_is_within_the_bounds(text: str) -> None:
    requirement = Requirement(text)
    assert requirement.specifier.contains(PINNED[canonicalize_name(requirement.name)])


def test_the_lock_file_has_one_version_of_each() -> None:
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line) for line in LINES)
    assert len(PINNED) == len(LINES)


def test_the_lock_file_holds_what_is_needed_in_turn() -> None:
    """The packages are those that are installed here: another machine may not need all of them."""
    left, seen = [canonicalize_name(Requirement(text).name) for text in REQUIRED], set()
    while left:
        name = left.pop()
        if name in seen or name.startswith(OF_TORCH):
            continue
        seen.add(name)
        try:
            needs = [Requirement(text) for text in distribution(name).requires or []]
        except PackageNotFoundError:
            continue
        left += [canonicalize_name(r.name) for r in needs if r.marker is None or r.marker.evaluate({"extra": ""})]
    assert seen - PINNED.keys() == set()


def test_the_table_of_licences_is_that_of_the_lock_file() -> None:
    rows = {canonicalize_name(name): version for name, version, _ in ROWS}
    assert rows == {name: version for name, version in PINNED.items() if name not in TOOLKIT}


def test_every_licence_is_known_and_may_be_passed_on() -> None:
    forbidden = re.compile(r"GPL|non-?commercial|proprietary|unknown", re.IGNORECASE)
    stated = {name: licence for name, _, licence in ROWS}
    assert stated and not {name: licence for name, licence in stated.items() if forbidden.search(licence)}


def test_the_container_leaves_out_all_that_git_ignores() -> None:
    """Caches and profiles of a checkout went into the image."""
    names = {line.removeprefix("**/") for line in (ROOT / ".dockerignore").read_text().split()}
    ignored = {line.rstrip("/") for line in (ROOT / ".gitignore").read_text().split()}
    assert ".git" in names and not [name for name in ignored if not any(fnmatch(name, known) for known in names)]
