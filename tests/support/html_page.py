# SPDX-License-Identifier: Apache-2.0
"""Reads HTML as strictly as the tests of a page need it."""

import re
from html.parser import HTMLParser

VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


class Page(HTMLParser):
    """Elements and text; fails where tags are not balanced."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == [], self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), (tag, attrs)
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert "svg" in self.open, f"<{tag}/> outside of SVG"
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, (tag, self.open, self.getpos())

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def all(self, tag: str, **wanted: str) -> list[dict[str, str | None]]:
        return [a for t, a in self.elements if t == tag and all(a.get(k) == v for k, v in wanted.items())]

    @property
    def text(self) -> str:
        return " ".join(self.texts)


def assert_whole(text: str) -> Page:
    """Valid, and nothing in it points anywhere else."""
    parsed = Page(text)
    ids = [a["id"] for _, a in parsed.elements if "id" in a]
    assert len(ids) == len(set(ids))
    for tag, attributes in parsed.elements:
        assert tag not in ("link", "iframe", "object", "base", "form"), tag
        for name in ("src", "href", "srcset", "action", "data", "xlink:href"):
            value = attributes.get(name)
            assert value is None or value.startswith("data:image/") or (tag == "a" and value[1:] in ids), (tag, value)
        assert tag != "script" or not attributes
    assert not re.search(r"@import|url\(|https?://|//cdn", re.sub(r"base64,[\w+/=]+", "", text))
    assert all("alt" in a and a["width"] and a["height"] for a in parsed.all("img"))
    return parsed
