# SPDX-License-Identifier: Apache-2.0
"""The first line of a command: its inputs, and the folder of its results. Printed before torch is imported, which takes seconds."""

from collections.abc import Sequence

from nurec_lite.base.place import prints
from nurec_lite.base.streams import endure

_DOES = {
    "train": "reads",
    "evaluate": "measures",
    "render": "renders",
    "inspect": "looks at",
    "profile": "profiles",
    "pack": "packs",
    "export": "writes Gaussians of",
    "view": "shows",
    "serve": "opens",
}
_OF_RUNS = ("view", "serve")  # which take folders of runs without a key, and write nothing
_PLACES = {
    "train": "a new folder under runs/",
    "evaluate": "a folder next to it",
    "render": "a folder next to it",
    "export": "a file next to it",
}  # left to the command
_SEVERAL = ("-m", "--multirun")


def announce(
    words: Sequence[str],  # the command line: python -m nurec_lite.COMMAND, or nurec_lite COMMAND, and KEY=VALUE ...
) -> None:
    line = first_line(words)
    if line is not None and prints():
        endure()
        print(line, flush=True)


def first_line(words: Sequence[str]) -> str | None:
    """Returns the first printed line; None for a command that ends within a second, or prints for another program."""
    module, *arguments = list(words)[list(words).index("-m") + 1 :] if "-m" in words else [""]
    verb, arguments = (
        (arguments[0], arguments[1:]) if module == "nurec_lite" and arguments else (module[11:], arguments)
    )
    flags = [a for a in arguments if a.startswith("-") and a not in _SEVERAL]
    if not module.startswith("nurec_lite") or verb not in _DOES or flags or "compare" in arguments[:1]:
        return None
    given = {key.lstrip("+"): value for key, sign, value in (a.partition("=") for a in arguments) if sign}
    if verb in _OF_RUNS:
        named = [a for a in arguments if "=" not in a]
        runs = named or [value for key, value in given.items() if key == "checkpoint"]
        return f"{verb} {_DOES[verb]} {' and '.join(runs)}" if runs else None
    if verb in ("evaluate", "render", "export") and not given.get("checkpoint"):
        return None
    several = any(flag in arguments for flag in _SEVERAL)
    place = f"{given['out']}{', a folder each' if several else ''}" if given.get("out") else _PLACES.get(verb)
    where = f"; results go to {place}" if place else ""
    does = "lists" if verb == "pack" and given.get("show", "false").lower() == "true" else _DOES[verb]
    return f"{verb} {does} {_read(given)}{where}"


def _read(given: dict[str, str]) -> str:
    """The data that the command line names."""
    if given.get("checkpoint"):
        return given["checkpoint"]
    resume = given.get("train.resume", "null")
    if resume not in ("null", "auto"):
        return f"{resume}, to go on with it"
    kind, root = given.get("data", "bundled"), given.get("data.root")
    if kind == "bundled" and root is None:
        return "the street that comes with nurec_lite"
    return kind if root is None else f"{root} ({kind})"
