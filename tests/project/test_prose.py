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
FIRST = {  # words that begin no docstring
    "Of", "By", "As", "What", "Where", "Who", "Whose", "Whom", "How", "Whoever", "And", "Also", "Because", "But", "Else", "Even", "Nor",
    "Not", "Or", "So", "Such", "To", "Which",
}  # fmt: skip
FIRST_OF_PACKAGE = FIRST | {  # and none of the package's own: it names a result or an action
    "Again", "After", "Along", "Around", "At", "Before", "Below", "Between", "Copied", "Drawn", "Elsewhere", "Filled", "For", "From",
    "In", "Its", "Made", "None", "On", "Once", "Said", "Since", "Those", "Towards", "Twice", "Why", "With",
    "Within", "Without",
}  # fmt: skip
PRONOUNS = ("what", "whatever", "who", "whom", "whoever")
PREPOSITIONS = (  # a clause may begin with one of them and "which"
    "about", "above", "across", "after", "against", "along", "among", "around", "at", "before", "behind", "below", "beside", "between",
    "beyond", "by", "during", "for", "from", "in", "into", "of", "on", "onto", "over", "past", "through", "to", "towards", "under", "until",
    "up to", "upon", "with", "within", "without",
)  # fmt: skip
FRONTED = re.compile(rf"\b(?i:{'|'.join(PREPOSITIONS)})\s+which\b")
CLAUSES = re.compile(rf"\b(?:{'|'.join([*PRONOUNS, *map(str.capitalize, PRONOUNS)])})\b|{FRONTED.pattern}")
COMMENT = dict.fromkeys((".cu", ".cuh", ".h", ".cpp"), "//") | {
    ".yaml": "#",
    ".sh": "#",
}  # signs of comments, by suffix
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


def headless(source: str, first: set[str] = FIRST) -> list[str]:
    """Docstrings with one of these first words, with their lines."""
    return [
        f"{line}: {text.splitlines()[0]}" for line, text in docstrings(source) if text.split()[0].strip(",.:;") in first
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


def indirect_comments(source: str, sign: str) -> list[str]:
    """Lines with a clause of CLAUSES behind the sign of a comment, also where the clause goes on in the next line."""
    texts = [re.sub(r"`[^`]*`", "", line.partition(sign)[2]).strip() for line in source.splitlines()]
    pairs = zip(texts, [*texts[1:], ""], strict=True)
    return [f"{n}: {text}" for n, (text, after) in enumerate(pairs, 1) if _begins(text, after)]


def _begins(text: str, after: str) -> bool:
    """Whether a clause of CLAUSES begins in a text, which another one follows."""
    found = CLAUSES.search(f"{text} {after}") if text else None
    return found is not None and found.start() < len(text)


def test_a_docstring_without_its_subject_is_found() -> None:
    source = '"""Of a file."""\ndef f():\n    """By name."""\ndef g():\n    """Names, as they are."""\n'
    assert headless(source) == ["1: Of a file.", "3: By name."]


def test_an_indirect_clause_is_found() -> None:
    source = '"""Takes what is there."""\nx = "# what"  # who asks\ny = 0  # the number of `what`\n'
    assert indirect(source) == ["1: Takes what is there.", "2: # who asks"]


def test_a_clause_behind_a_preposition_is_found() -> None:
    source = (
        '"""Metres by\nwhich it moves."""\nx = 0  # the one that which() names, in `which`\ny = 1  # From which on\n'
    )
    assert indirect(source) == ["1: Metres by\nwhich it moves.", "4: # From which on"]


def test_an_indirect_comment_of_cpp_is_found() -> None:
    source = "int a;  // the order in\n// which it lies\nint what;  // what\n"
    assert indirect_comments(source, "//") == ["1: the order in", "3: what"]


@pytest.mark.parametrize("folder", ["kernels", "conf", "tests/emulation", "scripts", "data"])
def test_other_comments_have_no_indirect_clause(folder: str) -> None:
    files = [path for path in sorted((ROOT / folder).rglob("*")) if path.suffix in COMMENT]
    found = [(path, line) for path in files for line in indirect_comments(path.read_text(), COMMENT[path.suffix])]
    assert [f"{path.relative_to(ROOT)}:{line}" for path, line in found] == []


def test_documents_have_no_clause_behind_a_preposition() -> None:
    files = [path for path in sorted(ROOT.rglob("*.md")) if not {"results", "log", ".venv", "build"} & set(path.parts)]
    texts = [(path, re.sub(r"`[^`]*`", "", path.read_text())) for path in files]
    found = [(path, match[0]) for path, text in texts for match in FRONTED.finditer(text)]
    assert files and [f"{path.relative_to(ROOT)}: {clause}" for path, clause in found] == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_and_comments_have_no_indirect_clause(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert [f"{path.relative_to(ROOT)}:{line}" for path in files for line in indirect(path.read_text())] == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_say_what_is_returned(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    first = FIRST_OF_PACKAGE if folder == "nurec_lite" else FIRST
    found = [f"{path.relative_to(ROOT)}:{line}" for path in files for line in headless(path.read_text(), first)]
    assert files and found == []


def unfit(source: str) -> list[str]:
    """Functions whose docstring begins as if they gave something else, with their lines."""
    nodes = [node for node in documented(ast.parse(source)) if isinstance(node, ast.FunctionDef) and node.returns]
    known = [(node, text.split()[0].strip(",.:;"), text) for node in nodes if (text := ast.get_docstring(node))]
    return [f"{node.lineno}: {text.splitlines()[0]}" for node, first, text in known if not _fits(node, first, text)]


def _fits(node: ast.FunctionDef, first: str, text: str) -> bool:
    given = ast.unparse(node.returns) if node.returns else ""
    if first == "Whether" or given == "bool":
        return (
            re.search("bool|Tensor", given) is not None
            and re.search("(?i)whether|^Returns|^Compares", text) is not None
        )
    kinds = {"Yields": "Iterator|Generator", "Block": "Iterator|ContextManager", "Raises": "None|NoReturn"}
    return re.search(kinds.get(first, ""), given) is not None


def test_a_docstring_of_another_result_is_found() -> None:
    heads = ["f() -> int:", "g() -> bool:", "h() -> Iterator[int]:", "i() -> int:"]
    texts = ["Whether it is.", "Whether it is.", "Yields it.", "Raises it."]
    source = "".join(f'def {head}\n    """{text}"""\n' for head, text in zip(heads, texts, strict=True))
    assert unfit(source) == ["1: Whether it is.", "7: Raises it."]


def test_docstrings_of_the_package_fit_what_is_returned() -> None:
    files = sorted((ROOT / "nurec_lite").rglob("*.py"))
    assert [f"{path.relative_to(ROOT)}:{line}" for path in files for line in unfit(path.read_text())] == []
