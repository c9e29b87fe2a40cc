# SPDX-License-Identifier: Apache-2.0
"""torch's libraries, loaded by a thread while Python imports modules that need no torch. They take half a second, without Python's lock."""

import ctypes
from importlib.util import find_spec
from pathlib import Path
from threading import Thread

GLOBAL = "libtorch_global_deps.so"  # in torch's own order, with its mode
REST = "libtorch_python.so"  # which needs all others


def begin_libraries() -> Thread:
    thread = Thread(target=_load, daemon=True, name="early libraries")
    thread.start()
    return thread


def _load() -> None:
    """Does nothing where files lie elsewhere: torch then looks for them itself."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return
    folder = Path(spec.origin).parent / "lib"
    try:
        ctypes.CDLL(str(folder / GLOBAL), mode=ctypes.RTLD_GLOBAL)
        ctypes.CDLL(str(folder / REST))
    except OSError:
        return
