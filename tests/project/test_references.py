# SPDX-License-Identifier: Apache-2.0
"""Paths, modules and names that docstrings and comments refer to exist."""

import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from test_prose import ROOT, docstrings

PATHS = re.compile(r"\b(?:nurec_lite|kernels|benchmarks|tests|docs|scripts)/[\w/.*]*\w")
TESTS = re.compile(r"(?<![\w/])test_\w+\.py")
MODULES = re.compile(r"\bnurec_lite(?:\.\w+)+")
NAMES = re.compile(r"`([A-Za-z_]\w*)(?:\(\))?`")
PLACEHOLDER = re.compile(r"[A-Z]{2,}\b|\bX\b|^T_")  # such as nurec_lite.COMMAND, and names of poses
OTHERS = {"gsply", "Columnar", "lidar_beside_Nm", "boxes_beside_Nm"}  # no names of the code


def references(texts: list[tuple[int, str]]) -> Iterator[tuple[int, str, str]]:
    """Line, kind and text of each reference."""
    for line, text in texts:
        yield from ((line, "path", found[0]) for found in PATHS.finditer(text))
        yield from ((line, "path", f"tests/**/{found[0]}") for found in TESTS.finditer(text))
        yield from ((line, "module", found[0]) for found in MODULES.finditer(text))
        yield from ((line, "name", found[1]) for found in NAMES.finditer(text))


def texts_of(path: Path) -> list[tuple[int, str]]:
    """Docstrings and comments that may refer to something."""
    source = path.read_text()
    if path.suffix != ".py":
        return [(n, line.partition("//")[2]) for n, line in enumerate(source.splitlines(), 1)]
    tokens = tokenize.generate_tokens(io.StringIO(source).readline) if re.search(r"#.*[`/.]\w", source) else ()
    comments = [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]
    return [*docstrings(source), *comments]


@cache
def words_of_code() -> set[str]:
    """Words of the project's code; those of docstrings and comments of the package, scripts and benchmarks do not count."""
    own = (path for folder in ("nurec_lite", "scripts", "benchmarks") for path in (ROOT / folder).rglob("*.py"))
    found = set().union(*map(words_of, own))
    others = [*(ROOT / "kernels").rglob("*"), *(ROOT / "conf").rglob("*.yaml"), *(ROOT / "tests").rglob("*.py")]
    files = [path for path in others if path.is_file() and path.name != Path(__file__).name]
    return found.union(*(re.findall(r"\w+", path.read_text()) for path in files if path.suffix not in ("", ".pyc")))


def words_of(path: Path) -> set[str]:
    source = path.read_text()
    lines = source.splitlines()
    for first, text in docstrings(source):
        last = first + text.count("\n")
        lines[first - 1 : last] = [""] * (last - first + 1)
    return set(re.findall(r"\w+", "\n".join(line.partition("#")[0] for line in lines)))


def exists(kind: str, text: str) -> bool:
    if PLACEHOLDER.search(text) or not OTHERS.isdisjoint(re.findall(r"\w+", text)):
        return True
    if kind == "name":
        return text in words_of_code()
    if kind == "path":
        return any(True for _ in ROOT.glob(text)) or any(True for _ in ROOT.glob(f"{text}*"))
    return _is_module(text.split("."))


def _is_module(parts: list[str]) -> bool:
    """Whether the first parts are a module, and its text holds the others as words."""
    for k in range(len(parts), 0, -1):
        base = ROOT.joinpath(*parts[:k])
        file = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
        if file.is_file():
            return set(parts[k:]) <= set(re.findall(r"\w+", file.read_text()))
    return False


def test_a_reference_to_nothing_is_found() -> None:
    text = "`no_such_name` of nurec_lite.scene.nowhere and kernels/none.cu; `Scene` of nurec_lite/scene/scene.py"
    lost = [found for _, kind, found in references([(1, text)]) if not exists(kind, found)]
    assert lost == ["kernels/none.cu", "nurec_lite.scene.nowhere", "no_such_name"]


@pytest.mark.parametrize("folder", ["nurec_lite", "kernels", "tests", "scripts", "benchmarks"])
def test_docstrings_and_comments_refer_to_what_exists(folder: str) -> None:
    sources = (p for p in (ROOT / folder).rglob("*") if p.suffix in (".py", ".cu", ".cuh", ".h", ".cpp"))
    files = sorted(p for p in sources if p.name != Path(__file__).name)
    lost = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in files
        for line, kind, text in references(texts_of(path))
        if not exists(kind, text)
    ]
    assert files and lost == []
