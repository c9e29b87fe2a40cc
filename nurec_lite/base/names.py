# SPDX-License-Identifier: Apache-2.0
"""Names of sensors, tracks and captures. They become file names, cells of tables and lines on a terminal, so there is one rule for all.

A name is one plain part of a path. No two of a kind differ only in case or in how accents are written, and none is another one with
our endings: NAME_above, NAME_0012, NAME_t0001.230, NAME-t0001.230.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence

LONGEST_NAME = 64  # characters
LONGEST_BYTES = 200  # in UTF-8: with our endings a file name has at most 255
# Other words that export takes for a node or names a file by, and that edits take for all actors
NODES = ("all", "background", "scene", "each", "actors")
_LATER = ("each", "actors")  # were names of tracks before
_FORMULA = tuple("=+-@＝＋－＠")  # a cell that begins so is evaluated by spreadsheets
_LABEL = re.compile(r"(?P<stem>.+)(_[0-9]{4,}|[_-]t[0-9]{4,}\.[0-9]{3})")
_ABOVE = "_above"


def label_flaw(text: object) -> str | None:
    """Returns the reason against a text as a word in a table, such as a class of objects; None: it can be one."""
    if not isinstance(text, str) or not 0 < len(text) <= LONGEST_NAME or not text.isprintable():
        return f"is not 1 to {LONGEST_NAME} printable characters"
    if text != text.strip():
        return "begins or ends with a space"
    if text.startswith(_FORMULA):
        return f"begins with {text[0]}, which spreadsheets evaluate"
    return None


def name_flaw(name: object) -> str | None:
    """Returns the reason against a name; None: it can be one."""
    flaw = label_flaw(name)
    if flaw is not None or not isinstance(name, str):
        return flaw
    if "/" in name or "\\" in name or name.startswith(".") or name.endswith("."):
        return "is not one plain part of a path, without /, \\ and a dot at either end"
    if len(name.encode()) > LONGEST_BYTES:
        return f"takes more than {LONGEST_BYTES} bytes"
    return None


def of_older_file(
    names: Sequence[str],  # of tracks
) -> tuple[str, ...]:
    """Returns the names in a file of ours; each and actors, which have become words for several tracks, get track- in front."""
    return tuple(f"track-{name}" if folded(name) in _LATER else name for name in names)


def of_other_program(
    names: Sequence[str],  # of tracks, all different
) -> tuple[str, ...]:
    """Returns the names of another program; track-3 for the one at place 3 if it cannot be a name here, or not beside the others."""
    odd = {one for pair in clashes(names) for one in pair}
    plain = {name for name in names if name not in odd and name_flaw(name) is None and folded(name) not in NODES}
    prefix = "track-"
    while any(folded(name).startswith(prefix) for name in plain) and len(plain) < len(names):
        prefix = f"{prefix}-"
    return tuple(name if name in plain else f"{prefix}{place}" for place, name in enumerate(names))


def folded(name: str) -> str:
    """Returns a form of a name, equal for names that some file systems take for one."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def clashes(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Two names that give one file name."""
    known: dict[str, str] = {}
    for name in names:
        if folded(name) in known:
            yield known[folded(name)], name
        known.setdefault(folded(name), name)
    for name in names:
        yield from ((known[stem], name) for stem in _stems(folded(name)) if stem in known)


def _stems(name: str) -> Iterator[str]:
    """Names that may have this file name."""
    found = _LABEL.fullmatch(name)
    for stem in (name, found["stem"]) if found else (name,):
        if stem != name:
            yield stem
        if stem.endswith(_ABOVE):
            yield stem.removesuffix(_ABOVE)
