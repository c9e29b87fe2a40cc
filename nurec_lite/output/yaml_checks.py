# SPDX-License-Identifier: Apache-2.0
"""Checks of the values in a YAML file of the user; each error names the file, the place in it and the remedy."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nurec_lite.base.errors import ConfigError
from nurec_lite.bounds import Bound, in_words
from nurec_lite.capture.files import short


@dataclass(frozen=True)
class YamlFile:
    """A file that is checked."""

    path: Path
    remedy: str  # the page with examples

    def __str__(self) -> str:
        return str(self.path)

    def list_of(self, key: str, value: Mapping[Any, Any], prefix: str = "") -> list[Any]:
        """The list of a key; empty if the key is missing."""
        found = value.get(key, [])
        if not isinstance(found, list):
            raise ConfigError(f"{self}: {prefix}{key} is {in_words(found)}, but must be a list; {self.remedy}")
        return found

    def mapping(self, at: str, value: Any) -> Mapping[Any, Any]:
        if not isinstance(value, dict):
            raise ConfigError(f"{self}: {at} is {in_words(value)}, but must hold keys and values; {self.remedy}")
        return value

    def check(
        self, at: str, given: Mapping[Any, Any], known: Mapping[str, Bound], needed: Sequence[str], *others: str
    ) -> None:
        """Checks that each key is known, that none of `needed` is missing, and that values lie in their ranges. `others` are known and
        needed, too, and checked elsewhere."""
        prefix = f"{at}." if at else ""
        self.check_keys(prefix, given, (*known, *others))
        for key in (*needed, *others):
            if given.get(key) in (None, ""):
                raise ConfigError(f"{self}: {prefix}{key} is missing; {self.remedy}")
        for key, value in given.items():
            if key in known and not known[key].holds(value):
                raise ConfigError(f"{self}: {prefix}{key} is {in_words(value)}, but must {known[key]}")

    def check_keys(self, prefix: str, given: Mapping[Any, Any], known: Sequence[str]) -> None:
        for key in given:
            if key not in known:
                near = difflib.get_close_matches(short(key), known, 1)
                asked = f"did you mean {prefix}{near[0]}?" if near else f"the keys are {', '.join(known)}"
                raise ConfigError(f"{self}: key {prefix}{short(key)} is unknown; {asked}")
