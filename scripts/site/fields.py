# SPDX-License-Identifier: Apache-2.0
"""Extension of griffe, which reads docstrings for the site: the comment beside a field of a class tells its shape, unit and meaning."""

import tokenize
from functools import lru_cache
from pathlib import Path
from typing import Any

import griffe


@lru_cache
def comments_of(file: Path) -> dict[int, str]:
    """Returns the comments beside code by their lines."""
    with tokenize.open(file) as text:
        found = [token for token in tokenize.generate_tokens(text.readline) if token.type == tokenize.COMMENT]
    return {token.start[0]: token.string.lstrip("# ") for token in found if token.line[: token.start[1]].strip()}


class FieldComments(griffe.Extension):
    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        parent = attr.parent
        if attr.docstring or not (parent and parent.is_class and isinstance(attr.filepath, Path) and attr.lineno):
            return
        comments = comments_of(attr.filepath)
        told = [comments[line] for line in range(attr.lineno, (attr.endlineno or attr.lineno) + 1) if line in comments]
        if told:
            attr.docstring = griffe.Docstring(" ".join(told), lineno=attr.lineno, parent=attr)
