# SPDX-License-Identifier: Apache-2.0
"""Keyword arguments as the arguments of a command line: KEY=VALUE, and sections of keys as mappings."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nurec_lite.base.errors import ConfigError
from nurec_lite.base.key_values import hydra_value
from nurec_lite.base.texts import type_of
from nurec_lite.cli.arguments import check_groups

Options = str | Iterable[str] | Mapping[str, Mapping[str, Any] | None] | None


def arguments_of(
    keys: Mapping[str, Any],  # values, or mappings of keys to values
    prefix: str = "",
) -> Iterator[str]:
    """`data={"frames": [0, 20]}` is data.frames=[0,20]; a value of None is null."""
    for name, value in keys.items():
        if isinstance(value, Mapping):
            yield from arguments_of(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}={hydra_value(_plain(f'{prefix}{name}', value))}"


def group(
    name: str,  # recipe or size
    choice: str | None,
) -> list[str]:
    """The argument that chooses a file of conf/."""
    if choice is None:
        return []
    chosen = [f"+{name}={choice}"]
    check_groups(chosen)
    return chosen


def options(given: Options) -> list[str]:
    """Arguments for options: a name, several, or names with their parameters."""
    if not isinstance(given, str | Iterable | None):
        raise ConfigError(f"opt is {type_of(given)}, but must name options, as in opt=['fused_interp']")
    names = [given] if isinstance(given, str) else list(given or ())
    if not names:
        return []
    if not all(isinstance(name, str) for name in names):
        raise ConfigError(f"opt holds {type_of(names[0])}, but must name options, as in opt=['fused_interp']")
    parameters = {name: values or {} for name, values in given.items()} if isinstance(given, Mapping) else {}
    return [f"+opt=[{','.join(names)}]", *arguments_of({"opt": parameters})]


def _plain(key: str, value: Any) -> Any:
    if isinstance(value, Path | torch.device):
        return str(value)
    if isinstance(value, list | tuple):
        return [_plain(key, one) for one in value]
    if isinstance(value, np.generic | np.ndarray):
        return _plain(key, value.tolist())
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ConfigError(f"{key} is {type_of(value)}, but must be a number, a text, true or false, or a list of such")
