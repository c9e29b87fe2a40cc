# SPDX-License-Identifier: Apache-2.0
"""The site shows every file that a page links to; `make site` builds it, and fails on a link without a target."""

import sys
from importlib import import_module
from pathlib import Path, PurePosixPath
from types import SimpleNamespace

import pytest
import yaml

from scripts.site.hooks import ROOT, linked, needed, place, relinked, shown


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("README.md", "index.md"),
        ("docs/options/workers.md", "options/workers.md"),
        ("kernels/README.md", "source/kernels/README.md"),
        ("nurec_lite/opt/workers.py", "source/nurec_lite/opt/workers.py.md"),
        ("benchmarks/figures.csv", "source/benchmarks/figures.csv"),
    ],
)
def test_places_of_files(path: str, expected: str) -> None:
    assert place(path) == expected


def test_links_lead_to_places_on_the_site() -> None:
    text = (
        "[a](docs/usage.md#keys) [b](kernels/README.md) [c](https://example.org/x) [d](#here) [e](nurec_lite/train.py)"
    )
    expected = "[a](usage.md#keys) [b](source/kernels/README.md) [c](https://example.org/x) [d](#here) [e](source/nurec_lite/train.py.md)"
    assert relinked(text, "README.md") == expected


def test_links_of_a_page_in_a_folder() -> None:
    assert (
        relinked("[c](../../nurec_lite/train.py)", "docs/options/workers.md") == "[c](../source/nurec_lite/train.py.md)"
    )
    assert relinked("[r](../../README.md)", "docs/options/workers.md") == "[r](../index.md)"


def test_a_link_to_a_folder_becomes_its_text() -> None:
    assert (
        relinked("see [recipes](../conf/recipe), [x](../conf/none)", "docs/usage.md")
        == "see recipes, [x](../conf/none)"
    )


def test_code_is_a_page_with_its_code() -> None:
    text = shown("nurec_lite/train.py")
    assert isinstance(text, str) and text.startswith("# nurec_lite/train.py\n\n````python\n")
    assert (ROOT / "nurec_lite/train.py").read_text() in text


def test_what_is_needed_holds_what_needed_pages_link_to() -> None:
    paths = needed()
    assert {"README.md", "benchmarks/LOG.md", "benchmarks/log/2026-11.md"} <= set(paths)
    for path in paths:
        if path.endswith(".md"):
            assert {
                target for target in linked((ROOT / path).read_text(), path) if not target.startswith("docs/")
            } <= set(paths)


def entries(tree: object) -> list[str]:
    if isinstance(tree, str):
        return [tree]
    return [path for part in (tree.values() if isinstance(tree, dict) else tree) for path in entries(part)]  # type: ignore[attr-defined]


def test_files_that_pages_link_to_are_on_the_site() -> None:
    """A page without the notebook beside it led nowhere."""
    kept_out = yaml.safe_load((ROOT / "mkdocs.yml").read_text()).get("exclude_docs", "").split()
    links = {link for path in ROOT.glob("docs/*.md") for link in linked(path.read_text(), f"docs/{path.name}")}
    assert "docs/python.ipynb" in links
    assert not [link for link in links for pattern in kept_out if PurePosixPath(link).match(pattern)]


def test_the_menu_names_every_page_of_docs() -> None:
    menu = entries(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    pages = {str(path.relative_to(ROOT / "docs")) for path in Path(ROOT / "docs").rglob("*.md")}
    assert pages - set(menu) <= {page for page in pages if page.startswith("options/")}
    assert set(menu) - pages == {"index.md"}


def test_a_field_shows_the_comment_beside_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The reference of Python left out fields, and with them the shapes of rendered maps."""
    assert "scripts/site/fields.py" in (ROOT / "mkdocs.yml").read_text()
    monkeypatch.setitem(
        sys.modules, "griffe", SimpleNamespace(Extension=object, Attribute=object, Docstring=_docstring)
    )
    fields = import_module("scripts.site.fields")
    monkeypatch.delitem(sys.modules, "scripts.site.fields")
    file = tmp_path / "code.py"
    file.write_text("a: int  # [N] metres\n# of b\nb: int\nc: str = (\n    '# x'  # seconds\n)  # of c\n")
    shown = []
    for line, end in ((1, 1), (3, 3), (4, 6)):
        attr = SimpleNamespace(
            docstring=None, parent=SimpleNamespace(is_class=True), filepath=file, lineno=line, endlineno=end
        )
        fields.FieldComments().on_attribute_instance(attr=attr)
        shown.append(attr.docstring)
    assert shown == ["[N] metres", None, "seconds of c"]


def _docstring(text: str, **_: object) -> str:
    return text
