# SPDX-License-Identifier: Apache-2.0
"""YAML files of a recording, of a bounded size and without references that make them grow."""

from pathlib import Path
from typing import Any

import yaml

from nurec_lite.capture.files import read_text, short
from nurec_lite.capture.types import CaptureError

MOST_BYTES = 1 << 20


def read_yaml(path: Path, remedy: str) -> Any:
    text = read_text(path, remedy, MOST_BYTES)
    try:
        if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text)):
            raise CaptureError(f"{path} uses an alias (*name); write the value out")
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        if isinstance(error, CaptureError):
            raise
        raise CaptureError(f"{path} is no YAML ({short(error)}); {remedy}") from error
