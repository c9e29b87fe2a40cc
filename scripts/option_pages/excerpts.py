# SPDX-License-Identifier: Apache-2.0
"""Cuts functions, classes and kernels out of source files by name, so that a page never shows code that is gone."""

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from textwrap import dedent

from nurec_lite.base.errors import UserError

KERNEL = re.compile(r"\b__global__\b[^;{]*?\b(\w+)\((?=[^;]*?\)\s*\{)", re.DOTALL)
BOUNDS = re.compile(r"__(?:launch_bounds|maxnreg)__\((?:[^()]|\([^()]*\))*\)")


@dataclass(frozen=True)
class Excerpt:
    """A piece of a source file."""

    text: str
    language: str  # as Markdown names it


@lru_cache
def source(path: Path) -> str:
    """Returns the text of a file; a file that is gone is an error."""
    if not path.is_file():
        raise UserError(f"a page shows code of {path.name}, which is not there; name its present file")
    return path.read_text()


def excerpt(path: Path, name: str) -> Excerpt:
    """Returns the definition of `name` (Class.method for a method), without its docstring.

    `NAME@FROM..TO` returns its lines from the one that contains FROM to the next that contains TO; `@FROM..TO` those of the file.
    """
    name, _, ends = name.partition("@")
    text = source(path)
    lines = text.splitlines() if not name else _python(text, name) if path.suffix == ".py" else _cpp(text, name)
    if lines is None:
        raise UserError(f"a page shows {name} of {path.name}, which has no such definition; name what replaced it")
    lines = _between(path, lines, *ends.split("..")) if ends else lines
    language = "python" if path.suffix == ".py" else "cpp"
    return Excerpt(_dedented(lines), language)


def _dedented(lines: Sequence[str]) -> str:
    """Returns the lines moved to the left; directives of the preprocessor stand there already."""
    text = dedent("\n".join(" " * 99 + line if line.startswith("#pragma") else line for line in lines))
    return re.sub(r"^ +(?=#pragma)", "", text, flags=re.MULTILINE).rstrip()


def _between(path: Path, lines: list[str], begin: str, end: str) -> list[str]:
    """Returns the lines between two of these texts, both included."""
    start = next((k for k, line in enumerate(lines) if begin in line), None)
    stop = None if start is None else next((k for k, line in enumerate(lines) if k >= start and end in line), None)
    if start is None or stop is None:
        raise UserError(f"a page shows {path.name} from '{begin}' to '{end}', which it does not hold; name what does")
    return lines[start : stop + 1]


def _python(text: str, name: str) -> list[str] | None:
    """Returns the lines of a function, a class or a method; None where there is none."""
    node: ast.AST = ast.parse(text)
    for part in name.split("."):
        inside = (n for n in getattr(node, "body", ()) if getattr(n, "name", None) == part)
        node = next(inside, None)  # type: ignore[arg-type, assignment]
        if node is None:
            return None
    lines, begin = text.splitlines(), min(d.lineno for d in (node, *node.decorator_list)) - 1  # type: ignore[attr-defined]
    kept = lines[begin : node.end_lineno]  # type: ignore[attr-defined]
    first = node.body[0]  # type: ignore[attr-defined]
    if ast.get_docstring(node) is not None and len(node.body) > 1:  # type: ignore[arg-type, attr-defined]
        kept = kept[: first.lineno - 1 - begin] + kept[first.end_lineno - begin :]
    return kept


def _cpp(text: str, name: str) -> list[str] | None:
    """Returns those of a function or a struct: from the line after the last blank, closed or comment line to its end."""
    for match in re.finditer(rf"\b(?:struct {name}\b|{name}\()", text):
        opening = _opening(text, match.end() - 1)
        if opening is None:
            continue
        lines, at = text.splitlines(), text[: match.start()].count("\n")
        begin = at
        while begin and not re.search(r"^\s*$|[;}]\s*$|[;}] *//.*$|^\s*//|^#|^\s*namespace|\{$", lines[begin - 1]):
            begin -= 1
        end = text[: _closing(text, opening)].count("\n")
        return lines[begin : end + 1]
    return None


def _opening(text: str, at: int) -> int | None:
    """Returns where the body begins; None where this is a call or a declaration."""
    if text[at] == "(":
        at = _closing(text, at) + 1
    else:
        at += 1
    body = re.compile(r"\s*(?:const|noexcept|\s)*\{").match(text, at)
    return body.end() - 1 if body else None


def _closing(text: str, opening: int) -> int:
    """Returns where the bracket that opens there closes."""
    depth = 0
    for at in range(opening, len(text)):
        depth += text[at] in "({"
        depth -= text[at] in ")}"
        if depth == 0:
            return at
    raise UserError("a bracket of a source file is never closed")


def kernels_of(path: Path) -> list[str]:
    """Returns the names of the CUDA kernels that a file defines."""
    return KERNEL.findall(BOUNDS.sub("", source(path)))
