# SPDX-License-Identifier: Apache-2.0
"""Docstrings and comments name things and actions: no clause lacks its subject, and none begins with one of CLAUSES."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FIRST = {"Of", "By", "As", "What", "Where", "Who", "Whose", "Whom", "How", "Whoever"}  # words that begin no docstring
CLAUSES = re.compile(r"\b[Ww](hat|hatever|ho|hom|hoever)\b")
FOLDERS = ["nurec_lite", "benchmarks", "scripts", "tests"]
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


def comments(source: str) -> list[tuple[int, str]]:
    """Line and text of each comment. Most files have none of CLAUSES behind a #, and are not taken apart."""
    if not any(CLAUSES.search(line.partition("#")[2]) for line in source.splitlines()):
        return []
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]


def indirect(source: str) -> list[str]:
    """Lines of docstrings and comments with a clause of CLAUSES outside of code."""
    texts = [*docstrings(source), *comments(source)]
    return [f"{line}: {text}" for line, text in texts if CLAUSES.search(re.sub(r"`[^`]*`", "", text))]


def test_a_docstring_without_its_subject_is_found() -> None:
    source = '"""Of a file."""\ndef f():\n    """By name."""\ndef g():\n    """Names, as they are."""\n'
    assert headless(source) == ["1: Of a file.", "3: By name."]


def test_an_indirect_clause_is_found() -> None:
    source = '"""Takes what is there."""\nx = "# what"  # who asks\ny = 0  # the number of `what`\n'
    assert indirect(source) == ["1: Takes what is there.", "2: # who asks"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_and_comments_have_no_indirect_clause(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert [f"{path.relative_to(ROOT)}:{line}" for path in files for line in indirect(path.read_text())] == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_say_what_is_returned(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    found = [f"{path.relative_to(ROOT)}:{line}" for path in files for line in headless(path.read_text())]
    assert files and found == []
