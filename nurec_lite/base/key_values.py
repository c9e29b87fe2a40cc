# SPDX-License-Identifier: Apache-2.0
"""KEY=VALUE for messages and reports, in a form that a shell accepts."""

import re
import shlex
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_./][\w./@%?+-]*")  # strings that Hydra reads without quotes,
_AT_HOME = re.compile(r"~/[\w./@%+-]*")
_WORDS = {"null", "true", "false", "nan", "inf"}  # but for these, in any case


def assigned(key: str, value: Any) -> str:
    """The argument, with quotes where a shell needs them."""
    if isinstance(value, str) and _AT_HOME.fullmatch(value):  # shells and we take it as it is
        return f"{key}={value}"
    return shlex.quote(f"{key}={hydra_value(value)}")


def hydra_value(value: Any) -> str:
    """Text of a value on Hydra's command line: null, true, [1,2], and texts with quotes unless they are plain."""
    if isinstance(value, list | tuple):
        return f"[{','.join(map(hydra_value, value))}]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = str(value) if isinstance(value, str) else repr(value).removesuffix(".0")
    if not isinstance(value, str) or (_PLAIN.fullmatch(text) and text.lower() not in _WORDS):
        return text
    return quoted(text)


def quoted(text: str) -> str:
    """The value that Hydra reads as this text. Backslashes count double only before a quote."""
    escaped = re.sub(r'(\\+)(?="|$)', r"\1\1", text).replace('"', r"\"")
    return f'"{escaped}"'


def flat(tree: dict[Any, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted keys and their values; an option without parameters has the value `true`."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if prefix == "opt.":
            found[name] = True
        if isinstance(value, dict):
            found |= flat(value, f"{name}.")
        elif prefix != "opt.":
            found[name] = value
    return found
