# SPDX-License-Identifier: Apache-2.0
"""YAML files of a recording: of a bounded size, without references that make them grow, with numbers that are floats, too."""

from pathlib import Path
from typing import Any

import yaml

from nurec_lite.base.texts import checked_int
from nurec_lite.capture.files import read_text, short
from nurec_lite.capture.types import CaptureError

MOST_BYTES = 1 << 20


class YamlLoader(yaml.SafeLoader):
    """Refuses whole numbers that no float holds."""


def _whole(loader: YamlLoader, node: Any) -> int:
    return checked_int(str(loader.construct_yaml_int(node)))


YamlLoader.add_constructor("tag:yaml.org,2002:int", _whole)


def read_yaml(path: Path, remedy: str, loader: type[YamlLoader] = YamlLoader) -> Any:
    text = read_text(path, remedy, MOST_BYTES)
    try:
        if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text)):
            raise CaptureError(f"{path} uses an alias (*name); write the value out")
        return yaml.load(text, loader)  # a SafeLoader
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        if isinstance(error, CaptureError):
            raise
        raise CaptureError(f"{path} is no YAML ({short(error)}); {remedy}") from error
