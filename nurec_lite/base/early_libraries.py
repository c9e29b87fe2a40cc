# SPDX-License-Identifier: Apache-2.0
"""torch's libraries, loaded by a thread while Python imports modules that need no torch. They take half a second.

The system loads one library at a time. Extension modules that Hydra imports would wait for torch's libraries, so they come first.
"""

import ctypes
import os
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Thread

GLOBAL = "libtorch_global_deps.so"  # in torch's own order, with its mode
REST = "libtorch_python.so"  # which needs all others
EXTENSIONS = (  # that Hydra imports; some Pythons hold them themselves
    "_socket", "select", "array", "_pickle", "_heapq", "_queue", "_uuid", "_datetime", "binascii", "_hashlib", "_blake2", "_contextvars",
    "_decimal", "yaml._yaml",
)  # fmt: skip


def begin_libraries() -> Thread:
    for name in EXTENSIONS:
        with suppress(ImportError):
            import_module(name)
    thread = Thread(target=_load, name="early libraries")  # an exit in the midst of loading would crash
    thread.start()
    return thread


def _load() -> None:
    """Does nothing where files lie elsewhere: torch then looks for them itself. Functions that ctypes calls go on without Python's lock;
    `ctypes.CDLL` keeps it."""
    spec = find_spec("torch")
    dlopen = getattr(ctypes.CDLL(None), "dlopen", None)
    if spec is None or spec.origin is None or dlopen is None:
        return
    dlopen.argtypes, dlopen.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_void_p
    folder = Path(spec.origin).parent / "lib"
    if dlopen(os.fsencode(folder / GLOBAL), os.RTLD_NOW | os.RTLD_GLOBAL):
        dlopen(os.fsencode(folder / REST), os.RTLD_NOW | os.RTLD_LOCAL)
