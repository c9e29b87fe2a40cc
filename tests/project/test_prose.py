# SPDX-License-Identifier: Apache-2.0
"""Docstrings name the result or the action: none begins with a clause that lacks its subject."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FIRST = {"Of", "By", "As", "What", "Where", "Who", "Whose", "Whom", "How", "Whoever"}  # words that begin no docstring
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstrings(source: str) -> list[tuple[int, str]]:
    """Line and text of each docstring of a module, its classes and functions."""
    nodes = documented(ast.parse(source))
    return [(node.body[0].lineno, text) for node in nodes if (text := ast.get_docstring(node))]


def documented(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that may have a docstring. Only statements hold them: most nodes are parts of expressions."""
    if isinstance(node, DOCUMENTED):
        yield node
    for field in ("body", "orelse", "handlers", "finalbody", "cases"):
        for child in getattr(node, field, ()):
            yield from documented(child)


def headless(source: str) -> list[str]:
    """Docstrings whose first word is one of FIRST, with their lines."""
    return [
        f"{line}: {text.splitlines()[0]}" for line, text in docstrings(source) if text.split()[0].strip(",.:") in FIRST
    ]


def test_a_docstring_without_its_subject_is_found() -> None:
    source = '"""Of a file."""\ndef f():\n    """By name."""\ndef g():\n    """Names, as they are."""\n'
    assert headless(source) == ["1: Of a file.", "3: By name."]


@pytest.mark.parametrize("folder", ["nurec_lite", "benchmarks", "scripts", "tests"])
def test_docstrings_say_what_is_returned(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    found = [f"{path.relative_to(ROOT)}:{line}" for path in files for line in headless(path.read_text())]
    assert files and found == []
