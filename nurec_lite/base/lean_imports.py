# SPDX-License-Identifier: Apache-2.0
"""Imports without Python's garbage collection: they make no garbage, and each search through what they made takes time."""

import gc


def begin_imports() -> None:
    gc.disable()


def end_imports() -> None:
    """Collects garbage again; what was imported stays and is passed over."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
