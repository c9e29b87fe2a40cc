# SPDX-License-Identifier: Apache-2.0
"""Every file and every test that tests/support/chosen_tests.py names exists: a test that was renamed would run always, or never as slow."""

from collections import Counter
from pathlib import Path

import pytest
from chosen_tests import FIRST, LONGEST, NUMBERS, RUNS, SLOW

TESTS = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("table", [LONGEST, SLOW, NUMBERS, RUNS], ids=["LONGEST", "SLOW", "NUMBERS", "RUNS"])
def test_files_of_a_table_exist(table: tuple[str, ...]) -> None:
    assert [name for name in table if not (TESTS / name).exists()] == []


def test_tests_of_the_table_exist() -> None:
    named = [test.split("::") for test in FIRST]
    assert [f"{file}::{name}" for file, name in named if f"def {name}(" not in (TESTS / file).read_text()] == []


def test_files_of_tests_have_names_of_their_own() -> None:
    """pytest imports each file by its name alone."""
    names = Counter(path.name for path in TESTS.rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
