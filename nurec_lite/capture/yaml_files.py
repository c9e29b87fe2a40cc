# SPDX-License-Identifier: Apache-2.0
"""YAML files of a recording: of a bounded size, without references that make them grow, with numbers that are floats, too."""

import re
from pathlib import Path
from typing import Any, ClassVar

import yaml

from nurec_lite.base.errors import ConfigError
from nurec_lite.base.texts import checked_int, printable
from nurec_lite.capture.files import read_text, short
from nurec_lite.capture.types import CaptureError

MOST_BYTES = 1 << 20
_LONGEST = 100  # characters of a parser's words
_NULL = "tag:yaml.org,2002:null"


class YamlLoader(yaml.SafeLoader):
    """Refuses whole numbers that no float holds."""


def _whole(loader: YamlLoader, node: Any) -> int:
    return checked_int(str(loader.construct_yaml_int(node)))


YamlLoader.add_constructor("tag:yaml.org,2002:int", _whole)
YamlLoader.add_implicit_resolver(  # YAML 1.1 takes 1e-3 for a text, since it has no point or no sign after the e
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+\Z"), list("-+.0123456789")
)


class NamesLoader(YamlLoader):
    """Keeps texts of some keys as they are written, and refuses a key that stands twice in one mapping."""

    names: ClassVar[tuple[str, ...]] = ()  # keys with texts as values: 000 is no number

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise ConfigError(f"line {key.start_mark.line + 1} holds {short(key.value)} twice; keep one")
            seen.add(key.value)
        for key, value in node.value:
            if key.value in self.names:
                for one in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    if isinstance(one, yaml.ScalarNode) and one.value and one.tag != _NULL:
                        one.tag = "tag:yaml.org,2002:str"
        return super().construct_mapping(node, deep)


def read_yaml(path: Path, remedy: str, loader: type[YamlLoader] = YamlLoader) -> Any:
    text = read_text(path, remedy, MOST_BYTES)
    try:
        if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text)):
            raise CaptureError(f"{path} uses an alias (*name); write the value out")
        return yaml.load(text, loader)  # a SafeLoader
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        if isinstance(error, CaptureError):
            raise
        raise CaptureError(f"{path} is no YAML ({_flaw(error)}); {remedy}") from error


def _flaw(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return short(error)
    return f"line {error.problem_mark.line + 1}: {printable(str(error.problem))[:_LONGEST]}"
