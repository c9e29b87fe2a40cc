# SPDX-License-Identifier: Apache-2.0
"""Arguments as Hydra reads them, made from arguments as a user writes them: texts get quotes, lists get brackets.

Without quotes Hydra reads `out=2011_09_26` as the number 20110926, and cannot read `data.root=~/a.pack` at all.
"""

import re
import shlex
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union, get_args, get_origin

from nurec_lite.base.errors import ConfigError, UserError
from nurec_lite.base.key_values import quoted
from nurec_lite.base.options import unknown_option
from nurec_lite.bounds import leaves, unknown_key, wrong_type
from nurec_lite.cli.arguments import GROUPS, choices, forgotten_option, key_of, unknown_choice, value_of
from nurec_lite.config import VERBS

_QUOTED = re.compile(r"""(['"])(?:(?!\1)[^\\]|\\.)*\1""", re.DOTALL)
_CHOICE = re.compile(r"choice\((.*)\)", re.DOTALL)
_CALL = re.compile(r"(range|interval|glob|shuffle|sort|tag|extend_list|int|float|str|bool|json_str)\(.*\)", re.DOTALL)


def hydra_arguments(verb: str, arguments: Sequence[str]) -> list[str]:
    """Translates the command line for Hydra; ConfigError for several values of a key that takes one, unless `-m` asks for several runs."""
    several, hints = bool({"-m", "--multirun"} & set(arguments)), dict(leaves(VERBS[verb]))
    whole = [_with_key(argument, hints) for argument in arguments]
    return [_hydra_argument(argument, hints.get(key_of(argument)), several) for argument in whole]


def unquoted(value: str) -> str:
    """The text that a value stands for, with quotes around it or without. As Hydra reads it, two backslashes before a quote are one."""
    if not _QUOTED.fullmatch(value):
        return value
    return re.sub(rf"(\\+)({value[0]}|$)", lambda found: "\\" * (len(found[1]) // 2) + found[2], value[1:-1])


def split(text: str) -> list[str]:
    """Parts between commas that stand outside of quotes and brackets. A bracket that is never closed is a plain character."""
    parts, depth, start, i = [], 0, 0, 0
    while i < len(text):
        string = _QUOTED.match(text, i) if text[:i].rstrip()[-1:] in ("", ",", "[", "(") else None
        if string is None:
            depth = max(0, depth + (text[i] in "([{") - (text[i] in ")]}"))
            if text[i] == "," and depth == 0:
                parts.append(text[start:i])
                start = i + 1
        i = string.end() if string else i + 1
    parts = text.split(",") if depth else [*parts, text[start:]]
    return [part.strip() for part in parts]


@dataclass(frozen=True)
class _Type:
    """The type of a key."""

    text: bool  # a text, or a list of texts; not a number that may also be a word
    listed: bool
    optional: bool

    @classmethod
    def of(cls, hint: Any) -> "_Type":
        kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
        entries = [get_args(kind)[0] for kind in kinds if get_origin(kind) is list]
        text = str in (*kinds, *entries) and not {int, float}.intersection(kinds)
        return cls(text, bool(entries), type(None) in kinds)

    def value(self, given: str) -> str:
        """Rewrites the value of a key for one run."""
        if (self.optional and given.lower() == "null") or (self.listed and given.startswith("${")):
            return given
        if not self.listed:
            return _text(given) if self.text else given
        inner = given[1:-1] if given.startswith("[") and given.endswith("]") else given
        entries = split(inner) if inner.strip() else []
        return f"[{','.join(map(_text, entries) if self.text else entries)}]"


def _with_key(argument: str, hints: Mapping[str, Any]) -> str:
    """The argument, where `data.tracks=none` is short for `data.tracks.source=none`. ConfigError for a value of any other group of keys."""
    key, sign, value = argument.partition("=")
    within = [name for name in hints if name.startswith(f"{key}.")]
    if key in hints or key in GROUPS or not sign or not within or value.startswith(("{", "${")):
        return argument
    if f"{key}.source" in within:
        return f"{key}.source={value}"
    raise ConfigError(f"{argument}: {key} is a group of keys; give one of them, as in {within[0]}=VALUE")


def _hydra_argument(argument: str, hint: Any, several: bool) -> str:
    key, _, value = argument.partition("=")
    if argument == f"{key}=" and hint is not None and _Type.of(hint).listed:
        raise ConfigError(f"{key} is empty; give a list, as in {key}=[A,B], or leave it out")
    if hint is None or not value or key.startswith("~") or _CALL.fullmatch(value):
        return argument
    kind, choice = _Type.of(hint), _CHOICE.fullmatch(value)
    if several:
        return f"{key}={','.join(map(kind.value, split(choice[1] if choice else value)))}"
    if choice or (not kind.text and not kind.listed and len(split(value)) > 1):
        raise ConfigError(
            f"{argument} holds several values, but a run takes one {key}; give one, or put -m before train's arguments"
        )
    return f"{key}={kind.value(value)}"


def _text(given: str) -> str:
    return given if _QUOTED.fullmatch(given) else quoted(given)


def unreadable(
    verb: str,
    argument: str,  # that Hydra cannot read
) -> UserError:
    """The error about an argument that Hydra cannot read, with the text to write instead."""
    key, sign, value = argument.partition("=")
    name, hints = key_of(argument), dict(leaves(VERBS[verb]))
    if not sign:
        return ConfigError(
            f"'{argument}' is not of the form KEY=VALUE; python -m nurec_lite.{verb} --help lists the keys"
        )
    if name in GROUPS:
        return unknown_choice(f"{name}/{value}", choices(name))
    if name in hints:
        return wrong_type(name, value, hints[name])
    if name.startswith(("hydra.", "opt.")):
        return ConfigError(
            f"{argument} cannot be read; put quotes around the value: {shlex.quote(f'{key}={quoted(value)}')}"
        )
    return unknown_key(name, hints)


def refused(
    verb: str,
    argument: str,  # that Hydra refuses: KEY=VALUE, or a key that is unknown
) -> UserError:
    """The error about a value of a wrong type, or about an unknown key."""
    name, hints = key_of(argument), dict(leaves(VERBS[verb]))
    if name in hints:
        return wrong_type(name, unquoted(value_of(argument)), hints[name])
    option = forgotten_option(name)
    if option is not None:
        return ConfigError(f"{name} belongs to an option; {option}")
    return unknown_option(name.split(".")[1]) if name.startswith("opt.") else unknown_key(name, hints)
