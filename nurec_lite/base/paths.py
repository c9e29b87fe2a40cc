# SPDX-License-Identifier: Apache-2.0
"""Paths of the files that are not Python: inside an installed package, or next to it in a checkout. Paths that users give."""

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def resource(
    name: str,  # a top-level folder or something in it: "conf", "kernels/raster_tiles", "data"
) -> Path:
    for root in (PACKAGE, PACKAGE.parent):
        if (root / name).exists():
            return root / name
    raise FileNotFoundError(
        f"'{name}' is neither in {PACKAGE} nor next to it in {PACKAGE.parent}: "
        "the installation is incomplete; install nurec_lite again or run from a whole checkout"
    )


def at_home(given: str | list[str] | None) -> str | list[str] | None:
    """Returns the path or paths with the home folder instead of a `~` at the start."""
    if isinstance(given, list):
        return [os.path.expanduser(path) for path in given]
    return given and os.path.expanduser(given)
