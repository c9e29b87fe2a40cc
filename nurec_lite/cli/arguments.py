# SPDX-License-Identifier: Apache-2.0
"""Meanings of arguments beyond those that Hydra composes: groups of files under conf/, the budget, and where files lie."""

import difflib
import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path

from nurec_lite.base.errors import ConfigError, UserError
from nurec_lite.base.key_values import assigned
from nurec_lite.base.options import known_options, unknown_option
from nurec_lite.base.paths import resource
from nurec_lite.config import DataConfig

GROUPS = {
    "data": "",
    "size": "+",
    "recipe": "+",
    "opt": "+",
    "sweep": "+",
}  # folders of conf/, and the prefix of such an argument
_SECONDS, _STEPS = "train.seconds", "train.steps"


def key_of(argument: str) -> str:
    return argument.lstrip("+~").partition("=")[0]


def value_of(argument: str) -> str:
    return argument.partition("=")[2]


def is_path(
    argument: str,  # of a command that takes paths without a key
    keys: Collection[str],  # the first words of those of its configuration
) -> bool:
    """Whether it is a path, whose name may hold `=`, and no key, also a misspelt one."""
    name = key_of(argument).split(".")[0]
    if "=" not in argument or "/" in name or (name not in keys and os.path.lexists(os.path.expanduser(argument))):
        return True
    return name not in keys and "/" in argument and not difflib.get_close_matches(name, keys, 1)


def choices(group: str) -> list[str]:
    """Files of a folder of conf/."""
    return sorted(path.stem for path in (resource("conf") / group).glob("*.yaml"))


def check_groups(arguments: Sequence[str]) -> None:
    """Raises ConfigError for a group with a + too many or one too few, or several options without brackets: Hydra's own words are of
    its defaults list."""
    several = {"-m", "--multirun"} & set(arguments)
    for argument in arguments:
        sign, key, value = argument[: -len(argument.lstrip("+~"))], key_of(argument), value_of(argument)
        if key == "data.kind":
            raise ConfigError(
                f"{argument} is half a choice: write {_right('data', value, False)}, which sets all keys of that kind"
            )
        if key not in GROUPS or "=" not in argument or sign not in ("", "+"):
            continue
        listed = "," in value and "[" not in value and not several
        bare = listed and key == "opt"
        if sign != GROUPS[key] or bare:
            raise ConfigError(
                f"{argument}: write {_right(key, value, bare)}; {key} is one of {', '.join(choices(key))}"
            )
        if listed:
            raise ConfigError(
                f"{argument} holds several values, but a run takes one {key}; give one, or put -m before train's arguments"
            )


def _right(group: str, value: str, bare: bool) -> str:
    known = set(value.strip("[]").split(",")) <= {*choices(group), ""}
    named = (f"[{value}]" if bare else value) if known else "NAME"
    return f"{GROUPS[group]}{group}={named}"


def unknown_choice(
    missing: str,  # GROUP/NAME
    known: Sequence[str],  # of the group
) -> UserError:
    group = next((one for one in GROUPS if missing.startswith(f"{one}/")), missing.rpartition("/")[0])
    name = missing.removeprefix(f"{group}/")
    if group == "opt":
        return unknown_option(name)
    file = (
        f"; a file or folder is {assigned('data.root', name)}" if group == "data" and re.search(r"[./~]", name) else ""
    )
    return ConfigError(
        f"{GROUPS.get(group, '')}{group}={name}: there is no '{name}'; there is {', '.join(known)}{file}"
    )


def forgotten_option(key: str) -> str | None:
    """The text to write for a parameter of an option that is not on."""
    name = Path(key.replace(".", "/")).parts[1] if key.startswith("opt.") else ""
    return f"name the option too, as in +opt={name}" if name in known_options() else None


def check_files(
    checkpoint: Path,
    data: DataConfig,
    arguments: Sequence[str],
) -> None:
    """Raises ConfigError if a file of the capture, as the checkpoint names it, is missing: it may be named from another folder."""
    given = {key_of(argument) for argument in arguments}
    files = {"data.root": data.root, "data.poses.file": data.poses.file, "data.tracks.file": data.tracks.file}
    for key, file in files.items():
        if file is not None and key not in given and not os.path.exists(file):  # which takes names that are too long
            seen = "" if Path(file).is_absolute() else f" in {Path.cwd()}"
            raise ConfigError(
                f"{checkpoint} was made with {key}={file}, which does not exist{seen}; give {key}=PATH as it is named from here"
            )


def with_budget(arguments: Sequence[str]) -> list[str]:
    """Steps alone, or seconds alone, replace the budget that conf/COMMAND.yaml, a recipe or a checkpoint gives."""
    budget = {key_of(argument): argument for argument in arguments if key_of(argument) in (_STEPS, _SECONDS)}
    if len(budget) != 1:
        return list(arguments)
    ((key, given),) = budget.items()
    if value_of(given) == "null":
        return list(arguments)
    at = list(arguments).index(given)  # next to it: flags may surround Hydra's arguments
    return [*arguments[:at], f"{_SECONDS if key == _STEPS else _STEPS}=null", *arguments[at:]]
