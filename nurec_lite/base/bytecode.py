# SPDX-License-Identifier: Apache-2.0
"""Bytecode of modules, which Python keeps beside them. Without it each start compiles them anew."""

import sys
from importlib.util import find_spec
from pathlib import Path

PACKAGE = "torch"  # with the most modules: a start takes 2 s more if all are compiled


def compiled_anew() -> str | None:
    """Returns a sentence with a remedy if no bytecode of torch is kept, although it was imported; None if it is."""
    spec = find_spec(PACKAGE)
    if spec is None or spec.cached is None or Path(spec.cached).is_file():
        return None
    kept = "so it keeps no bytecode, and each start takes about 2 s more"
    if sys.dont_write_bytecode:
        return f"PYTHONDONTWRITEBYTECODE or -B forbids Python to write bytecode of {PACKAGE}, {kept}; unset it, and leave -B out"
    return (
        f"Python cannot write into {Path(spec.cached).parent}, {kept}; set PYTHONPYCACHEPREFIX to a folder of your own"
    )
