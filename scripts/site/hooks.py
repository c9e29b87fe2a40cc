# SPDX-License-Identifier: Apache-2.0
"""Hooks of mkdocs.yml: the site shows README.md as its first page, and the files outside docs/ that pages link to.

    make site        builds build/site

A file of docs/ keeps its place. A Markdown file outside of it becomes a page below source/, a source file a page with its code, any
other file stays as it is.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(\]\()([^()\s#]+)(#[^()\s]*)?(\))")
FOLDER = re.compile(r"\[([^\[\]]+)\]\(([^()\s#]+)\)")
LANGUAGES = {".py": "python", ".cu": "cuda", ".cuh": "cuda", ".h": "cpp", ".cpp": "cpp", ".sh": "bash", ".yaml": "yaml"}


def place(path: str) -> str:
    """Returns the place on the site of a file of the repository, both relative with slashes."""
    if path == "README.md":
        return "index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"source/{path}.md" if PurePosixPath(path).suffix in LANGUAGES else f"source/{path}"


def linked(text: str, path: str) -> Iterator[str]:
    """Yields the files of the repository that a page at `path` links to."""
    for match in LINK.finditer(text):
        target = target_of(match[2], path)
        if target is not None:
            yield target


def target_of(link: str, path: str) -> str | None:
    """Returns the file of the repository that a link of the page at `path` means; None for an address, a folder or no file."""
    if ":" in link:
        return None
    target = os.path.normpath(PurePosixPath(path).parent / link)
    return target if (ROOT / target).is_file() else None


def relinked(text: str, path: str) -> str:
    """Returns the page with links to places on the site. A link to a folder of the repository becomes its text."""
    base = str(PurePosixPath(place(path)).parent)

    def change(match: re.Match[str]) -> str:
        target = target_of(match[2], path)
        if target is None:
            return match[0]
        return f"{match[1]}{os.path.relpath(place(target), base)}{match[3] or ''}{match[4]}"

    return LINK.sub(change, FOLDER.sub(lambda match: match[1] if is_folder(match[2], path) else match[0], text))


def is_folder(link: str, path: str) -> bool:
    return ":" not in link and (ROOT / os.path.normpath(PurePosixPath(path).parent / link)).is_dir()


def shown(path: str) -> str | bytes:
    """Returns the content of a file outside docs/ on the site."""
    suffix = PurePosixPath(path).suffix
    if suffix in LANGUAGES:
        code = (ROOT / path).read_text()
        return f"# {path}\n\n````{LANGUAGES[suffix]}\n{code}````\n"
    return (ROOT / path).read_text() if suffix == ".md" else (ROOT / path).read_bytes()


def needed() -> list[str]:
    """Returns the files outside docs/ that pages of the site need, those that these need included."""
    waiting = ["README.md", *(str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("docs/**/*.md")))]
    found: list[str] = []
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.append(path)
        if path.endswith(".md"):
            waiting += linked((ROOT / path).read_text(), path)
    return sorted(path for path in found if not path.startswith("docs/"))


def on_config(config: Any) -> Any:
    """Headings get the anchors that they have on a forge, which links name."""
    from pymdownx.slugs import slugify

    config.mdx_configs["toc"]["slugify"] = slugify(case="lower")
    return config


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for path in needed():
        files.append(File.generated(config, place(path), content=shown(path)))
        files.get_file_from_path(place(path)).repository_path = path
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    path = getattr(page.file, "repository_path", f"docs/{page.file.src_uri}")
    if PurePosixPath(path).suffix in LANGUAGES or path.startswith("benchmarks/"):
        page.meta["search"] = {"exclude": True}  # code and reports would stand before pages
    return markdown if PurePosixPath(path).suffix in LANGUAGES else relinked(markdown, path)
